// SPDX-License-Identifier: MIT
// RunRecord: a text, its last round, and statistics of a text that ends within a round.
#include <specula/run/run_record.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace specula;

namespace {

/// A record of a chain of four draft tokens, of which two were accepted: three tokens, and the third draft
/// token was offered.
struct Round : RunRecord {
  VerifyResult outcome;

  Round() : RunRecord(6, 5, false, 1) {
    set_text(std::vector<Token>{2, 3});
    add();
  }
  using RunRecord::begin_round, RunRecord::fail_draft, RunRecord::allow_draft, RunRecord::draft_failed,
      RunRecord::expect_no_sink;
  void add() {
    begin_round();
    builder().reset(3, 2);
    for (NodeId node = 0; node < 4; ++node) builder().choose(node, 1, 1);
    outcome.accepted = {0, 1, 2};
    outcome.next_token = 4;
    add_round(outcome);
  }
};
using Depths = std::vector<std::int64_t>;
const Depths kNothing{0, 0, 0, 0, 0};

std::vector<Token> text_of(const RunRecord& record) { return {record.text().begin(), record.text().end()}; }

}  // namespace

TEST_CASE("a round is added to text and statistics") {
  Round it;
  CHECK(text_of(it) == std::vector<Token>{2, 3, 1, 1, 4});
  CHECK(it.vocab_size() == 6);
  CHECK(it.emitted() == 3);
  CHECK(&it.result() == &it.outcome);
  CHECK(it.proposal().size() == 5);
  it.add();
  CHECK(it.text().size() == 8);
  CHECK(it.stats().rounds == 2);
  CHECK(it.stats().new_tokens == 6);
  CHECK(it.stats().proposed == 8);
  CHECK(it.stats().offered == Depths{2, 2, 2, 0, 0});
  CHECK(it.stats().accepted == Depths{2, 2, 0, 0, 0});
  CHECK(it.stats().drafters.size() == 1);
}

TEST_CASE("tokens after the end of the text are neither new, nor offered, nor accepted") {
  Round all, two, one, none;
  all.count_emitted(3);
  CHECK(all.stats().new_tokens == 3);
  CHECK(all.stats().offered == Depths{1, 1, 1, 0, 0});
  two.count_emitted(2);  // both draft tokens, not the token after them
  CHECK(two.stats().new_tokens == 2);
  CHECK(two.stats().offered == Depths{1, 1, 0, 0, 0});  // the rejected one was after the end
  CHECK(two.stats().accepted == Depths{1, 1, 0, 0, 0});
  one.count_emitted(1);
  CHECK(one.stats().new_tokens == 1);
  CHECK(one.stats().offered == Depths{1, 0, 0, 0, 0});
  CHECK(one.stats().accepted == Depths{1, 0, 0, 0, 0});
  none.count_emitted(0);
  CHECK(none.emitted() == 0);
  CHECK(none.stats().new_tokens == 0);
  CHECK(none.stats().offered == kNothing);
  CHECK(none.stats().accepted == kNothing);
  CHECK(none.stats().proposed == 4);  // what the target ran
}

TEST_CASE("two calls give the same as one") {
  Round once, twice;
  once.count_emitted(0);
  twice.count_emitted(2);
  CHECK(twice.emitted() == 2);
  twice.count_emitted(0);
  CHECK(twice.stats().new_tokens == once.stats().new_tokens);
  CHECK(twice.stats().offered == once.stats().offered);
  CHECK(twice.stats().accepted == once.stats().accepted);
}

TEST_CASE("errors change nothing") {
  Round it;
  CHECK_THROWS_WITH_AS(it.count_emitted(4), "count_emitted: 4 of 3 tokens, must be 0 to 3",
                       std::invalid_argument);
  CHECK_THROWS_AS(it.count_emitted(-1), std::invalid_argument);
  CHECK(it.stats().new_tokens == 3);
  CHECK(it.emitted() == 3);
  it.begin_round();  // and throws
  CHECK(it.emitted() == 0);
  CHECK_THROWS_WITH_AS(it.count_emitted(0), "Speculator::result: no round has ended", std::logic_error);
  CHECK(it.stats().new_tokens == 3);
  CHECK(text_of(it) == std::vector<Token>{2, 3, 1, 1, 4});
}

TEST_CASE("statistics may be set to zero at any time, before or after the last round's tokens are counted") {
  for (const bool counted_before : {true, false}) {
    Round it;
    if (counted_before) it.count_emitted(1);
    it.reset_stats();
    if (!counted_before) it.count_emitted(1);
    CHECK(it.emitted() == 1);
    CHECK_THROWS_AS(it.count_emitted(2), std::invalid_argument);
    CHECK(it.stats().rounds == 0);
    CHECK(it.stats().new_tokens == 0);
    CHECK(it.stats().offered == kNothing);
    CHECK(it.stats().accepted == kNothing);
    it.add();  // the next round counts
    it.count_emitted(2);
    CHECK(it.stats().rounds == 1);
    CHECK(it.stats().new_tokens == 2);
    CHECK(it.stats().accepted == Depths{1, 1, 0, 0, 0});
  }
}

TEST_CASE("a draft that fails is told until the next text") {
  Round it;
  CHECK(it.draft_error().empty());
  it.fail_draft(std::make_exception_ptr(std::runtime_error("no rows")));
  CHECK(it.draft_failed());
  CHECK(it.draft_error() == "no rows");
  CHECK(it.stats().failed_drafts == 1);
  it.allow_draft();
  CHECK(!it.draft_failed());
  CHECK(it.draft_error().empty());
}

TEST_CASE("a sink is known while it is called") {
  Round it;
  {
    const auto inside = it.enter_sink();
    CHECK_THROWS_AS(it.expect_no_sink(), std::logic_error);
  }
  CHECK_NOTHROW(it.expect_no_sink());
}
