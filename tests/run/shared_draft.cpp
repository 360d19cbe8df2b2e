// labels: optimised
// One budget for all texts of a batch: what it gains and what it may lose, in replays of recorded acceptance.

#include <specula/run/shared_draft.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <specula/run/batch_speculator.hpp>
#include <specula/specula.hpp>

#include "replay_batch.hpp"

using namespace specula;
using specula_test::ReplayBatch;

namespace {

/// Costs by rows, in seconds: between these points straight lines, beyond the last one with its slope.
struct Points {
  std::vector<double> rows, costs;
  double operator()(std::int32_t n) const {
    const auto x = static_cast<double>(n);
    std::size_t i = 1;
    while (i + 1 < rows.size() && rows[i] < x) ++i;
    return costs[i - 1] +
           (costs[i] - costs[i - 1]) * std::max(0.0, x - rows[i - 1]) / (rows[i] - rows[i - 1]);
  }
};
struct Machine {
  const char* name;
  Points target, draft;
};
/// The pack's target and `small` on one thread with AVX2, and a processor on which 195 rows are free.
const Machine kCpu{"CPU",
                   {{1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256},
                    {1, 1.19, 1.40, 1.81, 2.53, 3.57, 4.74, 7.50, 9.76, 13.6, 17.6, 25.7, 33.7, 67.4}},
                   {{1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256},
                    {.044, .054, .070, .093, .122, .179, .243, .385, .534, .656, .810, 1.10, 1.43, 2.81}}};
const Machine kGpu{"GPU", {{1, 195, 390}, {1, 1.05, 2.0}}, {{1, 195, 390}, {.06, .063, .12}}};

struct Outcome {
  double rate = 0;   // tokens per second
  double nodes = 0;  // draft tokens verified, per round and text
};

/// Decodes until `tokens` tokens are written, always `texts` at once.
template <class Shape, class Rule = Sampling>
Outcome decode(const Machine& machine, std::int32_t texts, Shape shape, bool budget, std::int64_t tokens,
               float temperature = 0, bool never_right = false) {
  ReplayBatch target(texts, false, machine.target, never_right), draft(texts, true, machine.draft);
  std::vector<SlotOf<ReplayBatch>> targets, drafts;
  for (std::int32_t s = 0; s < texts; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  BatchSpeculator batch(
      texts,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{targets[s], Rule{}}, ModelDrafter{drafts[s]}, shape};
      },
      draft, target);
  if (budget) batch.share(BatchBudget());
  std::int64_t written = 0, proposed = 0, rounds = 0;
  std::uint64_t joined = 0;
  while (written < tokens) {
    while (batch.running() + batch.queued() < texts) {
      TextRequest request;
      request.prompt = {static_cast<Token>(joined % specula_test::kRecordedTexts)};
      request.max_new_tokens = 40;
      request.params.temperature = temperature;
      request.seed = ++joined;
      request.sink = [&](Tokens fresh) {
        written += static_cast<std::int64_t>(fresh.size());
        return true;
      };
      batch.join(std::move(request));
    }
    for (const TextResult& text : batch.step()) {
      REQUIRE(!text.failure);
      proposed += text.stats.proposed, rounds += text.stats.rounds;
    }
  }
  return {static_cast<double>(written) / (target.spent + draft.spent),
          static_cast<double>(proposed) / static_cast<double>(rounds)};
}

/// With one budget never slower than plain decoding, and as fast as the best fixed length.
template <class Shape, class Rule>
void expect_the_best(float temperature) {
  for (const Machine& machine : {kCpu, kGpu})
    for (const std::int32_t texts : {1, 2, 4, 8, 16, 32}) {
      const std::int64_t tokens = 2000 + 1000 * texts;
      const auto fixed = [&](std::int32_t length) {
        return decode<Shape, Rule>(machine, texts, Shape{.length = length}, false, tokens / 3, temperature)
            .rate;
      };
      const double plain = fixed(0);
      double best = plain;
      for (const std::int32_t length : {1, 2, 3, 4, 6, 8}) best = std::max(best, fixed(length));
      const Outcome shared =
          decode<Shape, Rule>(machine, texts, Shape{.length = 8}, true, tokens, temperature);
      CAPTURE(machine.name);
      CAPTURE(texts);
      CAPTURE(shared.nodes);
      CHECK(shared.rate > 0.99 * plain);
      CHECK(shared.rate > 0.97 * best);
    }
}

}  // namespace

TEST_CASE("chosen tokens: never slower than plain decoding, and as fast as the best fixed length") {
  expect_the_best<Chain<>, Sampling>(0);
}

TEST_CASE("drawn tokens: never slower than plain decoding, and as fast as the best fixed length") {
  expect_the_best<Chain<Draw::sampled>, Rejection>(1);
}

TEST_CASE("a round takes no longer than it may") {
  ReplayBatch target(4, false, kGpu.target), draft(4, true, kGpu.draft);
  std::vector<SlotOf<ReplayBatch>> targets, drafts;
  for (std::int32_t s = 0; s < 4; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  const auto longest = [&](double max_stretch) {
    BatchSpeculator batch(
        4,
        [&](std::int32_t slot) {
          const auto s = static_cast<std::size_t>(slot);
          return Speculator{TreeVerifier{targets[s], Sampling{}}, ModelDrafter{drafts[s]},
                            Chain<>{.length = 8}};
        },
        draft, target);
    std::vector<double> costs, draft_costs;
    for (std::int32_t n = 1; n <= 36; ++n)
      costs.push_back(kGpu.target(n)), draft_costs.push_back(kGpu.draft(n));
    batch.share(BatchBudget(CostCurve(costs), CostCurve(draft_costs)), max_stretch);
    for (Token text = 0; text < 4; ++text)
      batch.join({.prompt = {text}, .max_new_tokens = 1000, .params = {.temperature = 0}});
    double most = 0;
    for (int i = 0; i < 60; ++i) {
      const double before = target.spent + draft.spent;
      batch.step();
      most = std::max(most, (target.spent + draft.spent - before) / kGpu.target(4));
    }
    return most;
  };
  CHECK(longest(1e300) > 1.3);
  CHECK(longest(1.2) < 1.21);
  CHECK(longest(1) == doctest::Approx(1));
}

TEST_CASE("a draft that is confident and never right costs at most a hundredth") {
  for (const std::int32_t texts : {1, 4, 16, 32}) {
    const std::int64_t tokens = 2000 + 1000 * texts;
    const double plain = decode(kCpu, texts, Chain<>{.length = 0}, false, tokens / 3, 0, true).rate;
    const Outcome shared = decode(kCpu, texts, Chain<>{.length = 8}, true, tokens, 0, true);
    CAPTURE(texts);
    CHECK(shared.rate > 0.99 * plain);
  }
}
