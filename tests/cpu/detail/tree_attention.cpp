// SPDX-License-Identifier: MIT
// Attention of a tree's tokens to the context and their ancestors, wherever their slots are, against plain
// loops.
#include <specula/cpu/detail/tree_attention.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "random.hpp"
#include "worst.hpp"

using namespace specula::cpu;
using namespace specula::cpu::detail;

namespace {

struct Peaks {  // of the weights: the largest on average, and whether all are alike
  double mean = 0;
  bool alike = true;
};

/// As a cache of this type keeps it.
template <class Real>
Real given(double value, CacheType type) {
  const auto whole = static_cast<Real>(value);
  return type == CacheType::full ? whole
                                 : static_cast<Real>(specula::detail::half_to_float(specula::detail::round_to_half(static_cast<float>(whole))));
}

/// Five tokens of a tree after three of context, whose scores are `factor` times those of random numbers: the
/// worst output of a query of a token, and `peaks`.
template <class Real>
double worst_output(specula::Isa isa, double factor, Peaks& peaks, CacheType type = CacheType::full) {
  constexpr std::int32_t kSize = 6, kGroup = 2, kBase = 3, kEnd = 9;
  specula_test::Random random(1);
  KvCache<Real> cache(1, 1, kSize, 16, type, isa);
  std::vector<std::vector<Real>> keys, values;
  for (std::int32_t slot = 0; slot < 16; ++slot) {  // those that no token sees must not matter
    for (auto* to : {&keys, &values}) {
      to->emplace_back();
      for (std::int32_t d = 0; d < kSize; ++d) to->back().push_back(given<Real>(random.between(-2, 2), type));
    }
    cache.store(0, 0, slot, keys.back().data(), values.back().data());
  }
  const std::vector<std::vector<std::int32_t>> paths{{3}, {3, 4}, {3, 4, 6, 8}, {5}, {5, 7}};
  const std::vector<std::int32_t> in_order{1, 2, 2, 0, 0};
  std::vector<BatchToken> tokens;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto size = static_cast<std::int32_t>(paths[i].size());
    tokens.push_back({0, kBase + size - 1, paths[i].back(), paths[i].data(), size, in_order[i]});
  }
  std::vector<Real> queries(paths.size() * kGroup * kSize + 16), out(paths.size() * 20);
  for (Real& x : queries) x = static_cast<Real>(factor * random.between(-1, 1));
  const Elementwise<Real> elementwise(isa);
  AttentionScratch<Real> scratch(16, 16);
  TreeAttention<Real>{isa, elementwise, cache, kGroup, kSize, kBase, kEnd}.run(0, 0, tokens, queries.data(),
                                                                               out.data(), 20, scratch);

  double worst = 0;
  for (std::size_t i = 0; i < paths.size(); ++i)
    for (std::size_t g = 0; g < kGroup; ++g) {
      std::vector<std::int32_t> seen{0, 1, 2};
      seen.insert(seen.end(), paths[i].begin(), paths[i].end());
      std::vector<double> weights;
      for (const std::int32_t s : seen) {
        double dot = 0;
        for (std::size_t d = 0; d < kSize; ++d)
          dot += static_cast<double>(queries[(i * kGroup + g) * kSize + d]) *
                 static_cast<double>(keys[static_cast<std::size_t>(s)][d]);
        weights.push_back(dot);
      }
      const double top = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& w : weights) total += w = std::exp(w - top);
      peaks.mean += 1 / total / static_cast<double>(paths.size() * kGroup);
      peaks.alike = peaks.alike && total == static_cast<double>(seen.size());
      for (std::size_t d = 0; d < kSize; ++d) {
        double want = 0;
        for (std::size_t n = 0; n < seen.size(); ++n)
          want += weights[n] / total * static_cast<double>(values[static_cast<std::size_t>(seen[n])][d]);
        worst = specula_test::worse(worst, std::abs(static_cast<double>(out[i * 20 + g * kSize + d]) - want));
      }
    }
  return worst;
}

}  // namespace

TEST_CASE("a context of three, and paths that follow it, leave a gap, or are one slot") {
  for (const double factor : {0.0, 1.0, 8.0, 1e5}) {
    CAPTURE(factor);
    Peaks peaks;
    CHECK(worst_output<double>(specula::Isa::portable, factor, peaks) < 1e-12);
    CHECK(peaks.alike == (factor == 0));
    if (factor == 8) CHECK((peaks.mean > 0.7 && peaks.mean < 0.99));
    if (factor > 8) CHECK(peaks.mean > 0.999);
    for (const specula::Isa isa : {specula::Isa::portable, specula::Isa::avx2, specula::Isa::avx512})
      for (const CacheType type : {CacheType::full, CacheType::half})
        if (specula::supported(isa)) CHECK(worst_output<float>(isa, factor, peaks, type) < 1e-5);
  }
}
