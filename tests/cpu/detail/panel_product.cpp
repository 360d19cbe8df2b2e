// SPDX-License-Identifier: MIT
// labels: vectorised
// Panel products: against sums in double, and the same bits for any number of inputs and any block of rows.
#include <specula/cpu/detail/panel_product.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "random.hpp"
#include "specula/base/half.hpp"
#include "specula/cpu/panel_matrix.hpp"

namespace {

using namespace specula::cpu;
using detail::Columns;
using specula::best_isa;
using specula::Isa;

std::vector<Isa> machine_isas() {
  std::vector<Isa> all{Isa::portable};
  if (best_isa() >= Isa::avx2) all.push_back(Isa::avx2);
  if (best_isa() >= Isa::avx512) all.push_back(Isa::avx512);
  return all;
}

template <class Real>
struct Case {
  PanelMatrix<Real> matrix;
  std::vector<Real> x;  // (columns, cols + 3)
  std::int32_t columns;

  Case(std::int32_t rows, std::int32_t cols, std::int32_t n, WeightType type, specula_test::Random& random,
       detail::Arena&& arena = {})
      : Case(rows, cols, n, type, random, arena) {}
  /// The matrix in memory of `arena`: one of its own is a large piece, which costs sanitizers milliseconds.
  Case(std::int32_t rows, std::int32_t cols, std::int32_t n, WeightType type, specula_test::Random& random,
       detail::Arena& arena)
      : matrix(rows, cols, type, arena), columns(n) {
    for (std::int32_t r = 0; r < rows; ++r) {
      std::vector<float> row(static_cast<std::size_t>(cols));
      for (auto& value : row)
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(random.between(-1, 1))) &
                                     0xffff0000u);
      matrix.set_row(r, row);
    }
    // Padding after an input must not enter the sum, not even times zero.
    x.assign(static_cast<std::size_t>(n * (cols + 3)), std::numeric_limits<Real>::quiet_NaN());
    for (std::int32_t c = 0; c < n; ++c)
      for (std::int32_t k = 0; k < cols; ++k)
        x[static_cast<std::size_t>(c * (cols + 3) + k)] = static_cast<Real>(random.between(-1, 1));
  }
  std::ptrdiff_t ldx() const { return matrix.cols() + 3; }

  std::vector<Real> multiply(Isa isa, std::int32_t first_panel, std::int32_t panels, std::int32_t first,
                             std::int32_t count) const {
    const std::ptrdiff_t ldy = panels * detail::kPanel;
    std::vector<Real> y(static_cast<std::size_t>(count * ldy), Real(99));
    const Columns<Real> io{x.data() + first * ldx(), ldx(), y.data(), ldy};
    if (matrix.type() == WeightType::bf16)
      detail::panel_product(isa, matrix.bf16_panels(first_panel), panels, matrix.cols(), io, count);
    else
      detail::panel_product(isa, matrix.real_panels(first_panel), panels, matrix.cols(), io, count);
    return y;
  }
  double exact(std::int32_t row, std::int32_t column) const {
    double sum = 0;
    for (std::int32_t k = 0; k < matrix.cols(); ++k)
      sum += static_cast<double>(matrix.value(row, k)) *
             static_cast<double>(x[static_cast<std::size_t>(column * ldx() + k)]);
    return sum;
  }
};

TEST_CASE_TEMPLATE("any size, any number of inputs", Real, float, double) {
  specula_test::Random random(11);
  for (const Isa isa : machine_isas())
    for (const auto type : {WeightType::bf16, WeightType::full})
      for (const std::int32_t rows : {1, 15, 16, 17, 33, 70, 129}) {
        detail::Arena arena;
        for (const std::int32_t cols : {1, 2, 7, 32, 33, 100})
          for (const std::int32_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 64}) {
            if (n == 64 && rows > 70) continue;
            const Case<Real> c(rows, cols, n, type, random, arena);
            const auto y = c.multiply(isa, 0, c.matrix.panels(), 0, n);
            const double tolerance = (std::is_same_v<Real, float> ? 1e-7 : 1e-16) * (cols + 8);
            bool all_close = true;
            for (std::int32_t col = 0; col < n; ++col)
              for (std::int32_t r = 0; r < rows; ++r)
                all_close =
                    all_close && std::abs(static_cast<double>(
                                              y[static_cast<std::size_t>(col * c.matrix.padded_rows() + r)]) -
                                          c.exact(r, col)) <= tolerance;
            CAPTURE(static_cast<int>(isa));
            CAPTURE(rows);
            CAPTURE(cols);
            CAPTURE(n);
            CHECK(all_close);
          }
      }
}

