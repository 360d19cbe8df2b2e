// One pass of a Llama decoder over a few columns: embedding, layers, LM head.
// Equations: transformers, modeling_llama.py (LlamaForCausalLM, rotate_half, repeat_kv); the cross attention
// of GLIDE (Du et al. 2024) and the input of EAGLE's head (Li et al. 2024), where the model has them.
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
#include "specula/eigen/detail/large_batch_product.hpp"
#include "specula/eigen/detail/panel.hpp"
#include "specula/eigen/detail/panel_product.hpp"
#include "specula/eigen/detail/rope_table.hpp"
#include "specula/eigen/detail/target_state.hpp"
#include "specula/eigen/detail/tree_attention.hpp"
#include "specula/eigen/kv_cache.hpp"
#include "specula/eigen/llama_options.hpp"
#include "specula/eigen/llama_weights.hpp"
#include "specula/eigen/thread_team.hpp"
#include "specula/model/features.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula::eigen::detail {

/// Vectors of one kind, one per column, padded to whole panels and 16 more behind the last: blocks may run
/// over the end.
template <class Real>
struct ColumnBuffer {
  ColumnBuffer() = default;
  ColumnBuffer(std::int32_t columns, std::int32_t size)
      : stride(column_stride<Real>(size)),
        values(static_cast<std::size_t>(columns) * static_cast<std::size_t>(stride) + kPanel) {}
  Real* at(std::ptrdiff_t column) { return values.data() + column * stride; }
  std::ptrdiff_t stride = 0;
  AlignedVector<Real> values;
};

enum class Product { small_batch, large_batch };
enum class Block { attention, mlp };  // of a layer

/// What of the model a pass runs.
struct PassPart {
  std::int32_t first_layer = 0;                     // those before it were run in an earlier pass
  std::int32_t last_layer = 0;                      // behind the last; 0: all
  const specula::SkippedBlocks* skipped = nullptr;  // if any
  bool aside = false;                               // logits go to aside() instead
};

/// Owns all memory of a pass; run() allocates nothing on the skinny path.
template <class Real>
class LlamaPass {
 public:
  LlamaPass(std::shared_ptr<const LlamaWeights<Real>> weights, const LlamaOptions& options)
      : weights_(std::move(weights)),
        isa_(options.isa),
        elementwise_(isa_),
        rope_(config(), options.capacity),
        cross_rope_(config().target,
                    config().conditioned_on == Conditioning::key_values ? options.capacity : 0),
        team_(options.team ? options.team : std::make_shared<ThreadTeam>(options.threads)),
        target_state_(config(), options.capacity, pass_columns(options)),
        shown_layers_(options.feature_layers),
        cache(config().layers, config().kv_heads, config().head_dim, options.capacity) {
    const LlamaConfig& c = config();
    const std::int32_t columns = pass_columns(options), rows = options.max_nodes;
    hidden_ = {columns, c.hidden_size};
    normed_ = {columns, c.hidden_size};
    added_ = {columns, c.hidden_size};
    qkv_ = {columns, (c.heads + 2 * c.kv_heads) * c.head_dim};
    const auto queries = [&](const AttentionShape& shape) {
      return static_cast<std::ptrdiff_t>(columns) * (shape.kv_heads ? shape.group() : 0) * shape.head_dim +
             kPanel;
    };
    query_stride_ = std::max(queries(c), queries(c.target));
    queries_.resize(static_cast<std::size_t>(query_stride_ * std::max(c.kv_heads, c.target.kv_heads)));
    const AttentionShape& target = c.target;  // all zeros where there is none
    const std::int32_t widest = std::max(c.heads * c.head_dim, target.heads * target.head_dim);
    mixed_ = {columns, widest};
    gate_up_ = {columns, 2 * c.intermediate_size};
    active_ = {columns, c.intermediate_size};
    logits_ = {rows, c.vocab_size};
    features_ = {cache.slots(), c.hidden_size};
    if (c.exits.size() > 1) {
      between_ = {cache.slots(), c.hidden_size};
      aside_ = {rows, c.vocab_size};
    }
    const auto states = static_cast<std::int32_t>(shown_layers_.size());
    if (states > 0) hidden_states_ = {cache.slots(), states * c.hidden_size};
    if (options.measure_similarity) cosines(Block::attention) = {c.layers, cache.slots()};
    if (options.measure_mlp_similarity) cosines(Block::mlp) = {c.layers, cache.slots()};
    if (c.conditioned_on == Conditioning::key_values)
      cross_queries_ = {columns, target.heads * target.head_dim};
    if (c.conditioned_on == Conditioning::features) fused_ = {columns, 2 * c.hidden_size};
    const std::int32_t read = weights_->feature_fusion.cols();
    if (read > 0) read_ = {columns, read};
    for (std::int32_t t = 0; t < options.threads; ++t) {
      scratch_.emplace_back(cache.slots(), round_up(std::max(c.head_dim, target.head_dim), kPanel));
      keys_.emplace_back(static_cast<std::size_t>(c.head_dim + kPanel));
      const std::int32_t deepest = std::max({2 * c.hidden_size, read, c.intermediate_size, widest});
      if (options.large_batch_from != kNoLargeBatch) large_batch_.emplace_back(deepest);
      if (options.inputs == Inputs::bf16) rounded_.emplace_back(columns, deepest);
    }
  }

