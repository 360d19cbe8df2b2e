// SPDX-License-Identifier: MIT
// ProposalKind: which kinds a declared kind covers.
#include <specula/base/proposal_kind.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("kinds covered by a declared kind") {
  using enum ProposalKind;
  static_assert(covers(sampled, sampled) && covers(sampled, deterministic) && covers(sampled_iid, sampled));
  static_assert(covers(mixed, sampled_distinct) && covers(sampled_distinct, deterministic));
  static_assert(covers(shared, shared) && covers(shared, deterministic) && !covers(shared, sampled) &&
                !covers(sampled, shared) && !covers(sampled_iid, shared) && !covers(mixed, shared) &&
                !covers(deterministic, shared));
  static_assert(!covers(deterministic, sampled) && !covers(sampled, sampled_iid) &&
                !covers(sampled_iid, mixed));
}

TEST_CASE("Draw determines the proposal kind of a chain") {
  static_assert(kind_of_chain(Draw::greedy) == ProposalKind::deterministic);
  static_assert(kind_of_chain(Draw::sampled) == ProposalKind::sampled);
  static_assert(kind_of_chain(Draw::shared) == ProposalKind::shared);
  CHECK(true);  // by compiling
}
