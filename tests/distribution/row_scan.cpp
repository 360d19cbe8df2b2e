// SPDX-License-Identifier: MIT
// labels: vectorised optimised
// RowScan: the distribution of a row of logits, its weights and masses, and its top-k.
#include <specula/distribution/row_scan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double largest_error(const TokenWeights& weights, const std::vector<double>& want) {
  double worst = 0;
  for (std::size_t x = 0; x < want.size(); ++x)
    worst = worse(worst, std::abs(weights(static_cast<Token>(x)) - want[x]));
  std::array<float, kTile> tile;
  for (std::size_t t = 0; t < weights.tile_masses().size(); ++t) {
    double mass = 0;
    weights.fill(static_cast<std::int32_t>(t), tile.data());
    for (std::size_t i = 0; i < 512; ++i) {
      const double p = 512 * t + i < want.size() ? want[512 * t + i] : 0.0;
      mass += p;
      worst = worse(worst, std::abs(static_cast<double>(tile[i]) - p));
      if (p == 0 && tile[i] != 0) worst = 1;
    }
    worst = worse(worst, std::abs(weights.tile_masses()[t] - mass));
    if (mass == 0 && weights.tile_masses()[t] != 0) worst = 1;
  }
  return worst;
}

}  // namespace

TEST_CASE(
    "distributions of rows agree with a plain softmax: widths, temperatures, truncation, large logits") {
  const SamplingParams settings[] = {{},
                                     {.temperature = 0.5f},
                                     {.temperature = 1e-4f},
                                     {.temperature = 20},
                                     {.temperature = 0.8f, .top_k = 5},
                                     {.top_p = 0.9f},
                                     {.min_p = 0.05f}};
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    double worst = 0;
    Random random(1);
    for (const std::int32_t vocab : {1, 2, 511, 512, 513, 3000}) {
      RowScan scan(vocab);
      for (const SamplingParams& params : settings)
        for (const double middle : {0.0, -200.0, 1e4}) {
          std::vector<float> row = random.row(vocab, 8, 0.1, 0.1);
          for (float& l : row) l = static_cast<float>(static_cast<double>(l) + middle);
          const Distribution distribution = scan.distribution(row, params);
          const std::vector<double> want = plain_distribution(row, params);
          worst = worse(worst, largest_error(scan.weights(distribution), want));
          // The same distribution again, without the scan's cached weights.
          const std::vector<float> other = random.row(vocab, 1);
          scan.distribution(other, {});
          worst = worse(worst, largest_error(scan.weights(distribution), want));
        }
    }
    for (const RowKind kind : kRowKinds)
      for (const std::int32_t vocab : {1, 2, 17, 511, 513, 1537}) {
        RowScan scan(vocab);
        const std::vector<float> row = structured_row(kind, vocab, random);
        for (const SamplingParams& params : settings) {
          if (by_sorting(row, params, 1e-5).near) continue;
          const Distribution distribution = scan.distribution(row, params);
          const double error = largest_error(scan.weights(distribution), plain_distribution(row, params));
          if (!(error < 2e-6))
            FAIL_CHECK(std::string(name_of(kind)), ", V ", vocab, ", temperature ", params.temperature,
                       ", top_k ", params.top_k, ", top_p ", params.top_p, ", min_p ", params.min_p, ": ",
                       error);
        }
      }
    CAPTURE(static_cast<int>(isa));
    // At inv_t 1e4 and logits of 1e4 the doubles' own exponent, 1e8, is known to 1e-8 only.
    CHECK(worst < (isa == Isa::reference ? 3e-8 : 2e-6));
  }
}

TEST_CASE("doubles are exact where logits are moderate") {
  const ReferenceArithmetic reference;
  Random random(2);
  RowScan scan(700);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> row = random.row(700, 10, 0.1, 0.1);
    const Distribution distribution = scan.distribution(row, {.temperature = 0.7f});
    const std::vector<double> want = plain_distribution(row, {.temperature = 0.7f});
    for (Token x = 0; x < 700; ++x)
      CHECK(distribution(x) == doctest::Approx(want[static_cast<std::size_t>(x)]).epsilon(1e-13));
  }
}

