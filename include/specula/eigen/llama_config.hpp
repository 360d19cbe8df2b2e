// Reads config.json of a Llama-family model or of a draft that tools/train makes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/eigen/detail/open_file.hpp"
#include "specula/eigen/json.hpp"
#include "specula/model/conditioning.hpp"

namespace specula::eigen {

/// The frequencies of "llama3" rope scaling (transformers, modeling_rope_utils.py,
/// _compute_llama3_parameters).
struct Llama3RopeScaling {
  double factor = 0;  // 0: no scaling
  double low_freq_factor = 1, high_freq_factor = 4;
  double original_max_position = 8192;
};

/// Attention parameters that queries and keys must agree on.
struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;  // even: rotary pairs
  double rope_theta = 10000;
  Llama3RopeScaling rope_scaling;

  std::int32_t group() const { return heads / kv_heads; }  // query heads that share a KV head
};

/// Attention and layer count of the target whose keys and values a GLIDE draft reads.
struct TargetShape : AttentionShape {
  std::int32_t layers = 0;
  /// Per layer of the draft, the target's layer whose keys and values it reads, from 0. Empty: the last
  /// layers in order, as in the GLIDE paper.
  std::vector<std::int32_t> reads;
};

struct LlamaConfig : AttentionShape {
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t layers = 0;
  std::int32_t max_position = 0;  // trained context length; 0: unknown. Not a limit of this library
  double rms_norm_eps = 1e-6;
  bool tied_head = false;  // the LM head is the embedding
  Conditioning conditioned_on = Conditioning::nothing;
  TargetShape target;  // if conditioned on keys and values
  /// If conditioned on features: numbers of the target's layers, ascending, after which it also reads the
  /// hidden state.
  std::vector<std::int32_t> feature_layers;
  /// Early exits: numbers of layers after which the model can stop, ascending; the last is `layers`. Empty:
  /// only the last.
  std::vector<std::int32_t> exits;

  /// The target's layer that layer `layer` of a GLIDE draft reads: layer m of N_D reads N_T - N_D + m unless
  /// the config says otherwise.
  std::int32_t target_layer(std::int32_t layer) const {
    return target.reads.empty() ? target.layers - layers + layer
                                : target.reads[static_cast<std::size_t>(layer)];
  }
};

namespace detail {

/// Throws std::runtime_error, "<source>: ...", if a requirement is not met.
struct Requirements {
  std::string_view source;

  void operator()(bool ok, const std::string& what) const {
    if (!ok) throw std::runtime_error(std::string(source) + ": " + what);
  }
  void size(const char* key, std::int32_t value) const {
    (*this)(value >= 1 && value <= (1 << 24),
            std::string(key) + " is " + std::to_string(value) + ", expected 1 to 16777216");
  }
  void ascending(const char* key, const std::vector<std::int32_t>& numbers) const {
    std::int32_t before = 0;
    for (const std::int32_t number : numbers) {
      (*this)(number > before,
              "key '" + std::string(key) + "': expected ascending numbers of layers, from 1 on");
      before = number;
    }
  }
};

inline void validate(const AttentionShape& shape, std::string_view source) {
  const Requirements expect{source};
  expect.size("num_attention_heads", shape.heads);
  expect.size("num_key_value_heads", shape.kv_heads);
  expect.size("head_dim", shape.head_dim);
  expect(shape.head_dim % 2 == 0,
         "head_dim is " + std::to_string(shape.head_dim) + ", expected an even number");
  expect(shape.heads % shape.kv_heads == 0, "num_attention_heads " + std::to_string(shape.heads) +
                                                " is no multiple of num_key_value_heads " +
                                                std::to_string(shape.kv_heads));
  expect(shape.heads <= 65536,
         "num_attention_heads is " + std::to_string(shape.heads) + ", expected at most 65536");
  expect(static_cast<std::int64_t>(shape.heads) * shape.head_dim <= (1 << 24),
         "num_attention_heads * head_dim is over 16777216");
  expect(std::isfinite(shape.rope_theta) && shape.rope_theta > 0,
         "rope_theta is " + specula::detail::number(shape.rope_theta) + ", expected a positive number");
  const auto& scaling = shape.rope_scaling;
  expect(scaling.factor == 0 ||
             (scaling.factor > 0 && scaling.low_freq_factor > 0 &&
              scaling.high_freq_factor > scaling.low_freq_factor && scaling.original_max_position > 0),
         "rope_scaling of type llama3 needs factor > 0, 0 < low_freq_factor < high_freq_factor, "
         "original_max_position_embeddings > 0");
}

}  // namespace detail

