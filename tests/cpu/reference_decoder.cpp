// SPDX-License-Identifier: MIT
// The reference decoder against cpu::Decoder, on random trees, commits and truncations of models of odd
// sizes; as the target of a pipeline; its errors.
#include <specula/cpu/reference_decoder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

#include "../files/safetensors_writer.hpp"
#include "model_findings.hpp"
#include "random.hpp"
#include "random_trees.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::cpu;
using namespace specula_test;

namespace {

static_assert(LanguageModel<ReferenceDecoder>);

struct ModelSizes {
  int vocab, hidden, mlp, layers, heads, kv_heads, head_dim;
  bool tied;
  std::string more = {};       // of the config
  std::string type = "llama";  // qwen2: with biases of queries, keys and values; qwen3: with norms
  bool biases = false;         // of the output, too
  double scores = 1;           // factor of queries and of keys
};

/// Writes a model of random weights, in float, without panels' zeros.
void write_model(const std::filesystem::path& directory, const ModelSizes& s, Random& random) {
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       const char* kind = ".weight") {
    Tensor& tensor = tensors.emplace_back(Tensor{name + kind, "F32", shape, {}});
    const bool norm = shape.size() == 1;
    const bool scored = name.find(s.type == "qwen3" ? "q_norm" : "q_proj") != std::string::npos ||
                        name.find(s.type == "qwen3" ? "k_norm" : "k_proj") != std::string::npos;
    for (std::int64_t i = 0; i < (norm ? 1 : shape[0]) * shape.back(); ++i)
      tensor.values.push_back(static_cast<float>(
          (scored ? s.scores : 1) *
          (norm ? random.between(0.5, 1.5) : random.between(-1.7, 1.7) / std::sqrt(shape[1]))));
  };
  const int queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  add("model.embed_tokens", {s.vocab, s.hidden});
  if (!s.tied) add("lm_head", {s.vocab, s.hidden});
  add("model.norm", {s.hidden});
  for (int l = 0; l < s.layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    add(at + "self_attn.q_proj", {queries, s.hidden});
    add(at + "self_attn.k_proj", {keys, s.hidden});
    add(at + "self_attn.v_proj", {keys, s.hidden});
    add(at + "self_attn.o_proj", {s.hidden, queries});
    add(at + "mlp.gate_proj", {s.mlp, s.hidden});
    add(at + "mlp.up_proj", {s.mlp, s.hidden});
    add(at + "mlp.down_proj", {s.hidden, s.mlp});
    add(at + "input_layernorm", {s.hidden});
    add(at + "post_attention_layernorm", {s.hidden});
    if (s.type == "qwen2" || s.biases) {
      add(at + "self_attn.q_proj", {queries}, ".bias");
      add(at + "self_attn.k_proj", {keys}, ".bias");
      add(at + "self_attn.v_proj", {keys}, ".bias");
    }
    if (s.biases) add(at + "self_attn.o_proj", {s.hidden}, ".bias");
    if (s.type == "qwen3") {
      add(at + "self_attn.q_norm", {s.head_dim});
      add(at + "self_attn.k_norm", {s.head_dim});
    }
  }
  const auto number = [](const char* key, int value) {
    return std::string(",\"") + key + "\":" + std::to_string(value);
  };
  write_file(directory / "config.json",
             "{\"model_type\":\"" + s.type + "\",\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-5" +
                 number("max_position_embeddings", 512) + (s.biases ? ",\"attention_bias\":true" : "") +
                 number("vocab_size", s.vocab) + number("hidden_size", s.hidden) +
                 number("intermediate_size", s.mlp) + number("num_hidden_layers", s.layers) +
                 number("num_attention_heads", s.heads) + number("num_key_value_heads", s.kv_heads) +
                 number("head_dim", s.head_dim) + ",\"tie_word_embeddings\":" + (s.tied ? "true" : "false") +
                 s.more + "}");
  write_file(directory / "model.safetensors", safetensors_bytes(tensors));
}

/// Random rounds of both models: the largest difference of a logit.
double largest_difference(ReferenceDecoder& reference, Decoder<double>& model, int rounds, Random& random) {
  const std::int32_t vocab = reference.vocab_size();
  const auto some = [&](std::int32_t count) {
    std::vector<Token> tokens;
    for (std::int32_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
    return tokens;
  };
  double worst = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round % 5 == 0) {
      const std::int32_t kept = random.below(reference.size() + 1);
      const auto tokens = some(random.below(30));
      reference.truncate(kept), model.truncate(kept);
      reference.append(tokens), model.append(tokens);
    }
    const RandomTree tree = random_tree(random, vocab, 20);
    for (std::int32_t done = 0; done < tree.size();) {  // in several calls
      const auto count = std::min(tree.size() - done, 1 + random.below(12)), first = done;
      const auto part = [&](auto all) {
        return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
      };
      const auto rows = reference.extend(part(Tokens(tree.tokens)), part(Nodes(tree.parents)));
      model.extend(part(Tokens(tree.tokens)), part(Nodes(tree.parents)));
      REQUIRE(rows.rows == count);
      for (std::int32_t i = 0; i < count; ++i)
        for (std::int32_t t = 0; t < vocab; ++t) {
          const double exact = reference.logits()(t, i);
          REQUIRE(rows.row(i)[static_cast<std::size_t>(t)] == static_cast<float>(exact));
          worst = worse(worst, std::abs(exact - model.logits(i)[static_cast<std::size_t>(t)]));
        }
      done += count;
    }
    const auto path = tree.path_to(random.below(tree.size()));
    reference.commit(path), model.commit(path);
    REQUIRE(reference.size() == model.size());
  }
  return worst;
}

}  // namespace

