// SPDX-License-Identifier: MIT
// Weight matrix packed in panels for the panel product.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/inputs.hpp"

namespace specula::cpu {

/// (rows, cols), filled row by row once, then read only: copies share the rows. Real is the model's compute
/// type: float or double.
template <class Real>
class PanelMatrix {
 public:
  PanelMatrix() = default;
  /// Allocates the matrix, in memory of its own or, if given, of `arena`.
  PanelMatrix(std::int32_t rows, std::int32_t cols, WeightType type, detail::Arena&& arena = {})
      : PanelMatrix(rows, cols, type, arena) {}
  /// Takes its memory from `arena`. Construct matrices in the order of their use: the end of a product
  /// prefetches the memory after it.
  PanelMatrix(std::int32_t rows, std::int32_t cols, WeightType type, detail::Arena& arena)
      : rows_(rows), cols_(cols), type_(type) {
    if (type == WeightType::bf16)
      pairs_ = arena.take<std::uint32_t>(size());
    else
      values_ = arena.take<Real>(size());
  }

  std::int32_t rows() const { return rows_; }  ///< outputs of the product
  std::int32_t cols() const { return cols_; }  ///< inputs of the product
  /// Panels of 16 rows.
  std::int32_t panels() const { return (rows_ + detail::kPanel - 1) / detail::kPanel; }
  std::int32_t padded_rows() const {
    return panels() * detail::kPanel;
  }                                          ///< rows, rounded up to whole panels
  WeightType type() const { return type_; }  ///< how the weights are stored
  /// Bytes of the stored weights.
  std::size_t bytes() const {
    return size() * (type_ == WeightType::bf16 ? sizeof(std::uint32_t) : sizeof(Real));
  }

  /// Sets row `row` from `cols` floats. A bf16 matrix rounds them to nearest, ties to even, which is exact
  /// for values that came from bf16.
  void set_row(std::int32_t row, std::span<const float> values) {
    for (std::int32_t k = 0; k < cols_; ++k) {
      const float value = values[static_cast<std::size_t>(k)];
      if (type_ == WeightType::full) {
        values_[at(row, k)] = static_cast<Real>(value);
        continue;
      }
      std::uint32_t& pair = pairs_[at(row, k / 2)];
      const std::uint32_t upper = detail::round_to_bfloat16(value);
      pair = k % 2 == 0 ? (pair & 0xffff0000u) | (upper >> 16) : (pair & 0xffffu) | upper;
    }
  }

  /// Copies row `row` to `out` (cols). O(cols), strided.
  void get_row(std::int32_t row, Real* out) const {
    for (std::int32_t k = 0; k < cols_; ++k) out[k] = value(row, k);
  }

  /// A copy of some rows, (rows.size(), cols), in the order given; each bit is kept. O(rows.size() * cols).
  PanelMatrix select(std::span<const std::int32_t> rows) const {
    PanelMatrix out(static_cast<std::int32_t>(rows.size()), cols_, type_);
    const auto copy = [&](const auto& from, const auto& to, std::int32_t cols) {
      for (std::int32_t r = 0; r < out.rows_; ++r)
        for (std::int32_t k = 0; k < cols; ++k)
          to[out.at(r, k)] = from[at(rows[static_cast<std::size_t>(r)], k)];
    };
    if (type_ == WeightType::bf16)
      copy(pairs_, out.pairs_, (cols_ + 1) / 2);
    else
      copy(values_, out.values_, cols_);
    return out;
  }

  /// The weight at (row, k).
  Real value(std::int32_t row, std::int32_t k) const {
    if (type_ == WeightType::full) return values_[at(row, k)];
    const std::uint32_t pair = pairs_[at(row, k / 2)];
    return static_cast<Real>(std::bit_cast<float>(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u));
  }

  /// The panels from `first` on, for the panel product. Requires type() bf16.
  detail::Bf16Panels bf16_panels(std::int32_t first) const {
    return {pairs_.get() + first * panel_stride(), panel_stride()};
  }
  /// The same; requires type() full.
  detail::RealPanels<Real> real_panels(std::int32_t first) const {
    return {values_.get() + first * panel_stride(), panel_stride(), detail::kPanel};
  }

 private:
  std::ptrdiff_t panel_stride() const {
    return static_cast<std::ptrdiff_t>(detail::kPanel) *
           (type_ == WeightType::bf16 ? (cols_ + 1) / 2 : cols_);
  }
  std::size_t size() const {  // of the storage
    return static_cast<std::size_t>(panels()) * static_cast<std::size_t>(panel_stride());
  }
  std::size_t at(std::int32_t row, std::int32_t column) const {
    return static_cast<std::size_t>(row / detail::kPanel * panel_stride() + column * detail::kPanel +
                                    row % detail::kPanel);
  }

  std::int32_t rows_ = 0, cols_ = 0;
  WeightType type_ = WeightType::full;
  std::shared_ptr<std::uint32_t[]> pairs_;  // one of the two is empty
  std::shared_ptr<Real[]> values_;
};

}  // namespace specula::cpu
