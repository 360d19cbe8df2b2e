// SPDX-License-Identifier: MIT
// ResidualWeights: (p - q)+ in tiles.
#include <specula/distribution/residual_weights.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "dense_rules.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

const SamplingParams kSettings[] = {{},
                                    {.temperature = 0.7f, .top_k = 4},
                                    {.temperature = 1.4f, .top_p = 0.8f},
                                    {.temperature = 0.9f, .min_p = 0.1f}};

/// Largest difference from (p - q)+: weights one by one and in tiles, the tiles' masses, the total. fill()
/// writes floats with any arithmetic; with doubles their error counts a thousandth.
double largest_error(const ResidualWeights& rest, const Dense& p, const Dense& q) {
  const double floats = isa() == Isa::reference ? 1e-3 : 1;
  std::array<float, kTile> tile;
  double worst = 0, total = 0;
  for (std::size_t t = 0; t < rest.tile_masses().size(); ++t) {
    tile.fill(-1);
    rest.fill(static_cast<std::int32_t>(t), tile.data());
    double in_tile = 0;
    for (std::size_t i = 0; i < tile.size(); ++i) {
      const std::size_t x = t * tile.size() + i;
      const double want = x < p.size() ? std::max(0.0, p[x] - q[x]) : 0.0;
      in_tile += want;
      worst = worse(worst, std::abs(static_cast<double>(tile[i]) - want) * floats);
      if (x < p.size()) worst = worse(worst, std::abs(rest(static_cast<Token>(x)) - want));
    }
    worst = worse(worst, std::abs(rest.tile_masses()[t] - in_tile));
    total += in_tile;
  }
  return worse(worst, std::abs(rest.total() - total));
}

}  // namespace

TEST_CASE("residual weights against dense doubles: truncation, logits of -infinity, several tiles") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    double worst = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      const std::int32_t vocab = i % 5 == 0 ? 500 + random.below(1000) : 1 + random.below(12);
      const double empty = i % 3 == 0 ? 0.3 : 0;
      const std::vector<float> a = mixed_row(random, vocab, 3, 0, empty),
                               b = mixed_row(random, vocab, 3, 0, empty);
      const SamplingParams &kept = kSettings[i % 4], &taken = kSettings[i / 4 % 4];
      RowScan scan(vocab);
      const Distribution keep = scan.distribution(a, kept), less = scan.distribution(b, taken);
      std::vector<double> masses(static_cast<std::size_t>(tile_count(vocab)), -1.0);
      const ResidualWeights rest(keep, less, vocab, masses);
      CHECK(rest.vocab() == vocab);
      worst = worse(worst, largest_error(rest, plain_distribution(a, kept), plain_distribution(b, taken)));
    }
    CHECK(worst < (isa == Isa::reference ? 1e-9 : 3e-6));
  }
}

TEST_CASE("minus a point mass: all tokens but one are left, in every tile") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(2);
    for (const std::int32_t vocab : {2, 512, 513, 1300}) {
      const std::vector<float> row = mixed_row(random, vocab, 1);
      const Dense p = plain_distribution(row, {});
      RowScan scan(vocab);
      const Distribution keep = scan.distribution(row, {});
      std::vector<double> masses(static_cast<std::size_t>(tile_count(vocab)));
      for (const Token point : {0, 1, vocab / 2, vocab - 1}) {
        Dense q(p.size());
        q[static_cast<std::size_t>(point)] = 1;
        const ResidualWeights rest(keep, Distribution::at(point), vocab, masses);
        CHECK(largest_error(rest, p, q) < (isa == Isa::reference ? 1e-9 : 3e-6));
        CHECK(rest(point) == 0);
      }
    }
  }
}

TEST_CASE("minus the same distribution, or one of a copy of its row: no mass is left") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(3);
    for (const std::int32_t vocab : {1, 7, 512, 1300})
      for (const SamplingParams& params : kSettings) {
        const std::vector<float> row = mixed_row(random, vocab, 4), copy = row;
        RowScan scan(vocab);
        const Distribution one = scan.distribution(row, params), other = scan.distribution(copy, params);
        std::vector<double> masses(static_cast<std::size_t>(tile_count(vocab)), 1.0);
        CHECK(ResidualWeights(one, one, vocab, masses).total() == 0);
        CHECK(ResidualWeights(one, other, vocab, masses).total() == 0);
        for (const double mass : masses) CHECK(mass == 0);
      }
  }
}

TEST_CASE("a draw from the residual never gives a token with q >= p") {
  constexpr std::int32_t kVocab = 700;
  Random random(4);
  const std::vector<float> a = random.row(kVocab, 3), b = random.row(kVocab, 3);
  const Dense p = plain_distribution(a, {}), q = plain_distribution(b, {});
  RowScan scan(kVocab);
  const Distribution keep = scan.distribution(a, {}), less = scan.distribution(b, {});
  std::vector<double> masses(2);
  const ResidualWeights rest(keep, less, kVocab, masses);
  PhiloxRandom rng(1);
  int second = 0;
  for (std::int32_t i = 0; i < 2000; ++i) {
    const Token token = rng.draw(rest, RandomKey{i, 0, RandomStream::review_residual, 0});
    const auto x = static_cast<std::size_t>(token);
    CHECK(p[x] > q[x]);
    second += token >= kTile;
  }
  const double share = masses[1] / (masses[0] + masses[1]);
  CHECK(std::abs(second - 2000 * share) < 4.5 * std::sqrt(2000 * share * (1 - share)));  // n 2000
}
