// SPDX-License-Identifier: MIT
// Weights of a Llama-family decoder: loaded from a Hugging Face directory or GGUF, or random for tests. The
// functions are compiled by compile_decoder.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/inputs.hpp"
#include "specula/cpu/load_options.hpp"
#include "specula/cpu/panel_matrix.hpp"
#include "specula/simd/isa.hpp"

namespace specula::cpu {

/// Weights of an attention block. Matrices with the same input are fused, so that a pass reads the input
/// once.
template <class Real>
struct AttentionWeights {
  detail::AlignedVector<Real> norm;  ///< (hidden), padded with zeros; empty: its input is not normed
  PanelMatrix<Real> qkv;  ///< ((heads + 2 kv_heads) * head_dim, hidden): all queries, then keys, then values;
                          ///< of an EAGLE-3 head's first layer with 2 hidden columns
  PanelMatrix<Real> output;                 ///< (hidden, heads * head_dim)
  detail::AlignedVector<Real> qkv_bias;     ///< (rows of qkv), padded with zeros; empty: none
  detail::AlignedVector<Real> output_bias;  ///< (hidden), padded with zeros; empty: none
  detail::AlignedVector<Real> query_norm;   ///< (head_dim), padded with zeros, of each head; empty: none
  detail::AlignedVector<Real> key_norm;     ///< the same of keys
};

/// Weights of an attention block over the keys and values of a target.
template <class Real>
struct CrossAttentionWeights {
  PanelMatrix<Real> query;   ///< (target's heads * head_dim, hidden)
  PanelMatrix<Real> output;  ///< (hidden, target's heads * head_dim)
};

/// Weights of an MLP block.
template <class Real>
struct MlpWeights {
  detail::AlignedVector<Real> norm;  ///< (hidden), padded with zeros
  PanelMatrix<Real> gate_up;         ///< (2 intermediate, hidden): gate, then up
  PanelMatrix<Real> down;            ///< (hidden, intermediate)
};

/// A layer: its blocks in the order in which they run. Each adds its output to the residual stream.
template <class Real>
struct LayerWeights {
  AttentionWeights<Real> attention;                            ///< over the tokens before
  std::optional<CrossAttentionWeights<Real>> cross_attention;  ///< of a draft on keys and values
  MlpWeights<Real> mlp;                                        ///< of each token alone
};

/// What a feature head makes of a token's embedding and the feature of the token before it.
template <class Real>
struct FeatureInputWeights {
  PanelMatrix<Real> fusion;          ///< (hidden, 2 hidden): embedding, then feature
  detail::AlignedVector<Real> bias;  ///< (hidden), padded with zeros
  /// (hidden, (n + 1) hidden), if n > 0: combines n hidden states and the target's feature into one feature.
  PanelMatrix<Real> states;
};

/// What an EAGLE-3 head makes of a token's embedding and the target's states at the token before: see
/// Eagle3Config. H: the target's hidden size.
template <class Real>
struct Eagle3Weights {
  PanelMatrix<Real> fusion;  ///< (hidden, n H): of n states; empty for one state after the final norm
  /// Norms of the states, padded with zeros: n of H for fc_norm, one of n H for norm_before_fc, else none.
  std::vector<detail::AlignedVector<Real>> state_norms;
  detail::AlignedVector<Real> embedding_norm;  ///< (hidden), padded with zeros
  detail::AlignedVector<Real> feature_norm;    ///< (hidden), padded with zeros
};

/// What became of a file's matrices of one type.
struct StoredTensors {
  std::string type;                  ///< in the file, such as Q4_K
  WeightType as = WeightType::full;  ///< in memory
  bool quantized = false;            ///< in the file: fewer than 16 bits
  std::size_t tensors = 0;           ///< how many
  std::size_t bytes = 0;             ///< in memory
};

/// Read only after construction; several models may share it. (A program that changes them all the same calls
/// Speculator::forget() of the pipelines over these models.)
template <class Real>
struct DecoderWeights {
  DecoderConfig config;         ///< as loaded
  PanelMatrix<Real> embedding;  ///< (vocab, hidden); empty if it is the target's
  /// (hidden, target's hidden): makes the first layer's input of the target's embedding; empty: none.
  PanelMatrix<Real> embed_projection;
  /// (head_rows(), hidden), of a feature head some rows of its target's; empty: the embedding, or the
  /// target's.
  PanelMatrix<Real> separate_head;
  std::vector<std::int32_t>
      draft_tokens;  ///< (draft_vocab_size), tokens that the LM head predicts, ascending
  /// Of a feature head; else a token's embedding is the first layer's input.
  std::optional<FeatureInputWeights<Real>> feature_input;
  std::optional<Eagle3Weights<Real>> eagle3;  ///< of an EAGLE-3 head
  std::vector<LayerWeights<Real>> layers;     ///< one entry per layer
  detail::AlignedVector<Real> final_norm;     ///< (hidden), padded with zeros; empty for a feature head
  std::vector<StoredTensors> kept;  ///< how a file's matrices are stored; of quantised ones that are not
                                    ///< blocks a program should tell
  /// If set, its embedding is used where `embedding` is empty, and its LM head by a head without one.
  std::shared_ptr<const DecoderWeights> target = {};

