// SPDX-License-Identifier: MIT
// labels: long optimised
// Acceptance of each rule, against the maximum of any lossless rule.
#include <doctest/doctest.h>
#include <specula/accept/exact_rules.hpp>
#include <specula/accept/k_seq.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <algorithm>
#include <numeric>

#include "exact_distribution.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// One level: k siblings under the root drawn from q, verified against p.
struct Level {
  std::vector<float> p_row, q_row;
  std::vector<double> p, q;
  int k = 2;
  bool distinct = false;

  std::int32_t vocab() const { return static_cast<std::int32_t>(p.size()); }
};

/// Tokens as a set: bit x is token x.
double mass(const std::vector<double>& distribution, unsigned set) {
  double sum = 0;
  for (std::size_t x = 0; x < distribution.size(); ++x) sum += set >> x & 1 ? distribution[x] : 0.0;
  return sum;
}

/// Probability that `k` draws from q all fall into `set`; without replacement,
/// `gone` holds the earlier draws.
double all_in(const Level& level, unsigned set, int k, unsigned gone = 0) {
  if (k == 0) return 1;
  if (!level.distinct) return std::pow(mass(level.q, set), k);
  double sum = 0;
  for (std::size_t x = 0; x < level.q.size(); ++x)
    if (set >> x & 1 && !(gone >> x & 1))
      sum += level.q[x] / (1 - mass(level.q, gone)) * all_in(level, set, k - 1, gone | 1u << x);
  return sum;
}

/// The most that an exact rule can accept: 1 + min over sets H of p(H) - Pr(all drafts in H). `prefixes`:
/// only over prefixes of the tokens ordered by q / p, largest first.
double optimum(const Level& level, bool prefixes = false) {
  std::vector<std::size_t> order(level.p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return level.q[a] * level.p[b] > level.q[b] * level.p[a]; });
  double least = 0;
  if (prefixes) {
    unsigned set = 0;
    for (const std::size_t x : order) {
      set |= 1u << x;
      least = std::min(least, mass(level.p, set) - all_in(level, set, level.k));
    }
  } else {
    for (unsigned set = 0; set < 1u << level.p.size(); ++set)
      least = std::min(least, mass(level.p, set) - all_in(level, set, level.k));
  }
  return 1 + least;
}

/// Probability that `rule` accepts one of the siblings, by enumeration of all uniform draws. Also checks
/// that the distribution of the first token is p.
template <class Rule>
double accepted(const Rule& rule, const Level& level) {
  const ReferenceArithmetic exact;
  const std::int32_t vocab = level.vocab();
  std::vector<float> rows;
  for (int n = 0; n <= level.k; ++n) rows.insert(rows.end(), level.p_row.begin(), level.p_row.end());
  ProposalBuilder tree(vocab, level.k + 1, 1);
  VerifyWorkspace workspace(vocab, level.k + 1);
  ExactRandom rng;
  VerifyResult result;
  std::vector<double> first(static_cast<std::size_t>(vocab));
  double sum = 0;
  do {
    rng.begin();
    tree.reset(0, 0);
    const Distribution distribution = tree.store(0, level.q_row, {});
    for (int i = 0; i < level.k; ++i)
      if (level.distinct)
        tree.draw_distinct(0, distribution, rng);
      else
        tree.draw(0, distribution, rng);
    decide_checked(rule, tree, TargetDistributions({rows.data(), level.k + 1, vocab, vocab}, {}, workspace),
                   rng, result);
    const bool accepted = result.accepted_count() > 0;
    first[static_cast<std::size_t>(accepted ? tree.token(result.accepted[1]) : result.next_token)] +=
        rng.weight();
    sum += accepted ? rng.weight() : 0.0;
  } while (rng.next());
  for (std::size_t x = 0; x < first.size(); ++x) CHECK(std::abs(first[x] - level.p[x]) < 1e-12);
  return sum;
}

/// The row of a distribution proportional to `vocab` uniform numbers.
std::vector<float> any_row(Random& random, std::int32_t vocab) {
  std::vector<float> row;
  for (std::int32_t x = 0; x < vocab; ++x)
    row.push_back(static_cast<float>(std::log(random.between(1e-6, 1))));
  return row;
}
Level any_level(Random& random, std::int32_t vocab, int k, bool distinct) {
  Level out;
  out.p_row = any_row(random, vocab);
  out.q_row = any_row(random, vocab);
  out.p = plain_distribution(out.p_row, {});
  out.q = plain_distribution(out.q_row, {});
  out.k = k, out.distinct = distinct;
  return out;
}

