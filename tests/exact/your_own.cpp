// SPDX-License-Identifier: MIT
// labels: long optimised
// A template: a rule and a shape of one's own, checked by enumerating every outcome of whole pipelines. Copy
// this file to tests/exact/NAME.cpp, configure again, and build test_exact_NAME.
#include <doctest/doctest.h>

#include <vector>

#include "exact_distribution.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// Rejection sampling, one draft token after the other, with probability `damping` * min(1, p / q): exact for
/// any damping in [0, 1], and a waste below 1. A second uniform draw decides whether the residual is p
/// itself.
struct Damped {
  double damping = 1;
  bool forgets = false;  // a mistake that the enumeration must show: no further draw after a rejection
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }

  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    out.clear();
    for (NodeId at = 0;;) {
      const Distribution p = target[at];
      const NodeId child = tree.first_child(at);
      if (child == kNoParent) {
        out.next_token = target.sample(p, tree.sample_key(at), rng);
        return;
      }
      const Token x = tree.token(child);
      const double ratio = std::min(1.0, p(x) / tree.draft_prob(child, x));
      if (!rng.accept(damping * ratio, tree.accept_key(child))) {
        // Mass left: 1 - damping * (1 - r), r the residual's: p with probability (1 - damping) of it.
        auto residual = target.residual(p);
        const double left = residual.reject(tree, child), whole = 1 - damping, rest = damping * left;
        if (!forgets && rng.accept(whole / (whole + rest), tree.own_key(child, 0)))
          out.next_token = target.sample(p, tree.sample_key(at), rng);
        else
          out.next_token = rng.draw(residual.measured(), tree.residual_key(at));
        return;
      }
      out.accepted.push_back(child);
      at = child;
    }
  }
};

/// Two levels, each a drawn token and the likeliest other one beside it; the second level below the drawn
/// token.
struct Comb {
  static constexpr ProposalKind kind = ProposalKind::mixed;
  NodeCounts nodes() const { return {5}; }

  template <LogitsDrafter D, RandomSource C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    drafter.sync(round.committed, {});
    NodeId at = 0,
           in_draft = kNoParent;  // the drafter numbers the nodes that it was given, not those of the tree
    for (int level = 0; level < 2 && tree.room() >= 2; ++level) {
      const Token token = tree.token(at);
      const auto row = ask(drafter, tree, {&token, 1}, {&in_draft, 1}).now().row(0);
      const NodeId drawn = tree.draw(at, tree.store(at, row, round.params), rng);
      Top best[2];
      const std::int32_t found = tree.top_k(at, row, best);
      for (std::int32_t i = 0; i < found; ++i)
        if (best[i].token != tree.token(drawn)) {
          tree.choose(at, best[i].token, static_cast<float>(best[i].prob));
          break;
        }
      at = drawn;
      in_draft = level;
    }
  }
};

template <class Rule, class Shape>
EmittedDistribution distribution_of(Rule rule, Shape shape, std::uint64_t seed) {
  ToyModel target(3, seed), draft(3, seed + 1);
  Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, shape};
  return whole_distribution(run, target, {}, {0, 2, 0, 1, 0}, /*horizon=*/3);
}

}  // namespace

TEST_CASE("a rule of one's own keeps the target's distribution, and uses no uniform draw twice") {
  for (const double damping : {1.0, 0.6}) {
    const EmittedDistribution seen = distribution_of(Damped{damping}, Chain<Draw::sampled>{.length = 2}, 1);
    CHECK(seen.error < 1e-12);
    CHECK(seen.reused == 0);
  }
}

TEST_CASE("the enumeration shows a mistake in it") {
  CHECK(distribution_of(Damped{0.6, /*forgets=*/true}, Chain<Draw::sampled>{.length = 2}, 1).error > 1e-3);
}

TEST_CASE("a shape of one's own keeps the target's distribution under the library's rules") {
  for (const std::uint64_t seed : {1, 5}) {
    CHECK(distribution_of(Sampling{}, Comb{}, seed).error < 1e-12);
    CHECK(distribution_of(Rejection{}, Comb{}, seed).error < 1e-12);
    CHECK(distribution_of(SampleAndMatch{}, Comb{}, seed).error < 1e-12);
  }
}