TEST_CASE("temperature 0 is a point mass on the first largest logit") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    RowScan scan(1200);
    std::vector<float> row(1200, -5.0f);
    row[700] = row[3] = row[1199] = 2;
    const Distribution distribution = scan.distribution(row, {.temperature = 0});
    CHECK(distribution.is_point());
    CHECK(distribution.point == 3);
    CHECK(scan.argmax(row) == 3);
    const Top top = scan.top(row);
    CHECK(top.token == 3);
    CHECK(top.prob == doctest::Approx(plain_distribution(row, {})[3]).epsilon(2e-6));
  }
}

TEST_CASE("a tile of -infinity has no mass") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    RowScan scan(1600);
    std::vector<float> row(1600, 1.0f);
    std::fill(row.begin() + 512, row.begin() + 1024, -kInf);
    const TokenWeights weights = scan.weights(row, {});
    CHECK(weights.tile_masses()[1] == 0);
    CHECK(weights.tile_masses()[0] > 0.4);
    // Nor has a tile whose weights all underflow.
    std::fill(row.begin() + 512, row.begin() + 1024, -99.0f);
    const TokenWeights again = scan.weights(row, {});
    CHECK(again.tile_masses()[1] < 1e-29);
    CHECK(again.tile_masses()[3] > 0);
  }
}

TEST_CASE("a tile with a mass holds a token, however light its weights") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    RowScan scan(1024);
    std::array<float, kTile> tile;
    for (float light = -40; light > -800; light -= light > -110 ? 0.25f : 10) {
      std::vector<float> row(1024, light);
      row[600] = 0;
      for (const bool again : {false, true}) {
        const TokenWeights first = scan.weights(row, {});
        const TokenWeights weights = again ? scan.weights(first.distribution) : first;
        weights.fill(0, tile.data());
        const bool any = std::any_of(tile.begin(), tile.end(), [](float w) { return w > 0; });
        if (weights.tile_masses()[0] > 0 && !any) FAIL_CHECK("logits of ", light);
      }
    }
  }
}

TEST_CASE("bad rows, at every position, and rows of another width") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    for (const std::int32_t vocab : {3, 512, 1100}) {
      RowScan scan(vocab);
      const SamplingParams settings[] = {{}, {.temperature = 0}, {.top_k = 2}};
      Random random(static_cast<std::uint64_t>(vocab));
      for (std::int32_t at = 0; at < vocab; at += vocab < 100 ? 1 : 41)
        for (const float bad : {kNan, kInf, -kNan}) {
          std::vector<float> row = mixed_row(random, vocab, 5);
          row[static_cast<std::size_t>(at)] = bad;
          const std::string message = "a row of logits holds NaN or +infinity at token " + std::to_string(at);
          for (const SamplingParams& params : settings)
            CHECK_THROWS_WITH_AS(scan.distribution(row, params), message.c_str(), std::runtime_error);
          CHECK_THROWS_WITH_AS(scan.argmax(row), message.c_str(), std::runtime_error);
          CHECK_THROWS_WITH_AS(scan.top(row), message.c_str(), std::runtime_error);
        }
      const std::vector<float> empty(static_cast<std::size_t>(vocab), -kInf);
      CHECK_THROWS_WITH_AS(scan.distribution(empty, {}), "a row of logits is empty: none is above -infinity",
                           std::runtime_error);
      CHECK_THROWS_AS(scan.argmax(empty), std::runtime_error);
      const std::vector<float> narrow(static_cast<std::size_t>(vocab) + 1);
      CHECK_THROWS_AS(scan.distribution(narrow, {}), std::invalid_argument);
      CHECK_THROWS_AS(scan.argmax(narrow), std::invalid_argument);
      // An error has no effect on the next call.
      const std::vector<float> row = random.row(vocab, 3);
      CHECK(largest_error(scan.weights(row, {}), plain_distribution(row, {})) < 2e-6);
    }
  }
}

