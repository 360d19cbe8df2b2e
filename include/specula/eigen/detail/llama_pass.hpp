// One pass of a Llama decoder over a few columns: embedding, layers, LM head.
// Equations: transformers, modeling_llama.py (LlamaForCausalLM, rotate_half, repeat_kv).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/eigen/detail/aligned.hpp"
#include "specula/eigen/detail/bf16_product.hpp"
#include "specula/eigen/detail/elementwise.hpp"
#include "specula/eigen/detail/panel.hpp"
#include "specula/eigen/detail/panel_product.hpp"
#include "specula/eigen/detail/rope_table.hpp"
#include "specula/eigen/detail/tree_attention.hpp"
#include "specula/eigen/detail/wide_product.hpp"
#include "specula/eigen/kv_cache.hpp"
#include "specula/eigen/llama_weights.hpp"
#include "specula/eigen/thread_team.hpp"

namespace specula::eigen::detail {

/// Vectors of one kind, one per column, padded to whole panels and 16 more behind the last: blocks may run
/// over the end.
template <class Real>
struct ColumnBuffer {
  ColumnBuffer() = default;
  ColumnBuffer(std::int32_t columns, std::int32_t size)
      : stride(round_up(size, kPanel)),
        values(static_cast<std::size_t>(columns) * static_cast<std::size_t>(stride) + kPanel) {}
  Real* at(std::ptrdiff_t column) { return values.data() + column * stride; }
  std::ptrdiff_t stride = 0;
  AlignedVector<Real> values;
};

enum class Product { skinny, wide };

/// Owns all memory of a pass; run() allocates nothing on the skinny path.
template <class Real>
class LlamaPass {
 public:
  LlamaPass(std::shared_ptr<const LlamaWeights<Real>> weights, std::int32_t capacity, std::int32_t columns,
            std::int32_t rows, std::int32_t threads, Isa isa, Inputs inputs, bool wide)
      : weights_(std::move(weights)),
        isa_(isa),
        elementwise_(isa),
        rope_(config(), capacity),
        team_(std::make_unique<ThreadTeam>(threads)),
        cache(config().layers, config().kv_heads, config().head_dim, capacity) {
    const LlamaConfig& c = config();
    hidden_ = {columns, c.hidden_size};
    normed_ = {columns, c.hidden_size};
    added_ = {columns, c.hidden_size};
    qkv_ = {columns, (c.heads + 2 * c.kv_heads) * c.head_dim};
    query_stride_ = static_cast<std::ptrdiff_t>(columns) * c.group() * c.head_dim + kPanel;
    queries_.resize(static_cast<std::size_t>(query_stride_ * c.kv_heads));
    mixed_ = {columns, c.heads * c.head_dim};
    gate_up_ = {columns, 2 * c.intermediate_size};
    active_ = {columns, c.intermediate_size};
    logits_ = {rows, c.vocab_size};
    for (std::int32_t t = 0; t < threads; ++t) {
      scratch_.emplace_back(cache.slots(), round_up(c.head_dim, kPanel));
      keys_.emplace_back(static_cast<std::size_t>(c.head_dim + kPanel));
      const std::int32_t deepest = std::max({c.hidden_size, c.intermediate_size, c.heads * c.head_dim});
      if (wide) wide_.emplace_back(deepest);
      if (inputs == Inputs::bf16) rounded_.emplace_back(columns, deepest);
    }
  }

  const LlamaConfig& config() const { return weights_->config; }
  ColumnBuffer<Real>& logits() { return logits_; }

  /// Runs `columns`, which see the slots [0, base) and their paths, and stores their keys and values. The
  /// logits of the columns from `first_row` on are left in logits(). `end` slots are in use.
  void run(std::span<const PassColumn> columns, std::int32_t base, std::int32_t end, std::int32_t first_row,
           Product product) {
    columns_ = columns;
    product_ = product;
    const TreeAttention<Real> attention{isa_, elementwise_, cache, config().group(), config().head_dim,
                                        base, end};
    auto body = [&](std::int32_t member) { layers(member, attention, first_row); };
    team_->run(body);
  }

 private:
  std::int32_t count() const { return static_cast<std::int32_t>(columns_.size()); }

  /// This member's share of `total`: [first, second).
  std::pair<std::int32_t, std::int32_t> share(std::int32_t member, std::int32_t total) const {
    const auto cut = [&](std::int64_t m) { return static_cast<std::int32_t>(total * m / team_->size()); };
    return {cut(member), cut(member + 1)};
  }

  void layers(std::int32_t member, const TreeAttention<Real>& attention, std::int32_t first_row) {
    const LlamaConfig& c = config();
    const auto [first, last] = share(member, count());
    for (std::int32_t i = first; i < last; ++i) {
      weights_->embedding.get_row(columns_[static_cast<std::size_t>(i)].token, hidden_.at(i));
      // The padding behind it too: what a pass with NaN or infinity left there would reach every sum.
      std::fill(hidden_.at(i) + c.hidden_size, hidden_.at(i) + hidden_.stride, Real(0));
    }
    for (std::int32_t l = 0; l < c.layers; ++l) {
      const LlamaLayer<Real>& layer = weights_->layers[static_cast<std::size_t>(l)];
      normalize(first, last, layer.attention_norm);
      multiply(member, layer.qkv, normed_, qkv_, 0, count());
      const auto [head, last_head] = share(member, c.kv_heads);
      for (std::int32_t h = head; h < last_head; ++h) attend(member, l, h, attention);
      multiply(member, layer.output, mixed_, added_, 0, count());
      add(first, last);
      normalize(first, last, layer.mlp_norm);
      multiply(member, layer.gate_up, normed_, gate_up_, 0, count());
      for (std::int32_t i = first; i < last; ++i)
        elementwise_.swiglu(gate_up_.at(i), gate_up_.at(i) + c.intermediate_size, c.intermediate_size,
                            active_.at(i));
      multiply(member, layer.down, active_, added_, 0, count());
      add(first, last);
    }
    normalize(std::max(first, first_row), last, weights_->final_norm);
    if (first_row < count()) multiply(member, weights_->head(), normed_, logits_, first_row, count());
  }

