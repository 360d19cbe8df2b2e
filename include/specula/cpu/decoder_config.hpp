// SPDX-License-Identifier: MIT
// Sizes of a Llama-family decoder: a model, or a draft that tools/train makes.
#pragma once

#include <cctype>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/cpu/eagle3_config.hpp"
#include "specula/model/language_model.hpp"

namespace specula::cpu {

/// Which rotary frequencies are scaled.
enum class RopeType {
  none,    ///< none
  linear,  ///< all (position interpolation)
  llama3,  ///< low ones; those in between in part, which is linear in their turns
  yarn     ///< low ones; those in between in part, which is linear in their pairs' numbers
};

/// Scaling of the rotary frequencies for a longer context (transformers, modeling_rope_utils.py). A pair of
/// features turns so many times within the original context.
struct RopeScaling {
  RopeType type = RopeType::none;       ///< which are scaled
  double factor = 1;                    ///< by which scaled frequencies are divided
  double original_max_position = 8192;  ///< llama3, yarn: context length before scaling, in tokens
  double low_turns = 1;         ///< scaled: pairs of fewer turns (llama3: low_freq_factor, yarn: beta_slow)
  double high_turns = 4;        ///< kept: pairs of more turns (llama3: high_freq_factor, yarn: beta_fast)
  bool truncate = true;         ///< yarn: scaling begins and ends at whole pairs
  double attention_factor = 1;  ///< yarn: of all cosines and sines, hence of queries and keys
};

/// Attention parameters that queries and keys must agree on.
struct AttentionShape {
  std::int32_t heads = 0;     ///< query heads
  std::int32_t kv_heads = 0;  ///< key-value heads; divides `heads`
  std::int32_t head_dim = 0;  ///< features per head; even, since rotary pairs
  double rope_theta = 10000;  ///< base of the rotary frequencies
  RopeScaling rope_scaling;   ///< of the rotary frequencies

  std::int32_t group() const { return heads / kv_heads; }  ///< query heads that share a KV head
};

/// Attention and layer count of the target whose keys and values a GLIDE draft reads.
struct TargetShape : AttentionShape {
  std::int32_t layers = 0;  ///< number of decoder layers
  /// Per layer of the draft, the target's layer whose keys and values it reads, from 0. Empty: the last
  /// layers in order, as in the GLIDE paper.
  std::vector<std::int32_t> reads;
};

/// Sizes and parameters of a Llama-family model, as config.json gives them.
struct DecoderConfig : AttentionShape {
  std::int32_t vocab_size = 0;         ///< rows of the embedding
  std::int32_t hidden_size = 0;        ///< width of the residual stream
  std::int32_t intermediate_size = 0;  ///< width of the MLP
  std::int32_t layers = 0;             ///< number of decoder layers
  std::int32_t max_position = 0;       ///< trained context length; 0: unknown. Not a limit of this library
  double rms_norm_eps = 1e-6;          ///< epsilon of the RMS norms
  bool tied_head = false;              ///< the LM head is the embedding
  bool qkv_bias = false;               ///< biases of queries, keys and values
  bool output_bias = false;            ///< a bias of each attention block's output
  bool query_key_norms = false;        ///< RMS norms of each head's query and key, before they are rotated
  Conditioning conditioned_on = Conditioning::nothing;  ///< what a draft reads of its target
  TargetShape target;                                   ///< if conditioned on keys and values
  /// Draft vocabulary: how many of the vocabulary's tokens the LM head of a draft predicts; 0: all.
  std::int32_t draft_vocab_size = 0;
  /// If positive, a draft that has no embedding, but projects that of its target, whose hidden size this is.
  std::int32_t target_hidden_size = 0;
  /// If conditioned on features: numbers of the target's layers, ascending, after which it also reads the
  /// hidden state.
  std::vector<std::int32_t> feature_layers;
  /// Early exits: numbers of layers after which the model can stop, ascending; the last is `layers`. Empty:
  /// the model has no other exit.
  std::vector<std::int32_t> exits;
  /// Of an EAGLE-3 head, which is conditioned on features; `feature_layers` are its states then, from 0 to
  /// the target's number of layers.
  std::optional<Eagle3Config> eagle3 = {};