TEST_CASE("weights of any distribution over a row: with another normaliser, truncation or temperature") {
  RowScan scan(600);
  Random random(6);
  const std::vector<float> row = random.row(600, 3);
  const Distribution distribution = scan.distribution(row, {});
  const auto total = [&](const Distribution& other) {
    return merge_tiles(scan.weights(other).tile_masses());
  };
  Distribution half = distribution, truncated = distribution, hot = distribution;
  half.log_z += std::log(2.0);
  truncated.min_logit = 1;
  hot.inv_t = 0.5;
  CHECK(total(distribution) == doctest::Approx(1).epsilon(1e-5));
  CHECK(total(half) == doctest::Approx(0.5).epsilon(1e-5));
  CHECK(total(truncated) < 0.99);
  CHECK(total(hot) != doctest::Approx(1).epsilon(1e-3));
}

TEST_CASE("masses in the caller's memory are kept over scans of other rows, and errors") {
  RowScan scan(600);
  Random random(3);
  const std::vector<float> row = random.row(600, 5);
  std::vector<float> bad = row;
  bad[599] = kNan;
  std::vector<double> masses(2), measured(2);
  std::array<Top, 4> best;
  const TokenWeights weights = scan.weights(row, {}, masses);
  CHECK(weights.tile_masses().data() == masses.data());
  const std::vector<double> before = masses;
  CHECK(scan.weights(random.row(600, 1), {}).tile_masses().data() != masses.data());
  CHECK(scan.weights(weights.distribution, measured).tile_masses().data() == measured.data());
  scan.top_k(random.row(600, 1), best);
  CHECK_THROWS(scan.distribution(bad, {}));
  CHECK(masses == before);
  for (std::size_t t = 0; t < 2; ++t) CHECK(measured[t] == doctest::Approx(masses[t]).epsilon(1e-5));
  CHECK(largest_error(weights, plain_distribution(row, {})) < 2e-6);
  std::vector<double> few(1);
  CHECK_THROWS_WITH_AS(scan.weights(row, {}, few), "room for 1 tile masses, a row has 2 tiles",
                       std::invalid_argument);
  // At temperature 0 there are none.
  CHECK(scan.weights(row, {.temperature = 0}, masses).tile_masses().empty());
  CHECK(masses == before);
}

TEST_CASE(
    "a row of log-probabilities is a distribution without conversion, and may be overwritten in place") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    RowScan scan(1100);
    Random random(4);
    std::vector<float> row(1100);
    Distribution distribution;
    distribution.logits = row.data();  // inv_t 1, log_z 0
    for (int round = 0; round < 3; ++round) {
      const std::vector<double> p = plain_distribution(random.row(1100, 6), {});
      for (std::size_t x = 0; x < p.size(); ++x) row[x] = static_cast<float>(std::log(p[x]));
      scan.distribution(random.row(1100, 1), {});
      CHECK(largest_error(scan.weights(distribution), p) < 2e-6);
    }
  }
}

TEST_CASE("logits at the ends of a float: a mask of -3.4e38 weighs nothing, 3.4e38 is an error") {
  for (const Isa isa : {Isa::reference, Isa::portable, Isa::avx2, Isa::avx512}) {
    if (!supported(isa)) continue;
    const Isa before = detail::isa();
    use_isa(isa);
    std::vector<float> row(1500, -std::numeric_limits<float>::max());
    row[3] = 1.0f;
    row[4] = 1.0f;
    RowScan scan(1500);
    const Distribution distribution = scan.distribution(row, {});
    CHECK(distribution(3) == doctest::Approx(0.5).epsilon(1e-6));
    CHECK(scan.weights(distribution).tile_masses()[2] == 0.0);
    row[1400] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_AS(scan.distribution(row, {}), std::runtime_error);
    row[1400] = std::numeric_limits<float>::max();
    CHECK_THROWS_AS(scan.distribution(row, {}), std::runtime_error);
    use_isa(before);
  }
}

