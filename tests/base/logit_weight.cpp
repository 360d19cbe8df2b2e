// SPDX-License-Identifier: MIT
// Scalars of a row's weights as powers of two, against exp(): at any offset of the row, and below the cut.
#include <specula/base/logit_weight.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

namespace {

struct Row {
  float shift;
  double log_z;
  float min_logit;
};

}  // namespace

TEST_CASE(
    "2^((l - shift) * scale - offset) is exp((l - shift) / T - log_z), also for logits that floats resolve "
    "badly") {
  for (const double temperature : {0.1, 1.0, 5.0})
    for (const double top : {0.0, -20.0, 3e4, -1e6})
      for (const double log_z : {0.0, 0.7, 11.0}) {
        const Row row{static_cast<float>(top), log_z, -1e30f};
        const specula::detail::ExponentScalars s(row, 1 / temperature);
        CHECK(std::abs(static_cast<double>(s.offset)) <= log_z * specula::detail::kLog2E + 1e-6);
        for (const float below : {0.0f, 0.5f, 8.0f}) {
          const float logit = row.shift - below;
          const double have = std::exp2(static_cast<double>((logit - s.shift) * s.scale - s.offset));
          const double want =
              std::exp((static_cast<double>(logit) - static_cast<double>(row.shift)) / temperature - log_z);
          CHECK(have == doctest::Approx(want).epsilon(2e-5));
        }
      }
  CHECK(specula::detail::ExponentScalars(Row{1, 0.5, -3.0f}, 1).min_logit == -3.0f);
}
