// SPDX-License-Identifier: MIT
// The attention block of a decoder layer: RMS norm, QKV, RoPE, attention, output. Equations: transformers,
// modeling_llama.py (LlamaAttention, rotate_half, repeat_kv), modeling_qwen3.py (q_norm, k_norm).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/attention_heads.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/slot_memory.hpp"

namespace specula::cpu::detail {

/// What the attention blocks of all layers share.
template <class Real>
struct AttentionMemory {
  AttentionMemory(const DecoderConfig& config, const DecoderOptions& options)
      : heads(config, (config.heads + 2 * config.kv_heads) * config.head_dim, options,
              round_up(options.capacity, kPanel)),
        head(static_cast<std::size_t>(options.threads),
             AlignedVector<Real>(static_cast<std::size_t>(config.head_dim + kPanel))) {
    if (config.eagle3) heads.unseen = 1;  // the first token has no row: see Eagle3Config
  }

  AttentionHeads<Real> heads;
  std::vector<AlignedVector<Real>> head;  // one per thread: (head_dim + 16), of a query or key
};

/// Stores the tokens' keys and values, which they and their descendants attend to.
template <class Real>
class Attention final : public Block<Real> {
 public:
  /// `input`: what queries, keys and values are made of, (batch, columns of their matrix); null: the residual
  /// stream, normed.
  Attention(const AttentionWeights<Real>& weights, std::int32_t layer, AttentionMemory<Real>& memory,
            Activations<Real>* input = nullptr)
      : Block<Real>(BlockKind::attention, layer), weights_(weights), memory_(memory), input_(input) {}

  void run(const Worker& worker, Batch<Real>& batch) override {
    AttentionHeads<Real>& heads = memory_.heads;
    if (!input_) batch.norm(worker, weights_.norm);
    batch.product.multiply(worker.thread, weights_.qkv, input_ ? *input_ : batch.normed, heads.projected, 0,
                           batch.count());
    if (!weights_.qkv_bias.empty() || !weights_.query_norm.empty()) {
      prepare(worker, batch);
      batch.product.barrier();  // heads are read in whole panels, so beyond their ends
    }
    heads.for_own(worker, batch, [&](const Segment<Real>& segment, std::int32_t head) {
      store(worker, batch, segment, head);
      heads.attend(worker, batch, segment, segment.memory->cache, this->layer(), head,
                   segment.of(batch.tokens), segment.base, segment.end);
    });
    batch.product.multiply(worker.thread, weights_.output, heads.mixed, batch.added, 0, batch.count());
    if (!weights_.output_bias.empty())
      batch.add_bias(worker, weights_.output_bias, batch.hidden_size(), batch.added);
  }

 private:
  /// Adds the biases, and norms queries and keys, of this thread's tokens.
  void prepare(const Worker& worker, const Batch<Real>& batch) {
    const AttentionShape& shape = memory_.heads.shape();
    const std::int32_t size = shape.head_dim, keys = shape.heads + shape.kv_heads;
    Real* const padded = memory_.head[static_cast<std::size_t>(worker.thread)].data();
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      Real* const all = memory_.heads.projected.at(i);
      for (std::size_t d = 0; d < weights_.qkv_bias.size(); ++d) all[d] += weights_.qkv_bias[d];
      for (std::int32_t head = 0; head < keys && !weights_.query_norm.empty(); ++head) {
        std::copy_n(all + head * size, size, padded);
        batch.norm(padded, head < shape.heads ? weights_.query_norm : weights_.key_norm, size);
        std::copy_n(padded, size, all + head * size);
      }
    }
  }

  /// The keys and values of one KV head.
  void store(const Worker& worker, const Batch<Real>& batch, const Segment<Real>& segment,
             std::int32_t kv_head) {
    AttentionHeads<Real>& heads = memory_.heads;
    const AttentionShape& shape = heads.shape();
    const std::int32_t size = shape.head_dim;
    Real* const key = memory_.head[static_cast<std::size_t>(worker.thread)].data();
    for (std::int32_t i = segment.first; i < segment.last; ++i) {
      Real* const from = heads.projected.at(i);
      heads.transform(batch, from + (shape.heads + kv_head) * size, batch.token(i).position, Real(1), key);
      segment.memory->cache.store(this->layer(), kv_head, batch.token(i).slot, key,
                                  from + (shape.heads + shape.kv_heads + kv_head) * size);
    }
  }

  const AttentionWeights<Real>& weights_;
  AttentionMemory<Real>& memory_;
  Activations<Real>* input_;
};

}  // namespace specula::cpu::detail
