// Reads config.json of a Llama-family model or of a draft that tools/train makes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/json.hpp"
#include "specula/cpu/json_fields.hpp"

namespace specula::cpu {

namespace detail {

/// Angles of a part of each head would be another model.
inline void expect_whole_rotation(const JsonFields& config) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (config.number(kKey, 1) != 1) config.fail(kKey, "is not supported, expected 1", *config.find(kKey));
}

inline void read_rope(const JsonFields& config, std::string_view key, AttentionShape& out) {
  if (!config.find(key)) return;
  const JsonFields rope = config.object(key);
  for (const auto& [part, value] : rope.json().items())
    if (value.is_object()) rope.fail(part, "angles of their own for some layers are not supported");
  expect_whole_rotation(rope);
  out.rope_theta = rope.number("rope_theta", out.rope_theta);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type != "llama3")
    config.fail(key, "rope_type '" + type + "' is not supported, expected 'default' or 'llama3'");
  out.rope_scaling = {rope.number("factor"), rope.number("low_freq_factor"), rope.number("high_freq_factor"),
                      rope.number("original_max_position_embeddings")};
}

/// Reads the attention's keys, of a model or of a draft's 'target'.
inline void read_attention(const JsonFields& config, AttentionShape& out) {
  out.heads = config.integer("num_attention_heads");
  out.kv_heads = config.integer("num_key_value_heads", out.heads);
  out.rope_theta = config.number("rope_theta", 10000);
  read_rope(config, "rope_parameters", out);  // transformers 5
  read_rope(config, "rope_scaling", out);
}

/// Reads the architecture: a Llama decoder, or one of the two kinds of drafts that tools/train makes.
inline Conditioning read_architecture(const JsonFields& config) {
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
                *names);
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
    if (const Json* value = config.find(other)) config.fail(other, "is not supported, expected null", *value);
  expect_whole_rotation(config);
  return found->conditioned_on;
}

inline TargetShape read_target(const JsonFields& config) {
  const JsonFields target = config.object("target");
  TargetShape out;
  read_attention(target, out);
  out.head_dim = target.integer("head_dim");
  out.layers = target.integer("num_hidden_layers");
  out.reads = target.integers("layers_read");
  return out;
}

}  // namespace detail

/// Reads a parsed config.json. The sizes of the model (`vocab_size`, `hidden_size`, `intermediate_size`,
/// `num_hidden_layers`, `num_attention_heads`) must be there; other absent keys take the defaults of
/// transformers' DecoderConfig, but `max_sequence_length` counts where `max_position_embeddings` is absent.
/// Throws std::runtime_error, "<source>: key '<key>': ...", for a key that is missing, of the wrong type or
/// not supported.
inline DecoderConfig read_decoder_config(const Json& json, std::string_view source) {
  const JsonFields config(json, std::string(source));
  DecoderConfig out;
  out.conditioned_on = detail::read_architecture(config);
  out.vocab_size = config.integer("vocab_size");
  out.hidden_size = config.integer("hidden_size");
  out.intermediate_size = config.integer("intermediate_size");
  out.layers = config.integer("num_hidden_layers");
  detail::read_attention(config, out);
  constexpr std::int32_t kDefaultPositions = 2048;  // LLaMA 1; files of its time have the older name
  out.max_position =
      config.integer("max_position_embeddings", config.integer("max_sequence_length", kDefaultPositions));
  if (!config.find("head_dim") && (out.heads < 1 || out.hidden_size % out.heads != 0))
    config.fail("hidden_size", std::to_string(out.hidden_size) + " is no multiple of num_attention_heads " +
                                   std::to_string(out.heads) + ", and there is no head_dim");
  out.head_dim = config.find("head_dim") ? config.integer("head_dim") : out.hidden_size / out.heads;
  out.rms_norm_eps = config.number("rms_norm_eps", 1e-6);
  out.tied_head = config.flag("tie_word_embeddings");
  if (out.conditioned_on == Conditioning::key_values) out.target = detail::read_target(config);
  out.feature_layers = config.integers("feature_layers");
  for (const Json& exit : config.array("exits", "numbers of layers")) {
    const auto layers = detail::integer(exit);
    if (!layers || *layers < 1 || *layers > out.layers)
      config.fail("exits", "expected integers from 1 to num_hidden_layers", exit);
    out.exits.push_back(static_cast<std::int32_t>(*layers));
  }
  validate(out, source);
  return out;
}

}  // namespace specula::cpu
