// SPDX-License-Identifier: MIT
// gumbel_argmax() with given words in place of noise: the earliest time wins.
#include <specula/distribution/gumbel_argmax.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "fixed_weights.hpp"
#include "random.hpp"
#include "structured_rows.hpp"

using namespace specula;
using specula_test::FixedWeights;

namespace {

/// gumbel_argmax() of given words, without the kernels. The bound must be the best time so far, or slightly
/// more.
Token race(const FixedWeights& weights, const std::vector<std::uint32_t>& words) {
  double best = std::numeric_limits<double>::infinity();
  return detail::gumbel_argmax(weights, [&](Token from, const float* w, float bound, std::uint32_t* out) {
    CHECK(static_cast<double>(bound) >= best);
    CHECK(static_cast<double>(bound) <= std::max(best * (1 + 1e-5), 0x1p-126));
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t x = static_cast<std::size_t>(from) + i;
      out[i] = x < words.size() ? words[x] : 0xFFFFFFFFu;
      const double time = -std::log((static_cast<double>(out[i]) + 0.5) * 0x1p-32);
      if (w[i] > 0) best = std::min(best, time / static_cast<double>(w[i]));
    }
    return ~std::uint64_t{0};
  });
}

}  // namespace

TEST_CASE("the token of the earliest time, against a loop over all tokens") {
  specula_test::Random random(3);
  for (int round = 0; round < 400; ++round) {
    const auto vocab = static_cast<std::size_t>(1 + random.below(round % 2 ? 1500 : 20));
    const double decades = round % 3 * 6;
    std::vector<float> w(vocab);
    std::vector<std::uint32_t> words(vocab);
    for (float& x : w)
      x = random.bernoulli(0.6) ? static_cast<float>(std::pow(10, -decades * random.uniform())) : 0.0f;
    w[vocab / 2] = 1;
    if (round % 4 == 0)
      w = specula_test::structured_weights(
          specula_test::kRowKinds[static_cast<std::size_t>(round / 4) % specula_test::kRowKinds.size()],
          static_cast<std::int32_t>(vocab), random);
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random.bits());
    Token want = kNoToken;
    double earliest = std::numeric_limits<double>::infinity();
    for (std::size_t x = 0; x < vocab; ++x) {
      const double time =
          -std::log((static_cast<double>(words[x]) + 0.5) * 0x1p-32) / static_cast<double>(w[x]);
      if (w[x] > 0 && time < earliest) earliest = time, want = static_cast<Token>(x);
    }
    REQUIRE(race(FixedWeights(w), words) == want);
  }
}

TEST_CASE("extreme words, ties, tokens without mass") {
  constexpr std::uint32_t last = 0xFFFFFFFFu;
  CHECK(race(FixedWeights({1, 1, 1}), {0, last, 0}) == 1);  // the largest word is the earliest time
  CHECK(race(FixedWeights({1, 1, 1}), {0, 0, 0}) == 0);     // ties go to the lower token
  CHECK(race(FixedWeights({0, 1, 1}), {last, 0, 0}) == 1);  // no weight: never drawn
  CHECK(race(FixedWeights({0, 1e-30f, 0}), {last, 0, last}) == 1);
  CHECK(race(FixedWeights({1, 1e-12f}), {0, last}) == 0);  // 22.9 against 116
  CHECK(race(FixedWeights({1, 1e-10f}), {0, last}) == 1);  // 22.9 against 1.16
  std::vector<float> w(1100, 0.0f);
  w[3] = 1, w[1050] = 1, w[1051] = 1;  // the heaviest tile runs first; the tie still goes to the lower token
  std::vector<std::uint32_t> words(1100, 5u);
  CHECK(race(FixedWeights(w), words) == 3);
  words[1051] = 6;
  CHECK(race(FixedWeights(w), words) == 1051);
  w[3] = 1e-11f, words[3] = last;  // a tile just heavy enough to win with the best word
  CHECK(race(FixedWeights(w), words) == 3);
}

TEST_CASE(
    "weights that are empty, infinite or not numbers, and masses that their tiles do not hold, are errors") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::uint32_t> words(3, 7u);
  for (const float x : {0.0f, nan, inf})
    CHECK_THROWS_AS(race(FixedWeights({0, x, 0}), words), std::runtime_error);
  FixedWeights lying({0, 0, 0});
  lying.masses[0] = 1;
  CHECK_THROWS_AS(race(lying, words), std::runtime_error);
}
