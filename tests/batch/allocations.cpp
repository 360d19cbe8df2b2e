// SPDX-License-Identifier: MIT
// Rounds of many texts in steady state allocate nothing, with and without a budget in common.
#include <specula/batch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <vector>

#include <specula/specula.hpp>

#include "replay_batch.hpp"

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept

using namespace specula;
using specula_test::ReplayBatch;

namespace {

struct Models {
  explicit Models(std::int32_t texts)
      : target(texts, false, [](std::int32_t rows) { return 1 + 0.01 * rows; }),
        draft(texts, true, [](std::int32_t rows) { return 0.02 + 0.001 * rows; }) {
    for (std::int32_t s = 0; s < texts; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  }
  /// What makes the pipeline of a slot.
  template <class Rule, class Shape>
  auto each(Rule rule, Shape shape) {
    return [=, this](std::int32_t slot) {
      const auto s = static_cast<std::size_t>(slot);
      return Speculator{TreeVerifier{targets[s], rule}, ModelDrafter{drafts[s]}, shape};
    };
  }
  ReplayBatch target, draft;
  std::vector<SlotOf<ReplayBatch>> targets, drafts;
};

/// Of the rounds from the 41st to the 120th of six texts that are long enough for them.
template <class Rule, class Shape>
std::int64_t allocations(Shape shape, float temperature, bool shares,
                         std::optional<LogprobOptions> logprobs = {}) {
  constexpr std::int32_t kTexts = 6;
  Models models(kTexts);
  BatchSpeculator batch(kTexts, models.each(Rule{}, shape), models.draft, models.target);
  if (shares) batch.share(BatchBudget());
  for (Token text = 0; text < kTexts; ++text)
    batch.join({.prompt = {text},
                .max_new_tokens = 1000,
                .params = {.temperature = temperature},
                .logprobs = logprobs});
  for (int i = 0; i < 40; ++i) batch.step();
  const specula_test::AllocationCount allocated;
  for (int i = 0; i < 80; ++i) batch.step();  // what would grow with the text doubles
  const std::int64_t count = allocated.count();
  CHECK(batch.running() == kTexts);
  return count;
}

}  // namespace

TEST_CASE("rounds of many texts allocate nothing") {
  for (const bool shares : {false, true}) {
    CAPTURE(shares);
    CHECK(allocations<Sampling>(Chain<>{.length = 4}, 0, shares) == 0);
    CHECK(allocations<Rejection>(Chain<Draw::sampled>{.length = 4}, 1, shares) == 0);
    CHECK(allocations<Sampling>(Chain<>{.length = 4}, 0, shares, LogprobOptions{.top = 2}) == 0);
    CHECK(allocations<Sampling>(DynamicTree{.top_k = 3, .expansions = 2, .total = 8}, 0, shares) == 0);
  }
}

TEST_CASE(
    "memory that runs out, at any allocation of a round in which a text joins: no text is lost or another") {
  constexpr std::int32_t kTexts = 3;
  const auto write = [&](std::int64_t after, bool& failed) {
    Models models(kTexts);
    BatchSpeculator batch(kTexts,
                          models.each(Sampling{}, DynamicTree{.top_k = 3, .expansions = 2, .total = 8}),
                          models.draft, models.target);
    std::vector<std::vector<Token>> texts(kTexts);
    const auto step = [&] {
      for (const TextResult& text : batch.step()) {
        if (text.failure) CHECK_THROWS_AS(std::rethrow_exception(text.failure), std::bad_alloc);
        texts[static_cast<std::size_t>(text.id - 1)] = text.tokens;
      }
    };
    for (Token text = 0; text < kTexts; ++text) {
      if (text == kTexts - 1) step();
      batch.join({.prompt = {text}, .max_new_tokens = 20, .params = {.temperature = 0}});
    }
    {
      const specula_test::FailingAllocation failing(after);
      try {
        batch.step();  // ends no text
      } catch (const std::bad_alloc&) {
      }
      failed = specula_test::until_failure <= 0;
    }
    while (!batch.empty()) step();
    return texts;
  };
  bool failed = false;
  const auto want = write(1000000, failed);
  REQUIRE(!failed);
  for (std::int64_t after = 0; after == 0 || failed; ++after) {
    CAPTURE(after);
    const auto have = write(after, failed);
    for (std::size_t t = 0; t < want.size(); ++t) {
      REQUIRE(have[t].size() <= want[t].size());
      CHECK(std::equal(have[t].begin(), have[t].end(), want[t].begin()));
      if (t + 1 < want.size()) CHECK(have[t].size() == want[t].size());  // only the one that joins may end
    }
    REQUIRE(after < 200);
  }
}
