// A layer of a Llama decoder over a batch of tokens: RMS norm, QKV, RoPE, attention, MLP (SwiGLU).
// Equations: transformers, modeling_llama.py (LlamaDecoderLayer, rotate_half, repeat_kv).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/elementwise.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rope_table.hpp"
#include "specula/cpu/detail/rotated_queries.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/cpu/kv_cache.hpp"

namespace specula::cpu::detail {

/// Owns the activations, the KV cache and the products of a pass. Each thread of the team calls the members
/// that take a Worker, in the same order. Nothing is allocated after the constructor (see TeamProduct).
template <class Real>
class DecoderLayer {
 public:
  DecoderLayer(std::shared_ptr<const DecoderWeights<Real>> model, const DecoderOptions& options,
               std::int32_t most_cols)
      : weights(std::move(model)),
        isa(options.isa),
        elementwise(isa),
        product(options, most_cols),
        cache(config().layers, config().kv_heads, config().head_dim, options.capacity),
        rope_(config(), options.capacity),
        queries_(config(), pass_columns(options)) {
    const DecoderConfig& c = config();
    const std::int32_t batch = pass_columns(options);
    hidden = {batch, c.hidden_size};
    normed = {batch, c.hidden_size};
    block_out = {batch, c.hidden_size};
    qkv_ = {batch, (c.heads + 2 * c.kv_heads) * c.head_dim};
    attention_out_ = {batch, c.heads * c.head_dim};
    gate_up_ = {batch, 2 * c.intermediate_size};
    mlp_act_ = {batch, c.intermediate_size};
    for (std::int32_t t = 0; t < options.threads; ++t) {
      scratch_.emplace_back(cache.slots(), round_up(c.head_dim, kPanel));
      keys_.emplace_back(static_cast<std::size_t>(c.head_dim + kPanel));
    }
  }

  const DecoderConfig& config() const { return weights->config; }
  std::int32_t count() const { return static_cast<std::int32_t>(tokens.size()); }
  const BatchToken& token(std::int32_t i) const { return tokens[static_cast<std::size_t>(i)]; }

  /// Attention block of layer `l`: stores the tokens' keys and values, writes block_out. Every token sees
  /// `base` slots; `end` are in use.
  void attention(const Worker& worker, std::int32_t l, std::int32_t base, std::int32_t end) {
    const DecoderConfig& c = config();
    const LayerWeights<Real>& layer = weights->layers[static_cast<std::size_t>(l)];
    const TreeAttention<Real> attention{isa, elementwise, cache, c.group(), c.head_dim, base, end};
    norm(worker, layer.attention_norm);
    product.multiply(worker.thread, layer.qkv, normed, qkv_, 0, count());
    const auto [first, last] = product.share(worker.thread, c.kv_heads);
    for (std::int32_t head = first; head < last; ++head) attend(worker, l, head, attention);
    product.multiply(worker.thread, layer.output, attention_out_, block_out, 0, count());
  }

  /// MLP block of layer `l`: writes block_out.
  void mlp(const Worker& worker, std::int32_t l) {
    const std::int32_t size = config().intermediate_size;
    const LayerWeights<Real>& layer = weights->layers[static_cast<std::size_t>(l)];
    norm(worker, layer.mlp_norm);
    product.multiply(worker.thread, layer.gate_up, normed, gate_up_, 0, count());
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      elementwise.swiglu(gate_up_.at(i), gate_up_.at(i) + size, size, mlp_act_.at(i));
    product.multiply(worker.thread, layer.down, mlp_act_, block_out, 0, count());
  }

  /// hidden += block_out
  void add_residual(const Worker& worker) {
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      Real *to = hidden.at(i), *from = block_out.at(i);
      for (std::ptrdiff_t k = 0; k < hidden.stride; ++k) to[k] += from[k];
    }
  }

  /// RMS norm: writes normed. Where a model lacks the norm, copies its input.
  void norm(const Worker& worker, const AlignedVector<Real>& weight) {
    const auto eps = static_cast<Real>(config().rms_norm_eps);
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      if (weight.empty())
        std::copy_n(hidden.at(i), hidden.stride, normed.at(i));
      else
        elementwise.rms_norm(hidden.at(i), weight.data(), config().hidden_size, eps, normed.at(i));
    }
  }

  std::shared_ptr<const DecoderWeights<Real>> weights;
  Isa isa;
  Elementwise<Real> elementwise;
  TeamProduct<Real> product;
  KvCache<Real> cache;
  std::span<const BatchToken> tokens;           // the batch
  Activations<Real> hidden, normed, block_out;  // (batch, hidden)

 private:
  /// One KV head: rotates queries and keys, stores keys and values, attends.
  void attend(const Worker& worker, std::int32_t l, std::int32_t head, const TreeAttention<Real>& attention) {
    const DecoderConfig& c = config();
    const std::int32_t size = c.head_dim;
    const auto thread = static_cast<std::size_t>(worker.thread);
    Real* const key = keys_[thread].data();
    queries_.apply_rope(head, qkv_, tokens, rope_, elementwise);
    for (std::int32_t i = 0; i < count(); ++i) {
      Real* const from = qkv_.at(i);
      elementwise.rotate(from + (c.heads + head) * size, rope_.cosine(token(i).position),
                         rope_.sine(token(i).position), size / 2, Real(1), key);
      cache.store(l, head, token(i).slot, key, from + (c.heads + c.kv_heads + head) * size);
    }
    attention.run(l, head, tokens, queries_.of(head),
                  attention_out_.at(0) + static_cast<std::ptrdiff_t>(head) * c.group() * size,
                  attention_out_.stride, scratch_[thread]);
  }

  RopeTable<Real> rope_;
  RotatedQueries<Real> queries_;
  Activations<Real> qkv_;                        // (batch, (heads + 2 kv_heads) * head_dim)
  Activations<Real> attention_out_;              // (batch, heads * head_dim)
  Activations<Real> gate_up_, mlp_act_;          // (batch, 2 intermediate), (batch, intermediate)
  std::vector<AttentionScratch<Real>> scratch_;  // one per thread, as the next
  std::vector<AlignedVector<Real>> keys_;        // (head_dim + 16)
};

}  // namespace specula::cpu::detail