  void normalize(std::int32_t first, std::int32_t last, const AlignedVector<Real>& weight) {
    const auto eps = static_cast<Real>(config().rms_norm_eps);
    for (std::int32_t i = first; i < last; ++i)
      elementwise_.rms_norm(hidden_.at(i), weight.data(), config().hidden_size, eps, normed_.at(i));
  }

  void add(std::int32_t first, std::int32_t last) {
    for (std::int32_t i = first; i < last; ++i) {
      Real *to = hidden_.at(i), *from = added_.at(i);
      for (std::ptrdiff_t k = 0; k < hidden_.stride; ++k) to[k] += from[k];
    }
  }

  /// out[c - first] = matrix * in[c], this member's rows. All members wait before, for the input, and after.
  void multiply(std::int32_t member, const PanelMatrix<Real>& matrix, ColumnBuffer<Real>& in,
                ColumnBuffer<Real>& out, std::int32_t first, std::int32_t last) {
    team_->barrier();
    constexpr std::int32_t kBlock = 4;  // panels that a register block may span
    const auto [block, last_block] = share(member, (matrix.panels() + kBlock - 1) / kBlock);
    const std::int32_t panel = block * kBlock,
                       panels = std::min(last_block * kBlock, matrix.panels()) - panel;
    const Columns<Real> io{in.at(first), in.stride, out.at(0) + static_cast<std::ptrdiff_t>(panel) * kPanel,
                           out.stride};
    if (panels > 0 && product_ == Product::wide)
      wide_[static_cast<std::size_t>(member)].run(matrix, panel, panels, io, last - first);
    else if (panels > 0 && !rounded_.empty() && matrix.type() == WeightType::bf16) {
      if constexpr (std::is_same_v<Real, float>)
        rounded_[static_cast<std::size_t>(member)].run(matrix.bf16_panels(panel), panels, matrix.cols(), io,
                                                       last - first);
    } else if (panels > 0 && matrix.type() == WeightType::bf16)
      panel_product(isa_, matrix.bf16_panels(panel), panels, matrix.cols(), io, last - first);
    else if (panels > 0)
      panel_product(isa_, matrix.real_panels(panel), panels, matrix.cols(), io, last - first);
    team_->barrier();
  }

  /// One KV head: turns queries and keys, stores keys and values, attends.
  void attend(std::int32_t member, std::int32_t layer, std::int32_t head,
              const TreeAttention<Real>& attention) {
    const LlamaConfig& c = config();
    const std::int32_t size = c.head_dim, half = size / 2, group = c.group();
    const Real scale = Real(1) / std::sqrt(static_cast<Real>(size));
    Real *const queries = queries_.data() + head * query_stride_, *const key =
                                                                      keys_[static_cast<std::size_t>(member)]
                                                                          .data();
    for (std::int32_t i = 0; i < count(); ++i) {
      const PassColumn& column = columns_[static_cast<std::size_t>(i)];
      const Real *cosine = rope_.cosine(column.position), *sine = rope_.sine(column.position);
      Real* const from = qkv_.at(i);
      for (std::int32_t g = 0; g < group; ++g)
        elementwise_.rotate(from + (head * group + g) * size, cosine, sine, half, scale,
                            queries + (i * group + g) * static_cast<std::ptrdiff_t>(size));
      elementwise_.rotate(from + (c.heads + head) * size, cosine, sine, half, Real(1), key);
      cache.store(layer, head, column.slot, key, from + (c.heads + c.kv_heads + head) * size);
    }
    attention.run(layer, head, columns_, queries,
                  mixed_.at(0) + static_cast<std::ptrdiff_t>(head) * group * size, mixed_.stride,
                  scratch_[static_cast<std::size_t>(member)]);
  }

  std::shared_ptr<const LlamaWeights<Real>> weights_;
  Isa isa_;
  Elementwise<Real> elementwise_;
  RopeTable<Real> rope_;
  std::unique_ptr<ThreadTeam> team_;
  std::span<const PassColumn> columns_;
  Product product_ = Product::skinny;

  ColumnBuffer<Real> hidden_, normed_, added_;  // (columns, hidden)
  ColumnBuffer<Real> qkv_;                      // (columns, (heads + 2 kv_heads) * head_dim)
  AlignedVector<Real> queries_;  // (kv_heads, columns * group, head_dim), 16 more behind each KV head
  std::ptrdiff_t query_stride_ = 0;
  ColumnBuffer<Real> mixed_;                     // (columns, heads * head_dim)
  ColumnBuffer<Real> gate_up_, active_;          // (columns, 2 intermediate), (columns, intermediate)
  ColumnBuffer<Real> logits_;                    // (rows, vocab)
  std::vector<AttentionScratch<Real>> scratch_;  // one a thread, as are the next two
  std::vector<AlignedVector<Real>> keys_;        // (head_dim + 16)
  std::vector<WideProduct<Real>> wide_;
  std::vector<Bf16Product> rounded_;  // empty where inputs are full

 public:
  KvCache<Real> cache;
};

}  // namespace specula::eigen::detail
