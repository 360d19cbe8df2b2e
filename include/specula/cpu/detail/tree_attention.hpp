// SPDX-License-Identifier: MIT
// Tree attention: tokens of a pass attend to the committed context and their own ancestors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "specula/base/rows.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/elementwise.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/panel_product.hpp"
#include "specula/cpu/inputs.hpp"
#include "specula/cpu/kv_cache.hpp"

namespace specula::cpu::detail {

/// One token of a pass. It sees slots [0, base), then its path: the slots of its ancestors and its own, by
/// position.
struct BatchToken {
  Token token;
  std::int32_t position;
  std::int32_t slot;
  const std::int32_t* path;  // (path_size), ascending; the last is `slot`
  std::int32_t path_size;
  std::int32_t
      in_order;  // number of first path entries that are base, base + 1, ...: they extend the context
};

inline constexpr std::int32_t kQueries = 48;  // at a time: they share a pass over keys and values

/// Scratch of one thread.
template <class Real>
struct AttentionScratch {
  std::int32_t slots;          // maximum number seen, rounded up by column_stride()
  AlignedVector<Real> scores;  // (48, slots)
  AlignedVector<Real> mixed;   // (48, head_dim padded)
  AttentionScratch(std::int32_t most_slots, std::int32_t padded_head)
      : slots(column_stride<Real>(most_slots)),
        scores(static_cast<std::size_t>(kQueries) * static_cast<std::size_t>(slots)),
        mixed(static_cast<std::size_t>(kQueries) * static_cast<std::size_t>(padded_head)) {}
};

template <class Real>
struct TreeAttention {
  Isa isa;
  const Elementwise<Real>& elementwise;
  const KvCache<Real>& cache;
  std::int32_t group, head_dim;
  std::int32_t base;        // slots that every column sees
  std::int32_t end;         // slots in use
  std::int32_t unseen = 0;  // positions from 0 on that only themselves see, at most 1

  /// One KV head: queries (columns * group, head_dim), scaled; writes query (c, g) to out + c * out_stride +
  /// g * head_dim. Scores are laid out by position, so that every sum runs in the order of positions,
  /// wherever the slots are.
  void run(std::int32_t layer, std::int32_t head, std::span<const BatchToken> columns, const Real* queries,
           Real* out, std::ptrdiff_t out_stride, AttentionScratch<Real>& scratch) const {
    if constexpr (std::is_same_v<Real, float>)
      if (cache.type() == CacheType::half)
        return run_on<std::uint16_t>(layer, head, columns, queries, out, out_stride, scratch);
    run_on<Real>(layer, head, columns, queries, out, out_stride, scratch);
  }

 private:
  /// On a cache of numbers T.
  template <class T>
  void run_on(std::int32_t layer, std::int32_t head, std::span<const BatchToken> columns, const Real* queries,
              Real* out, std::ptrdiff_t out_stride, AttentionScratch<Real>& scratch) const {
    const std::ptrdiff_t ld = scratch.slots, padded = round_up(head_dim, kPanel);
    const auto few = [&](std::int32_t first, std::int32_t count) {
      const auto column = [&](std::int32_t query) -> const BatchToken& {
        return columns[static_cast<std::size_t>((first + query) / group)];
      };
      panel_product(isa, cache.template keys<T>(layer, head), (end + kPanel - 1) / kPanel, head_dim,
                    Columns<Real>{queries + static_cast<std::ptrdiff_t>(first) * head_dim, head_dim,
                                  scratch.scores.data(), ld},
                    count);
      std::int32_t common = std::numeric_limits<std::int32_t>::max();
      Real inverse_sum[kQueries];
      for (std::int32_t q = 0; q < count; ++q) {
        common = std::min(common, column(q).in_order);
        inverse_sum[q] = weigh(scratch.scores.data() + q * ld, column(q));
      }
      panel_product(isa, cache.template values<T>(layer, head, 0), cache.value_panels(), base + common,
                    Columns<Real>{scratch.scores.data(), ld, scratch.mixed.data(), padded}, count);
      for (std::int32_t q = 0; q < count; ++q) {
        Real* mixed = scratch.mixed.data() + q * padded;
        mix_path<T>(layer, head, column(q), common, scratch.scores.data() + q * ld, mixed);
        Real* to = out + (first + q) / group * out_stride +
                   (first + q) % group * static_cast<std::ptrdiff_t>(head_dim);
        for (std::int32_t d = 0; d < head_dim; ++d) to[d] = mixed[d] * inverse_sum[q];
      }
    };
    for_column_groups(static_cast<std::int32_t>(columns.size()) * group, kQueries, few);
  }

  /// Scores by slot become weights by position. A path ascends, so its scores can be moved down in place.
  Real weigh(Real* row, const BatchToken& column) const {
    for (std::int32_t i = 0; i < column.path_size; ++i) row[base + i] = row[column.path[i]];
    const std::int32_t seen = base + column.path_size, padded = round_up(seen, kPanel);
    std::fill(row + seen, row + padded, -std::numeric_limits<Real>::infinity());
    if (seen > unseen) std::fill_n(row, unseen, -std::numeric_limits<Real>::infinity());
    return elementwise.softmax(row, padded);
  }

  /// Adds the values on the path from entry `from` on, one run of neighbouring slots at a time.
  template <class T>
  void mix_path(std::int32_t layer, std::int32_t head, const BatchToken& column, std::int32_t from,
                const Real* weights, Real* mixed) const {
    for (std::int32_t i = from, next; i < column.path_size; i = next) {
      for (next = i + 1; next < column.path_size && column.path[next] == column.path[next - 1] + 1;) ++next;
      panel_product(isa, cache.template values<T>(layer, head, column.path[i]), cache.value_panels(),
                    next - i, Columns<Real>{weights + base + i, 0, mixed, 0}, 1, true);
    }
  }
};

}  // namespace specula::cpu::detail
