// SPDX-License-Identifier: MIT
// Reference softmax of a row of logits, independent of the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include <specula/base/sampling_params.hpp>
#include <specula/distribution/row_math.hpp>

namespace specula_test {

/// While it lives, rows are computed with `isa`, one of every_isa().
class Arithmetic {
 public:
  explicit Arithmetic(specula::Isa isa) { specula::detail::isa_choice().store(isa); }
  ~Arithmetic() { specula::detail::isa_choice().store(before_); }
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

 private:
  specula::Isa before_ = specula::detail::isa();
};

/// While it lives, rows are computed in double precision.
class ReferenceArithmetic : Arithmetic {
 public:
  ReferenceArithmetic() : Arithmetic(specula::Isa::reference) {}
};

/// Every instruction set of this machine.
inline std::vector<specula::Isa> every_isa() {
  using specula::Isa;
  std::vector<Isa> out;
  for (const Isa isa : {Isa::reference, Isa::portable, Isa::avx2, Isa::avx512})
    if (specula::supported(isa)) out.push_back(isa);
  return out;
}

/// p over a tiny row, independent of the library: sorts and truncates by rank.
inline std::vector<double> plain_distribution(const std::vector<float>& row,
                                              const specula::SamplingParams& params) {
  const std::size_t v = row.size();
  std::vector<double> p(v, 0.0);
  const float top = *std::max_element(row.begin(), row.end());
  if (params.temperature == 0.0f) {
    p[static_cast<std::size_t>(std::find(row.begin(), row.end(), top) - row.begin())] = 1;
    return p;
  }
  std::vector<float> sorted = row;
  std::sort(sorted.rbegin(), sorted.rend());
  const auto weight = [&](float l) {
    return static_cast<double>(std::exp((static_cast<long double>(l) - static_cast<long double>(top)) /
                                        static_cast<long double>(params.temperature)));
  };
  double theta = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < v
                     ? static_cast<double>(sorted[static_cast<std::size_t>(params.top_k) - 1])
                     : -1e300;
  if (params.top_p < 1.0f) {
    double mass = 0, seen = 0;
    for (const float l : sorted)
      if (static_cast<double>(l) >= theta) mass += weight(l);
    for (const float l : sorted) {
      seen += weight(l);
      if (seen >= static_cast<double>(params.top_p) * mass) {
        theta = std::max(theta, static_cast<double>(l));
        break;
      }
    }
  }
  double z = 0;
  for (std::size_t x = 0; x < v; ++x) {
    const bool by_min_p = weight(row[x]) >= static_cast<double>(params.min_p);
    if (static_cast<double>(row[x]) >= theta && by_min_p) z += p[x] = weight(row[x]);
  }
  for (double& x : p) x /= z;
  return p;
}

/// The smallest logit that a full sort keeps, and whether a rounding of `slack` might have made it another
/// one: top-p where the mass seen comes that near to top_p, min-p where a logit comes that near to its
/// threshold.
struct SortedCut {
  float least;
  bool near;
};
inline SortedCut by_sorting(const std::vector<float>& row, const specula::SamplingParams& params,
                            double slack) {
  const double inv_t = 1 / static_cast<double>(params.temperature);
  std::vector<float> sorted = row;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double top = static_cast<double>(sorted[0]);
  const auto weight = [&](float l) { return std::exp(inv_t * (static_cast<double>(l) - top)); };
  bool near = false;
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < sorted.size()) {
    std::size_t n = static_cast<std::size_t>(params.top_k);
    while (n < sorted.size() && sorted[n] == sorted[n - 1]) ++n;  // ties are kept
    sorted.resize(n);
  }
  if (params.top_p < 1) {
    double mass = 0, seen = 0;
    for (const float l : sorted) mass += weight(l);
    std::size_t n = 0;
    while (n < sorted.size()) {
      seen += weight(sorted[n++]);
      near |= std::abs(seen / mass - static_cast<double>(params.top_p)) < slack;
      if (seen >= static_cast<double>(params.top_p) * mass) break;
    }
    while (n < sorted.size() && sorted[n] == sorted[n - 1]) ++n;
    sorted.resize(n);
  }
  if (params.min_p > 0) {
    const double threshold = std::log(static_cast<double>(params.min_p));
    const double rounding = inv_t * std::abs(top) * 0x1p-23;  // of the threshold to a float, as logits are
    while (inv_t * (static_cast<double>(sorted.back()) - top) < threshold) sorted.pop_back();
    for (const float l : row)
      if (l < sorted[0])
        near |= std::abs(inv_t * (static_cast<double>(l) - top) - threshold) < slack * 100 + rounding;
  }
  return {sorted.back(), near};
}

}  // namespace specula_test
