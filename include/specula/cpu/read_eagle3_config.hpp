// SPDX-License-Identifier: MIT
// Reads config.json of an EAGLE-3 head as SafeAILab, SpecForge, AngelSlim, speculators, ModelOpt and DeepSpec
// write it. docs/heads.md has the table of formats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/read_attention.hpp"
#include "specula/cpu/eagle3_config.hpp"
#include "specula/files/json.hpp"
#include "specula/files/json_fields.hpp"

namespace specula::cpu {

namespace detail {

/// Keys of published heads that change no number of a draft: names, sizes of training, ids of tokens, and
/// what generate() would do.
inline constexpr std::string_view kHarmlessHeadKeys =
    " _attn_implementation _attn_implementation_autoset _name_or_path add_classification_head "
    "add_cross_attention attention_dropout attention_head_dim auto_map bad_words_ids "
    "begin_suppress_tokens bos_token_id chunk_size_feed_forward cla_share_factor class_num "
    "cross_attention_hidden_size decoder_start_token_id dense_list diversity_penalty do_sample "
    "draft_num_hidden_layers dtype early_stopping embed_requires_grad encoder_no_repeat_ngram_size "
    "eod_token_id eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id "
    "forced_eos_token_id id2label im_end_id im_newline_id im_start_id initializer_range is_decoder "
    "is_encoder_decoder label2id length_penalty mask_init_id max_length max_position_embeddings "
    "max_sequence_length max_window_layers min_length no_repeat_ngram_size norm_type num_beam_groups "
    "num_beams num_return_sequences num_target_layers org_vocab_size output_attentions "
    "output_hidden_states output_scores pad_id pad_token_id pool_type prefix pretraining_tp "
    "problem_type pruned_heads remove_invalid_values repetition_penalty return_dict "
    "return_dict_in_generate sep_id sep_token_id speculators_config speculators_version "
    "step_loss_decay suppress_tokens target_model_name_or_path target_model_type task_specific_params "
    "temperature text_end_id text_start_id tf_legacy_loss tie_encoder_decoder tokenizer_class top_k "
    "top_p torch_dtype torchscript transformers_version ttt_length typical_p unk_token_id "
    "use_bfloat16 use_cache use_cla use_qk_norm use_rotary_pos_emb ";

/// Keys of a layer's shape, at the top level or in transformer_layer_config.
inline constexpr std::string_view kLayerKeys =
    " architectures attention_bias head_dim hidden_act hidden_size intermediate_size layer_types "
    "mlp_bias model_type num_attention_heads num_hidden_layers num_key_value_heads "
    "original_max_position_embeddings partial_rotary_factor quantization_config rms_norm_eps "
    "rope_parameters rope_scaling rope_theta sliding_window tie_word_embeddings use_sliding_window "
    "vocab_size ";
inline constexpr std::string_view kHeadKeys =
    " draft_vocab_size eagle_aux_hidden_state_layer_ids eagle_config fc_norm norm_before_fc "
    "norm_before_residual norm_output num_aux_hidden_states speculators_model_type target_hidden_size "
    "target_layer_ids transformer_layer_config use_aux_norm ";
inline constexpr std::string_view kEagleConfigKeys =
    " eagle_aux_hidden_state_layer_ids eagle_decoder_type has_lm_head layer_ids next_layer_regular "
    "norm_before_fc norm_before_residual num_aux_hidden_states parallel_draft_heads_num_layers "
    "parallel_draft_step use_aux_hidden_state use_input_layernorm_in_first_layer use_last_layernorm "
    "use_mtp_layernorm ";

/// Throws unless each key of `config` that is not null is in one of `known`, lists with spaces around each
/// word.
inline void expect_known(const files::JsonFields& config, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : config.json().items()) {
    const std::string word = " " + key + " ";
    const auto has = [&](std::string_view list) { return list.find(word) != list.npos; };
    if (value.is_null() || (key.find(' ') == key.npos && std::any_of(known.begin(), known.end(), has)))
      continue;
    if (key == "mask_token_id" || key == "pard_token")
      config.fail(key,
                  "a head that drafts several tokens in one pass (P-EAGLE, DFlash, DSpark) does not run here "
                  "yet; an EAGLE-3 head does");
    config.fail(key, "is not known, and may change what the head computes: if it does not, delete it", value);
  }
}

/// Throws unless a flag is absent or has the only value that is built.
inline void expect_flag(const files::JsonFields& config, std::string_view key, bool built) {
  if (config.flag(key, built) != built)
    config.fail(key, std::string(built ? "false" : "true") + " is not supported, expected " +
                         (built ? "true" : "false"));
}

/// The architecture of a head, if it is one of EAGLE-3 that runs here. Empty: the file is of another model,
/// or of a head that read_decoder_config() refuses.
inline std::string eagle3_architecture(const files::JsonFields& config) {
  if (config.find("speculators_model_type"))
    return config.json()["speculators_model_type"] == "eagle3" ? "speculators" : "";
  const files::Json* const names = config.find("architectures");
  if (!names || !names->is_array()) return "";
  for (const files::Json& name : *names) {
    if (!name.is_string()) continue;
    const auto& text = name.get_ref<const std::string&>();
    for (const char* known : {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Qwen3Eagle3Model"})
      if (text == known) return text;
    if (text == "LlamaForCausalLM" && config.find("draft_vocab_size")) return text;
  }
  return "";
}

/// The ids of a list that stands under one of two keys' meanings, as numbers of states.
inline std::vector<std::int32_t> states_of(const files::JsonFields& config, std::string_view key, int add) {
  std::vector<std::int32_t> ids = config.integers(key);
  for (std::int32_t& id : ids) {
    if (id > 65535) config.fail(key, "has " + std::to_string(id) + ", expected numbers of layers");
    id += add;
  }
  if (ids.size() > 64) config.fail(key, std::to_string(ids.size()) + " ids, expected at most 64");
  return ids;
}

/// Which states the head reads: see StatesFrom.
inline void read_states(const files::JsonFields& config, const files::JsonFields* eagle, Eagle3Config& head) {
  constexpr const char *kIds = "eagle_aux_hidden_state_layer_ids", *kNested = "layer_ids",
                       *kOutputs = "target_layer_ids";
  const auto take = [&](const files::JsonFields& from, const char* key, int add, StatesFrom meaning) {
    if (!head.states.empty()) return;
    head.states = states_of(from, key, add);
    if (!head.states.empty()) head.states_from = meaning;
  };
  take(config, kIds, 0, StatesFrom::states);
  take(config, kOutputs, 1, StatesFrom::outputs);
  if (!eagle) return;
  if (!eagle->flag("use_aux_hidden_state", true)) {
    head.states.clear();
    head.states_from = StatesFrom::final_norm;
    return;
  }
  take(*eagle, kNested, 0, StatesFrom::states);
  take(*eagle, kIds, 1, StatesFrom::nested_outputs);
}

/// Throws for values in eagle_config that are another head.
inline void expect_supported_eagle(const files::JsonFields& eagle) {
  expect_known(eagle, {kEagleConfigKeys});
  expect_flag(eagle, "use_input_layernorm_in_first_layer", true);
  expect_flag(eagle, "use_last_layernorm", true);
  expect_flag(eagle, "use_mtp_layernorm", false);
  expect_flag(eagle, "next_layer_regular", true);
  if (eagle.integer("parallel_draft_step", 1) != 1)
    eagle.fail("parallel_draft_step", "more than one token per pass is not supported, expected 1");
  if (const auto type = eagle.text("eagle_decoder_type", "llama"); type != "llama")
    eagle.fail("eagle_decoder_type", "'" + type + "' is not supported, expected 'llama'");
}

/// The norms of a head: a key in eagle_config goes before one at the top level.
inline void read_norms(const files::JsonFields& config, const files::JsonFields* eagle, Eagle3Config& head) {
  const auto flag = [&](const char* key) {
    return eagle && eagle->find(key) ? eagle->flag(key) : config.flag(key);
  };
  head.norm_before_residual = flag("norm_before_residual");
  head.norm_before_fc = flag("norm_before_fc");
  head.fc_norm = config.flag("fc_norm") || config.flag("use_aux_norm");
  head.norm_output = config.flag("norm_output");
  if (head.norm_before_fc && head.fc_norm) config.fail("fc_norm", "true beside norm_before_fc, expected one");
  if (!head.mixes_states() && (head.norm_before_fc || head.fc_norm))
    config.fail(head.fc_norm ? "fc_norm" : "norm_before_fc",
                "true, but the head reads one state, without fc");
}

/// Throws for a window that hides tokens.
inline void expect_no_head_window(const files::JsonFields& layer, std::int32_t max_position) {
  bool sliding = layer.flag("use_sliding_window");
  for (const files::Json& type : layer.array("layer_types", "strings")) {
    sliding = sliding || type == "sliding_attention";
    if (type != "sliding_attention" && type != "full_attention")
      layer.fail("layer_types", "expected \"full_attention\"", type);
  }
  if (sliding && layer.find("sliding_window") && layer.integer("sliding_window") < max_position)
    layer.fail(
        "sliding_window",
        "fewer tokens than max_position_embeddings " + std::to_string(max_position) + " are not supported",
        *layer.find("sliding_window"));
}

/// The sizes of the head's layers.
inline void read_head_layers(const files::JsonFields& layer, DecoderConfig& out) {
  const auto act = layer.text("hidden_act", "silu"), type = layer.text("model_type", "llama");
  if (act != "silu") layer.fail("hidden_act", "'" + act + "' is not supported, expected 'silu'");
  if (type != "llama" && type != "qwen3")
    layer.fail("model_type", "layers of '" + type + "' are not supported, expected 'llama' or 'qwen3'");
  expect_flag(layer, "mlp_bias", false);
  if (const files::Json* found = layer.find("quantization_config"))
    layer.fail("quantization_config", "quantised heads are not read: take the head in BF16 or F16", *found);
  if (layer.number("partial_rotary_factor", 1) != 1)
    layer.fail("partial_rotary_factor", "is not supported, expected 1", *layer.find("partial_rotary_factor"));
  out.vocab_size = layer.integer("vocab_size");
  out.hidden_size = layer.integer("hidden_size");
  out.intermediate_size = layer.integer("intermediate_size");
  out.layers = layer.integer("num_hidden_layers", 1);
  read_attention(layer, out);
  out.max_position = max_position(layer);
  expect_no_head_window(layer, out.max_position);
  out.qkv_bias = out.output_bias = layer.flag("attention_bias");
  out.query_key_norms = type == "qwen3";
  if (!layer.find("head_dim") && (out.heads < 1 || out.hidden_size % out.heads != 0))
    layer.fail("hidden_size", std::to_string(out.hidden_size) + " is no multiple of num_attention_heads " +
                                  std::to_string(out.heads) + ", and there is no head_dim");
  out.head_dim = layer.find("head_dim") ? layer.integer("head_dim") : out.hidden_size / out.heads;
  out.rms_norm_eps = layer.number("rms_norm_eps", 1e-6);
}

}  // namespace detail

/// Whether a parsed config.json is that of an EAGLE-3 head.
inline bool is_eagle3(const files::Json& json, std::string_view source) {
  return !detail::eagle3_architecture(files::JsonFields(json, std::string(source))).empty();
}

/// Reads the config.json of an EAGLE-3 head. An absent or null rope_theta is 10000, whatever the target's;
/// what the tensors alone say, such as whether there is an embedding, load_decoder_weights() finds out, and
/// the states that a file does not name for_target(). Throws std::runtime_error, "<source>: key '<key>':
/// ...", for a key that is missing or of the wrong type, for a value that is not built, and for a key that is
/// not known to leave the numbers as they are.
inline DecoderConfig read_eagle3_config(const files::Json& json, std::string_view source) {
  const files::JsonFields config(json, std::string(source));
  const std::string architecture = detail::eagle3_architecture(config);
  const bool nested = architecture == "speculators", deep = architecture == "Qwen3Eagle3Model";
  if (nested)
    detail::expect_known(config, {detail::kHarmlessHeadKeys, detail::kHeadKeys,
                                  " architectures model_type quantization_config tie_word_embeddings "});
  else
    detail::expect_known(config, {detail::kHarmlessHeadKeys, detail::kHeadKeys, detail::kLayerKeys});
  const files::JsonFields layer = nested ? config.object("transformer_layer_config") : config;
  if (nested) detail::expect_known(layer, {detail::kHarmlessHeadKeys, detail::kLayerKeys});

  DecoderConfig out;
  out.conditioned_on = Conditioning::features;
  detail::read_head_layers(layer, out);
  Eagle3Config& head = out.eagle3.emplace();
  std::optional<files::JsonFields> eagle;
  if (config.find("eagle_config")) eagle = config.object("eagle_config");
  if (eagle) detail::expect_supported_eagle(*eagle);
  detail::read_states(config, eagle ? &*eagle : nullptr, head);
  detail::read_norms(config, eagle ? &*eagle : nullptr, head);
  if (nested && !config.find("norm_before_residual"))
    config.fail("norm_before_residual",
                "missing; readers of this format disagree on what that means: add "
                "true or false, as the head was trained");
  if (nested && config.find("quantization_config"))
    config.fail("quantization_config", "quantised heads are not read: take the head in BF16 or F16");
  if (deep && head.states.empty())
    config.fail("target_layer_ids", "missing, expected the numbers of the target's layers");
  if (deep && out.layers != 1)
    config.fail(
        "num_hidden_layers",
        std::to_string(out.layers) + " layers that each take the embedding are not supported, expected 1");
  for (const files::JsonFields* of : {&config, eagle ? &*eagle : &config})
    if (constexpr const char* kCount = "num_aux_hidden_states";
        of->find(kCount) &&
        static_cast<std::size_t>(of->integer(kCount)) != (head.states.empty() ? 3 : head.states.size()))
      of->fail(kCount, "is not the number of ids that the file names", *of->find(kCount));
  head.target_hidden_size = config.integer("target_hidden_size", out.hidden_size);
  if (!head.mixes_states() && head.target_hidden_size != out.hidden_size)
    config.fail("target_hidden_size", "a head of one state has its target's hidden_size");
  out.tied_head = (nested ? layer : config).flag("tie_word_embeddings");
  out.draft_vocab_size = config.integer("draft_vocab_size", out.vocab_size);
  if (out.draft_vocab_size == 0)
    config.fail("draft_vocab_size", "0, expected 1 to vocab_size, or no such key for all tokens");
  if (out.draft_vocab_size == out.vocab_size) out.draft_vocab_size = 0;
  out.feature_layers = head.ascending_states();
  validate(out, source);
  return out;
}

}  // namespace specula::cpu
