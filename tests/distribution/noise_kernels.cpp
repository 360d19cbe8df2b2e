// SPDX-License-Identifier: MIT
// labels: vectorised
// Kernels of Gumbel noise from Philox words.
#include <specula/distribution/noise_kernels.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "philox_of_arrays.hpp"
#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula::detail;

TEST_CASE("words are Philox's, and bits mark the tokens that can win, on every instruction set") {
  specula_test::Random random(5);
  for (const Isa chosen : specula_test::every_isa()) {
    const specula_test::Arithmetic arithmetic(chosen);
    int wrong = 0, won = 0;
    for (int round = 0; round < 500; ++round) {
      NoiseCounter at{};
      for (std::uint32_t& word : at.first) word = static_cast<std::uint32_t>(random.below(1 << 30)) * 4 + 1;
      for (std::uint32_t& word : at.key) word = static_cast<std::uint32_t>(random.below(1 << 30)) * 4 + 3;
      std::array<float, kNoiseBlock> weights;
      for (float& w : weights) w = random.bernoulli(0.3) ? 0 : static_cast<float>(random.between(0, 1));
      if (round % 4 == 0)
        std::ranges::copy(
            specula_test::structured_weights(
                specula_test::kRowKinds[static_cast<std::size_t>(round / 4) % specula_test::kRowKinds.size()],
                kNoiseBlock, random),
            weights.begin());
      const float bound = static_cast<float>(random.between(0, 0.5));
      std::array<std::uint32_t, kNoiseBlock> words{};
      const std::uint64_t bits = noise_block(at, weights.data(), bound, words.data());
      for (std::uint32_t i = 0; i < kNoiseBlock; ++i) {
        std::array<std::uint32_t, 4> counter = at.first;
        counter[2] += i / 4;
        wrong += words[i] != specula_test::philox(counter, at.key)[i % 4];
        const double rest = 1 - (static_cast<double>(words[i]) + 0.5) * 0x1p-32;
        const double limit = static_cast<double>(weights[i] * bound);
        if (rest <= limit) ++won, wrong += !(bits >> i & 1);
        if (rest > limit * (1 + 1e-6) + 0x1p-23) wrong += (bits >> i & 1);
      }
    }
    CHECK(wrong == 0);
    CHECK(won > 1000);
    std::array<float, kNoiseBlock> none{};
    std::array<std::uint32_t, kNoiseBlock> words;
    words.fill(7);
    CHECK(noise_block({}, none.data(), 1.0f, words.data()) == 0);
    CHECK(words[0] == 7);  // not written
  }
}

TEST_CASE(
    "words and bits are the same on every instruction set, over many decades and for an infinite bound") {
  specula_test::Random random(7);
  for (int round = 0; round < 300; ++round) {
    const NoiseCounter at{
        {static_cast<std::uint32_t>(round), 0, 6u << 24 | 16u * static_cast<unsigned>(round), 9},
        {static_cast<std::uint32_t>(random.bits()), 77}};
    std::array<float, 64> w;
    const double decades = round % 3 * 8;
    for (float& x : w)
      x = random.bernoulli(0.8) ? static_cast<float>(std::pow(10, -decades * random.uniform())) : 0.0f;
    const auto bound = round % 5 == 0 ? std::numeric_limits<float>::infinity()
                                      : static_cast<float>(std::pow(10, random.between(-4, 6)));
    std::array<std::uint32_t, 64> want{};
    const std::uint64_t bits =
        simd::compiled<Isa::portable, &NoiseBody<Isa::portable>::block>()(at, w.data(), bound, want.data());
    for (std::uint32_t i = 0; i < 64; ++i) {
      auto counter = at.first;
      counter[2] += i / 4;
      const std::uint32_t word = specula_test::philox(counter, at.key)[i % 4];
      const double time = -std::log((static_cast<double>(word) + 0.5) * 0x1p-32);
      if (w[i] > 0 && time <= static_cast<double>(w[i]) * static_cast<double>(bound))
        CHECK((bits >> i & 1) == 1);
      if (bits != 0) CHECK(want[i] == word);
    }
    for (const auto isa : specula_test::every_isa()) {
      const specula_test::Arithmetic arithmetic(isa);
      std::array<std::uint32_t, 64> words{};
      CHECK(noise_block(at, w.data(), bound, words.data()) == bits);
      CHECK(words == want);
    }
  }
}
