// SPDX-License-Identifier: MIT
// Reads config.json of a Llama-family model (Llama, Mistral, Qwen2, Qwen3), of a draft that tools/train
// makes, or of an EAGLE-3 head.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/read_attention.hpp"
#include "specula/cpu/read_eagle3_config.hpp"
#include "specula/files/json.hpp"
#include "specula/files/json_fields.hpp"

namespace specula::cpu {

namespace detail {

/// Refuses a head that other programs trained. Many have the config of a Llama of one layer, and a key more.
inline void expect_no_other_head(const files::JsonFields& config) {
  std::vector<std::pair<const char*, std::string>> names;
  if (const files::Json* all = config.find("architectures"); all && all->is_array())
    for (const files::Json& name : *all)
      if (name.is_string()) names.emplace_back("architectures", name.get<std::string>());
  if (const files::Json* type = config.find("model_type"); type && type->is_string())
    names.emplace_back("model_type", type->get<std::string>());
  for (const auto& [key, name] : names)
    if (name.starts_with("Specula") || name.starts_with("specula_")) return;  // ours
  for (const auto& [key, name] : names)
    if (names_head(name)) config.fail(key, "'" + name.substr(0, 40) + "' is " + kOtherHead);
  for (const char* key :
       {"speculators_model_type", "eagle_config", "dflash_config", "medusa_num_heads", "draft_vocab_size"})
    if (config.find(key)) config.fail(key, std::string("is of ") + kOtherHead);
}

/// What an architecture has of its own.
struct Architecture {
  const char *name, *type;
  Conditioning conditioned_on = Conditioning::nothing;
  bool qkv_bias = false;         ///< always; otherwise attention_bias says so, of the output, too
  bool query_key_norms = false;  ///< always
  bool llama = false;            ///< absent keys have the defaults of LlamaConfig, and there are no windows
  bool window_flag = false;      ///< whether use_sliding_window says if there is one
  bool projects = false;         ///< may take its target's embedding, projected
};

inline const Architecture& read_architecture(const files::JsonFields& config) {
  static constexpr Architecture kKnown[] = {
      {.name = "LlamaForCausalLM", .type = "llama", .llama = true},
      {.name = "MistralForCausalLM", .type = "mistral"},
      {.name = "Qwen2ForCausalLM", .type = "qwen2", .qkv_bias = true, .window_flag = true},
      {.name = "Qwen3ForCausalLM", .type = "qwen3", .query_key_norms = true, .window_flag = true},
      {.name = "SpeculaGlide",
       .type = "specula_glide",
       .conditioned_on = Conditioning::key_values,
       .llama = true,
       .projects = true},
      {.name = "SpeculaDraft", .type = "specula_draft", .llama = true, .projects = true},
      {.name = "SpeculaFeatureHead",
       .type = "specula_feature_head",
       .conditioned_on = Conditioning::features,
       .llama = true}};
  const auto all = [](const char* Architecture::*what) {
    std::string text;
    for (const Architecture& known : kKnown) text += std::string(text.empty() ? "" : ", ") + known.*what;
    return text;
  };
  expect_no_other_head(config);
  const files::Json* names = config.find("architectures");
  const Architecture* found = nullptr;
  if (names && names->is_array())
    for (const Architecture& known : kKnown)
      for (const files::Json& name : *names)
        if (name == known.name) found = &known;
  if (names && !found) refuse(config, "architectures", "expected one of " + all(&Architecture::name), *names);
  const auto type = config.text("model_type", found ? found->type : "");
  if (!found)
    for (const Architecture& known : kKnown)
      if (type == known.type) found = &known;
  if (!found)
    refuse(config, "model_type",
           "'" + type + "' is not supported, expected one of " + all(&Architecture::type));
  if (type != found->type)
    refuse(config, "model_type", "'" + type + "' is not supported, expected '" + found->type + "'");
  return *found;
}

/// Refuses a model whose tokens do not see all tokens before. A window of at least max_position tokens hides
/// none within the context that the model is made for.
inline void expect_no_window(const files::JsonFields& config, const Architecture& architecture,
                             std::int32_t max_position) {
  const files::Json& layers = config.array("layer_types", "strings");
  bool sliding = layers.empty();  // then all or none
  for (const files::Json& layer : layers) {
    sliding = sliding || layer == "sliding_attention";
    if (layer != "sliding_attention" && layer != "full_attention")
      refuse(config, "layer_types", "expected \"full_attention\"", layer);
  }
  const bool used = !architecture.window_flag || (sliding && config.flag("use_sliding_window"));
  constexpr const char* kKey = "sliding_window";
  constexpr std::int32_t kAbsent = 4096;  // in transformers, but for Llama
  const bool none = config.is_null(kKey) || (!config.find(kKey) && architecture.llama);
  if (!used || none) return;
  if (const std::int32_t window = config.integer(kKey, kAbsent); window < max_position)
    refuse(config, kKey,
           "a window of " + std::to_string(window) + " tokens, fewer than max_position_embeddings " +
               std::to_string(max_position) + ", is not supported");
}

/// Refuses what ignoring it would compute another model.
inline void expect_supported(const files::JsonFields& config) {
  if (const auto act = config.text("hidden_act", "silu"); act != "silu")
    refuse(config, "hidden_act", "'" + act + "' is not supported, expected 'silu'");
  if (config.flag("mlp_bias")) refuse(config, "mlp_bias", "true is not supported, expected false");
  for (const char* key : {"quantization_config", "quantization"})  // the latter of MLX
    if (const files::Json* value = config.find(key))
      config.fail(key, "quantized weights, found " + files::detail::summary(*value) +
                           ", are not read: " + unquantized());
  expect_whole_rotation(config);
}

inline TargetShape read_target(const files::JsonFields& config) {
  const files::JsonFields target = config.object("target");
  TargetShape out;
  read_attention(target, out);
  out.head_dim = target.integer("head_dim");
  out.layers = target.integer("num_hidden_layers");
  out.reads = target.integers("layers_read");
  return out;
}

}  // namespace detail

/// Reads a parsed config.json; that of an EAGLE-3 head as read_eagle3_config() does. The sizes of the model
/// (`vocab_size`, `hidden_size`, `intermediate_size`, `num_hidden_layers`, `num_attention_heads`; but for
/// Llama, also `num_key_value_heads` and `max_position_embeddings`; for Qwen3, `head_dim`; for SpeculaDraft,
/// `target_hidden_size`) must be there; other absent keys take the defaults of transformers' LlamaConfig, but
/// `max_sequence_length` counts where `max_position_embeddings` is absent. Throws std::runtime_error,
/// "<source>: key '<key>': ...", for a key that is missing, of the wrong type or not supported.
inline DecoderConfig read_decoder_config(const files::Json& json, std::string_view source) {
  if (is_eagle3(json, source)) return read_eagle3_config(json, source);
  const files::JsonFields config(json, std::string(source));
  DecoderConfig out;
  const detail::Architecture& architecture = detail::read_architecture(config);
  detail::expect_supported(config);
  out.conditioned_on = architecture.conditioned_on;
  out.vocab_size = config.integer("vocab_size");
  out.hidden_size = config.integer("hidden_size");
  out.intermediate_size = config.integer("intermediate_size");
  out.layers = config.integer("num_hidden_layers");
  detail::read_attention(config, out);
  if (!architecture.llama)  // where absence means something else
    for (const char* key : {"num_key_value_heads", "max_position_embeddings"}) config.integer(key);
  if (architecture.query_key_norms) config.integer("head_dim");
  out.max_position = detail::max_position(config);
  detail::expect_no_window(config, architecture, out.max_position);
  const bool biases = config.flag("attention_bias");
  out.qkv_bias = architecture.qkv_bias || biases;
  out.output_bias = !architecture.qkv_bias && biases;
  out.query_key_norms = architecture.query_key_norms;
  if (!config.find("head_dim") && (out.heads < 1 || out.hidden_size % out.heads != 0))
    config.fail("hidden_size", std::to_string(out.hidden_size) + " is no multiple of num_attention_heads " +
                                   std::to_string(out.heads) + ", and there is no head_dim");
  out.head_dim = config.find("head_dim") ? config.integer("head_dim") : out.hidden_size / out.heads;
  out.rms_norm_eps = config.number("rms_norm_eps", 1e-6);
  out.tied_head = config.flag("tie_word_embeddings");
  if (out.conditioned_on == Conditioning::key_values) out.target = detail::read_target(config);
  if (config.find("draft_vocab_size") && (out.draft_vocab_size = config.integer("draft_vocab_size")) == 0)
    config.fail("draft_vocab_size", "0, expected 1 to vocab_size, or no such key for all tokens");
  constexpr const char* kTargetHidden = "target_hidden_size";
  if (!architecture.projects && config.find(kTargetHidden))
    config.fail(kTargetHidden, "only SpeculaDraft and SpeculaGlide take their target's embedding");
  const bool must_project = architecture.projects && out.conditioned_on == Conditioning::nothing;
  if ((must_project || config.find(kTargetHidden)) &&
      (out.target_hidden_size = config.integer(kTargetHidden)) == 0)
    config.fail(kTargetHidden, "0, expected the hidden_size of the target");
  out.feature_layers = config.integers("feature_layers");
  for (const files::Json& exit : config.array("exits", "numbers of layers")) {
    const auto layers = files::detail::integer(exit);
    if (!layers || *layers < 1 || *layers > out.layers)
      config.fail("exits", "expected integers from 1 to num_hidden_layers", exit);
    out.exits.push_back(static_cast<std::int32_t>(*layers));
  }
  validate(out, source);
  return out;
}

}  // namespace specula::cpu