/// Throws std::runtime_error, "<source>: ...", for inconsistent or out-of-range sizes.
inline void validate(const LlamaConfig& config, std::string_view source) {
  const detail::Requirements expect{source};
  expect.size("vocab_size", config.vocab_size);
  expect.size("hidden_size", config.hidden_size);
  expect.size("intermediate_size", config.intermediate_size);
  expect.size("num_hidden_layers", config.layers);
  detail::validate(static_cast<const AttentionShape&>(config), source);
  expect(std::isfinite(config.rms_norm_eps) && config.rms_norm_eps >= 0,
         "rms_norm_eps is " + specula::detail::number(config.rms_norm_eps) +
             ", expected a finite number from 0 on");
  if (config.conditioned_on == Conditioning::key_values) {
    const std::string at = std::string(source) + ": key 'target'";
    detail::validate(static_cast<const AttentionShape&>(config.target), at);
    const auto& reads = config.target.reads;
    expect(!reads.empty() || config.target.layers >= config.layers,
           "key 'target': num_hidden_layers is " + std::to_string(config.target.layers) +
               ", expected at least the draft's " + std::to_string(config.layers));
    expect(reads.empty() || reads.size() == static_cast<std::size_t>(config.layers),
           "key 'target': layers_read names " + std::to_string(reads.size()) +
               " layers, expected one for each of the draft's " + std::to_string(config.layers));
    for (const std::int32_t layer : reads)
      expect(layer >= 0 && layer < config.target.layers, "key 'target': layers_read has " +
                                                             std::to_string(layer) + ", expected 0 to " +
                                                             std::to_string(config.target.layers - 1));
  }
  expect.ascending("feature_layers", config.feature_layers);
  expect(config.feature_layers.empty() || config.conditioned_on == Conditioning::features,
         "key 'feature_layers': only a head on a target's features reads some");
  expect.ascending("exits", config.exits);
  if (config.exits.empty()) return;
  expect(config.conditioned_on == Conditioning::nothing,
         "key 'exits': a draft that is conditioned on a target has none");
  expect(config.exits.back() == config.layers,
         "key 'exits': the last is " + std::to_string(config.exits.back()) + ", expected num_hidden_layers " +
             std::to_string(config.layers));
}

namespace detail {

/// Typed access to the keys of a config, with errors that name file and key. A null value counts as absent.
struct ConfigReader {
  const Json& json;
  std::string source;

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw std::runtime_error(source + ": key '" + std::string(key) + "': " + what);
  }
  [[noreturn]] void fail(std::string_view key, const std::string& what, const Json* found) const {
    fail(key, what + ", found " + found->summary());
  }
  const Json* find(std::string_view key) const {
    const Json* value = json.find(key);
    return value && !value->is_null() ? value : nullptr;
  }
  std::int32_t integer(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected an integer");
    const auto number = value->integer();
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
    if (!value->array()) fail(key, "expected an array of numbers of layers", value);
    for (const Json& item : *value->array()) {
      const auto number = item.integer();
      if (!number || *number < 0 || *number > std::numeric_limits<std::int32_t>::max())
        fail(key, "expected integers from 0 to 2147483647", &item);
      numbers.push_back(static_cast<std::int32_t>(*number));
    }
    return numbers;
  }
  double number(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail(key, "missing, expected a number");
    const auto number = value->number();
    if (!number) fail(key, "expected a number", value);
    return *number;
  }
  double number(std::string_view key, double absent) const { return find(key) ? number(key) : absent; }
  bool flag(std::string_view key) const {
    const Json* value = find(key);
    if (value && !value->boolean()) fail(key, "expected true or false", value);
    return value && *value->boolean();
  }
  std::string text(std::string_view key, std::string_view absent) const {
    const Json* value = find(key);
    if (value && !value->string()) fail(key, "expected a string", value);
    return value ? *value->string() : std::string(absent);
  }
};

inline void read_rope(const ConfigReader& config, std::string_view key, AttentionShape& out) {
  const Json* json = config.find(key);
  if (!json) return;
  if (!json->object()) config.fail(key, "expected an object", json);
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
  if (names && names->array())
    for (const Architecture& known : kKnown)
      for (const Json& name : *names->array())
        if (name.string() && *name.string() == known.name) found = &known;
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
  for (const char* other : {"quantization_config", "sliding_window"})  // ignoring these would run another model
    if (const Json* value = config.find(other)) config.fail(other, "is not supported, expected null", value);
  if (config.number("partial_rotary_factor", 1) != 1)
    config.fail("partial_rotary_factor", "is not supported, expected 1",
                config.find("partial_rotary_factor"));
  return found->conditioned_on;
}

inline TargetShape read_target(const ConfigReader& config) {
  const Json* json = config.find("target");
  if (!json || !json->object()) config.fail("target", "missing, expected an object");
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
  if (!json.object()) throw std::runtime_error(config.source + ": expected a JSON object");
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
    if (!exits->array()) config.fail("exits", "expected an array of numbers of layers", exits);
    for (const Json& exit : *exits->array()) {
      const auto layers = exit.integer();
      if (!layers || *layers < 1 || *layers > out.layers)
        config.fail("exits", "expected integers from 1 to num_hidden_layers", &exit);
      out.exits.push_back(static_cast<std::int32_t>(*layers));
    }
  }
  validate(out, source);
  return out;
}

/// Reads a whole JSON file. Throws std::runtime_error naming the file if it cannot be opened, is a folder, is
/// over 100 MB, or is not JSON.
inline Json read_json_file(const std::filesystem::path& path) {
  constexpr std::size_t kMost = 100'000'000, kBlock = 1 << 16;
  std::ifstream stream = detail::open_file(path);
  std::string text;
  for (std::streamsize got = 1; got > 0;) {
    const std::size_t before = text.size();
    text.resize(before + kBlock);
    got = stream.read(text.data() + before, kBlock).gcount();
    text.resize(before + static_cast<std::size_t>(got));
    if (text.size() > kMost)
      throw std::runtime_error(path.string() + ": over " + std::to_string(kMost) + " bytes of JSON");
  }
  return Json::parse(text, path.string());
}

}  // namespace specula::eigen
