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

}  // namespace

TEST_CASE("chosen tokens: never slower than plain decoding, and as fast as the best fixed length") {
  for (const Machine& machine : {kCpu, kGpu})
    for (const std::int32_t texts : {1, 2, 4, 8, 16, 32}) {
      const std::int64_t tokens = 2000 + 1000 * texts;
      const double plain = decode(machine, texts, Chain<>{.length = 0}, false, tokens / 3).rate;
      double best = plain;
      for (const std::int32_t length : {1, 2, 3, 4, 6, 8})
        best = std::max(best, decode(machine, texts, Chain<>{.length = length}, false, tokens / 3).rate);
      const Outcome shared = decode(machine, texts, Chain<>{.length = 8}, true, tokens);
      CAPTURE(machine.name);
      CAPTURE(texts);
      CAPTURE(shared.nodes);
      CHECK(shared.rate > 0.99 * plain);
      CHECK(shared.rate > 0.97 * best);
    }
}

TEST_CASE("drawn tokens: never slower than plain decoding, and as fast as the best fixed length") {
  using Drawn = Chain<Draw::sampled>;
  for (const Machine& machine : {kCpu, kGpu})
    for (const std::int32_t texts : {1, 2, 4, 8, 16, 32}) {
      const std::int64_t tokens = 2000 + 1000 * texts;
      const auto run = [&](std::int32_t length, bool budget) {
        return decode<Drawn, Rejection>(machine, texts, Drawn{.length = length}, budget,
                                        budget ? tokens : tokens / 3, 1);
      };
      const double plain = run(0, false).rate;
      double best = plain;
      for (const std::int32_t length : {1, 2, 3, 4, 6, 8}) best = std::max(best, run(length, false).rate);
      const Outcome shared = run(8, true);
      CAPTURE(machine.name);
      CAPTURE(texts);
      CAPTURE(shared.nodes);
      CHECK(shared.rate > 0.99 * plain);
      CHECK(shared.rate > 0.97 * best);
    }
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