  const LlamaConfig& config() const { return weights_->config; }
  const std::shared_ptr<const LlamaWeights<Real>>& weights() const { return weights_; }
  const std::shared_ptr<ThreadTeam>& team() const { return team_; }
  ColumnBuffer<Real>& logits() { return logits_; }
  ColumnBuffer<Real>& aside() { return aside_; }
  /// By slot: what entered the LM head.
  ColumnBuffer<Real>& features() { return features_; }
  /// By slot: the hidden states behind the layers of LlamaOptions::feature_layers.
  HiddenStates<Real> hidden_states() {
    return {shown_layers_, hidden_states_.values.data(), hidden_states_.stride};
  }

  /// What the passes from now on read of the target: the one that this model looks at.
  TargetState<Real>& target_state() { return target_state_; }

  /// (layers, slots): the cosine of what comes before a block of a layer and what comes behind it. Empty
  /// where it is not measured.
  ColumnBuffer<Real>& cosines(Block block) { return cosines_[static_cast<std::size_t>(block)]; }

  /// Copies all that is kept of the token in slot `from` to slot `to`.
  void move(std::int32_t from, std::int32_t to) {
    if (from == to) return;
    cache.move(from, to);
    std::copy_n(features_.at(from), features_.stride, features_.at(to));
    std::copy_n(between_.at(from), between_.stride, between_.at(to));
    std::copy_n(hidden_states_.at(from), hidden_states_.stride, hidden_states_.at(to));
    for (ColumnBuffer<Real>& cosines : cosines_)
      for (std::int32_t l = 0; !cosines.values.empty() && l < config().layers; ++l)
        cosines.at(l)[to] = cosines.at(l)[from];
  }

  /// Runs `columns`, which see the slots [0, base) and their paths, and stores their keys and values. The
  /// logits of the columns from `first_row` on are left in logits(). `end` slots are in use.
  /// target_state().require_view() comes first: this must not throw. A model that looks at features runs
  /// columns one generation after the other, since a token's feature is made when its parent is run.
  void run(std::span<const PassColumn> columns, std::int32_t base, std::int32_t end, std::int32_t first_row,
           Product product, PassPart part = {}) {
    product_ = product;
    part_ = part;
    if (part.last_layer == 0) part_.last_layer = config().layers;
    const TreeAttention<Real> attention{isa_, elementwise_, cache, config().group(), config().head_dim,
                                        base, end};
    const bool fuses = config().conditioned_on == Conditioning::features;
    const auto all = static_cast<std::int32_t>(columns.size());
    for (std::int32_t first = 0, last; first < all; first = last) {
      last = fuses ? target_state_.generation_end(columns, first) : all;
      columns_ = columns.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
      first_row_ = std::max(0, first_row - first);
      logits_at_ = std::max(0, first - first_row);
      if (config().conditioned_on == Conditioning::key_values) target_state_.see(columns_);
      auto body = [&](std::int32_t member) { layers(member, attention); };
      team_->run(body);
    }
  }

 private:
  std::int32_t count() const { return static_cast<std::int32_t>(columns_.size()); }

  /// This member's share of `total`: [first, second).
  std::pair<std::int32_t, std::int32_t> share(std::int32_t member, std::int32_t total) const {
    const auto cut = [&](std::int64_t m) { return static_cast<std::int32_t>(total * m / team_->size()); };
    return {cut(member), cut(member + 1)};
  }