template <class Rule, class Shape>
double mean_accepted(Rule rule, Shape shape, std::int32_t vocab, std::uint64_t seed,
                     const SamplingParams& params = {}) {
  ToyModel target(vocab, seed), draft(vocab, seed + 100);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
  return whole_distribution(run, target, params, {0, vocab - 1, 0, 1, 0}, 1).mat - 1;
}

}  // namespace

TEST_CASE("one level: no exact rule accepts more than the optimum, and each is exact") {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const std::int32_t vocab = 3 + i % 2;
    for (int k = 1; k <= (vocab == 3 ? 3 : 2); ++k) {
      CAPTURE(i);
      CAPTURE(k);
      const Level iid = any_level(random, vocab, k, false), distinct = any_level(random, vocab, k, true);
      const double most = optimum(iid) + 1e-12, most_distinct = optimum(distinct) + 1e-12;
      CHECK(accepted(Rejection{}, iid) <= most);
      CHECK(accepted(KSeq{}, iid) <= most);
      CHECK(accepted(Traversal{}, iid) <= most);
      CHECK(accepted(SampleAndMatch{}, iid) <= most);
      CHECK(accepted(Rejection{}, distinct) <= most_distinct);
      CHECK(accepted(Traversal{}, distinct) <= most_distinct);
      CHECK(accepted(SampleAndMatch{}, distinct) <= most_distinct);
      if (k == 1) {  // one draft token: rejection is the optimum
        CHECK(accepted(Rejection{}, iid) == doctest::Approx(optimum(iid)).epsilon(1e-12));
        CHECK(accepted(KSeq{}, iid) == doctest::Approx(optimum(iid)).epsilon(1e-12));
        CHECK(accepted(Block{}, iid) == doctest::Approx(optimum(iid)).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("the minimising set is a prefix of the tokens ordered by q / p") {
  Random random(2);
  int decided = 0;
  for (int i = 0; i < 600; ++i) {
    const Level level = any_level(random, 2 + i % 4, 1 + i % 3, i % 2 != 0);
    CHECK(optimum(level, true) == doctest::Approx(optimum(level)).epsilon(1e-12));
    decided += optimum(level) < 1 - 1e-6;
  }
  CHECK(decided > 300);
}

TEST_CASE("a hundred pairs of distributions of three tokens, two draft tokens: the order of the rules") {
  Random random(3);
  double iid = 0, sequential = 0, best = 0, distinct = 0, traversal = 0, best_distinct = 0;
  for (int i = 0; i < 100; ++i) {
    const Level with = any_level(random, 3, 2, false);
    Level without = with;
    without.distinct = true;
    iid += accepted(Rejection{}, with) / 100;
    sequential += accepted(KSeq{}, with) / 100;
    best += optimum(with) / 100;
    distinct += accepted(Rejection{}, without) / 100;
    traversal += accepted(Traversal{}, without) / 100;
    best_distinct += optimum(without) / 100;
  }
  CHECK(iid < sequential);
  CHECK(sequential < best);
  CHECK(iid < distinct);
  CHECK(distinct <= traversal + 1e-12);
  CHECK(traversal < best_distinct);
  const double published[] = {0.807, 0.829, 0.880, 0.858, 0.938};  // for other pairs
  const double ours[] = {iid, sequential, best, distinct, best_distinct};
  for (std::size_t i = 0; i < 5; ++i) CHECK(std::abs(ours[i] - published[i]) < 0.05);
}

TEST_CASE("chains of two and three: block verification accepts at least as much as token by token, always") {
  int more = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (const std::int32_t length : {2, 3}) {
      const std::int32_t vocab = length == 2 ? 3 : 2;
      const Chain<Draw::sampled> chain{.length = length};
      const double token = mean_accepted(Rejection{}, chain, vocab, seed),
                   block = mean_accepted(Block{}, chain, vocab, seed);
      CHECK(block >= token - 1e-12);
      more += block > token + 1e-3;
    }
  CHECK(more > 10);
}