TEST_CASE("the bits of a product depend only on the row and the input") {
  specula_test::Random random(12);
  for (const Isa isa : machine_isas())
    for (const auto type : {WeightType::bf16, WeightType::full}) {
      const std::int32_t n = 23;
      const Case<float> c(200, 75, n, type, random);
      const auto all = c.multiply(isa, 0, c.matrix.panels(), 0, n);
      for (std::int32_t count = 1; count <= 9; ++count)
        for (std::int32_t first_panel = 0; first_panel < c.matrix.panels(); first_panel += 3)
          for (std::int32_t panels = 1; panels <= std::min(7, c.matrix.panels() - first_panel); ++panels) {
            const std::int32_t first = random.below(n - count + 1);
            const auto part = c.multiply(isa, first_panel, panels, first, count);
            bool same = true;
            for (std::int32_t col = 0; col < count; ++col)
              for (std::int32_t r = 0; r < panels * detail::kPanel; ++r)
                same = same && part[static_cast<std::size_t>(col * panels * detail::kPanel + r)] ==
                                   all[static_cast<std::size_t>((first + col) * c.matrix.padded_rows() +
                                                                first_panel * detail::kPanel + r)];
            CHECK(same);
          }
    }
}

TEST_CASE("bf16 and full weights give the same bits") {
  for (const Isa isa : machine_isas()) {
    specula_test::Random a(13), b(13);
    const Case<float> narrow(40, 31, 5, WeightType::bf16, a), wide(40, 31, 5, WeightType::full, b);
    CHECK(narrow.multiply(isa, 0, 3, 0, 5) == wide.multiply(isa, 0, 3, 0, 5));
  }
}

TEST_CASE("accumulate continues the sum") {
  specula_test::Random random(14);
  for (const Isa isa : machine_isas()) {
    const Case<float> c(33, 40, 3, WeightType::full, random);
    const auto whole = c.multiply(isa, 0, 3, 0, 3);
    auto panels = c.matrix.real_panels(0);
    std::vector<float> y(3 * 48, 5.0f);
    detail::panel_product(isa, panels, 3, 13, Columns<float>{c.x.data(), c.ldx(), y.data(), 48}, 3);
    panels.w += 13 * panels.column;
    detail::panel_product(isa, panels, 3, 27, Columns<float>{c.x.data() + 13, c.ldx(), y.data(), 48}, 3,
                          true);
    CHECK(y == whole);
  }
}

/// What Isa::portable adds: as the compiler's target does it.
template <class Real>
Real multiply_add(Isa isa, Real a, Real b, Real sum) {
#if !defined(__FMA__) && !defined(__FP_FAST_FMAF) && !defined(__ARM_FEATURE_FMA)
  if (isa == Isa::portable || std::is_same_v<Real, double>) return sum + a * b;
#endif
  static_cast<void>(isa);
  return std::fma(a, b, sum);
}

TEST_CASE_TEMPLATE("a product is one chain of multiply-adds, also of a prompt's length", Real, float,
                   double) {
  specula_test::Random random(15);
  for (const Isa isa : machine_isas())
    for (const auto type : {WeightType::bf16, WeightType::full})
      for (const std::int32_t n : {1, 6, 7, 65, 150}) {
        const Case<Real> c(37, 301, n, type, random);
        const auto y = c.multiply(isa, 0, c.matrix.panels(), 0, n);
        bool same = true;
        for (std::int32_t col = 0; col < n; ++col)
          for (std::int32_t r = 0; r < 37; ++r) {
            Real sum = 0;
            for (std::int32_t k = 0; k < 301; ++k)
              sum = multiply_add(isa, c.matrix.value(r, k), c.x[static_cast<std::size_t>(col * c.ldx() + k)],
                                 sum);
            same = same && sum == y[static_cast<std::size_t>(col * c.matrix.padded_rows() + r)];
          }
        CAPTURE(static_cast<int>(isa));
        CAPTURE(n);
        CHECK(same);
      }
}