  void layers(std::int32_t member, const TreeAttention<Real>& attention) {
    const LlamaConfig& c = config();
    const auto [first, last] = share(member, count());
    if (part_.first_layer == 0)
      embed(member, first, last);
    else
      for (std::int32_t i = first; i < last; ++i)
        std::copy_n(between_.at(slot(i)), hidden_.stride, hidden_.at(i));
    for (std::int32_t l = part_.first_layer; l < part_.last_layer; ++l) {
      const LlamaLayer<Real>& layer = weights_->layers[static_cast<std::size_t>(l)];
      if (!skips(&SkippedBlocks::attention, l)) {
        normalize(first, last, layer.attention_norm);
        multiply(member, layer.qkv, normed_, qkv_, 0, count());
        const auto [head, last_head] = share(member, c.kv_heads);
        for (std::int32_t h = head; h < last_head; ++h) attend(member, l, h, attention);
        multiply(member, layer.output, mixed_, added_, 0, count());
        measure(Block::attention, l, first, last);
        add(first, last);
      }
      if (c.conditioned_on == Conditioning::key_values && target_state_.end() > 0) {
        multiply(member, layer.cross_query, hidden_, cross_queries_, 0, count());
        const auto [target_head, last_target_head] = share(member, c.target.kv_heads);
        for (std::int32_t h = target_head; h < last_target_head; ++h) attend_to_target(member, l, h);
        multiply(member, layer.cross_output, mixed_, added_, 0, count());
        add(first, last);
      }
      if (skips(&SkippedBlocks::mlp, l)) continue;
      normalize(first, last, layer.mlp_norm);
      multiply(member, layer.gate_up, normed_, gate_up_, 0, count());
      for (std::int32_t i = first; i < last; ++i)
        elementwise_.swiglu(gate_up_.at(i), gate_up_.at(i) + c.intermediate_size, c.intermediate_size,
                            active_.at(i));
      multiply(member, layer.down, active_, added_, 0, count());
      measure(Block::mlp, l, first, last);
      add(first, last);
      show(l + 1, first, last);
    }
    if (part_.last_layer < c.layers)
      for (std::int32_t i = first; i < last; ++i)
        std::copy_n(hidden_.at(i), hidden_.stride, between_.at(slot(i)));
    normalize(first, last, weights_->final_norm);
    for (std::int32_t i = first; i < last; ++i)
      std::copy_n(normed_.at(i), normed_.stride, features_.at(slot(i)));
    if (first_row_ < count())
      multiply(member, weights_->head(), normed_, part_.aside ? aside_ : logits_, first_row_, count(),
               logits_at_);
  }

  std::int32_t slot(std::int32_t column) const { return columns_[static_cast<std::size_t>(column)].slot; }
  bool skips(std::vector<std::uint8_t> SkippedBlocks::*blocks, std::int32_t layer) const {
    return part_.skipped && (part_.skipped->*blocks)[static_cast<std::size_t>(layer)];
  }

  /// The columns' inputs. Padding too: what a pass with NaN or infinity left there would reach every sum.
  void embed(std::int32_t member, std::int32_t first, std::int32_t last) {
    const std::int32_t size = config().hidden_size;
    const bool fuses = config().conditioned_on == Conditioning::features;
    ColumnBuffer<Real>& to = fuses ? fused_ : hidden_;
    for (std::int32_t i = first; i < last; ++i) {
      std::fill(to.at(i) + size, to.at(i) + to.stride, Real(0));
      weights_->tokens().get_row(columns_[static_cast<std::size_t>(i)].token, to.at(i));
    }
    if (!fuses) return;
    take_features(member, first, last);
    multiply(member, weights_->fusion, fused_, hidden_, 0, count());
    for (std::int32_t i = first; i < last; ++i)
      for (std::ptrdiff_t k = 0; k < hidden_.stride; ++k)
        hidden_.at(i)[k] =
            k < size ? hidden_.at(i)[k] + weights_->fusion_bias[static_cast<std::size_t>(k)] : Real(0);
  }

