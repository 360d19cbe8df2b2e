// SPDX-License-Identifier: MIT
// lenient_row(): the distribution q_eff of a lenient review.
#include <specula/distribution/lenient_row.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <specula/distribution/row_scan.hpp>

#include "dense_rules.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

/// min(q, l p) + (1 - sum min(q, l p)) norm((p - q / l)+), as derived: the accepted mass, plus the
/// redrawn mass after a rejection.
Dense q_eff(const Dense& q, const Dense& p, double l) {
  Dense kept(q.size()), anew(q.size());
  for (std::size_t x = 0; x < q.size(); ++x) {
    kept[x] = std::min(q[x], l * p[x]);
    anew[x] = std::max(0.0, p[x] - q[x] / l);
  }
  const double rejected = 1 - dense_sum(kept), rest = dense_sum(anew);
  for (std::size_t x = 0; x < q.size(); ++x)
    if (rejected > 0) kept[x] += rejected * anew[x] / rest;
  return kept;
}

const SamplingParams kSettings[] = {{},
                                    {.temperature = 0.7f, .top_k = 4},
                                    {.temperature = 1.4f, .top_p = 0.8f},
                                    {.temperature = 0.9f, .min_p = 0.1f}};

}  // namespace

TEST_CASE("lenient_row against dense doubles: truncation, logits of -infinity, several tiles") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    int written = 0, kept = 0;
    double worst = 0, worst_sum = 0;
    for (std::size_t i = 0; i < 600; ++i) {
      const std::int32_t vocab = i % 5 == 0 ? 1 + random.below(1500) : 1 + random.below(9);
      const double empty = i % 3 == 0 ? 0.3 : 0;
      const double l = i % 7 == 0 ? 1.0 : random.between(1, i % 2 ? 2 : 8);
      const std::vector<float> a = mixed_row(random, vocab, 2, 0, empty),
                               b = mixed_row(random, vocab, 2, 0, empty);
      const SamplingParams& params = kSettings[i % 4];
      RowScan scan(vocab);
      const Distribution draft = scan.distribution(a, params), reviewer = scan.distribution(b, params);
      const Dense q = plain_distribution(a, params), p = plain_distribution(b, params);
      const Dense want = q_eff(q, p, l);
      std::vector<float> got(q.size(), 7.0f);
      double beta = 0;
      for (std::size_t x = 0; x < q.size(); ++x) beta += std::min(q[x], l * p[x]);
      if (!lenient_row(draft, reviewer, l, got)) {
        CHECK(beta > 1 - 1e-5);
        for (const float untouched : got) CHECK(untouched == 7.0f);
        ++kept;
        continue;
      }
      CHECK(beta < 1);
      ++written;
      double sum = 0;
      for (std::size_t x = 0; x < q.size(); ++x) {
        const double weight = std::exp(static_cast<double>(got[x]));
        if (want[x] == 0) CHECK(got[x] == -std::numeric_limits<float>::infinity());
        worst = worse(worst, std::abs(weight - want[x]));
        if (want[x] > 1e-4) worst = worse(worst, 0.1 * std::abs(weight / want[x] - 1));
        sum += weight;
      }
      worst_sum = worse(worst_sum, std::abs(sum - 1));
    }
    CHECK(written > 300);
    CHECK(kept > 30);
    CHECK(worst < 5e-6);
    CHECK(worst_sum < 5e-6);
  }
}

TEST_CASE("lenience 1 gives the reviewer's distribution") {
  Random random(2);
  for (const std::int32_t vocab : {3, 600}) {
    const std::vector<float> a = random.row(vocab, 2), b = random.row(vocab, 2);
    RowScan scan(vocab);
    const Distribution draft = scan.distribution(a, {}), reviewer = scan.distribution(b, {});
    const Dense p = plain_distribution(b, {});
    std::vector<float> got(p.size());
    REQUIRE(lenient_row(draft, reviewer, 1, got));
    for (std::size_t x = 0; x < p.size(); ++x)
      CHECK(std::exp(static_cast<double>(got[x])) == doctest::Approx(p[x]).epsilon(3e-5));
  }
}

TEST_CASE("no rejection is possible exactly if lenience covers the largest ratio") {
  Random random(3);
  for (const std::int32_t vocab : {4, 1200}) {
    const std::vector<float> a = random.row(vocab, 2), b = random.row(vocab, 2);
    RowScan scan(vocab);
    const Distribution draft = scan.distribution(a, {}), reviewer = scan.distribution(b, {});
    const Dense q = plain_distribution(a, {}), p = plain_distribution(b, {});
    double ratio = 0;
    for (std::size_t x = 0; x < q.size(); ++x) ratio = std::max(ratio, q[x] / p[x]);
    std::vector<float> got(q.size());
    CHECK(!lenient_row(draft, reviewer, 1.01 * ratio, got));
    CHECK(lenient_row(draft, reviewer, 0.8 * ratio, got));
    CHECK(!lenient_row(draft, draft, 1, got));
  }
}

TEST_CASE("a token with reviewer probability 0 has probability 0 at any lenience") {
  const std::vector<float> a = {2, 1, 0}, b = {-std::numeric_limits<float>::infinity(), 1, 0};
  RowScan scan(3);
  const Distribution draft = scan.distribution(a, {}), reviewer = scan.distribution(b, {});
  std::vector<float> got(3);
  REQUIRE(lenient_row(draft, reviewer, 1000, got));
  CHECK(got[0] == -std::numeric_limits<float>::infinity());
  CHECK(std::exp(got[1]) + std::exp(got[2]) == doctest::Approx(1).epsilon(1e-5));
}

TEST_CASE("log_weight: its stated error over all normal weights") {
  double worst = 0;
  for (std::uint32_t bits = 0x00800000u; bits < 0x41000000u; bits += 1013) {  // to 8
    const float weight = std::bit_cast<float>(bits);
    const double want = std::log(static_cast<double>(weight));
    const double error = std::abs(static_cast<double>(log_weight(weight)) - want);
    worst = worse(worst, error / (1e-6 + 2e-7 * std::abs(want)));
  }
  CHECK(worst <= 1);
  CHECK(worst > 0.01);
  CHECK(log_weight(1) == 0);
  CHECK(log_weight(0) == -std::numeric_limits<float>::infinity());
}
