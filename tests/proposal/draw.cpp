#include <specula/proposal/draw.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("how tokens are taken decides the kind of a chain") {
  static_assert(kind_of_chain(Draw::greedy) == ProposalKind::deterministic);
  static_assert(kind_of_chain(Draw::sampled) == ProposalKind::sampled);
  static_assert(kind_of_chain(Draw::shared) == ProposalKind::shared);
  CHECK(true);  // by compiling
}