  /// Whether it takes the embedding of its target, with whose weights it is loaded; of an EAGLE-3 head,
  /// whether it takes that or the LM head.
  bool borrows_embedding() const {
    if (eagle3) return !eagle3->own_embedding || (!eagle3->own_head && !tied_head);
    return conditioned_on == Conditioning::features || target_hidden_size > 0;
  }
  /// Whether it is made to draft for a target, and so may lack some of its target's tokens.
  bool is_draft() const { return conditioned_on != Conditioning::nothing || target_hidden_size > 0; }
  /// Rows of the LM head.
  std::int32_t head_rows() const { return draft_vocab_size > 0 ? draft_vocab_size : vocab_size; }

  /// The target's layer that layer `layer` of a GLIDE draft reads: layer m of N_D reads N_T - N_D + m unless
  /// the config says otherwise.
  std::int32_t target_layer(std::int32_t layer) const {
    return target.reads.empty() ? target.layers - layers + layer
                                : target.reads[static_cast<std::size_t>(layer)];
  }
};

namespace detail {

/// The way out for a model that is not read, for messages.
inline constexpr const char* kAsGguf =
    "run its GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)";
/// Likewise for quantized weights in a folder.
inline std::string unquantized() {
  std::string out = "take the model as it was before, or ";  // not one expression: g++ 12 warns of its bounds
  out += kAsGguf;
  return out;
}
/// Likewise for what no engine here reads.
inline constexpr const char* kOtherHead =
    "a draft head that other programs trained, of which those of EAGLE-3 alone are read, as folders "
    "(docs/heads.md): specula-train draft trains one for the target (docs/own_draft.md); a smaller model of "
    "its "
    "vocabulary and copies (chain@max-gram) need no training";

/// Whether a config or a GGUF file that names its network so is such a head's: EAGLE's, Medusa's, DFlash's,
/// an MTP module's or another speculator's.
inline bool names_head(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* part : {"eagle", "medusa", "hydra", "dflash", "dspark", "mtp", "speculator", "draft"})
    if (name.find(part) != name.npos) return true;
  return false;
}

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
  void ascending(const char* key, const std::vector<std::int32_t>& numbers, std::int32_t least = 1) const {
    std::int32_t before = least - 1;
    for (const std::int32_t number : numbers) {
      (*this)(number > before, "key '" + std::string(key) + "': expected ascending numbers of layers, from " +
                                   std::to_string(least) + " on");
      before = number;
    }
  }
};

inline void validate(const RopeScaling& scaling, double theta, std::string_view source) {
  const Requirements expect{source};
  const bool in_part = scaling.type == RopeType::llama3 || scaling.type == RopeType::yarn;
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  expect(positive(scaling.factor), "rope_scaling: factor must be positive");
  expect(positive(scaling.attention_factor), "rope_scaling: attention_factor must be positive");
  expect(!in_part || positive(scaling.original_max_position),
         "rope_scaling: original_max_position_embeddings must be positive");
  expect(!in_part || (scaling.low_turns > 0 && positive(scaling.high_turns - scaling.low_turns)),
         scaling.type == RopeType::llama3 ? "rope_scaling: expected 0 < low_freq_factor < high_freq_factor"
                                          : "rope_scaling: expected 0 < beta_slow < beta_fast");
  expect(scaling.type != RopeType::yarn || theta > 1, "rope_scaling of type yarn needs rope_theta > 1");
}

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
  validate(shape.rope_scaling, shape.rope_theta, source);
}

}  // namespace detail

