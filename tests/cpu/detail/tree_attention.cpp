// Attention of a tree's tokens to the context and their ancestors, wherever their slots are, against plain
// loops.
#include <specula/cpu/detail/tree_attention.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "random.hpp"

using namespace specula::cpu;
using namespace specula::cpu::detail;

TEST_CASE("a context of three, and paths that follow it, leave a gap, or are one slot") {
  constexpr std::int32_t kSize = 6, kGroup = 2, kBase = 3, kEnd = 9;
  specula_test::Random random(1);
  KvCache<double> cache(1, 1, kSize, 16);
  std::vector<std::vector<double>> keys, values;
  for (std::int32_t slot = 0; slot < 16; ++slot) {  // those that no token sees must not matter
    for (auto* to : {&keys, &values}) {
      to->emplace_back();
      for (std::int32_t d = 0; d < kSize; ++d) to->back().push_back(random.between(-2, 2));
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
  std::vector<double> queries(paths.size() * kGroup * kSize + 16), out(paths.size() * 20);
  for (double& x : queries) x = random.between(-1, 1);
  const Elementwise<double> elementwise(specula::Isa::portable);
  AttentionScratch<double> scratch(16, 16);
  TreeAttention<double>{specula::Isa::portable, elementwise, cache, kGroup, kSize, kBase, kEnd}.run(
      0, 0, tokens, queries.data(), out.data(), 20, scratch);

  for (std::size_t i = 0; i < paths.size(); ++i)
    for (std::size_t g = 0; g < kGroup; ++g) {
      std::vector<std::int32_t> seen{0, 1, 2};
      seen.insert(seen.end(), paths[i].begin(), paths[i].end());
      double total = 0;
      std::vector<double> want(kSize);
      for (const std::int32_t s : seen) {
        const auto slot = static_cast<std::size_t>(s);
        double dot = 0;
        for (std::size_t d = 0; d < kSize; ++d) dot += queries[(i * kGroup + g) * kSize + d] * keys[slot][d];
        total += std::exp(dot);
        for (std::size_t d = 0; d < kSize; ++d) want[d] += std::exp(dot) * values[slot][d];
      }
      for (std::size_t d = 0; d < kSize; ++d)
        CHECK(out[i * 20 + g * kSize + d] == doctest::Approx(want[d] / total).epsilon(1e-12));
    }
}