TEST_CASE_TEMPLATE("a product of no columns is 0, or what was there", Real, float, double) {
  specula_test::Random random(17);
  for (const Isa isa : machine_isas())
    for (const std::int32_t n : {1, 3, 24}) {
      const Case<Real> c(40, 5, n, WeightType::full, random);
      std::vector<std::uint16_t> halves(40 * 16, 0x3c00);
      const auto is_all = [&](auto panels, Real value, bool accumulate) {
        std::vector<Real> y(static_cast<std::size_t>(n * 48), Real(5));
        detail::panel_product(isa, panels, 3, 0, Columns<Real>{c.x.data(), c.ldx(), y.data(), 48}, n,
                              accumulate);
        return y == std::vector<Real>(y.size(), value);
      };
      CAPTURE(static_cast<int>(isa));
      for (const bool accumulate : {false, true}) {
        const Real value = accumulate ? Real(5) : Real(0);
        CHECK(is_all(c.matrix.real_panels(0), value, accumulate));
        if constexpr (std::is_same_v<Real, float>)
          CHECK(is_all(detail::HalfPanels{halves.data(), 80}, value, accumulate));
      }
    }
}

/// Panels of half floats, among them subnormal ones, and inputs.
struct HalfCase {
  std::int32_t panels, depth, columns;
  std::vector<std::uint16_t> w;  // (panels, depth, 16)
  std::vector<float> x;          // (columns, depth + 3)

  HalfCase(std::int32_t panels_, std::int32_t depth_, std::int32_t n, specula_test::Random& random)
      : panels(panels_), depth(depth_), columns(n) {
    for (std::int32_t i = 0; i < panels * depth * detail::kPanel; ++i)
      w.push_back(specula::detail::round_to_half(static_cast<float>(random.between(-1, 1)) * (i % 7 ? 1.0f : 1e-5f)));
    for (std::int32_t i = 0; i < columns * (depth + 3); ++i)
      x.push_back(i % (depth + 3) < depth ? static_cast<float>(random.between(-1, 1))
                                          : std::numeric_limits<float>::quiet_NaN());
  }

  /// Of the first `n` inputs the `count` numbers from number `first` on, each after what is in y.
  void multiply(Isa isa, std::int32_t first, std::int32_t count, std::int32_t n, std::vector<float>& y,
                bool accumulate) const {
    const detail::HalfPanels from{w.data() + first * detail::kPanel,
                                  static_cast<std::ptrdiff_t>(depth) * detail::kPanel};
    const std::vector<float> inputs(x.begin(), x.begin() + n * (depth + 3));  // no others may be read
    detail::panel_product(isa, from, panels, count,
                          Columns<float>{inputs.data() + first, depth + 3, y.data(), panels * detail::kPanel},
                          n, accumulate);
  }
  std::vector<float> chains(Isa isa) const {
    std::vector<float> y;
    for (std::int32_t c = 0; c < columns; ++c)
      for (std::int32_t v = 0; v < panels; ++v)
        for (std::int32_t r = 0; r < detail::kPanel; ++r) {
          float sum = 0;
          for (std::int32_t k = 0; k < depth; ++k)
            sum = multiply_add(
                isa, specula::detail::half_to_float(w[static_cast<std::size_t>((v * depth + k) * detail::kPanel + r)]),
                x[static_cast<std::size_t>(c * (depth + 3) + k)], sum);
          y.push_back(sum);
        }
    return y;
  }
};

TEST_CASE("products with half floats are one chain of multiply-adds of any length, also in two parts") {
  specula_test::Random random(16);
  for (const Isa isa : machine_isas())
    for (const std::int32_t panels : {1, 2, 3, 4, 5, 7})
      for (const std::int32_t depth : {1, 2, 33, 64, 129, 300}) {
        const std::int32_t most = depth < 129 || panels > 6 ? 24 : 7;
        const HalfCase c(panels, depth, most, random);
        const std::vector<float> chains = c.chains(isa);
        for (std::int32_t n = 1; n <= most; ++n) {
          const std::vector<float> want(chains.begin(), chains.begin() + n * panels * detail::kPanel);
          std::vector<float> whole(want.size(), 5.0f), parts(want.size(), 5.0f);
          c.multiply(isa, 0, depth, n, whole, false);
          CAPTURE(static_cast<int>(isa));
          CAPTURE(panels);
          CAPTURE(depth);
          CAPTURE(n);
          CHECK(whole == want);
          if (depth == 1) continue;
          c.multiply(isa, 0, depth / 2, n, parts, false);
          c.multiply(isa, depth / 2, depth - depth / 2, n, parts, true);
          CHECK(parts == want);
        }
      }
}

}  // namespace
