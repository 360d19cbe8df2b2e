// SPDX-License-Identifier: MIT
// The round as a shape sees it: stop tokens, and the questions of a cost model.
#include <specula/policy/propose_context.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <vector>

#include <specula/proposal/proposal_builder.hpp>

using namespace specula;

namespace {

/// Halves confidences, and lets nothing pay.
struct Miser final : CostModel {
  double accept_probability(double confidence) const override { return confidence / 2; }
  bool call_pays(const DraftCall&) override { return false; }
  bool node_pays(double, double, std::int32_t) override { return false; }
  std::int32_t best_count(std::span<const double>, std::int32_t) const override { return 0; }
};

/// A root with child 1 of confidence 1/2, and 2 below it of 1/4.
ProposalBuilder chain() {
  ProposalBuilder tree(5, 3, 0);
  tree.reset(3, 0, 3);
  tree.choose(0, 1, 0.5f), tree.choose(1, 3, 0.25f);
  return tree;
}

struct Drafter0 {
  std::int32_t capacity() const { return 4; }
};

}  // namespace

TEST_CASE("without a cost model everything pays, and nothing is unlikely to be reached") {
  const ProposeContext round{{}, {}, 3};
  ProposalBuilder tree = chain();
  CHECK(round.accept_probability(0.3) == 0.3);
  CHECK(round.reach(tree, 2) == 1);
  CHECK(round.call_pays(tree, {.reach = 0}).now());
  CHECK(round.node_pays(0, 0, 1));
}

TEST_CASE("a cost model is asked, and a node is reached as likely as all on its path are accepted") {
  Miser miser;
  const ProposeContext round{{}, {}, 3, &miser};
  ProposalBuilder tree = chain();
  CHECK(round.accept_probability(0.3) == 0.15);
  CHECK(round.reach(tree, 0) == 1);
  CHECK(round.reach(tree, 1) == 0.25);
  CHECK(round.reach(tree, 2) == 0.25 * 0.125);
  CHECK_FALSE(round.call_pays(tree, {}).now());
  CHECK_FALSE(round.node_pays(1, 1, 1));
}

TEST_CASE("a draft token may end the text, the root never does") {
  const std::vector<Token> stop{3, 4};
  ProposeContext round{{}, {}, 3};
  const ProposalBuilder tree = chain();
  CHECK_FALSE(round.ends_text(3));
  round.stop = stop;
  CHECK(round.ends_text(4));
  CHECK_FALSE(round.ends_text(1));
  CHECK_FALSE(round.ends_text(tree, 0));  // though its token is 3
  CHECK_FALSE(round.ends_text(tree, 1));
  CHECK(round.ends_text(tree, 2));
}

TEST_CASE("a drafter needs room for the context, the root, and a draft token") {
  const std::vector<Token> context(2), longer(3);
  CHECK(can_draft(Drafter0{}, ProposeContext{context, {}, 3}));
  CHECK_FALSE(can_draft(Drafter0{}, ProposeContext{longer, {}, 3}));
}
