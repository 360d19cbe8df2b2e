// SPDX-License-Identifier: MIT
// The heads of attention blocks: queries are turned by rotary position embedding (RoPE) and attend to a KV
// cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rope_table.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/cpu/kv_cache.hpp"

namespace specula::cpu::detail {

/// Memory and steps that the attention blocks of one shape share. Nothing is allocated after the constructor.
template <class Real>
class AttentionHeads {
 public:
  /// `rows`: of the matrix that makes the queries; `slots`: of the cache.
  AttentionHeads(const AttentionShape& shape, std::int32_t rows, const DecoderOptions& options,
                 std::int32_t slots)
      : projected(pass_columns(options), rows),
        mixed(pass_columns(options), shape.heads * shape.head_dim),
        shape_(shape),
        rope_(shape, options.capacity),
        stride_(static_cast<std::ptrdiff_t>(pass_columns(options)) * shape.group() * shape.head_dim +
                kPanel * options.slots),
        queries_(static_cast<std::size_t>(stride_ * shape.kv_heads)) {
    for (std::int32_t t = 0; t < options.threads; ++t)
      scratch_.emplace_back(slots, round_up(shape.head_dim, kPanel));
  }

  const AttentionShape& shape() const { return shape_; }

  /// A head's query or key as attention takes it: turned by the angles of its position, times `scale`.
  /// Writes, and reads, up to 15 values after the end.
  void transform(const Batch<Real>& batch, const Real* head, std::int32_t position, Real scale,
                 Real* to) const {
    batch.elementwise.rotate(head, rope_.cosine(position), rope_.sine(position), shape_.head_dim / 2, scale,
                             to);
  }

  /// The pairs of a segment and a KV head that are this thread's: calls f(segment, kv_head).
  template <class F>
  void for_own(const Worker& worker, const Batch<Real>& batch, F f) const {
    const auto pairs = static_cast<std::int32_t>(batch.segments.size()) * shape_.kv_heads;
    const auto [first, last] = batch.product.share(worker.thread, pairs);
    for (std::int32_t pair = first; pair < last; ++pair)
      f(batch.segments[static_cast<std::size_t>(pair / shape_.kv_heads)], pair % shape_.kv_heads);
  }

  /// The queries of one KV head attend to `cache`: from `projected` to `mixed`. `tokens`: the segment's, with
  /// the slots that they see in this cache, of which each sees `base`, and `end` are in use.
  void attend(const Worker& worker, const Batch<Real>& batch, const Segment<Real>& segment,
              const KvCache<Real>& cache, std::int32_t layer, std::int32_t kv_head,
              std::span<const BatchToken> tokens, std::int32_t base, std::int32_t end) {
    const std::int32_t group = shape_.group(), size = shape_.head_dim;
    const Real scale = Real(1) / std::sqrt(static_cast<Real>(size));
    // What is written after the end of a text's queries must not be another's, which another thread may
    // write.
    Real* const queries = queries_.data() + kv_head * stride_ + (&segment - batch.segments.data()) * kPanel;
    const auto query = [&](std::int32_t i) {
      return queries + static_cast<std::ptrdiff_t>(i) * group * size;
    };
    for (std::int32_t i = segment.first; i < segment.last; ++i)
      for (std::int32_t g = 0; g < group; ++g)
        transform(batch, projected.at(i) + (kv_head * group + g) * size, batch.token(i).position, scale,
                  query(i) + g * size);
    TreeAttention<Real>{batch.isa, batch.elementwise, cache, group, size, base, end, unseen}.run(
        layer, kv_head, tokens, query(segment.first), outputs(kv_head, segment.first), mixed.stride,
        scratch_[static_cast<std::size_t>(worker.thread)]);
  }

  /// The outputs of one KV head's queries from token `i` on: (group * head_dim) per token, mixed.stride
  /// apart.
  Real* outputs(std::int32_t kv_head, std::int32_t i) {
    return mixed.at(i) + static_cast<std::ptrdiff_t>(kv_head) * shape_.group() * shape_.head_dim;
  }

  Activations<Real> projected;  // (batch, rows): the queries by head, then what else the matrix makes
  Activations<Real> mixed;      // (batch, heads * head_dim): the outputs by head
  std::int32_t unseen = 0;      // see TreeAttention

 private:
  AttentionShape shape_;
  RopeTable<Real> rope_;
  std::ptrdiff_t stride_;
  AlignedVector<Real> queries_;  // (kv_heads, tokens * group, head_dim), 16 more after each text
  std::vector<AttentionScratch<Real>> scratch_;  // one per thread
};

}  // namespace specula::cpu::detail