  /// To fused_, behind the embedding: the feature of the token before each column's.
  void take_features(std::int32_t member, std::int32_t first, std::int32_t last) {
    const std::int32_t size = config().hidden_size;
    const auto takes = [&](std::int32_t i) {
      const PassColumn& column = columns_[static_cast<std::size_t>(i)];
      return column.position > 0 && target_state_.takes_feature(column);
    };
    const bool mixes = read_.stride > 0;
    for (std::int32_t i = first; i < last; ++i) {
      const PassColumn& column = columns_[static_cast<std::size_t>(i)];
      if (takes(i) && mixes)
        target_state_.copy_states(column.position - 1, read_.at(i));
      else if (column.position > 0)
        std::copy_n(takes(i) ? target_state_.features.row(column.position - 1).data()
                             : features_.at(target_state_.parent_slot(column)),
                    size, fused_.at(i) + size);
    }
    if (!mixes) return;
    std::int32_t end = count();  // all members agree
    while (end > 0 && !takes(end - 1)) --end;
    if (end == 0) return;
    multiply(member, weights_->feature_fusion, read_, normed_, 0, end);
    for (std::int32_t i = first; i < last; ++i)
      if (takes(i)) std::copy_n(normed_.at(i), size, fused_.at(i) + size);
  }

  /// A model may lack a norm: then its input goes through as it is.
  void normalize(std::int32_t first, std::int32_t last, const AlignedVector<Real>& weight) {
    const auto eps = static_cast<Real>(config().rms_norm_eps);
    for (std::int32_t i = first; i < last; ++i) {
      if (weight.empty())
        std::copy_n(hidden_.at(i), hidden_.stride, normed_.at(i));
      else
        elementwise_.rms_norm(hidden_.at(i), weight.data(), config().hidden_size, eps, normed_.at(i));
    }
  }

  /// What the block is about to add, where that is measured.
  void measure(Block block, std::int32_t layer, std::int32_t first, std::int32_t last) {
    ColumnBuffer<Real>& cosines = this->cosines(block);
    for (std::int32_t i = first; i < last && !cosines.values.empty() && !part_.skipped; ++i)
      cosines.at(layer)[slot(i)] = elementwise_.similarity(hidden_.at(i), added_.at(i), config().hidden_size);
  }

  /// Keeps the hidden states behind so many layers, where options ask for them.
  void show(std::int32_t layers, std::int32_t first, std::int32_t last) {
    const auto found = std::find(shown_layers_.begin(), shown_layers_.end(), layers);
    if (found == shown_layers_.end()) return;
    const std::ptrdiff_t size = config().hidden_size, at = (found - shown_layers_.begin()) * size;
    for (std::int32_t i = first; i < last; ++i)
      std::copy_n(hidden_.at(i), size, hidden_states_.at(slot(i)) + at);
  }

  void add(std::int32_t first, std::int32_t last) {
    for (std::int32_t i = first; i < last; ++i) {
      Real *to = hidden_.at(i), *from = added_.at(i);
      for (std::ptrdiff_t k = 0; k < hidden_.stride; ++k) to[k] += from[k];
    }
  }

  /// out[c - first + to] = matrix * in[c], this member's rows. All members wait before, for the input, and
  /// after.
  void multiply(std::int32_t member, const PanelMatrix<Real>& matrix, ColumnBuffer<Real>& in,
                ColumnBuffer<Real>& out, std::int32_t first, std::int32_t last, std::int32_t to = 0) {
    team_->barrier();
    constexpr std::int32_t kBlock = 4;  // panels that a register block may span
    const auto [block, last_block] = share(member, (matrix.panels() + kBlock - 1) / kBlock);
    const std::int32_t panel = block * kBlock,
                       panels = std::min(last_block * kBlock, matrix.panels()) - panel;
    const Columns<Real> io{in.at(first), in.stride, out.at(to) + static_cast<std::ptrdiff_t>(panel) * kPanel,
                           out.stride};
    if (panels > 0 && product_ == Product::large_batch)
      large_batch_[static_cast<std::size_t>(member)].run(matrix, panel, panels, io, last - first);
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
    const std::int32_t size = c.head_dim;
    Real* const key = keys_[static_cast<std::size_t>(member)].data();
    turn_queries(c, rope_, qkv_, head);
    for (std::int32_t i = 0; i < count(); ++i) {
      const PassColumn& column = columns_[static_cast<std::size_t>(i)];
      Real* const from = qkv_.at(i);
      elementwise_.rotate(from + (c.heads + head) * size, rope_.cosine(column.position),
                          rope_.sine(column.position), size / 2, Real(1), key);
      cache.store(layer, head, column.slot, key, from + (c.heads + c.kv_heads + head) * size);
    }
    attention.run(layer, head, columns_, queries(head),
                  mixed_.at(0) + static_cast<std::ptrdiff_t>(head) * c.group() * size, mixed_.stride,
                  scratch_[static_cast<std::size_t>(member)]);
  }

