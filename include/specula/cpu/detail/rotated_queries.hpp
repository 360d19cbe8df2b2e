// Rotary position embedding (RoPE) of the attention queries of a batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/elementwise.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rope_table.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"

namespace specula::cpu::detail {

/// Queries by KV head, rotated and scaled by 1 / sqrt(head_dim).
template <class Real>
class RotatedQueries {
 public:
  RotatedQueries() = default;
  RotatedQueries(const AttentionShape& shape, std::int32_t tokens)
      : group_(shape.group()),
        size_(shape.head_dim),
        stride_(static_cast<std::ptrdiff_t>(tokens) * group_ * size_ + kPanel),
        values_(static_cast<std::size_t>(stride_ * shape.kv_heads)) {}

  /// (tokens * group, head_dim)
  Real* of(std::int32_t kv_head) { return values_.data() + kv_head * stride_; }

  /// The queries of one KV head, from (tokens, heads * head_dim), rotated to the tokens' positions.
  void apply_rope(std::int32_t kv_head, Activations<Real>& from, std::span<const BatchToken> tokens,
                  const RopeTable<Real>& rope, const Elementwise<Real>& elementwise) {
    const Real scale = Real(1) / std::sqrt(static_cast<Real>(size_));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int32_t position = tokens[i].position;
      const auto token = static_cast<std::int32_t>(i);
      for (std::int32_t g = 0; g < group_; ++g)
        elementwise.rotate(from.at(token) + (kv_head * group_ + g) * size_, rope.cosine(position),
                           rope.sine(position), size_ / 2, scale,
                           of(kv_head) + (token * group_ + g) * static_cast<std::ptrdiff_t>(size_));
    }
  }

 private:
  std::int32_t group_ = 0, size_ = 0;
  std::ptrdiff_t stride_ = 0;
  AlignedVector<Real> values_;  // (kv_heads, tokens * group, head_dim), 16 more after each KV head
};

}  // namespace specula::cpu::detail
