// SPDX-License-Identifier: MIT
// The config of a model in GGUF: what its keys become, and every refusal names file, key and way out.
#include <specula/cpu/gguf_config.hpp>

#include "specula/cpu/gguf_config.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numbers>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cpu/read_decoder_config.hpp>

#include "gguf_model.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::files;
using namespace specula_test;

const std::string kWayOut =
    "; run its GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)";

/// A file of the tiny model's keys, as `change` adds to them, and an embedding.
struct File {
  std::string bytes;
  GgufFiles files;

  explicit File(const std::function<void(GgufContainer&)>& change, const std::string& architecture = "llama")
      : bytes([&] {
          GgufContainer out;
          add_keys(out, architecture);
          out.add("token_embd.weight", 0, {40, 64}, std::string(std::size_t{40} * 64 * 4, '\0'));
          change(out);
          return out.bytes();
        }()),
        files(Gguf(std::as_bytes(std::span<const char>(bytes)), "file")) {}
};

Json config_of(const std::function<void(GgufContainer&)>& change, const std::string& architecture = "llama") {
  return gguf_config(File(change, architecture).files);
}

std::string error_of(const std::function<void(GgufContainer&)>& change,
                     const std::string& architecture = "llama") {
  try {
    config_of(change, architecture);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

/// A key of one value.
template <class T>
std::function<void(GgufContainer&)> key(const char* name, T value) {
  return [=](GgufContainer& out) { out.set(std::string("llama.") + name, value); };
}

/// The divisors of "llama3" scaling, by the formula of transformers' _compute_llama3_parameters.
std::vector<float> divisors(double factor, double low, double high, double context) {
  std::vector<float> out;
  for (int i = 0; i < 8; ++i) {
    const double frequency = std::pow(5000.0, -i / 8.0), wave = 2 * std::numbers::pi / frequency;
    const double smooth = (context / wave - low) / (high - low);
    const double scaled = wave < context / high  ? frequency
                          : wave > context / low ? frequency / factor
                                                 : (1 - smooth) * frequency / factor + smooth * frequency;
    out.push_back(static_cast<float>(frequency / scaled));
  }
  return out;
}

std::function<void(GgufContainer&)> add_divisors(const std::vector<float>& values) {
  return [=](GgufContainer& out) {
    out.add("rope_freqs.weight", 0, {static_cast<std::int64_t>(values.size())},
            {reinterpret_cast<const char*>(values.data()), values.size() * 4});
  };
}

void nothing(GgufContainer&) {}

}  // namespace

TEST_CASE("sizes and parameters") {
  const Json config = config_of(nothing);
  CHECK(config ==
        Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "rope_theta": 5000.0,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"));
  const DecoderConfig read = read_decoder_config(config, "file");
  CHECK(read.head_dim == 16);
  CHECK(read.rms_norm_eps == 1e-5);
  CHECK(read.tied_head);
  CHECK(config_of(key("attention.key_length", 32u))["head_dim"] == 32);
  CHECK(config_of([](GgufContainer& out) {
          out.add("output.weight", 0, {1}, "1234");
        })["tie_word_embeddings"] == false);
}

TEST_CASE("architectures, and biases") {
  const auto bias = [](const char* name) {
    return [name](GgufContainer& out) { out.add(name, 0, {1}, "1234"); };
  };
  CHECK(config_of(nothing, "qwen2")["architectures"] == Json{"Qwen2ForCausalLM"});
  CHECK(config_of(nothing, "qwen3")["model_type"] == "qwen3");
  CHECK(!config_of(bias("blk.0.attn_q.bias"), "qwen2").contains("attention_bias"));
  CHECK(config_of(bias("blk.0.attn_q.bias"))["model_type"] ==
        "qwen2");  // the Llama without a bias of the output
  CHECK(config_of(bias("blk.0.attn_output.bias"))["attention_bias"] == true);
  CHECK(config_of(bias("blk.0.attn_output.bias"))["model_type"] == "llama");
  CHECK(error_of(nothing, "gemma3") ==
        "file: key 'general.architecture': 'gemma3' is not read here, expected 'llama', 'qwen2' or 'qwen3'" +
            kWayOut);
  for (const std::string head : {"eagle3", "dflash"})
    CHECK(error_of(nothing, head)
              .starts_with("file: key 'general.architecture': '" + head +
                           "' is a draft head that other programs trained"));
  const std::string empty = GgufContainer().bytes();
  const GgufFiles files(Gguf(std::as_bytes(std::span<const char>(empty)), "file"));
  CHECK_THROWS_WITH_AS(gguf_config(files), "file: key 'general.architecture': missing, expected a string",
                       std::runtime_error);
}

TEST_CASE("linear and yarn scaling") {
  const auto scaled = [](const char* type, std::function<void(GgufContainer&)> more = nothing) {
    return config_of([&](GgufContainer& out) {
      if (*type) out.set("llama.rope.scaling.type", type);
      out.set("llama.rope.scaling.factor", 4.0f);
      more(out);
    });
  };
  CHECK(!config_of(nothing).contains("rope_scaling"));
  CHECK(!scaled("none").contains("rope_scaling"));
  CHECK(!config_of(key("rope.scaling.type", "yarn")).contains("rope_scaling"));  // without a factor
  const Json linear{{"rope_type", "linear"}, {"factor", 4.0}};
  CHECK(scaled("linear")["rope_scaling"] == linear);
  CHECK(scaled("")["rope_scaling"] == linear);
  CHECK(config_of(key("rope.scale_linear", 4.0f))["rope_scaling"] == linear);
  Json yarn{{"rope_type", "yarn"},
            {"factor", 4.0},
            {"original_max_position_embeddings", 512},
            {"beta_fast", 32.0},
            {"beta_slow", 1.0}};
  CHECK(scaled("yarn")["rope_scaling"] == yarn);
  yarn["original_max_position_embeddings"] = 128;
  yarn["beta_fast"] = 16.0;
  yarn["attention_factor"] = 0.5 * (1 + 0.1 * std::log(4.0));
  CHECK(scaled("yarn", [](GgufContainer& out) {
          out.set("llama.rope.scaling.original_context_length", 128u);
          out.set("llama.rope.scaling.yarn_beta_fast", 16.0f);
          out.set("llama.rope.scaling.attn_factor", 0.5f);
        })["rope_scaling"] == yarn);
}

TEST_CASE("llama3 scaling is found from its divisors") {
  for (const double context : {64.0, 512.0, 1000.0}) {  // the last one between two pairs
    const Json scaling = config_of(add_divisors(divisors(8, 1, 4, context)))["rope_scaling"];
    CHECK(scaling["rope_type"] == "llama3");
    CHECK(scaling["factor"] == 8.0);
    CHECK(scaling["original_max_position_embeddings"] == context);
  }
  CHECK(!config_of(add_divisors(std::vector<float>(8, 1.0f))).contains("rope_scaling"));
  const std::string other =
      "file: tensor 'rope_freqs.weight': is no \"llama3\" scaling with low_freq_factor 1 "
      "and high_freq_factor 4" +
      kWayOut;
  CHECK(error_of(add_divisors(divisors(8, 1, 16, 512))) == other);
  auto wrong = divisors(8, 1, 4, 512);
  wrong[7] = 3;
  CHECK(error_of(add_divisors(wrong)) == other);
  for (const float value : {0.0f, -1.0f, std::nanf("")}) {
    wrong[7] = value;
    CHECK(error_of(add_divisors(wrong)) == other);
  }
  CHECK(error_of(add_divisors({1, 1})) == "file: tensor 'rope_freqs.weight': expected F32 of shape [8]");
  CHECK(error_of([&](GgufContainer& out) {
          add_divisors(divisors(8, 1, 4, 512))(out);
          out.set("llama.rope.scaling.factor", 2.0f);
        }) ==
        "file: key 'llama.rope.scaling.type': 'linear' besides the tensor 'rope_freqs.weight' is not read "
        "here" +
            kWayOut);
}

TEST_CASE("what would be another model is refused by key") {
  const auto refused = [&](const char* name, auto value, const std::string& what) {
    CHECK(error_of(key(name, value)) == "file: key 'llama." + std::string(name) + "': " + what + kWayOut);
  };
  refused("expert_count", 8u, "8 is not read here, expected 0");
  refused("attention.value_length", 8u, "8 is not read here, expected 16");
  refused("rope.dimension_count", 8u, "8 is not read here, expected 16");
  refused("attention.sliding_window", 256u, "256 is not read here, expected 0");
  refused("attention.causal", false, "0 is not read here, expected 1");
  refused("use_parallel_residual", true, "1 is not read here, expected 0");
  refused("attention.scale", 0.5f, "0.5 is not read here, expected 0");
  refused("logit_scale", 8.0f, "8 is not read here, expected 1");
  refused("rope.scaling.type", "longrope",
          "'longrope' is not read here, expected 'none', 'linear' or 'yarn'");
  refused("rope.scaling.attn_factor", 0.5f, "0.5 is not read here, expected 1");
  refused("rope.scaling.yarn_log_multiplier", 0.1f, "0.1 is not read here, expected 0");
  CHECK(error_of([](GgufContainer& out) {
          out.set("llama.rope.scaling.type", "yarn");  // without a factor
          out.set("llama.rope.scaling.attn_factor", 0.5f);
        }) == "file: key 'llama.rope.scaling.attn_factor': 0.5 is not read here, expected 1" + kWayOut);
  CHECK(error_of([](GgufContainer& out) {
          out.set("llama.rope.scaling.attn_factor", 2.0f);
          add_divisors(divisors(8, 1, 4, 512))(out);
        }) == "file: key 'llama.rope.scaling.attn_factor': 2 is not read here, expected 1" + kWayOut);
  const std::vector<std::int32_t> many{1, 2};
  refused("logit_scale", std::span(many), "an array is not read here");
  CHECK(error_of(key("expert_count", 0u)) == "no error");
  CHECK(error_of(key("attention.sliding_window", 512u)) == "no error");
  CHECK(error_of(key("logit_scale", 1.0f)) == "no error");
  CHECK(error_of(key("attention.causal", true)) == "no error");
}

TEST_CASE("missing and impossible keys") {
  const auto error = [&](const std::function<void(GgufContainer&)>& fill) {
    GgufContainer out;
    out.set("general.architecture", "llama");
    fill(out);
    const std::string bytes = out.bytes();
    try {
      gguf_config(GgufFiles(Gguf(std::as_bytes(std::span<const char>(bytes)), "file")));
    } catch (const std::runtime_error& thrown) {
      return std::string(thrown.what());
    }
    return std::string("no error");
  };
  const auto set = [](GgufContainer& out, const char* name, std::uint32_t value) {
    out.set(std::string("llama.") + name, value);
  };
  CHECK(error(nothing) ==
        "file: tensor 'token_embd.weight': missing, or no matrix: is it a vocabulary without a model?");
  const auto embedding = [](GgufContainer& out) { out.add("token_embd.weight", 0, {1, 1}, "1234"); };
  CHECK(error(embedding) == "file: key 'llama.attention.head_count': missing, expected an integer");
  CHECK(error([&](GgufContainer& out) {
          embedding(out);
          set(out, "attention.head_count", 0);
        }) == "file: key 'llama.attention.head_count': 0, expected 1 to 16777216");
  const std::vector<std::int32_t> layers{4, 8};
  CHECK(error([&](GgufContainer& out) {
          embedding(out);
          out.set("llama.attention.head_count", std::span(layers));
        }) == "file: key 'llama.attention.head_count': an array is not read here: all layers must be alike" +
                  kWayOut);
  CHECK(error([&](GgufContainer& out) {
          embedding(out);
          set(out, "attention.head_count", 3), set(out, "embedding_length", 64),
              set(out, "context_length", 9);
        }) ==
        "file: key 'llama.embedding_length': 64 is no multiple of attention.head_count 3, and there is no "
        "attention.key_length");
  CHECK(error([&](GgufContainer& out) {
          embedding(out);
          for (const char* name : {"attention.head_count", "embedding_length", "context_length",
                                   "feed_forward_length", "block_count"})
            set(out, name, 2);
        }) == "file: key 'llama.attention.layer_norm_rms_epsilon': missing, expected a number");
  CHECK(error_of(key("rope.scaling.factor", -1.0f)) ==
        "file: key 'llama.rope.scaling.factor': -1, expected a positive number");
}