  /// The embedding in use.
  const PanelMatrix<Real>& tokens() const {
    return target && embedding.rows() == 0 ? target->tokens() : embedding;
  }
  /// The LM head in use.
  const PanelMatrix<Real>& head() const {
    if (separate_head.rows() > 0) return separate_head;
    return target && !(eagle3 && config.tied_head) ? target->head() : tokens();
  }
};

/// Data type of the keys and values of a model of such weights, where DecoderOptions::cache is empty: half
/// floats where the weights are in blocks and the instruction set converts them.
template <class Real>
CacheType cache_type(const DecoderWeights<Real>& weights, Isa isa) {
  const bool blocks = !weights.layers.empty() && weights.layers.front().mlp.down.has_blocks();
  return blocks && isa != Isa::portable ? CacheType::half : CacheType::full;
}

/// Loads config.json and the safetensors of a Hugging Face directory, or a GGUF file (of several parts the
/// first). A model in float keeps 8-bit weights (int8_groups.hpp) and GGUF's Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
/// Q4_K, Q5_K and Q6_K in blocks; other blocks are expanded to bfloat16; BF16 tensors are kept as bfloat16,
/// F32 and F16 converted to Real, unless `options` say otherwise; they may also change the config first. A
/// model in double expands blocks to double. A feature head uses the embedding and LM head of `target`, with
/// a draft vocabulary a copy of that LM head's rows for it; a draft with target_hidden_size uses the
/// embedding; an EAGLE-3 head uses what its file lacks of both. This requires equal sizes; other models
/// ignore `target`. Throws std::runtime_error naming the file and the key or tensor, and what was expected,
/// or, before a weight is read, what memory is missing. Reads every byte once; while loading, needs memory
/// for the weights and one more tensor, of GGUF some MiB, as the file is mapped and its pages are dropped.
template <class Real>
DecoderWeights<Real> load_decoder_weights(const std::filesystem::path& model,
                                          std::shared_ptr<const DecoderWeights<Real>> target = {},
                                          const LoadOptions& options = {});

/// Random weights, the same for every Real and WeightType, but that blocks round them to 8 bits; `target` as
/// above. A draft vocabulary is spread evenly over the tokens. Throws std::runtime_error for an invalid
/// config.
template <class Real>
DecoderWeights<Real> random_decoder_weights(const DecoderConfig& config, std::uint64_t seed,
                                            WeightType stored = WeightType::bf16,
                                            std::shared_ptr<const DecoderWeights<Real>> target = {});

}  // namespace specula::cpu
