// SPDX-License-Identifier: MIT
// The config.json of a model in GGUF, from its keys: Llama, Mistral, Qwen2, Qwen3. The keys' meanings:
// llama.cpp, src/llama-arch.cpp and src/llama-model.cpp (load_hparams).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/cpu/decoder_config.hpp"
#include "specula/files/gguf_blocks.hpp"
#include "specula/files/gguf_files.hpp"
#include "specula/files/json.hpp"

namespace specula::cpu {

/// An architecture that is read from GGUF.
struct GgufArchitecture {
  const char* name;        ///< `general.architecture`
  const char* type;        ///< `model_type` of config.json
  const char* class_name;  ///< of `architectures`
  /// The files have the rows of queries and keys in the order that rotates adjacent elements: row 2 i + c of
  /// a head is row c * head_dim / 2 + i in a Hugging Face folder.
  bool adjacent_pairs;
};

/// The one that the file names. Throws std::runtime_error naming file and key for another.
inline const GgufArchitecture& gguf_architecture(const files::Gguf& file) {
  static constexpr GgufArchitecture kKnown[] = {{"llama", "llama", "LlamaForCausalLM", true},
                                                {"qwen2", "qwen2", "Qwen2ForCausalLM", false},
                                                {"qwen3", "qwen3", "Qwen3ForCausalLM", false}};
  const auto name = file.text("general.architecture");
  if (!name) file.fail_key("general.architecture", "missing, expected a string");
  for (const GgufArchitecture& known : kKnown)
    if (*name == known.name) return known;
  if (detail::names_head(std::string(*name)))
    file.fail_key("general.architecture",
                  "'" + std::string(name->substr(0, 40)) + "' is " + detail::kOtherHead);
  file.fail_key("general.architecture", "'" + std::string(name->substr(0, 40)) +
                                            "' is not read here, expected 'llama', 'qwen2' or 'qwen3'; " +
                                            detail::kAsGguf);
}

namespace detail {

/// Keys below the architecture's name, such as llama.block_count.
class GgufKeys {
 public:
  explicit GgufKeys(const files::Gguf& file)
      : file_(file), at_(std::string(gguf_architecture(file).name) + ".") {}

  /// A size. Throws std::runtime_error naming file and key if it is absent or out of range.
  std::int64_t size(const char* key) const {
    const auto value = optional_size(key);
    if (!value) fail(key, "missing, expected an integer");
    return *value;
  }
  std::optional<std::int64_t> optional_size(const char* key) const {
    if (file_.is_array(at_ + key))
      fail(key, std::string("an array is not read here: all layers must be alike; ") + kAsGguf);
    const auto value = file_.integer(at_ + key);
    if (value && (*value < 1 || *value > 1 << 24))
      fail(key, std::to_string(*value) + ", expected 1 to 16777216");
    return value;
  }
  std::optional<double> number(const char* key) const { return file_.number(at_ + key); }
  std::optional<std::string_view> text(const char* key) const { return file_.text(at_ + key); }

  /// Throws std::runtime_error unless the key is absent, or one of these.
  void expect(const char* key, std::initializer_list<double> allowed) const {
    const auto flag = file_.contains(at_ + key) && !file_.is_array(at_ + key) ? as_number(key) : std::nullopt;
    if (file_.is_array(at_ + key)) fail(key, std::string("an array is not read here; ") + kAsGguf);
    if (flag && std::find(allowed.begin(), allowed.end(), *flag) == allowed.end())
      fail(key, specula::detail::number(*flag) + " is not read here, expected " +
                    specula::detail::number(*(allowed.end() - 1)) + "; " + kAsGguf);
  }
  [[noreturn]] void fail(const char* key, const std::string& what) const { file_.fail_key(at_ + key, what); }

