// SPDX-License-Identifier: MIT
// What a shape asks its drafter: checks of the rows, and failures.
#include <specula/policy/ask.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/proposal/proposal_builder.hpp>

using namespace specula;

namespace {

struct Drafter0 {
  std::int32_t rows, vocab;
  LogitsView extend(Tokens, Nodes) { return {nullptr, rows, vocab, vocab}; }
};

}  // namespace

TEST_CASE("rows are checked: one for each node, over the vocabulary, from as many parents as tokens") {
  ProposalBuilder tree(5, 3, 0);
  tree.reset(3, 0, 3);
  tree.choose(0, 1, 0.5f), tree.choose(1, 3, 0.25f);
  const std::vector<Token> tokens(2);
  const std::vector<NodeId> parents(2);
  Drafter0 right{2, 5}, few{1, 5}, narrow{2, 4};
  CHECK(ask(right, tree, tokens, parents).now().rows == 2);
  CHECK_THROWS_AS(ask(few, tree, tokens, parents).now(), std::invalid_argument);
  CHECK_THROWS_AS(ask(narrow, tree, tokens, parents).now(), std::invalid_argument);
  CHECK_THROWS_AS(ask(right, tree, tokens, Nodes(parents).first(1)).now(), std::invalid_argument);
  const std::vector<float> one(1);
  CHECK_NOTHROW(expect_rows(PointMasses{tokens}, 2, tree));
  CHECK_THROWS_WITH_AS(expect_rows(PointMasses{tokens, one}, 2, tree),
                       "the draft gave 2 tokens and 1 confidences for 2 nodes", std::invalid_argument);
}

TEST_CASE("a draft may fail by an exception; misuse, and what is no exception, propagates") {
  CHECK(detail::failure_of([] {}) == nullptr);
  CHECK(detail::failure_of([] { throw std::runtime_error("out of memory"); }) != nullptr);
  CHECK_THROWS_AS(static_cast<void>(detail::failure_of([] { throw std::invalid_argument("misuse"); })),
                  std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(detail::failure_of([] { throw 3; })), int);
}
