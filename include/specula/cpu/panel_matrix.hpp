// SPDX-License-Identifier: MIT
// Weight matrix packed in panels for the panel product.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/block_layout.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/inputs.hpp"
#include "specula/cpu/int8_groups.hpp"
#include "specula/files/gguf_blocks.hpp"

namespace specula::cpu {

/// How weights are stored: if in blocks, in blocks of which type.
struct StoredType {
  WeightType type = WeightType::full;          ///< the kind
  files::GgufId blocks = files::GgufId::q8_0;  ///< one that detail::has_format(), if the kind is blocks

  /// Whether both store weights alike.
  friend bool operator==(const StoredType& a, const StoredType& b) {
    return a.type == b.type && (a.type != WeightType::blocks || a.blocks == b.blocks);
  }
};

/// Rows of a matrix that follow each other and are stored alike.
struct RowRange {
  std::int32_t rows = 0;  ///< how many
  StoredType stored;      ///< how
};

/// (rows, cols), filled row by row once, then read only: copies share the rows. Real is the model's compute
/// type: float or double; only a matrix of float has blocks.
template <class Real>
class PanelMatrix {
 public:
  PanelMatrix() = default;
  /// Allocates the matrix, in memory of its own or, if given, of `arena`. Blocks are Q8_0.
  PanelMatrix(std::int32_t rows, std::int32_t cols, WeightType type, detail::Arena&& arena = {})
      : PanelMatrix(rows, cols, type, arena) {}
  /// Takes its memory from `arena`. Construct matrices in the order of their use: the end of a product
  /// prefetches the memory after it.
  PanelMatrix(std::int32_t rows, std::int32_t cols, WeightType type, detail::Arena& arena)
      : PanelMatrix(std::initializer_list<RowRange>{{rows, {type}}}, cols, arena) {}
  /// Of ranges of rows, of which all but the last have whole panels of 16. Throws std::invalid_argument if
  /// one has not.
  PanelMatrix(std::span<const RowRange> ranges, std::int32_t cols, detail::Arena& arena) : cols_(cols) {
    for (const RowRange& range : ranges) {
      if (rows_ % detail::kPanel != 0)
        throw std::invalid_argument("PanelMatrix: a range ends with row " + std::to_string(rows_) +
                                    ", expected a multiple of 16");
      Part& part = parts_.emplace_back();
      part.stored = range.stored;
      part.first = rows_ / detail::kPanel;
      part.panels = (range.rows + detail::kPanel - 1) / detail::kPanel;
      const auto size = static_cast<std::size_t>(part.panels) * static_cast<std::size_t>(stride(part));
      if (range.stored.type == WeightType::blocks)
        part.blocks = arena.take<std::byte>(size);
      else if (range.stored.type == WeightType::bf16)
        part.pairs = arena.take<std::uint32_t>(size);
      else
        part.values = arena.take<Real>(size);
      rows_ += range.rows;
    }
  }
  PanelMatrix(std::initializer_list<RowRange> ranges, std::int32_t cols, detail::Arena& arena)
      : PanelMatrix(std::span(ranges.begin(), ranges.size()), cols, arena) {}  ///< The same.

