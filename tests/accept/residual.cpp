// SPDX-License-Identifier: MIT
// labels: vectorised optimised
// Residual distributions after any number of rejections, against dense doubles.
#include <specula/accept/residual.hpp>
#include <specula/accept/target_distributions.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <doctest/doctest.h>

#include "dense_rules.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

double mass(const Dense& w) {
  double sum = 0;
  for (const double x : w) sum += x;
  return sum;
}

/// Largest difference between the residual and dense weights that sum to 1, over prob(), the tiles' weights
/// and masses. The weights that fill() writes are floats whatever the arithmetic; they count a thousandth
/// under doubles.
double largest_error(const Residual& left, const Dense& want) {
  double worst = 0;
  const double floats = isa() == Isa::reference ? 1e-3 : 1;
  std::array<float, kTile> tile;
  for (std::size_t t = 0; t < left.tile_masses().size(); ++t) {
    left.fill(static_cast<std::int32_t>(t), tile.data());
    double in_tile = 0;
    for (std::size_t i = 0; i < 512; ++i) {
      const std::size_t x = 512 * t + i;
      const double p = x < want.size() ? want[x] : 0.0;
      in_tile += p;
      worst = worse(worst, std::abs(static_cast<double>(tile[i]) / left.total() - p) * floats);
      if (x < want.size()) worst = worse(worst, std::abs(left.prob(static_cast<Token>(x)) - p));
    }
    worst = worse(worst, std::abs(left.tile_masses()[t] / left.total() - in_tile));
  }
  return worst;
}

}  // namespace

TEST_CASE(
    "residual against dense doubles: up to 6 siblings of every kind, truncation, point masses, several "
    "tiles") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 4}, {.top_p = 0.8f}, {.temperature = 0}};
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    double worst = 0;
    int emptied = 0, rejected = 0;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const SamplingParams& params = settings[i % 4];
      const std::int32_t vocab = i % 10 == 0 ? 1400 : 2 + random.below(8);
      const std::int32_t children = 1 + random.below(6);
      const Case it = random_case(random, vocab, params, {.nodes = 1 + children, .wide = 1}, i);
      RowScan scan(vocab);
      Residual left(vocab, 7);
      const Distribution distribution = scan.distribution(it.row[0], params);
      left.start(distribution, distribution.is_point() ? std::span<const double>()
                                                       : scan.weights(distribution).tile_masses());
      CHECK(left.total() == doctest::Approx(1).epsilon(1e-5));
      CHECK(left.vocab() == vocab);
      Dense p = it.distributions[0];
      worst = worse(worst, largest_error(left, p));
      double smallest = 1;
      for (NodeId c = 1; c < it.tree.size(); ++c) {
        if (it.dense.parent[static_cast<std::size_t>(c)] != 0) continue;
        const Dense& q = it.dense.q[static_cast<std::size_t>(c)];
        const double weight = i % 3 == 0 ? random.between(0.5, 3) : 1;
        Dense next(p.size());
        for (std::size_t x = 0; x < p.size(); ++x) next[x] = std::max(0.0, weight * p[x] - q[x]);
        const double s = mass(next);
        if (s > 0 && s < 1e-4) break;  // only rounding is left
        const double got = left.reject(it.tree, c, weight);
        if (s == 0) {
          CHECK(got < 1e-5);
          if (got != 0) break;  // only the rounding of floats is left
          ++emptied;
        } else {
          CHECK(got == doctest::Approx(s).epsilon(isa == Isa::reference ? 1e-9 : 1e-5 / smallest + 1e-6 / s));
          CHECK(got == left.total());
          for (double& x : next) x /= s;
          p = next;
          smallest *= std::min(1.0, s);
          ++rejected;
        }
        worst = worse(worst, largest_error(left.measured(), p) * smallest);
      }
    }
    CAPTURE(static_cast<int>(isa));
    CHECK(worst < (isa == Isa::reference ? 4e-9 : 4e-6));
    CHECK(rejected > 700);
    CHECK(emptied > 3);
  }
}

TEST_CASE("a rejection that would leave no mass keeps the distribution before it") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(700, 4, 1);
    tree.reset(0, 0);
    Random random(2);
    const std::vector<float> row = random.row(700, 4);
    PhiloxRandom rng(1);
    const Distribution q = tree.store(0, row, {});
    tree.draw(0, q, rng);
    tree.choose(0, 650, 1);
    tree.draw(0, q, rng);
    RowScan scan(700);
    Residual left(700, 4);
    const Distribution p = scan.distribution(row, {});
    left.start(p, scan.weights(p).tile_masses());
    CHECK(left.reject(tree, 1) == 0);  // p - p
    CHECK(largest_error(left.measured(), plain_distribution(row, {})) < 2e-6);
    CHECK(left.total() == doctest::Approx(1).epsilon(1e-5));
    CHECK(left.reject(tree, 2) > 0.9);  // and further rejections work
    CHECK(left.prob(650) == 0);
  }
}

TEST_CASE("a rejected point mass changes its own tile only") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(1600, 3, 0);
    tree.reset(0, 0);
    tree.choose(0, 1500, 1);
    tree.choose(0, 1500, 1);  // the same token again removes nothing
    Random random(3);
    std::vector<float> row = random.row(1600, 2);
    row[1500] = 6;
    RowScan scan(1600);
    Residual left(1600, 3);
    const Distribution p = scan.distribution(row, {});
    left.start(p, scan.weights(p).tile_masses());
    Dense want = plain_distribution(row, {});
    const double s = 1 - want[1500];
    want[1500] = 0;
    for (double& x : want) x /= s;
    for (NodeId c = 1; c <= 2; ++c) {
      CHECK(left.reject(tree, c) == doctest::Approx(c == 1 ? s : 1.0).epsilon(1e-5));
      CHECK(largest_error(left, want) < 3e-6);
    }
  }
}