TEST_CASE("top_k is the beginning of a full sort, ties to the lower token, with probabilities") {
  struct Kind {
    double spread, ties, empty;
  };
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(7);
    double worst = 0;
    for (int i = 0; i < 600; ++i) {
      const std::int32_t vocab = i % 4 == 0 ? 500 + random.below(1500) : 1 + random.below(40);
      // Flat rows, where many lie near the best; spread ones, where few do; ties, also of the best; masked
      // rows.
      const Kind kinds[] = {{1, 0, 0}, {3, 0.9, 0.2}, {30, 0.3, 0}, {200, 0.5, 0.5}, {2, 0, 0.97}};
      const Kind kind = kinds[i % 5];
      std::vector<float> row = random.row(vocab, kind.spread, kind.ties, kind.empty);
      if (i % 7 == 0)
        for (float& l : row) l = l * 1e-3f - 1e4f;
      if (i % 3 == 0)
        row = structured_row(kRowKinds[static_cast<std::size_t>(i / 3) % kRowKinds.size()], vocab, random);
      if (i % 11 == 0) std::sort(row.begin(), row.end());  // every logit is better than all before it
      std::vector<Token> order;
      for (Token x = 0; x < vocab; ++x)
        if (row[static_cast<std::size_t>(x)] > -kInf) order.push_back(x);
      std::sort(order.begin(), order.end(), [&](Token a, Token b) {
        const float x = row[static_cast<std::size_t>(a)], y = row[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
      });
      const std::vector<double> p = plain_distribution(row, {});
      RowScan scan(vocab);
      for (const std::int32_t k : {0, 1, 2, 10, 1 + random.below(50), vocab + 3}) {
        std::vector<Top> out(static_cast<std::size_t>(k));
        const std::int32_t found = scan.top_k(row, out);
        REQUIRE(found == std::min(k, static_cast<std::int32_t>(order.size())));
        for (std::int32_t n = 0; n < found; ++n) {
          const Top& top = out[static_cast<std::size_t>(n)];
          REQUIRE(top.token == order[static_cast<std::size_t>(n)]);
          worst = worse(worst, std::abs(top.prob - p[static_cast<std::size_t>(top.token)]));
        }
      }
      const Top best = scan.top(row);
      std::vector<Top> one(1);
      scan.top_k(row, one);
      CHECK(best.token == one[0].token);
      CHECK(best.prob == one[0].prob);
    }
    CAPTURE(static_cast<int>(isa));
    CHECK(worst < (isa == Isa::reference ? 1e-12 : 2e-6));
  }
}

TEST_CASE("probabilities are at most 1 despite rounding, so that products along a path do not increase") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    int above = 0;
    for (int i = 0; i < 20000; ++i) {
      const std::int32_t vocab = 2 + random.below(20);
      std::vector<float> row = random.row(vocab, 3);
      for (float& l : row) l -= static_cast<float>(random.between(15, 40));
      row[static_cast<std::size_t>(random.below(vocab))] = static_cast<float>(random.between(-3, 30));
      RowScan scan(vocab);
      std::array<Top, 3> out;
      scan.top_k(row, out);
      above += scan.top(row).prob > 1 || out[0].prob > 1;
    }
    CHECK(above == 0);
  }
}

TEST_CASE("top_k: bad rows; later weights are unaffected") {
  std::array<Top, 4> out;
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    RowScan scan(1100);
    Random random(9);
    const std::vector<float> row = random.row(1100, 5), other = random.row(1100, 1);
    const Distribution distribution = scan.distribution(row, {});
    scan.top_k(other, out);
    CHECK(largest_error(scan.weights(distribution), plain_distribution(row, {})) < 2e-6);
    scan.top(other);
    CHECK(largest_error(scan.weights(distribution), plain_distribution(row, {})) < 2e-6);
    for (const std::size_t at : {std::size_t{0}, std::size_t{700}, std::size_t{1099}})
      for (const float bad : {kNan, kInf, -kNan}) {
        std::vector<float> broken = row;
        broken[at] = bad;
        CHECK_THROWS_AS(scan.top_k(broken, out), std::runtime_error);
      }
    CHECK_THROWS_AS(scan.top_k(std::vector<float>(1100, -kInf), out), std::runtime_error);
    CHECK_THROWS_AS(scan.top_k(std::vector<float>(1099), out), std::invalid_argument);
  }
}
