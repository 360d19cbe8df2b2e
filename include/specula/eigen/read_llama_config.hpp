// Reads config.json of a Llama-family model or of a draft that tools/train makes.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula/eigen/json.hpp"
#include "specula/eigen/llama_config.hpp"

namespace specula::eigen {

namespace detail {

/// Typed access to the keys of a config, with errors that name file and key. A null value counts as absent.
struct ConfigReader {
  const Json& json;
  std::string source;

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw std::runtime_error(source + ": key '" + std::string(key) + "': " + what);
  }
  [[noreturn]] void fail(std::string_view key, const std::string& what, const Json* found) const {
    fail(key, what + ", found " + summary(*found));
  }
  const Json* find(std::string_view key) const {
    const Json* value = detail::find(json, key);
    return value && !value->is_null() ? value : nullptr;
  }
  std::int32_t integer(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected an integer");
    const auto number = detail::integer(*value);
    if (!number || *number < 0 || *number > std::numeric_limits<std::int32_t>::max())
      fail(key, "expected an integer from 0 to 2147483647", value);
    return static_cast<std::int32_t>(*number);
  }
  std::int32_t integer(std::string_view key, std::int32_t absent) const {
    return find(key) ? integer(key) : absent;
  }
  /// Empty if absent.
  std::vector<std::int32_t> integers(std::string_view key) const {
    std::vector<std::int32_t> numbers;
    const Json* value = find(key);
    if (!value) return numbers;
    if (!value->is_array()) fail(key, "expected an array of numbers of layers", value);
    for (const Json& item : *value) {
      const auto number = detail::integer(item);
      if (!number || *number < 0 || *number > std::numeric_limits<std::int32_t>::max())
        fail(key, "expected integers from 0 to 2147483647", &item);
      numbers.push_back(static_cast<std::int32_t>(*number));
    }
    return numbers;
  }
  double number(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected a number");
    if (!value->is_number()) fail(key, "expected a number", value);
    return value->get<double>();
  }
  double number(std::string_view key, double absent) const { return find(key) ? number(key) : absent; }
  bool flag(std::string_view key) const {
    const Json* value = find(key);
    if (value && !value->is_boolean()) fail(key, "expected true or false", value);
    return value && value->get<bool>();
  }
  std::string text(std::string_view key, std::string_view absent) const {
    const Json* value = find(key);
    if (value && !value->is_string()) fail(key, "expected a string", value);
    return value ? value->get<std::string>() : std::string(absent);
  }
};

inline void read_rope(const ConfigReader& config, std::string_view key, AttentionShape& out) {
  const Json* json = config.find(key);
  if (!json) return;
  if (!json->is_object()) config.fail(key, "expected an object", json);
  const ConfigReader rope{*json, config.source + ": key '" + std::string(key) + "'"};
  out.rope_theta = rope.number("rope_theta", out.rope_theta);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type != "llama3")
    config.fail(key, "rope_type '" + type + "' is not supported, expected 'default' or 'llama3'");
  out.rope_scaling = {rope.number("factor"), rope.number("low_freq_factor"), rope.number("high_freq_factor"),
                      rope.number("original_max_position_embeddings")};
}

/// Reads the attention's keys, of a model or of a draft's 'target'.
inline void read_attention(const ConfigReader& config, AttentionShape& out) {
  out.heads = config.integer("num_attention_heads");
  out.kv_heads = config.integer("num_key_value_heads", out.heads);
  out.rope_theta = config.number("rope_theta", 10000);
  read_rope(config, "rope_parameters", out);  // transformers 5
  read_rope(config, "rope_scaling", out);
}

