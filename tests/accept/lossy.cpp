// SPDX-License-Identifier: MIT
#include <specula/accept/lossy.hpp>

#include <doctest/doctest.h>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/lenient.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <vector>

using namespace specula;

TEST_CASE("accept_lossy: the rule itself, for every kind of proposal") {
  static_assert(!Lenient::lossless_for(ProposalKind::mixed));
  static_assert(AcceptLossy<Lenient>::lossless_for(ProposalKind::mixed) && AcceptLossy<Lenient>::lossy);
  static_assert(!Rejection::lossless_for(ProposalKind::shared));
  static_assert(AcceptLossy<Rejection>::lossless_for(ProposalKind::shared));
  CHECK(accept_lossy(Lenient{2.0}).lenience() == 2.0);
}

TEST_CASE("accept_lossy: a rule that reads q takes a proposal drawn with the target's own noise") {
  const std::vector<float> rows = {0, 1, 2, 9, 9, 2, 1, 0};
  PhiloxRandom rng(1);
  ProposalBuilder tree(4, 2, 2);
  tree.reset(0, 0);
  tree.draw_shared(0, tree.store(0, std::vector<float>{0, 1, 2, 9}, {}), rng);
  VerifyWorkspace workspace(4, 2);
  const TargetDistributions target({rows.data(), 2, 4, 4}, {}, workspace);
  VerifyResult out;
  CHECK_THROWS_AS(decide_checked(Rejection{}, tree, target, rng, out), std::invalid_argument);
  decide_checked(accept_lossy(Rejection{}), tree, target, rng, out);
  CHECK(out.accepted == std::vector<NodeId>{0, 1});  // q is p
  VerifyResult plain, lossy;
  decide_checked(Greedy{}, tree, target, rng, plain);
  decide_checked(accept_lossy(Greedy{}), tree, target, rng, lossy);
  CHECK(lossy.accepted == plain.accepted);
  CHECK(lossy.next_token == plain.next_token);
}
