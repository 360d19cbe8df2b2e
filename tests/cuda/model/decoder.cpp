// SPDX-License-Identifier: MIT
// labels: optimised
// A pass on the device against the reference in double: architectures, heads, rotations, chunks of a prompt,
// trees.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/decoder.hpp>
#include <specula/cuda/model/model.hpp>

#include "emulated_device.hpp"
#include "relative_error.hpp"

namespace cpu = specula::cpu;
namespace cuda = specula::cuda;
using specula::kNoParent;
using specula::LogitsView;
using specula::NodeId;
using specula::Token;
using specula_test::EmulatedDevice;

namespace {

struct Case {
  const char* name;
  int head_dim = 64, heads = 3, kv_heads = 1;
  bool qkv_bias = false, output_bias = false, norms = false, tied = true;
  cpu::RopeScaling scaling = {};
  int chunk = 24, chunks_of_tree = 1;
};

cpu::DecoderConfig config_of(const Case& c) {
  cpu::DecoderConfig out;
  out.heads = c.heads, out.kv_heads = c.kv_heads, out.head_dim = c.head_dim;
  out.vocab_size = 600, out.hidden_size = 128, out.intermediate_size = 192, out.layers = 2;
  out.qkv_bias = c.qkv_bias, out.output_bias = c.output_bias, out.query_key_norms = c.norms,
  out.tied_head = c.tied;
  out.rope_scaling = c.scaling;
  return out;
}

std::vector<Token> tokens_of(int n, int step, int first, int vocab) {
  std::vector<Token> out;
  for (int i = 0; i < n; ++i) out.push_back((i * step + first) % vocab);
  return out;
}

/// A tree with several children of the context, and of other nodes.
std::vector<NodeId> tree_of(int n) {
  std::vector<NodeId> out;
  for (int i = 0; i < n; ++i) out.push_back(i == 0 || i % 7 == 3 ? kNoParent : (i - 1) / 2);
  return out;
}

/// The largest relative error of a row.
double worst_row(const LogitsView& rows, const LogitsView& reference) {
  double worst = 0;
  for (int r = 0; r < reference.rows; ++r)
    worst = std::max(worst, specula_test::relative_error(rows.row(r), reference.row(r)));
  return worst;
}

constexpr int kPrompt = 600, kNodes = 60;

void check_case(const Case& c) {
  CAPTURE(c.name);
  const cpu::DecoderConfig config = config_of(c);
  const auto weights = std::make_shared<const cpu::DecoderWeights<double>>(
      cpu::random_decoder_weights<double>(config, 7, cpu::WeightType::bf16));
  cpu::Decoder<double> reference(weights, {.capacity = 1024});
  EmulatedDevice device;
  cuda::Model model(device, *weights, {.capacity = 1024, .prefill_chunk = c.chunk});
  CHECK(model.weights().distance == 0);
  // The last chunk of a prompt of 512 is short, and 11 tokens wait for the nodes.
  const int size = c.chunk == 512 ? kPrompt : 64 + c.chunk + 11;
  const std::vector<Token> prompt = tokens_of(size, 37, 11, config.vocab_size);
  reference.append(prompt), model.append(prompt);
  const std::vector<Token> tokens = tokens_of(kNodes, 101, 5, config.vocab_size);
  const std::vector<NodeId> parents = tree_of(kNodes);
  double worst = 0;
  for (int first = 0; first < kNodes; first += kNodes / c.chunks_of_tree) {
    const auto part = [&](const auto& all) {
      return std::span(all).subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(kNodes / c.chunks_of_tree));
    };
    const LogitsView rows = model.extend(part(tokens), part(parents));
    worst = std::max(worst, worst_row(rows, reference.extend(part(tokens), part(parents))));
  }
  MESSAGE(std::string(c.name) << ": largest relative error of a row " << worst);
  CHECK(worst <= 1.5e-2);
  CHECK(worst > 0);
}

}  // namespace

TEST_CASE("logits of every architecture are the reference's up to bfloat16") {
  using cpu::RopeType;
  check_case({.name = "Llama"});
  check_case({.name = "Llama, an LM head of its own, chunks of 64", .tied = false, .chunk = 64});
  check_case({.name = "heads of 32", .head_dim = 32, .heads = 4, .kv_heads = 2});
  check_case({.name = "heads of 48", .head_dim = 48, .heads = 2, .kv_heads = 2});
  check_case(
      {.name = "heads of 128, chunks of 512", .head_dim = 128, .heads = 2, .kv_heads = 1, .chunk = 512});
  check_case({.name = "Qwen2: biases", .qkv_bias = true});
  check_case({.name = "biases of the output", .qkv_bias = true, .output_bias = true});
  check_case({.name = "Qwen3: norms", .heads = 4, .kv_heads = 2, .norms = true});
  check_case({.name = "norms of heads of 32", .head_dim = 32, .heads = 2, .kv_heads = 2, .norms = true});
  check_case({.name = "linear scaling", .scaling = {.type = RopeType::linear, .factor = 4}});
  check_case({.name = "scaling of Llama 3",
              .scaling = {.type = RopeType::llama3, .factor = 8, .original_max_position = 64}});
  check_case({.name = "YaRN",
              .heads = 4,
              .kv_heads = 2,
              .scaling = {.type = RopeType::yarn,
                          .factor = 4,
                          .original_max_position = 64,
                          .low_turns = 1,
                          .high_turns = 32,
                          .attention_factor = 1.14}});
}

TEST_CASE("a tree in several passes is the tree in one") {
  check_case({.name = "two passes", .chunks_of_tree = 2});
  check_case({.name = "five passes", .head_dim = 32, .heads = 2, .kv_heads = 1, .chunks_of_tree = 5});
}

TEST_CASE("a pass is as many launches as it says, and its rows come in one wait") {
  const cpu::DecoderConfig config = config_of({.name = ""});
  const auto weights = cpu::random_decoder_weights<float>(config, 7);
  for (const bool features : {false, true}) {
    EmulatedDevice device;
    cuda::Model model(device, weights, {.capacity = 128, .features = features});
    const std::vector<Token> tokens{1, 2, 3};
    const std::vector<NodeId> parents{kNoParent, 0, 1};
    const int launches = device.launches, waits = device.waits;
    model.extend(tokens, parents);
    CHECK(device.launches - launches == 9 * config.layers + 2);
    CHECK(device.waits - waits == 1);
    CHECK(device.fetched == 3u * 600u * sizeof(float));  // and no other row
  }
}
