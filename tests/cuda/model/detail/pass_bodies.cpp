// SPDX-License-Identifier: MIT
// labels: threads
// Bodies of a pass between its products: numbers by their definitions, and data races.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/model.hpp>

#include "emulated_device.hpp"
#include "random.hpp"

namespace cpu = specula::cpu;
namespace cuda = specula::cuda;
namespace detail = specula::cuda::detail;
using specula::NodeId;
using specula::Token;
using specula_test::EmulatedDevice;
using specula_test::Engine;

TEST_CASE("silu(gate) * up, of small and large numbers") {
  constexpr int kSize = 1100, kCount = 2;
  specula_test::Random random(1);
  std::vector<float> gate_up(2 * kCount * kSize);
  for (float& x : gate_up) x = static_cast<float>(random.between(-30, 30));
  gate_up[0] = -1000, gate_up[1] = 1000, gate_up[2] = 0;
  std::vector<cuda::BFloat16> out(kCount * kSize, cuda::BFloat16{0x7FFF});
  EmulatedDevice device;
  device.run(detail::SiluProduct{gate_up.data(), out.data(), kCount, kSize});
  for (int t = 0; t < kCount; ++t)
    for (int i = 0; i < kSize; ++i) {
      const auto at = static_cast<std::size_t>(2 * t * kSize + i);
      const double gate = static_cast<double>(gate_up[at]), up = static_cast<double>(gate_up[at + kSize]);
      const double expected = gate / (1 + std::exp(-gate)) * up;
      const double got = static_cast<double>(detail::to_float(out[static_cast<std::size_t>(t * kSize + i)]));
      CHECK(std::abs(got - expected) <= 4e-3 * std::abs(expected) + 1e-30);
    }
}

TEST_CASE("the last norm writes the rows that were asked for, and every token's feature") {
  // Two texts in three slots of capacity 4; a padded token.
  const std::vector<std::int32_t> begin{0, 2, 2, 3}, length{1, 0, 0}, earlier{0, 0, 1}, row{-1, 1, 0, 5};
  constexpr int kSize = 40, kCapacity = 4;
  std::vector<float> hidden(4 * kSize), weight(kSize);
  specula_test::Random random(2);
  for (float& x : hidden) x = static_cast<float>(random.between(-2, 2));
  for (float& x : weight) x = static_cast<float>(random.between(-2, 2));
  std::vector<cuda::BFloat16> normed(6 * kSize, cuda::BFloat16{1}),
      features(3 * kCapacity * kSize, cuda::BFloat16{1});
  const detail::PassTokens tokens{nullptr, begin.data(), length.data(), earlier.data(), nullptr, 4, 3};
  EmulatedDevice device;
  device.run(detail::FinalNorm{tokens, hidden.data(), weight.data(), row.data(), normed.data(),
                               features.data(), kSize, kCapacity, 1e-5f});
  const auto is = [&](const std::vector<cuda::BFloat16>& rows, int at, int token) {
    double squares = 0;
    for (int i = 0; i < kSize; ++i)
      squares += std::pow(static_cast<double>(hidden[static_cast<std::size_t>(token * kSize + i)]), 2);
    for (int i = 0; i < kSize; ++i) {
      const double expected = static_cast<double>(hidden[static_cast<std::size_t>(token * kSize + i)]) /
                              std::sqrt(squares / kSize + 1e-5) *
                              static_cast<double>(weight[static_cast<std::size_t>(i)]);
      const double got =
          static_cast<double>(detail::to_float(rows[static_cast<std::size_t>(at * kSize + i)]));
      if (std::abs(got - expected) > 4e-3 * std::abs(expected)) return false;
    }
    return true;
  };
  CHECK(is(normed, 1, 1));
  CHECK(is(normed, 0, 2));
  CHECK(is(features, 1, 0));
  CHECK(is(features, 2, 1));
  CHECK(is(features, 2 * kCapacity + 1, 2));
  int written = 0;
  for (const auto* rows : {&normed, &features})
    for (const cuda::BFloat16 x : *rows) written += x.bits == 1 ? 0 : 1;
  CHECK(written == 5 * kSize);
}

TEST_CASE("concurrent threads: a pass of two texts") {
  cpu::DecoderConfig config;
  config.heads = 2, config.kv_heads = 1, config.head_dim = 64;
  config.vocab_size = 40, config.hidden_size = 64, config.intermediate_size = 64, config.layers = 1;
  config.query_key_norms = config.qkv_bias = config.output_bias = config.tied_head = true;
  const auto weights = cpu::random_decoder_weights<float>(config, 1);
  const std::vector<Token> tokens{1, 2, 3};
  const std::vector<NodeId> parents{specula::kNoParent, 0, 0}, path{0, 2};
  const specula::SlotNodes nodes[] = {{0, tokens, parents},
                                      {1, std::span(tokens).first(1), std::span(parents).first(1)}};
  std::vector<std::vector<float>> rows;
  for (const Engine engine : {Engine::fibers, Engine::threads}) {
    EmulatedDevice device;
    device.engine = engine;
    cuda::Model model(device, weights,
                      {.capacity = 16, .max_nodes = 8, .slots = 2, .prefill_chunk = 8, .features = true});
    const specula::LogitsView view = model.extend(nodes);
    rows.emplace_back(view.data, view.data + static_cast<std::ptrdiff_t>(view.rows) * view.stride);
    model.commit(0, path);
    model.key_values(0);
  }
  CHECK(rows[0] == rows[1]);
}
