// SPDX-License-Identifier: MIT
// labels: vectorised optimised
// Truncation thresholds: top-k, top-p and min-p.
#include <specula/distribution/truncation.hpp>

#include <doctest/doctest.h>
#include <specula/distribution/row_scan.hpp>

#include <new>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("the threshold keeps what sorting keeps: all combinations, with ties and -infinity") {
  for (const Isa isa : {Isa::reference, best_isa()}) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    int compared = 0, skipped = 0, wrong = 0;
    for (const std::int32_t vocab : {1, 2, 3, 4, 5, 700, 5000, 40000}) {
      RowScan scan(vocab);
      const int rows = vocab == 5 || vocab == 700 ? 54
                       : vocab < 10               ? 12
                       : vocab == 40000           ? 1
                                                  : 2;  // 27 kinds
      for (int r = 0; r < rows; ++r) {
        const bool structured = r >= rows / 2 && (vocab == 5 || vocab == 700);
        const std::vector<float> row =
            structured ? structured_row(kRowKinds[static_cast<std::size_t>(r - rows / 2)], vocab, random)
                       : random.row(vocab, vocab > 10 ? 12 : 2, r % 2 ? 0.7 : 0.05, r % 3 == 0 ? 0.2 : 0);
        for (const float temperature : {0.3f, 1.0f, 3.0f})
          for (const std::int32_t top_k : {0, 1, 2, 3, 40, vocab - 1, vocab, vocab + 5})
            for (const float top_p : {1.0f, 1e-6f, 0.3f, 0.9f, 0.999f})
              for (const float min_p : {0.0f, 1e-4f, 0.2f, 1.0f}) {
                const SamplingParams params{
                    .temperature = temperature, .top_k = std::max(0, top_k), .top_p = top_p, .min_p = min_p};
                if (vocab == 40000 && (compared + skipped) % 3 != 0) {
                  ++skipped;
                  continue;
                }
                const SortedCut want = by_sorting(row, params, isa == Isa::reference ? 1e-12 : 3e-6);
                if (want.near) {
                  ++skipped;
                  continue;
                }
                const Distribution distribution = scan.distribution(row, params);
                bool same = true;
                for (std::size_t x = 0; x < row.size(); ++x)
                  same &= (row[x] >= distribution.min_logit) == (row[x] >= want.least);
                if (!same)
                  MESSAGE("V " << vocab << " T " << temperature << " k " << top_k << " p " << top_p
                               << " min_p " << min_p << ": cut " << distribution.min_logit << ", wanted "
                               << want.least);
                wrong += !same;
                ++compared;
              }
      }
    }
    CHECK(wrong == 0);
    CHECK(compared > 20000);
  }
}

TEST_CASE("the distribution after truncation, by hand") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    RowScan scan(6);
    const std::vector<float> row = {1, 3, 2, 3, -kInf, 2};
    const auto probs = [&](const SamplingParams& params) {
      const Distribution distribution = scan.distribution(row, params);
      std::vector<double> p;
      for (Token x = 0; x < 6; ++x) p.push_back(distribution(x));
      return p;
    };
    CHECK(probs({.top_k = 1})[1] == doctest::Approx(0.5));  // a tie at the threshold: both are kept
    CHECK(probs({.top_k = 1})[3] == doctest::Approx(0.5));
    CHECK(probs({.top_k = 3})[2] > 0);  // two 3s and both 2s
    CHECK(probs({.top_k = 3})[5] > 0);
    CHECK(probs({.top_k = 3})[0] == 0);
    CHECK(probs({.top_p = 1e-6f})[3] == doctest::Approx(0.5));
    CHECK(probs({.min_p = 1})[1] == doctest::Approx(0.5));
    CHECK(probs({.top_k = 6})[0] > 0);
    CHECK(probs({.top_k = 100})[0] > 0);
    // top-p speaks of what top-k left: of {3, 3, 2, 2}, the two 3s hold .73, and of the whole row less.
    const double of_four = 2 * std::exp(3) / (2 * std::exp(3) + 2 * std::exp(2));
    CHECK(probs({.top_k = 3, .top_p = static_cast<float>(of_four) - 0.001f})[2] == 0);
    CHECK(probs({.top_p = static_cast<float>(of_four) - 0.001f})[2] > 0);
    double sum = 0;
    for (const double p : probs({.temperature = 2, .top_k = 3})) sum += p;
    CHECK(sum == doctest::Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("top-p next to 1 and flat rows") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    for (const std::int32_t vocab : {3, 2000}) {
      RowScan scan(vocab);
      const std::vector<float> flat(static_cast<std::size_t>(vocab), 1.5f);
      for (const float top_p : {1e-6f, 0.5f, 0.99999994f})
        CHECK(scan.distribution(flat, {.top_p = top_p})(0) == doctest::Approx(1.0 / vocab).epsilon(1e-5));
    }
    RowScan scan(1000);
    Random random(5);
    const std::vector<float> row = random.row(1000, 3);
    const Distribution all = scan.distribution(row, {.top_p = 0.99999994f});  // no token is as light as 6e-8
    CHECK(all.min_logit <= *std::min_element(row.begin(), row.end()));
  }
}

TEST_CASE(
    "a failed allocation in the first truncation corrupts no distribution, and the next truncation works") {
  Random random(1);
  const std::vector<float> first = random.row(2000, 5), second = random.row(2000, 5);
  for (const SamplingParams& params : {SamplingParams{.top_k = 3}, SamplingParams{.top_p = 0.5f}})
    for (const int after : {0, 1}) {
      RowScan scan(2000), fresh(2000);
      const Distribution distribution = scan.distribution(first, {});
      {
        const FailingAllocation fails(after);
        CHECK_THROWS_AS(scan.distribution(second, params), std::bad_alloc);
      }
      const std::span<const double> masses = scan.weights(distribution).tile_masses(),
                                    want = fresh.weights(distribution).tile_masses();
      CHECK(std::equal(masses.begin(), masses.end(), want.begin()));
      CHECK(scan.distribution(second, params) == fresh.distribution(second, params));
    }
}