  Real* queries(std::int32_t head) { return queries_.data() + head * query_stride_; }

  /// The queries of one KV head, turned to the columns' positions and scaled, to queries(head).
  void turn_queries(const AttentionShape& shape, const RopeTable<Real>& rope, ColumnBuffer<Real>& from,
                    std::int32_t head) {
    const std::int32_t size = shape.head_dim, group = shape.group();
    const Real scale = Real(1) / std::sqrt(static_cast<Real>(size));
    for (std::int32_t i = 0; i < count(); ++i) {
      const std::int32_t position = columns_[static_cast<std::size_t>(i)].position;
      for (std::int32_t g = 0; g < group; ++g)
        elementwise_.rotate(from.at(i) + (head * group + g) * size, rope.cosine(position),
                            rope.sine(position), size / 2, scale,
                            queries(head) + (i * group + g) * static_cast<std::ptrdiff_t>(size));
    }
  }

  /// One KV head of the target: turns the queries as the target turns its own, attends.
  void attend_to_target(std::int32_t member, std::int32_t layer, std::int32_t head) {
    const TargetShape& target = config().target;
    const std::int32_t size = target.head_dim, group = target.group();
    turn_queries(target, cross_rope_, cross_queries_, head);
    const TreeAttention<Real> attention{isa_,
                                        elementwise_,
                                        target_state_.key_values.cache(),
                                        group,
                                        size,
                                        target_state_.base(),
                                        target_state_.end()};
    Real* const out = mixed_.at(0) + static_cast<std::ptrdiff_t>(head) * group * size;
    attention.run(config().target_layer(layer), head, target_state_.columns(columns_.size()), queries(head),
                  out, mixed_.stride, scratch_[static_cast<std::size_t>(member)]);
    for (std::int32_t i = 0; i < count(); ++i)
      if (columns_[static_cast<std::size_t>(i)].position == 0)  // there is no key before the first token
        std::fill_n(out + i * mixed_.stride, group * size, Real(0));
  }

  std::shared_ptr<const LlamaWeights<Real>> weights_;
  Isa isa_;
  Elementwise<Real> elementwise_;
  RopeTable<Real> rope_, cross_rope_;
  std::shared_ptr<ThreadTeam> team_;
  std::span<const PassColumn> columns_;
  Product product_ = Product::small_batch;
  PassPart part_;
  std::int32_t first_row_ = 0, logits_at_ = 0;  // the first column that wants logits, and where they go

  TargetState<Real> target_state_;
  std::vector<std::int32_t> shown_layers_;  // of which hidden_states_ are kept

  ColumnBuffer<Real> hidden_, normed_, added_;  // (columns, hidden)
  ColumnBuffer<Real> qkv_;                      // (columns, (heads + 2 kv_heads) * head_dim)
  AlignedVector<Real> queries_;  // (kv_heads, columns * group, head_dim), 16 more behind each KV head
  std::ptrdiff_t query_stride_ = 0;
  ColumnBuffer<Real> mixed_;             // (columns, heads * head_dim)
  ColumnBuffer<Real> gate_up_, active_;  // (columns, 2 intermediate), (columns, intermediate)
  ColumnBuffer<Real> logits_, aside_;    // (rows, vocab)
  ColumnBuffer<Real> features_;          // (slots, hidden)
  ColumnBuffer<Real> between_;           // (slots, hidden): where there are exits, what goes on
  ColumnBuffer<Real> cosines_[2];        // by block: (layers, slots), where they are measured
  ColumnBuffer<Real> cross_queries_;     // (columns, target's heads * head_dim)
  ColumnBuffer<Real> fused_;             // (columns, 2 hidden): embedding, feature
  ColumnBuffer<Real> read_;           // (columns, (n + 1) hidden): hidden states of the target, its feature
  ColumnBuffer<Real> hidden_states_;  // (slots, n hidden), where they are shown
  std::vector<AttentionScratch<Real>> scratch_;  // one a thread, as are the next two
  std::vector<AlignedVector<Real>> keys_;        // (head_dim + 16)
  std::vector<LargeBatchProduct<Real>> large_batch_;
  std::vector<Bf16Product> rounded_;  // empty where inputs are full

 public:
  KvCache<Real> cache;
};

}  // namespace specula::eigen::detail