  std::int32_t rows() const { return rows_; }  ///< outputs of the product
  std::int32_t cols() const { return cols_; }  ///< inputs of the product
  /// Panels of 16 rows.
  std::int32_t panels() const { return (rows_ + detail::kPanel - 1) / detail::kPanel; }
  std::int32_t padded_rows() const {
    return panels() * detail::kPanel;
  }  ///< rows, rounded up to whole panels
  /// How a row is stored.
  StoredType stored_at(std::int32_t row) const { return part_of(row).stored; }
  /// The kind of the first row; of none, full.
  WeightType type() const { return parts_.empty() ? WeightType::full : parts_.front().stored.type; }
  /// Whether any row is in blocks.
  bool has_blocks() const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const Part& part) { return part.stored.type == WeightType::blocks; });
  }
  /// Bytes of the stored weights.
  std::size_t bytes() const {
    std::size_t all = 0;
    for (const Part& part : parts_)
      all += static_cast<std::size_t>(part.panels) * static_cast<std::size_t>(stride(part)) *
             (part.blocks  ? 1
              : part.pairs ? sizeof(std::uint32_t)
                           : sizeof(Real));
    return all;
  }

  /// Sets row `row` from `cols` floats. A bf16 matrix rounds them to nearest, ties to even, which is exact
  /// for values that came from bf16; blocks of Q8_0 round them as round_to_groups() does. Throws
  /// std::invalid_argument for blocks of another type.
  void set_row(std::int32_t row, std::span<const float> values) {
    Part& part = part_of(row);
    if (part.blocks) {
      if (part.stored.blocks != files::GgufId::q8_0)
        throw std::invalid_argument("PanelMatrix: only blocks of Q8_0 are made of floats");
      std::vector<std::int8_t> numbers(values.size()), exponents(Int8Groups::count(values.size()));
      round_to_groups(values, numbers, exponents);
      std::vector<std::byte> blocks(exponents.size() * files::find_gguf_type(8)->bytes);
      groups_to_blocks(numbers, exponents, blocks);
      set_blocks(row, blocks.data());
      return;
    }
    for (std::int32_t k = 0; k < cols_; ++k) {
      const float value = values[static_cast<std::size_t>(k)];
      if (part.values) {
        part.values[at(part, row, k)] = static_cast<Real>(value);
        continue;
      }
      std::uint32_t& pair = part.pairs[at(part, row, k / 2)];
      const std::uint32_t upper = detail::round_to_bfloat16(value);
      pair = k % 2 == 0 ? (pair & 0xffff0000u) | (upper >> 16) : (pair & 0xffffu) | upper;
    }
  }

  /// Sets row `row`, which is in blocks, from the same blocks as a file has them. Returns the first block
  /// with a scale that is infinite or NaN; -1: none.
  std::int32_t set_blocks(std::int32_t row, const std::byte* blocks) {
    const Part& part = part_of(row);
    const detail::BlockLayout layout = detail::format_of(part.stored.blocks);
    std::byte* const panel = part.blocks.get() + (row / detail::kPanel - part.first) * stride(part);
    std::int32_t bad = -1;
    for (std::int32_t g = groups(); g-- > 0;) {
      detail::BlockGroup group;
      files::detail::read_group(part.stored.blocks, blocks, g, group);
      if (files::detail::not_finite(group.d) || files::detail::not_finite(group.m)) bad = g / layout.shared();
      detail::pack_group(layout, group, g, row % detail::kPanel, panel);
    }
    return bad;
  }

  /// Copies row `row` to `out` (cols). O(cols), strided.
  void get_row(std::int32_t row, Real* out) const {
    const Part& part = part_of(row);
    if (part.blocks)
      return detail::with_format(part.stored.blocks,
                                 [&]<files::GgufId type>(std::integral_constant<files::GgufId, type>) {
                                   constexpr detail::BlockFormat format = detail::format_of(type);
                                   const std::byte* const panel = panel_of(part, row);
                                   for (std::int32_t g = 0; g < groups(); ++g) {
                                     detail::BlockGroup group;
                                     float values[detail::kGroup];
                                     detail::unpack_group(format, panel, g, row % detail::kPanel, group);
                                     files::detail::expand_group(format, group, values);
                                     const std::int32_t k = g * detail::kGroup;
                                     std::copy_n(values, std::min(detail::kGroup, cols_ - k), out + k);
                                   }
                                 });
    for (std::int32_t k = 0; k < cols_; ++k) out[k] = value(part, row, k);
  }

  /// A copy of some rows, (rows.size(), cols), in the order given; each bit is kept. Rows that are stored in
  /// different ways become `full`. O(rows.size() * cols).
  PanelMatrix select(std::span<const std::int32_t> rows) const {
    const bool alike = std::all_of(rows.begin(), rows.end(), [&](std::int32_t row) {
      return part_of(row).stored == part_of(rows[0]).stored;
    });
    detail::Arena arena;
    const auto count = static_cast<std::int32_t>(rows.size());
    PanelMatrix out({{count, !alike || rows.empty() ? StoredType{} : part_of(rows[0]).stored}}, cols_, arena);
    std::vector<Real> values(static_cast<std::size_t>(cols_));
    for (std::int32_t r = 0; r < count; ++r) {
      const std::int32_t row = rows[static_cast<std::size_t>(r)];
      const Part &from = part_of(row), &to = out.part_of(r);
      if (alike && from.blocks) {
        const detail::BlockLayout layout = detail::format_of(from.stored.blocks);
        for (std::int32_t g = 0; g < groups(); ++g) {
          detail::BlockGroup group;
          detail::unpack_group(layout, panel_of(from, row), g, row % detail::kPanel, group);
          detail::pack_group(layout, group, g, r % detail::kPanel,
                             to.blocks.get() + r / detail::kPanel * stride(to));
        }
      } else if (alike && from.pairs) {
        for (std::int32_t k = 0; k < (cols_ + 1) / 2; ++k)
          to.pairs[at(to, r, k)] = from.pairs[at(from, row, k)];
      } else {
        get_row(row, values.data());
        for (std::int32_t k = 0; k < cols_; ++k)
          to.values[at(to, r, k)] = values[static_cast<std::size_t>(k)];
      }
    }
    return out;
  }

  /// The weight at (row, k).
  Real value(std::int32_t row, std::int32_t k) const {
    const Part& part = part_of(row);
    if (!part.blocks) return value(part, row, k);
    float values[detail::kGroup];
    expand(part, row, k / detail::kGroup, values);
    return static_cast<Real>(values[k % detail::kGroup]);
  }

  /// Calls f(panels, first, count) for the parts of panels [first, first + count) that are stored alike, in
  /// order: `panels` is a detail::BlockPanels, Bf16Panels or RealPanels from `first` on.
  template <class F>
  void for_panels(std::int32_t first, std::int32_t count, F f) const {
    for (const Part& part : parts_) {
      const std::int32_t from = std::max(first, part.first),
                         to = std::min(first + count, part.first + part.panels);
      if (from >= to) continue;
      const std::ptrdiff_t panel = stride(part), skipped = (from - part.first) * panel;
      if (part.blocks)
        f(detail::BlockPanels{part.stored.blocks, part.blocks.get() + skipped}, from, to - from);
      else if (part.pairs)
        f(detail::Bf16Panels{part.pairs.get() + skipped, panel}, from, to - from);
      else
        f(detail::RealPanels<Real>{part.values.get() + skipped, panel, detail::kPanel}, from, to - from);
    }
  }

  /// The panels from `first` on, for the panel product. Requires type() bf16, of all rows.
  detail::Bf16Panels bf16_panels(std::int32_t first) const {
    const Part& part = parts_.front();
    return {part.pairs.get() + first * stride(part), stride(part)};
  }
  /// The same; requires type() full.
  detail::RealPanels<Real> real_panels(std::int32_t first) const {
    const Part& part = parts_.front();
    return {part.values.get() + first * stride(part), stride(part), detail::kPanel};
  }

 private:
  /// Rows that are stored alike.
  struct Part {
    StoredType stored;
    std::int32_t first = 0, panels = 0;
    std::shared_ptr<std::byte[]> blocks;  // one of the three is there
    std::shared_ptr<std::uint32_t[]> pairs;
    std::shared_ptr<Real[]> values;
  };

  std::int32_t groups() const { return (cols_ + detail::kGroup - 1) / detail::kGroup; }
  /// Elements of a panel: bytes of blocks.
  std::ptrdiff_t stride(const Part& part) const {
    if (part.stored.type == WeightType::blocks)
      return detail::BlockLayout(detail::format_of(part.stored.blocks)).panel_bytes(groups());
    return static_cast<std::ptrdiff_t>(detail::kPanel) *
           (part.stored.type == WeightType::bf16 ? (cols_ + 1) / 2 : cols_);
  }
  const Part& part_of(std::int32_t row) const {
    std::size_t p = 0;
    while (p + 1 < parts_.size() && row / detail::kPanel >= parts_[p + 1].first) ++p;
    return parts_[p];
  }
  Part& part_of(std::int32_t row) { return const_cast<Part&>(std::as_const(*this).part_of(row)); }
  const std::byte* panel_of(const Part& part, std::int32_t row) const {
    return part.blocks.get() + (row / detail::kPanel - part.first) * stride(part);
  }
  std::size_t at(const Part& part, std::int32_t row, std::int32_t column) const {
    return static_cast<std::size_t>((row / detail::kPanel - part.first) * stride(part) +
                                    column * detail::kPanel + row % detail::kPanel);
  }
  Real value(const Part& part, std::int32_t row, std::int32_t k) const {
    if (part.values) return part.values[at(part, row, k)];
    return detail::bf16_half<Real>(part.pairs[at(part, row, k / 2)], k % 2 != 0);
  }
  void expand(const Part& part, std::int32_t row, std::int32_t g, float* out) const {
    const detail::BlockFormat format = detail::format_of(part.stored.blocks);
    detail::BlockGroup group;
    detail::unpack_group(format, panel_of(part, row), g, row % detail::kPanel, group);
    files::detail::expand_group(format, group, out);
  }

  std::int32_t rows_ = 0, cols_ = 0;
  std::vector<Part> parts_;
};

}  // namespace specula::cpu