 private:
  std::optional<double> as_number(const char* key) const {
    try {
      return file_.number(at_ + key);
    } catch (const std::runtime_error&) {
      return *file_.flag(at_ + key) ? 1 : 0;
    }
  }
  const files::Gguf& file_;
  std::string at_;
};

/// The divisors of the rotary frequencies with "llama3" scaling of factor `factor`, if pairs turn `turns`
/// times within the original context: 1 from four turns on, `factor` below one.
inline double llama3_divisor(double factor, double turns) {
  const double kept = std::clamp((turns - 1) / 3, 0.0, 1.0);
  return 1 / ((1 - kept) / factor + kept);
}

/// The "llama3" scaling that a file's divisors are of. Files do not have its parameters; with low_freq_factor
/// 1 and high_freq_factor 4, as all such models have, the context before scaling follows.
inline files::Json llama3_scaling(const files::GgufFiles& files, const files::GgufTensor& divisors,
                                  double theta, std::int64_t head_dim) {
  const files::Gguf& part = files.part_of(divisors.name);
  const auto half = static_cast<std::size_t>(head_dim / 2);
  if (divisors.type != 0 || divisors.shape != std::vector{head_dim / 2})
    part.fail_tensor(divisors.name, "expected F32 of shape [" + std::to_string(head_dim / 2) + "]");
  std::vector<float> values(half);
  expand(files::GgufId::f32, divisors.bytes.data(), values);
  const double factor = static_cast<double>(*std::max_element(values.begin(), values.end()));
  if (factor == 1 && std::count(values.begin(), values.end(), 1.0f) == head_dim / 2) return nullptr;
  const auto radians = [&](std::size_t i) {  // per token
    return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  };
  double least = 0, most = 1e9;  // of the context's length
  for (std::size_t i = 0; i < half; ++i) {
    const double unit = 2 * std::numbers::pi / radians(i), value = static_cast<double>(values[i]);
    if (!(value >= 1)) least = -1;
    if (value == 1) {
      least = std::max(least, 4 * unit);
    } else if (value == factor) {
      most = std::min(most, unit);
    } else {
      const double kept = (1 / value - 1 / factor) / (1 - 1 / factor);
      least = most = (1 + 3 * kept) * unit;
      break;
    }
  }
  const double context = std::round(most == 1e9 ? least : (least + most) / 2);
  bool same = least >= 0 && std::isfinite(context);
  for (std::size_t i = 0; same && i < half; ++i) {
    const double wanted = llama3_divisor(factor, context * radians(i) / (2 * std::numbers::pi));
    same = std::abs(static_cast<double>(values[i]) - wanted) <= 1e-4 * wanted;
  }
  if (!same)
    part.fail_tensor(
        divisors.name,
        std::string("is no \"llama3\" scaling with low_freq_factor 1 and high_freq_factor 4; ") + kAsGguf);
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", static_cast<std::int64_t>(context)}};
}

/// `rope_scaling` of config.json.
inline files::Json gguf_rope_scaling(const files::GgufFiles& files, const GgufKeys& keys,
                                     const files::Json& config) {
  const double factor =
      keys.number("rope.scaling.factor").value_or(keys.number("rope.scale_linear").value_or(0));
  const auto attention = keys.number("rope.scaling.attn_factor");
  const std::string type(keys.text("rope.scaling.type").value_or("linear"));
  if (!(factor >= 0) || !std::isfinite(factor))
    keys.fail("rope.scaling.factor", specula::detail::number(factor) + ", expected a positive number");
  const bool scales = factor != 0 && factor != 1 && type != "none";
  if (type != "yarn" || !scales || files.find("rope_freqs.weight"))
    keys.expect("rope.scaling.attn_factor", {1});
  if (const files::GgufTensor* const divisors = files.find("rope_freqs.weight")) {
    if (scales)
      keys.fail("rope.scaling.type",
                "'" + type + "' besides the tensor 'rope_freqs.weight' is not read here; " + kAsGguf);
    return llama3_scaling(files, *divisors, config["rope_theta"].get<double>(),
                          config["head_dim"].get<std::int64_t>());
  }
  if (type != "none" && type != "linear" && type != "yarn")
    keys.fail("rope.scaling.type", "'" + type.substr(0, 40) +
                                       "' is not read here, expected 'none', 'linear' or 'yarn'; " + kAsGguf);
  keys.expect("rope.scaling.yarn_log_multiplier", {0});
  keys.expect("rope.scaling.yarn_ext_factor", {-1, 1});
  keys.expect("rope.scaling.yarn_attn_factor", {1});
  if (!scales) return nullptr;
  files::Json out{{"rope_type", type}, {"factor", factor}};
  if (type == "linear") return out;
  out["original_max_position_embeddings"] =
      keys.optional_size("rope.scaling.original_context_length")
          .value_or(config["max_position_embeddings"].get<std::int64_t>());
  out["beta_fast"] = keys.number("rope.scaling.yarn_beta_fast").value_or(32);
  out["beta_slow"] = keys.number("rope.scaling.yarn_beta_slow").value_or(1);
  if (attention) out["attention_factor"] = *attention * (1 + 0.1 * std::log(factor));
  return out;
}

}  // namespace detail

/// What config.json would say of the model, for read_decoder_config(). Throws std::runtime_error naming the
/// file and the key or tensor for one that is missing, malformed, or that no such config has.
inline files::Json gguf_config(const files::GgufFiles& files) {
  const files::Gguf& file = files.keys();
  const GgufArchitecture& architecture = gguf_architecture(file);
  const detail::GgufKeys keys(file);
  const files::GgufTensor* const embedding = files.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    file.fail_tensor("token_embd.weight", "missing, or no matrix: is it a vocabulary without a model?");
  const std::int64_t heads = keys.size("attention.head_count"), hidden = keys.size("embedding_length"),
                     positions = keys.size("context_length");
  const auto head_dim = keys.optional_size("attention.key_length");
  if (!head_dim && hidden % heads != 0)
    keys.fail("embedding_length", std::to_string(hidden) + " is no multiple of attention.head_count " +
                                      std::to_string(heads) + ", and there is no attention.key_length");
  const std::int64_t size = head_dim.value_or(hidden / heads);
  keys.expect("attention.value_length", {static_cast<double>(size)});
  keys.expect("rope.dimension_count", {static_cast<double>(size)});
  keys.expect("attention.causal", {1});
  for (const char* key : {"expert_count", "use_parallel_residual", "attention.scale",
                          "attention.max_alibi_bias", "attention.clamp_kqv"})
    keys.expect(key, {0});
  for (const char* key : {"logit_scale", "residual_scale", "embedding_scale"}) keys.expect(key, {0, 1});
  if (const auto window = keys.number("attention.sliding_window");
      window && *window < static_cast<double>(positions))
    keys.expect("attention.sliding_window", {0});

  files::Json out{{"architectures", {architecture.class_name}},
                  {"model_type", architecture.type},
                  {"vocab_size", embedding->shape[0]},
                  {"hidden_size", hidden},
                  {"intermediate_size", keys.size("feed_forward_length")},
                  {"num_hidden_layers", keys.size("block_count")},
                  {"num_attention_heads", heads},
                  {"num_key_value_heads", keys.optional_size("attention.head_count_kv").value_or(heads)},
                  {"head_dim", size},
                  {"max_position_embeddings", positions},
                  {"rope_theta", keys.number("rope.freq_base").value_or(10000)},
                  {"hidden_act", "silu"},
                  {"tie_word_embeddings", files.find("output.weight") == nullptr}};
  const auto epsilon = keys.number("attention.layer_norm_rms_epsilon");
  if (!epsilon) keys.fail("attention.layer_norm_rms_epsilon", "missing, expected a number");
  out["rms_norm_eps"] = *epsilon;
  // A Llama's biases of queries, keys and values go with one of the output; without it is Qwen2's network.
  if (files.find("blk.0.attn_output.bias")) {
    out["attention_bias"] = true;
  } else if (architecture.adjacent_pairs && files.find("blk.0.attn_q.bias")) {
    out["architectures"] = {"Qwen2ForCausalLM"};
    out["model_type"] = "qwen2";
  }
  if (files::Json scaling = detail::gguf_rope_scaling(files, keys, out); !scaling.is_null())
    out["rope_scaling"] = std::move(scaling);
  return out;
}

}  // namespace specula::cpu
