// labels: light
// count_emitted(): statistics of a text that ends within a round.
#include <specula/proposal/proposal_builder.hpp>
#include <specula/run/limits.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace specula;

namespace {

// A chain of four draft tokens, of which two were accepted: three tokens, and the third draft token was
// offered.
struct Round {
  ProposalBuilder proposal{5, 5, 0};
  VerifyResult result;
  Stats stats;

  Round() {
    proposal.reset(3, 2);
    for (NodeId node = 0; node < 4; ++node) proposal.choose(node, 1, 1);
    result.accepted = {0, 1, 2};
    result.next_token = 4;
    stats.rounds = 1;
    stats.new_tokens = 3;
    stats.offered = {1, 1, 1, 0};
    stats.accepted = {1, 1, 0, 0};
  }
};
using Depths = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("tokens behind the end of the text are neither new, nor offered, nor accepted") {
  Round all, two, one, none;
  count_emitted(all.stats, all.proposal, all.result, 3);
  CHECK(all.stats.new_tokens == 3);
  CHECK(all.stats.offered == Depths{1, 1, 1, 0});
  count_emitted(two.stats, two.proposal, two.result, 2);  // both draft tokens, not the token after them
  CHECK(two.stats.new_tokens == 2);
  CHECK(two.stats.offered == Depths{1, 1, 0, 0});  // the rejected one was behind the end
  CHECK(two.stats.accepted == Depths{1, 1, 0, 0});
  count_emitted(one.stats, one.proposal, one.result, 1);
  CHECK(one.stats.new_tokens == 1);
  CHECK(one.stats.offered == Depths{1, 0, 0, 0});
  CHECK(one.stats.accepted == Depths{1, 0, 0, 0});
  count_emitted(none.stats, none.proposal, none.result, 0);
  CHECK(none.stats.new_tokens == 0);
  CHECK(none.stats.offered == Depths{0, 0, 0, 0});
  CHECK(none.stats.accepted == Depths{0, 0, 0, 0});
}

TEST_CASE("two calls give the same as one") {
  Round once, twice;
  count_emitted(once.stats, once.proposal, once.result, 0);
  count_emitted(twice.stats, twice.proposal, twice.result, 2);
  count_emitted(twice.stats, twice.proposal, twice.result, 0, 2);
  CHECK(twice.stats.new_tokens == once.stats.new_tokens);
  CHECK(twice.stats.offered == once.stats.offered);
  CHECK(twice.stats.accepted == once.stats.accepted);
}

TEST_CASE("errors change nothing") {
  Round it;
  CHECK_THROWS_WITH_AS(count_emitted(it.stats, it.proposal, it.result, 4),
                       "count_emitted: 4 of 3 tokens, must be 0 to 3", std::invalid_argument);
  CHECK_THROWS_AS(count_emitted(it.stats, it.proposal, it.result, -1), std::invalid_argument);
  CHECK(it.stats.new_tokens == 3);
  Stats others;
  CHECK_THROWS_WITH_AS(count_emitted(others, it.proposal, it.result, 1),
                       "count_emitted: the statistics have 0 depths, the round offered 3",
                       std::invalid_argument);
  CHECK(others.new_tokens == 0);
}
