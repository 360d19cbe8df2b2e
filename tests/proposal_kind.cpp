// labels: light
// ProposalKind: which kinds a declared kind covers.
#include <specula/proposal_kind.hpp>

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