/// Reads the architecture: a Llama decoder, or one of the two kinds of drafts that tools/train makes.
inline Conditioning read_architecture(const ConfigReader& config) {
  struct Architecture {
    const char *name, *type;
    Conditioning conditioned_on;
  };
  static constexpr Architecture kKnown[] = {
      {"LlamaForCausalLM", "llama", Conditioning::nothing},
      {"SpeculaGlide", "specula_glide", Conditioning::key_values},
      {"SpeculaFeatureHead", "specula_feature_head", Conditioning::features}};
  const Json* names = config.find("architectures");
  const Architecture* found = nullptr;
  if (names && names->is_array())
    for (const Architecture& known : kKnown)
      for (const Json& name : *names)
        if (name == known.name) found = &known;
  if (names && !found)
    config.fail("architectures", "expected \"LlamaForCausalLM\", \"SpeculaGlide\" or \"SpeculaFeatureHead\"",
                names);
  const auto type = config.text("model_type", found ? found->type : "");
  if (!found)
    for (const Architecture& known : kKnown)
      if (type == known.type) found = &known;
  if (!found)
    config.fail(
        "model_type",
        "'" + type + "' is not supported, expected 'llama', 'specula_glide' or 'specula_feature_head'");
  if (type != found->type)
    config.fail("model_type", "'" + type + "' is not supported, expected '" + found->type + "'");
  if (const auto act = config.text("hidden_act", "silu"); act != "silu")
    config.fail("hidden_act", "'" + act + "' is not supported, expected 'silu'");
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (config.flag(bias)) config.fail(bias, "true is not supported, expected false");
  for (const char* other :
       {"quantization_config", "sliding_window"})  // ignoring these would compute another model
    if (const Json* value = config.find(other)) config.fail(other, "is not supported, expected null", value);
  if (config.number("partial_rotary_factor", 1) != 1)
    config.fail("partial_rotary_factor", "is not supported, expected 1",
                config.find("partial_rotary_factor"));
  return found->conditioned_on;
}

inline TargetShape read_target(const ConfigReader& config) {
  const Json* json = config.find("target");
  if (!json || !json->is_object()) config.fail("target", "missing, expected an object");
  const ConfigReader target{*json, config.source + ": key 'target'"};
  TargetShape out;
  read_attention(target, out);
  out.head_dim = target.integer("head_dim");
  out.layers = target.integer("num_hidden_layers");
  out.reads = target.integers("layers_read");
  return out;
}

}  // namespace detail

/// Reads a parsed config.json. Absent keys take the defaults of transformers' LlamaConfig. Throws
/// std::runtime_error, "<source>: key '<key>': ...", for a key that is missing, of the wrong type or not
/// supported.
inline LlamaConfig read_llama_config(const Json& json, std::string_view source) {
  const detail::ConfigReader config{json, std::string(source)};
  if (!json.is_object()) throw std::runtime_error(config.source + ": expected a JSON object");
  LlamaConfig out;
  out.conditioned_on = detail::read_architecture(config);
  out.vocab_size = config.integer("vocab_size");
  out.hidden_size = config.integer("hidden_size");
  out.intermediate_size = config.integer("intermediate_size");
  out.layers = config.integer("num_hidden_layers");
  detail::read_attention(config, out);
  out.max_position = config.integer("max_position_embeddings", 0);
  if (!config.find("head_dim") && (out.heads < 1 || out.hidden_size % out.heads != 0))
    config.fail("hidden_size", std::to_string(out.hidden_size) + " is no multiple of num_attention_heads " +
                                   std::to_string(out.heads) + ", and there is no head_dim");
  out.head_dim = config.find("head_dim") ? config.integer("head_dim") : out.hidden_size / out.heads;
  out.rms_norm_eps = config.number("rms_norm_eps", 1e-6);
  out.tied_head = config.flag("tie_word_embeddings");
  if (out.conditioned_on == Conditioning::key_values) out.target = detail::read_target(config);
  out.feature_layers = config.integers("feature_layers");
  if (const Json* exits = config.find("exits")) {
    if (!exits->is_array()) config.fail("exits", "expected an array of numbers of layers", exits);
    for (const Json& exit : *exits) {
      const auto layers = detail::integer(exit);
      if (!layers || *layers < 1 || *layers > out.layers)
        config.fail("exits", "expected integers from 1 to num_hidden_layers", &exit);
      out.exits.push_back(static_cast<std::int32_t>(*layers));
    }
  }
  validate(out, source);
  return out;
}

}  // namespace specula::eigen