TEST_CASE("agrees with Decoder<double> to 2e-10, over trees, commits, truncations and prompts") {
  const std::string llama3 =
      ",\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
      "\"high_freq_factor\":4,\"original_max_position_embeddings\":16}";
  const std::string yarn =
      ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":64}";
  Random random(3);
  for (const ModelSizes& sizes :
       {ModelSizes{96, 64, 96, 2, 4, 2, 16, true}, ModelSizes{53, 37, 45, 3, 6, 2, 6, false},
        ModelSizes{33, 24, 17, 2, 3, 1, 34, true, llama3}, ModelSizes{40, 32, 64, 2, 4, 4, 8, false},
        ModelSizes{1, 1, 1, 1, 1, 1, 2, true}, ModelSizes{53, 37, 45, 2, 4, 2, 10, true, yarn, "qwen2"},
        ModelSizes{41, 24, 30, 2, 4, 2, 6, false, yarn, "qwen3", true},
        ModelSizes{40, 32, 48, 2, 4, 2, 10, true, {}, "llama", false, 4},       // steep scores
        ModelSizes{41, 24, 30, 2, 4, 1, 6, true, {}, "qwen3", false, 1000}}) {  // peaked
    CAPTURE(sizes.vocab);
    const TemporaryDirectory directory("reference");
    write_model(directory.path, sizes, random);
    ReferenceDecoder reference(directory.path, 512);
    Decoder<double> model(directory.path, {.capacity = 512});
    CHECK(reference.vocab_size() == sizes.vocab);
    CHECK(reference.capacity() == 512);
    CHECK(largest_difference(reference, model, 20, random) < 2e-10);
  }
}

TEST_CASE("of a trained model, with early exits, in bfloat16 or 8 bits") {
  for (const char* name : {"small", "s2d"}) {
    const std::filesystem::path directory = std::filesystem::path(SPECULA_MODELS_DIR) / name;
    ReferenceDecoder reference(directory, 256);
    Decoder<double> model(directory, {.capacity = 256});
    Random random(4);
    CHECK(largest_difference(reference, model, 2, random) < 2e-10);
  }
}

TEST_CASE("check_model() finds nothing") {
  const TemporaryDirectory directory("reference_checked");
  Random random(8);
  write_model(directory.path, {64, 32, 48, 2, 4, 2, 8, false}, random);
  ReferenceDecoder model(directory.path, 64);
  CHECK(words(check_model(model)) == "");
}

TEST_CASE("a pipeline over it writes the text of one over Decoder<double>") {
  const TemporaryDirectory directory("reference_text");
  Random random(5);
  write_model(directory.path, {64, 32, 48, 2, 4, 2, 8, false}, random);
  const auto text = [&](auto target, auto shape) {
    Decoder<float> draft(directory.path, {.capacity = 256});
    Speculator run{TreeVerifier{target, Sampling{}, SamplingParams{.temperature = 0.8f}}, ModelDrafter{draft},
                   shape};
    std::vector<Token> out;
    const std::vector<Token> prompt{1, 50, 60, 7};
    run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom{7},
                 [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
    return out;
  };
  const auto expected = text(Decoder<double>(directory.path, {.capacity = 256}), Chain<>{.length = 4});
  CHECK(expected.size() == 60);
  CHECK(text(ReferenceDecoder(directory.path, 256), Chain<>{.length = 4}) == expected);
  CHECK(text(ReferenceDecoder(directory.path, 256), DynamicTree{}) ==
        text(Decoder<double>(directory.path, {.capacity = 256}), DynamicTree{}));
}

TEST_CASE("errors name the mistake, and change nothing") {
  const TemporaryDirectory directory("reference_errors");
  Random random(6);
  write_model(directory.path, {8, 4, 4, 1, 1, 1, 2, true}, random);
  ReferenceDecoder model(directory.path, 4);
  const std::vector<Token> two{1, 2}, bad{8}, one{3};
  const std::vector<NodeId> chain{kNoParent, 0}, root{kNoParent}, skips{1}, later{2};
  model.append(two);
  model.extend(two, chain);
  CHECK_THROWS_WITH_AS(model.extend(one, later), "ReferenceDecoder::extend: the context is full at 4",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.commit(skips), "ReferenceDecoder::commit: no path: node 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.truncate(3), "ReferenceDecoder::truncate: no such size: 3",
                       std::invalid_argument);
  model.commit(Nodes(chain).last(1));  // node 0
  CHECK(model.size() == 3);
  CHECK_THROWS_WITH_AS(model.append(bad), "ReferenceDecoder::extend: no such token: 8",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(model.extend(one, skips), "ReferenceDecoder::extend: no such parent: 1",
                       std::invalid_argument);
  CHECK(model.size() == 3);

  CHECK_THROWS_AS(ReferenceDecoder(std::filesystem::path(SPECULA_MODELS_DIR) / "glide"), std::runtime_error);
}
