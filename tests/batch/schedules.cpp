// SPDX-License-Identifier: MIT
// Random schedules of a batch: joins, cancels, pauses, pages that run out, passes that fail; every text is
// bitwise the one alone, or its beginning.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"
#include "paged_batch.hpp"
#include "random.hpp"

using namespace specula;
using specula_test::kSceneVocab;
using specula_test::PagedBatch;

namespace {

struct Counts {
  int texts = 0, pauses = 0, cancels = 0, refused = 0, failed_passes = 0;
};

template <class Rule, class Shape>
void run_schedule(std::uint64_t seed, Rule rule, Shape shape, float temperature, Counts& counts,
                  bool shares = false) {
  specula_test::Random random(seed);
  const std::int32_t slots = 1 + random.below(5), chunk = random.bernoulli(0.5) ? 1000 : 1 + random.below(8);
  const std::int32_t pages = 18 + random.below(30),
                     draft_pages = random.bernoulli(0.7) ? 1000 : 30 + random.below(20);
  PagedBatch target(slots, kSceneVocab, 3, pages, chunk), draft(slots, kSceneVocab, 4, draft_pages, chunk);
  std::vector<SlotOf<PagedBatch>> targets, drafts;
  for (std::int32_t s = 0; s < slots; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  BatchSpeculator batch(
      slots,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{targets[s], rule}, ModelDrafter{drafts[s]}, shape};
      },
      draft, target);
  if (shares) batch.share(BatchBudget(CostCurve({1, 1.01}), CostCurve({0.01})));
  std::map<TextId, TextRequest> asked;
  std::set<TextId> paused, cancelled;
  std::vector<Token> stem;
  for (int i = 0; i < 20; ++i) stem.push_back(random.below(kSceneVocab));
  std::size_t ended = 0;
  const int wanted = 4 + random.below(10);
  for (int step = 0; step < 3000 && ended < static_cast<std::size_t>(wanted); ++step) {
    if (static_cast<int>(asked.size()) < wanted && random.bernoulli(0.4)) {
      TextRequest request;
      request.prompt.assign(stem.begin(), stem.begin() + 1 + random.below(20));
      for (int i = random.below(6); i > 0; --i) request.prompt.push_back(random.below(kSceneVocab));
      request.max_new_tokens = 1 + random.below(30);
      request.params.temperature = temperature;
      request.seed = seed, request.sequence = static_cast<std::uint32_t>(asked.size());
      request.logprobs = LogprobOptions{.top = random.below(2)};
      if (random.bernoulli(0.2)) request.stop = {random.below(kSceneVocab)};
      const TextId id = batch.join(request);
      asked[id] = request;
    }
    if (!asked.empty()) {
      const TextId id = 1 + static_cast<TextId>(random.below(static_cast<std::int32_t>(asked.size())));
      if (random.bernoulli(0.1) && step < 200 && batch.pause(id)) paused.insert(id), ++counts.pauses;
      if (random.bernoulli(0.03) && batch.cancel(id))
        cancelled.insert(id), paused.erase(id), ++counts.cancels;
    }
    if (!paused.empty() && (random.bernoulli(0.3) || batch.empty())) {
      const TextId id = *paused.begin();
      batch.resume(id);
      paused.erase(id);
    }
    if (random.bernoulli(0.02)) target.throw_pass = target.passes + 1;
    try {
      for (const TextResult& text : batch.step()) {
        CAPTURE(seed);
        CAPTURE(text.id);
        ++ended, ++counts.texts;
        REQUIRE(!text.failure);
        const auto want = specula_test::written_alone(asked.at(text.id), rule, shape);
        if (cancelled.count(text.id) == 0) {
          auto have = specula_test::written(text);
          if (shares) have.rounds = want.rounds, have.proposed = want.proposed, have.accepted = want.accepted;
          CHECK(have == want);
        } else {
          REQUIRE(text.tokens.size() <= want.tokens.size());
          CHECK(std::equal(text.tokens.begin(), text.tokens.end(), want.tokens.begin()));
          CHECK(text.logprobs.size() == text.tokens.size());
        }
      }
    } catch (const NoRoom&) {
      FAIL("step() threw NoRoom");
    } catch (const std::runtime_error&) {
      ++counts.failed_passes;
    }
  }
  CHECK(ended == static_cast<std::size_t>(wanted));
  counts.refused += static_cast<int>(target.refused + draft.refused);
}

}  // namespace

TEST_CASE("any schedule: each text is the one alone, none is lost") {
  Counts counts;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    run_schedule(seed, Rejection{}, Chain<Draw::sampled>{.length = 3}, 1, counts);
    run_schedule(seed, Sampling{}, Chain<>{.length = 3}, 0.7f, counts);
    run_schedule(seed, Sampling{}, Chain<>{.length = 3}, 0.7f, counts, true);
    run_schedule(seed, Traversal{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2}}, 1, counts);
  }
  CHECK(counts.texts > 1000);
  CHECK(counts.pauses > 200);
  CHECK(counts.cancels > 50);
  CHECK(counts.refused > 200);
  CHECK(counts.failed_passes > 50);
}
