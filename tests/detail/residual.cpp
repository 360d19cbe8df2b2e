#include <doctest/doctest.h>
#include <specula/detail/residual.hpp>

#include "dense_rules.hpp"

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
      worst = std::max(worst, std::abs(static_cast<double>(tile[i]) / left.total() - p) * floats);
      if (x < want.size()) worst = std::max(worst, std::abs(left.prob(static_cast<Token>(x)) - p));
    }
    worst = std::max(worst, std::abs(left.tile_masses()[t] / left.total() - in_tile));
  }
  return worst;
}

}  // namespace

TEST_CASE("against dense doubles: up to 6 siblings of every kind, cuts, point masses, several tiles") {
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
      const RowLaw law = scan.law(it.row[0], params);
      left.start(law, law.is_point() ? std::span<const double>() : scan.weights(law).masses);
      CHECK(left.untouched());
      CHECK(left.vocab() == vocab);
      Dense p = it.laws[0];
      worst = std::max(worst, largest_error(left, p));
      double smallest = 1;
      for (NodeId c = 1; c < it.tree.size(); ++c) {
        if (it.dense.parent[static_cast<std::size_t>(c)] != 0) continue;
        const Dense& q = it.dense.q[static_cast<std::size_t>(c)];
        const double weight = i % 3 == 0 ? random.between(0.5, 3) : 1;
        Dense next(p.size());
        for (std::size_t x = 0; x < p.size(); ++x) next[x] = std::max(0.0, weight * p[x] - q[x]);
        const double s = mass(next);
        if (s > 0 && s < 1e-4) break;  // what is left is rounding
        const double got = left.reject(it.tree, c, weight);
        if (s == 0) {
          CHECK(got < 1e-5);
          if (got != 0) break;  // the floats' own rounding is left
          ++emptied;
        } else {
          CHECK(got == doctest::Approx(s).epsilon(isa == Isa::reference ? 1e-9 : 1e-5 / smallest + 1e-6 / s));
          CHECK(got == left.total());
          for (double& x : next) x /= s;
          p = next;
          smallest *= std::min(1.0, s);
          ++rejected;
        }
        worst = std::max(worst, largest_error(left, p) * smallest);
      }
    }
    CAPTURE(static_cast<int>(isa));
    CHECK(worst < (isa == Isa::reference ? 4e-9 : 4e-6));
    CHECK(rejected > 700);
    CHECK(emptied > 3);
  }
}

TEST_CASE("an empty residual keeps the law that was there before") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(700, 4, 1);
    tree.reset(0, 0);
    Random random(2);
    const std::vector<float> row = random.row(700, 4);
    PhiloxChance chance(1);
    const RowLaw q = tree.store(0, row, {});
    tree.draw(0, q, chance);
    tree.choose(0, 650, 1);
    tree.draw(0, q, chance);
    RowScan scan(700);
    Residual left(700, 4);
    const RowLaw p = scan.law(row, {});
    left.start(p, scan.weights(p).masses);
    CHECK(left.reject(tree, 1) == 0);  // p - p
    CHECK(largest_error(left, plain_law(row, {})) < 2e-6);
    CHECK(left.total() == doctest::Approx(1).epsilon(1e-5));
    CHECK(left.reject(tree, 2) > 0.9);  // and it can go on
    CHECK(left.prob(650) == 0);
  }
}

TEST_CASE("the mass of a chosen token leaves its own tile only") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(1600, 3, 0);
    tree.reset(0, 0);
    tree.choose(0, 1500, 1);
    tree.choose(0, 1500, 1);  // twice the same: the second takes nothing
    Random random(3);
    std::vector<float> row = random.row(1600, 2);
    row[1500] = 6;
    RowScan scan(1600);
    Residual left(1600, 3);
    const RowLaw p = scan.law(row, {});
    left.start(p, scan.weights(p).masses);
    Dense want = plain_law(row, {});
    const double s = 1 - want[1500];
    want[1500] = 0;
    for (double& x : want) x /= s;
    for (NodeId c = 1; c <= 2; ++c) {
      CHECK(left.reject(tree, c) == doctest::Approx(c == 1 ? s : 1.0).epsilon(1e-5));
      CHECK(largest_error(left, want) < 3e-6);
    }
  }
}