TEST_CASE("a residual started without tile masses, or replayed from its steps, is the same distribution") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 4}, {.top_p = 0.8f}, {.temperature = 0}};
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(4);
    double worst = 0;
    int again = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const SamplingParams& params = settings[i % 4];
      const std::int32_t vocab = i % 10 == 0 ? 1400 : 2 + random.below(8);
      const Case it = random_case(random, vocab, params, {.nodes = 2 + random.below(5), .wide = 1}, i);
      RowScan scan(vocab);
      const TokenWeights row = scan.weights(it.row[0], params);
      const Distribution distribution = row.distribution;
      const std::vector<double> masses(row.tile_masses().begin(), row.tile_masses().end());
      Residual known(vocab, 7), late(vocab, 7), redone(vocab, 7), half(vocab, 7);
      known.start(distribution, masses);
      late.start(distribution, {});
      CHECK(largest_error(Residual(late).measured(), it.distributions[0]) <
            3e-6);  // masses computed before any rejection
      std::vector<Residual::Step> steps;
      double smallest = 1, last_weight = 1;
      NodeId last = kNoParent;
      for (NodeId c = 1; c < it.tree.size(); ++c) {
        if (it.dense.parent[static_cast<std::size_t>(c)] != 0) continue;
        const double weight = random.bernoulli(0.5) ? 1 : random.uniform();
        const Residual before = known;
        const double left = known.reject(it.tree, c, weight);
        if (left < 1e-3) {
          known = before;
          break;
        }
        CHECK(late.reject(it.tree, c, weight) == doctest::Approx(left).epsilon(1e-5 / smallest));
        CHECK(late.last_step().node == c);
        CHECK(late.last_step().total == late.total());
        steps.push_back(late.last_step());
        smallest *= std::min(1.0, left), last = c, last_weight = weight;
      }
      redone.start(distribution, {});
      for (const Residual::Step& step : steps) redone.redo(it.tree, step);
      half.start(distribution, {});
      if (!steps.empty()) {  // some replayed, the last one new
        for (std::size_t s = 0; s + 1 < steps.size(); ++s) half.redo(it.tree, steps[s]);
        half.reject(it.tree, last, last_weight);
        ++again;
      }
      Dense want(static_cast<std::size_t>(vocab));
      for (Token x = 0; x < vocab; ++x) want[static_cast<std::size_t>(x)] = known.prob(x);
      for (Residual* other : {&late, &redone, &half}) {
        for (Token x = 0; x < vocab; ++x)  // masses not computed yet
          worst = worse(worst, std::abs(other->prob(x) - want[static_cast<std::size_t>(x)]) * smallest);
        worst = worse(worst, largest_error(other->measured(), want) * smallest);
      }
    }
    CAPTURE(static_cast<int>(isa));
    CHECK(worst < (isa == Isa::reference ? 4e-9 : 1e-5));
    CHECK(again > 250);
  }
}

TEST_CASE("rejecting a point mass reads one logit, not the row") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(1600, 4, 0);
    tree.reset(0, 0);
    tree.choose(0, 1500, 1);
    tree.choose(0, 3, 1);
    tree.choose(0, 1500, 1);
    Random random(5);
    std::vector<float> row = random.row(1600, 2);
    row[1500] = 6, row[3] = 5;
    const Dense p = plain_distribution(row, {});
    RowScan scan(1600);
    const Distribution distribution = scan.distribution(row, {});
    Residual left(1600, 4);
    left.start(distribution, {});
    const float hidden = row[700];
    row[700] = std::numeric_limits<float>::quiet_NaN();  // never read
    CHECK(left.reject(tree, 1, 0.75) == doctest::Approx(0.75 * (1 - p[1500])).epsilon(1e-5));
    CHECK(left.reject(tree, 2) == doctest::Approx(1 - p[3] / (1 - p[1500])).epsilon(1e-5));
    CHECK(left.reject(tree, 3, 0.5) == doctest::Approx(0.5).epsilon(1e-5));  // it has been removed already
    CHECK(left.prob(1500) == 0);
    CHECK(left.prob(3) == 0);
    CHECK(left.prob(9) == doctest::Approx(p[9] / (1 - p[1500] - p[3])).epsilon(1e-5));
    row[700] = hidden;
    Dense want = p;
    want[1500] = want[3] = 0;
    for (double& x : want) x /= 1 - p[1500] - p[3];
    CHECK(largest_error(left.measured(), want) < 5e-6);
  }
}

TEST_CASE("if a rejection leaves only rounding error, computing the tiles' masses undoes it") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(600, 3, 0);
    tree.reset(0, 0);
    tree.choose(0, 5, 1);
    std::vector<float> row(600, -200.0f);  // weights that are negligible beside the first
    row[5] = 20;
    RowScan scan(600);
    Distribution distribution = scan.distribution(row, {});
    distribution.log_z += 5e-7;  // as rounding may leave it
    Residual left(600, 3);
    left.start(distribution, {});
    CHECK(left.reject(tree, 1) == doctest::Approx(5e-7).epsilon(1e-2));
    if (isa == Isa::reference) continue;  // whose doubles still represent the rest
    CHECK(left.measured().total() == doctest::Approx(1).epsilon(1e-6));
    CHECK(left.prob(5) == doctest::Approx(1).epsilon(1e-6));
  }
}
