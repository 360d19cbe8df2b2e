// Matrix products with many columns (prefill) by Eigen, over blocks of weights that are expanded once.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/panel_matrix.hpp"

namespace specula::cpu::detail {

/// Scratch for one thread. Eigen chooses the blocking of the sums: the bits differ from the panel product's,
/// and may depend on the number of columns.
template <class Real>
class LargeBatchProduct {
 public:
  explicit LargeBatchProduct(std::int32_t max_cols)
      : expanded_(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(max_cols)) {}

  /// io.y = W[panels] io.x, as panel_product().
  void run(const PanelMatrix<Real>& matrix, std::int32_t first_panel, std::int32_t panels, Columns<Real> io,
           std::int32_t columns) {
    using Matrix = ::Eigen::Matrix<Real, ::Eigen::Dynamic, ::Eigen::Dynamic>;
    const ::Eigen::Map<const Matrix, 0, ::Eigen::OuterStride<>> x(io.x, matrix.cols(), columns,
                                                                  ::Eigen::OuterStride<>(io.ldx));
    for (std::int32_t panel = 0; panel < panels; panel += kRows / kPanel) {
      const std::int32_t count = std::min(kRows / kPanel, panels - panel), rows = count * kPanel;
      for (std::int32_t p = 0; p < count; ++p)
        expand(matrix, first_panel + panel + p, expanded_.data() + p * kPanel, rows);
      const ::Eigen::Map<const Matrix> w(expanded_.data(), rows, matrix.cols());
      ::Eigen::Map<Matrix, 0, ::Eigen::OuterStride<>> y(io.y + static_cast<std::ptrdiff_t>(panel) * kPanel,
                                                        rows, columns, ::Eigen::OuterStride<>(io.ldy));
      y.noalias() = w * x;
    }
  }

 private:
  static constexpr std::int32_t kRows = 128;  // of an expanded block

  /// out[k * rows + r] = W(16 panel + r, k)
  static void expand(const PanelMatrix<Real>& matrix, std::int32_t panel, Real* out, std::ptrdiff_t rows) {
    const std::int32_t cols = matrix.cols();
    if (matrix.type() == WeightType::full) {
      const Real* from = matrix.real_panels(panel).w;
      for (std::int32_t k = 0; k < cols; ++k)
        std::copy_n(from + static_cast<std::ptrdiff_t>(k) * kPanel, kPanel, out + k * rows);
      return;
    }
    const std::uint32_t* from = matrix.bf16_panels(panel).w;
    for (std::int32_t k = 0; k < cols; k += 2, from += kPanel)
      for (std::int32_t r = 0; r < kPanel; ++r) {
        out[k * rows + r] = static_cast<Real>(std::bit_cast<float>(from[r] << 16));
        if (k + 1 < cols)
          out[(k + 1) * rows + r] = static_cast<Real>(std::bit_cast<float>(from[r] & 0xffff0000u));
      }
  }

  AlignedVector<Real> expanded_;  // (cols, 128)
};

}  // namespace specula::cpu::detail
