// SPDX-License-Identifier: MIT
// A proposal as rules read it: nodes, children, kinds, the draft's probabilities, keys of uniform draws.
#include <specula/proposal/token_tree.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <type_traits>
#include <vector>

#include <specula/proposal/proposal_builder.hpp>

using namespace specula;

namespace {

/// 0 is the root, token 3 at position 7; 1 and 2 below it, 3 below 1.
const TokenTree& grow(ProposalBuilder& tree) {
  tree.reset(3, 7, 10);
  tree.choose(0, 1, 0.5f), tree.choose(0, 2, 0.25f), tree.choose(1, 4, 1);
  return tree;
}

std::vector<NodeId> children(const TokenTree& tree, NodeId node) {
  std::vector<NodeId> out;
  tree.children(node, [&](NodeId child) { return out.push_back(child), true; });
  return out;
}

}  // namespace

// Only a ProposalBuilder is one, so that a rule cannot add nodes, nor make a tree.
static_assert(!std::is_constructible_v<TokenTree, std::int32_t, std::int32_t>);
static_assert(!std::is_copy_constructible_v<TokenTree>);

TEST_CASE("nodes, their depths and positions, and children in the order of their draws") {
  ProposalBuilder builder(5, 10, 0);
  const TokenTree& tree = grow(builder);
  CHECK(tree.size() == 4);
  CHECK(tree.room() == 6);
  CHECK(tree.root() == 3);
  CHECK(tree.depth(3) == 2);
  CHECK(tree.position(3) == 9);
  CHECK(tree.confidence(2) == 0.25f);
  CHECK(children(tree, 0) == std::vector<NodeId>{1, 2});
  CHECK(children(tree, 3).empty());
  CHECK(tree.has_child(0, 2));
  CHECK_FALSE(tree.has_child(1, 2));
  int visits = 0;
  tree.children(0, [&](NodeId) { return ++visits < 1; });
  CHECK(visits == 1);
  CHECK_FALSE(tree.is_chain());
  CHECK(tree.kind() == ProposalKind::deterministic);
}

TEST_CASE("a chosen token is certain to the draft, and siblings are excluded only where they were drawn so") {
  ProposalBuilder builder(5, 10, 0);
  const TokenTree& tree = grow(builder);
  CHECK(tree.draft_prob(1, 1) == 1);
  CHECK(tree.draft_prob(1, 2) == 0);
  CHECK(tree.draft_scale(2) == 1);
  CHECK_FALSE(tree.excludes_siblings(2));
}

TEST_CASE("a rule's own keys are as many as fit, and those of two nodes differ") {
  ProposalBuilder builder(5, 10, 0);
  const TokenTree& tree = grow(builder);
  const std::int32_t most = detail::kMaxNodes / 10 - 1;
  CHECK(tree.own_key(3, 2).index == 23);
  CHECK(tree.own_key(3, 2).position == 9);
  CHECK(tree.own_key(0, 1).index != tree.own_key(1, 1).index);
  CHECK_NOTHROW(static_cast<void>(tree.own_key(3, most)));
  CHECK_THROWS_AS(static_cast<void>(tree.own_key(3, most + 1)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(tree.own_key(3, -1)), std::invalid_argument);
}

TEST_CASE("a tree that no round has begun has no root") {
  ProposalBuilder builder(5, 10, 0);
  CHECK_THROWS_WITH_AS(static_cast<void>(builder.root()), "ProposalBuilder: node 0 of 0; call reset() first",
                       std::invalid_argument);
  builder.reset(3, 0);
  CHECK(builder.root() == 3);
}