/// Throws std::runtime_error, "<source>: ...", for inconsistent or out-of-range sizes.
inline void validate(const DecoderConfig& config, std::string_view source) {
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
  expect(config.draft_vocab_size >= 0 && config.draft_vocab_size <= config.vocab_size,
         "key 'draft_vocab_size': " + std::to_string(config.draft_vocab_size) +
             ", expected 1 to vocab_size " + std::to_string(config.vocab_size));
  expect(config.draft_vocab_size == 0 || config.is_draft(),
         "key 'draft_vocab_size': a model that may be a target predicts all of its tokens; a draft that does "
         "not has the architecture SpeculaDraft, SpeculaGlide or SpeculaFeatureHead");
  if (config.target_hidden_size != 0) {
    expect.size("target_hidden_size", config.target_hidden_size);
    expect(config.conditioned_on != Conditioning::features,
           "key 'target_hidden_size': a head that reads features has its target's hidden_size");
  }
  expect(
      !config.tied_head || config.conditioned_on == Conditioning::features ||
          (config.draft_vocab_size == 0 && config.target_hidden_size == 0),
      "key 'tie_word_embeddings': with a draft vocabulary or its target's embedding a draft has an LM head "
      "of its own: expected false");
  expect.ascending("feature_layers", config.feature_layers, config.eagle3 ? 0 : 1);
  expect(config.feature_layers.empty() || config.conditioned_on == Conditioning::features,
         "key 'feature_layers': only a head on a target's features reads some");
  if (config.eagle3) expect.size("target_hidden_size", config.eagle3->target_hidden_size);
  expect.ascending("exits", config.exits);
  if (config.exits.empty()) return;
  expect(config.conditioned_on == Conditioning::nothing,
         "key 'exits': a draft that is conditioned on a target has none");
  expect(config.exits.back() == config.layers,
         "key 'exits': the last is " + std::to_string(config.exits.back()) + ", expected num_hidden_layers " +
             std::to_string(config.layers));
}

/// The config of a draft for a target: that of an EAGLE-3 head with the numbers of its states, which depend
/// on the target where its file names none; others as they are. Throws std::runtime_error, "<source>: ...",
/// if the target has too few layers.
inline DecoderConfig for_target(DecoderConfig config, const DecoderConfig& target, std::string_view source) {
  if (!config.eagle3 || !config.eagle3->mixes_states()) return config;
  auto& states = config.eagle3->states;
  if (states.empty()) {
    states = {2, target.layers / 2, target.layers - 3};
    detail::Requirements{source}(
        states[0] < states[1] && states[1] < states[2],
        "it names no states, and 2, L / 2, L - 3 are not three states of a target of " +
            std::to_string(target.layers) +
            " layers: add their numbers to config.json as \"eagle_aux_hidden_state_layer_ids\"");
  }
  config.feature_layers = config.eagle3->ascending_states();
  return config;
}

namespace detail {

/// Of an EAGLE-3 head.
inline void validate_eagle3_target(const DecoderConfig& config, const DecoderConfig& target,
                                   std::string_view source) {
  const Requirements expect{source};
  const Eagle3Config& head = *config.eagle3;
  const auto same = [&](const std::string& what, std::int32_t own, std::int32_t its) {
    expect(own == its, what + " is " + std::to_string(own) + ", the target's is " + std::to_string(its) +
                           ": the head is made for another target");
  };
  expect(!target.is_draft(), "its target is a draft itself, expected a model");
  same("the hidden_size of its target", head.target_hidden_size, target.hidden_size);
  same("vocab_size", config.vocab_size, target.vocab_size);
  for (const std::int32_t state : head.states)
    expect(state <= target.layers, "it reads state " + std::to_string(state) + " of its target (" +
                                       to_string(head.states_from) + "), which has " +
                                       std::to_string(target.layers) + " layers");
}

}  // namespace detail

/// Throws std::runtime_error, "<source>: ...", unless a draft of `config` can take the embedding of a model
/// of `target`, and if it is a head the LM head, and its states. Another model fits every target.
inline void validate_target(const DecoderConfig& config, const DecoderConfig& target,
                            std::string_view source) {
  if (config.eagle3) return detail::validate_eagle3_target(config, target, source);
  if (!config.borrows_embedding()) return;
  const detail::Requirements expect{source};
  const auto same = [&](const char* key, std::int32_t own, std::int32_t its) {
    expect(own == its,
           std::string(key) + " is " + std::to_string(own) + ", the target's is " + std::to_string(its));
  };
  if (config.target_hidden_size > 0)
    expect(config.target_hidden_size == target.hidden_size,
           "target_hidden_size is " + std::to_string(config.target_hidden_size) +
               ", the target's hidden_size is " + std::to_string(target.hidden_size) +
               ": the draft is made for another target");
  else
    same("hidden_size", config.hidden_size, target.hidden_size);
  same("vocab_size", config.vocab_size, target.vocab_size);
  expect(!target.is_draft(),
         "its target is a draft itself, expected a model with an embedding and an LM head");
  expect(config.feature_layers.empty() || config.feature_layers.back() < target.layers,
         "key 'feature_layers': expected numbers below the target's num_hidden_layers " +
             std::to_string(target.layers));
}

}  // namespace specula::cpu
