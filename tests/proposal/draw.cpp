// labels: light
// Draw: greedy, sampled and shared draft tokens.
#include <specula/proposal/draw.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("Draw determines the proposal kind of a chain") {
  static_assert(kind_of_chain(Draw::greedy) == ProposalKind::deterministic);
  static_assert(kind_of_chain(Draw::sampled) == ProposalKind::sampled);
  static_assert(kind_of_chain(Draw::shared) == ProposalKind::shared);
  CHECK(true);  // by compiling
}
