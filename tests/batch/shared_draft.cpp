// SPDX-License-Identifier: MIT
// labels: optimised
// One budget for all texts of a batch: what it gains and what it may lose, in replays of recorded acceptance.

#include <specula/batch/shared_draft.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <specula/batch/batch_speculator.hpp>
#include <specula/cuda/api/select_nodes.cuh>
#include <specula/specula.hpp>

#include "random.hpp"
#include "replay_batch.hpp"
#include "serial_block.hpp"

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

/// SmolLM2-135M-Instruct with its plain draft on one thread.
const Machine kSmall{"SmolLM2",
                     {{1, 2, 4, 8, 16, 32, 64, 128, 256}, {23, 23, 26, 32, 59, 117, 234, 477, 1012}},
                     {{1, 2, 4, 8, 16, 32, 64, 128, 256}, {.31, .58, 1, 2.4, 5, 11, 22, 45, 91}}};

/// What a clock shows of passes on a machine that others load too: all take up to 1.65 times as long, for 10
/// to 70 passes, or more or less by 8% in waves; and each varies by 3%.
class Clock {
 public:
  explicit Clock(std::uint64_t seed) : random_(seed), waves_(seed % 2 == 0) {}
  double operator()(double seconds) {
    if (left_-- <= 0) {
      constexpr double kPaces[] = {1, 1.3, 1.65};
      pace_ = kPaces[random_.below(3)], left_ = 10 + random_.below(60);
    }
    if (waves_) pace_ = 1 + 0.08 * std::sin(++passes_ / 40.0);
    double off = 0;  // nearly normal
    for (int i = 0; i < 4; ++i) off += 0.052 * (random_.uniform() - 0.5);
    return seconds * pace_ * (1 + off);
  }

 private:
  specula_test::Random random_;
  bool waves_;
  double pace_ = 1;
  std::int32_t left_ = 0, passes_ = 0;
};

struct Outcome {
  double rate = 0;   // tokens per second
  double nodes = 0;  // draft tokens verified, per round and text
};

/// Decodes until `tokens` tokens are written, always `texts` at once.
template <class Shape, class Rule = Sampling>
Outcome decode(const Machine& machine, std::int32_t texts, Shape shape, bool budget, std::int64_t tokens,
               float temperature = 0, bool never_right = false, std::uint64_t loaded = 0) {
  ReplayBatch target(texts, false, machine.target, never_right), draft(texts, true, machine.draft);
  Clock clock(loaded);
  if (loaded > 0) target.clock = draft.clock = std::ref(clock);
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

constexpr double kNever = 1e300;

/// A round that has proposed.
struct Run {
  ProposalBuilder tree{2, 8, 0};
  SamplingParams sampling{.temperature = 0};
  std::vector<Token> words{1, 1};
  std::vector<std::uint8_t> kept;
  VerifyResult ended;
  std::optional<DraftCall> call;
  bool granted = false;
  const DraftCall* bid() const { return call ? &*call : nullptr; }
  void grant(bool yes) { granted = yes; }
  bool proposed() const { return true; }
  ProposalKind kinds = ProposalKind::deterministic;
  ProposalKind kind() const { return kinds; }
  NodeCounts nodes() const { return {8}; }
  Tokens text() const { return words; }
  const SamplingParams& params() const { return sampling; }
  const TokenTree& proposal() const { return tree; }
  const VerifyResult& result() const { return ended; }
  Stats stats() const { return {}; }
  void keep(std::span<const std::uint8_t> flags) { kept.assign(flags.begin(), flags.end()); }
};
struct DraftingText {
  Run* run;
  DraftState draft = {};
};

}  // namespace

TEST_CASE("chosen tokens: never slower than plain decoding, and as fast as the best fixed length") {
  expect_the_best<Chain<>, Sampling>(0);
}

TEST_CASE("drawn tokens: never slower than plain decoding, and as fast as the best fixed length") {
  expect_the_best<Chain<Draw::sampled>, Rejection>(1);
}

TEST_CASE("on a machine that becomes slower and faster, its pace is not taken for cheap or dear nodes") {
  for (const Machine& machine : {kCpu, kSmall})
    for (const std::int32_t texts : {2, 4, 8, 32}) {
      const std::int64_t tokens = 3000 + 1500 * texts;
      double best = 0, plain = 0;
      for (const std::int32_t length : {0, 1, 2, 4}) {
        const double rate = decode(machine, texts, Chain<>{.length = length}, false, tokens / 3).rate;
        if (length == 0) plain = rate;
        best = std::max(best, rate);
      }
      for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{2}}) {  // phases, waves
        double shared = 0;
        for (std::uint64_t seed = first; seed < first + 8; seed += 2)
          shared += decode(machine, texts, Chain<>{.length = 8}, true, tokens, 0, false, seed).rate / 4;
        CAPTURE(machine.name);
        CAPTURE(texts);
        CAPTURE(first);
        CHECK(shared > 0.98 * plain);
        CHECK(shared > 0.95 * best);
      }
    }
}

TEST_CASE(
    "of all texts' chosen tokens those are kept that are worth most, against all sets that are closed") {
  specula_test::Random random(4);
  int left_out = 0, kept_some = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> costs{1};
    for (int n = 1; n < 20; ++n)
      costs.push_back(costs.back() + (random.bernoulli(0.5) ? 0.0 : random.between(0, 0.5)));
    BatchBudget budget{CostCurve(costs), CostCurve({0.001})};
    Run two[2];
    detail::SharedDraft<DraftingText> shared(std::move(budget), 2, {8}, kNever);
    DraftingText texts[2]{{&two[0]}, {&two[1]}};
    DraftingText* const both[2]{&texts[0], &texts[1]};
    // Rounds that were worth it, so that the budget drafts and has a rate.
    for (int i = 0; i < 12; ++i) {
      shared.begin(both, 2);
      for (Run& run : two) {
        run.tree.reset(1, 1);
        if (shared.max_nodes() > 1) run.tree.choose(0, 0, 0.6f);
        run.ended.clear();
        if (run.tree.size() > 1 && i % 3 > 0) run.ended.accepted.push_back(1);
      }
      shared.drafted(2, 0, 0);
      shared.verified(2, two[0].tree.size() + two[1].tree.size(), 0, 0);
      for (std::size_t t = 0; t < 2; ++t)
        shared.ended(t, static_cast<std::int32_t>(two[t].ended.accepted.size()));
      shared.end();
    }
    shared.begin(both, 2);
    if (shared.max_nodes() == 1) continue;
    std::vector<std::pair<int, NodeId>> nodes;
    std::vector<double> probabilities;
    for (int t = 0; t < 2; ++t) {
      Run& run = two[t];
      run.tree.reset(1, 1);
      std::vector<double> path{1};
      for (NodeId n = 1 + random.below(5); n > 0; --n) {
        const NodeId parent = random.below(run.tree.size()), id = run.tree.size();
        const float confidence = static_cast<float>(random.between(0.05, 0.95));
        run.tree.choose(parent, 0, confidence);
        path.push_back(path[static_cast<std::size_t>(parent)] *
                       shared.budget().estimator().accept_probability(static_cast<double>(confidence)));
        nodes.emplace_back(t, id), probabilities.push_back(path.back());
      }
      run.kept.assign(static_cast<std::size_t>(run.tree.size()), 1);  // if all are kept, nothing is called
    }
    const double rate = shared.budget().rate(2);
    REQUIRE(rate > 0);
    shared.choose();
    // the value of a set, and whether it has all parents
    const auto value = [&](const auto& has) {
      double sum = 0;
      std::int32_t count = 0;
      for (std::size_t i = 0; i < nodes.size(); ++i)
        if (has(i)) sum += probabilities[i], ++count;
      return sum - rate * (costs[static_cast<std::size_t>(1 + count)] - costs[1]);
    };
    const auto chosen = [&](std::size_t i) {
      return two[nodes[i].first].kept[static_cast<std::size_t>(nodes[i].second)] != 0;
    };
    double best = 0;
    for (std::uint32_t set = 0; set < 1u << nodes.size(); ++set)
      best = std::max(best, value([&](std::size_t i) { return (set >> i & 1) != 0; }));  // closed or not
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      ++(chosen(i) ? kept_some : left_out);
      const NodeId parent = two[nodes[i].first].tree.parent(nodes[i].second);
      if (chosen(i) && parent != 0) CHECK(two[nodes[i].first].kept[static_cast<std::size_t>(parent)] != 0);
    }
    CHECK(value(chosen) == doctest::Approx(best).epsilon(1e-9));
  }
  CHECK(left_out > 50);
  CHECK(kept_some > 50);
}

TEST_CASE("of draft tokens that are worth the same the first text's is kept, wherever texts lie in memory") {
  for (const bool turned : {false, true}) {
    BatchBudget budget{CostCurve({1, 1, 1, 100}), CostCurve({0.001})};  // one token is free
    Run two[2];
    detail::SharedDraft<DraftingText> shared(std::move(budget), 2, {8}, kNever);
    DraftingText texts[2]{{&two[0]}, {&two[1]}};
    DraftingText* const both[2]{&texts[turned ? 1 : 0], &texts[turned ? 0 : 1]};
    shared.begin(both, 2);
    REQUIRE(shared.max_nodes() > 1);
    for (Run& run : two) {
      run.tree.reset(1, 1);
      run.tree.choose(0, 0, 0.6f);
    }
    shared.choose();
    CHECK(both[0]->run->kept == std::vector<std::uint8_t>{0, 1});
    CHECK(both[1]->run->kept == std::vector<std::uint8_t>{0, 0});
  }
}

namespace {

/// From which reach on a draft call of a shape that does not wait pays, in rounds of texts that draw their
/// draft tokens or choose them.
std::vector<bool> call_pays(std::vector<ProposalKind> kinds) {
  std::vector<Run> runs(kinds.size());
  std::vector<DraftingText> texts;
  std::vector<DraftingText*> all;
  for (std::size_t t = 0; t < runs.size(); ++t) {
    runs[t].kinds = kinds[t], runs[t].sampling.temperature = 1;
    texts.push_back({&runs[t]});
  }
  for (DraftingText& text : texts) all.push_back(&text);
  const auto count = static_cast<std::int32_t>(runs.size());
  detail::SharedDraft<DraftingText> shared(
      BatchBudget(CostCurve({1, 1.05, 1.3, 1.5, 1.8}), CostCurve({0.02})), count, {8}, kNever);
  for (int i = 0; i < 40; ++i) {
    shared.begin(all, count);
    std::int32_t rows = 0;
    for (Run& run : runs) {
      run.tree.reset(1, 1);
      if (shared.max_nodes() > 1) run.tree.choose(0, 0, i % 5 > 0 ? 0.9f : 0.1f);
      run.ended.clear();
      if (run.tree.size() > 1 && i % 5 > 0) run.ended.accepted.push_back(1);
      rows += run.tree.size();
      shared.cost_model()->node_pays(1, i % 5 > 0 ? 0.9 : 0.1, 1);
    }
    shared.verified(count, rows, 0, 0);
    for (std::size_t t = 0; t < runs.size(); ++t)
      shared.ended(t, static_cast<std::int32_t>(runs[t].ended.accepted.size()));
    shared.end();
  }
  std::vector<bool> pays;
  for (int i = 1; i < 100; ++i) {
    shared.begin(all, count);
    pays.push_back(shared.cost_model()->call_pays({.reach = i / 100.0, .nodes = 1}));
  }
  return pays;
}

}  // namespace

TEST_CASE("draft calls are priced for all texts alike, whichever is the last") {
  const auto chosen = ProposalKind::deterministic, drawn = ProposalKind::sampled;
  const auto all_drawn = call_pays({drawn, drawn});
  REQUIRE(call_pays({chosen, chosen}) != all_drawn);  // the unlikely ones are left out, so more calls pay
  CHECK(call_pays({chosen, drawn}) == all_drawn);
  CHECK(call_pays({drawn, chosen}) == all_drawn);
}

TEST_CASE("what a draft has to catch up with counts in what a round may lose, at its first call") {
  const auto granted = [](double missed, std::int64_t calls) {
    std::vector<double> draft_costs;
    for (int n = 1; n <= 100; ++n) draft_costs.push_back(0.01 * n);
    BatchBudget budget{CostCurve({1, 1.05, 1.1}), CostCurve(draft_costs)};
    Run run;
    detail::SharedDraft<DraftingText> shared(std::move(budget), 1, {8}, 1.5);
    DraftingText text{&run};
    DraftingText* const one[1]{&text};
    for (int i = 0; i < 12; ++i) {  // rounds that were worth it
      shared.begin(one, 1);
      run.tree.reset(1, 1);
      if (shared.max_nodes() > 1) run.tree.choose(0, 0, 0.6f);
      run.ended.clear();
      if (run.tree.size() > 1) run.ended.accepted.push_back(1);
      shared.verified(1, run.tree.size(), 0, 0);
      shared.ended(0, static_cast<std::int32_t>(run.ended.accepted.size()));
      shared.end();
    }
    text.draft = {.missed = missed, .first_call = false};
    shared.begin(one, 1);
    REQUIRE(shared.max_nodes() > 1);
    run.tree.reset(1, 1);
    for (std::int64_t i = 0; i < calls; ++i) shared.called(0);
    run.call = DraftCall{.reach = 0.6, .nodes = 1};
    REQUIRE(shared.grant());
    return run.granted;
  };
  CHECK(granted(0, 0));
  CHECK_FALSE(granted(90, 0));
  CHECK(granted(90, 1));  // it has caught up
}

TEST_CASE("T(n) is not learned from passes in which prompts ran") {
  const auto cost_after = [](std::int32_t queued, double seconds) {
    Run run;
    detail::SharedDraft<DraftingText> shared(BatchBudget(), 1, {8}, kNever);
    DraftingText text{&run};
    DraftingText* const one[1]{&text};
    const auto round = [&](std::int32_t prompts, double took) {
      shared.begin(one, 1);
      run.tree.reset(1, 1), run.ended.clear();
      shared.verified(1, 1, prompts, took);
      shared.ended(0, 1);
      shared.end();
    };
    for (int i = 0; i < 20; ++i) round(0, 1);
    for (int i = 0; i < 5; ++i) round(queued, seconds);
    run.tree.reset(1, 1);
    return std::pair(shared.budget().target_costs()(1), shared.budget().rate(1));
  };
  CHECK(cost_after(500, 1.4) == cost_after(500, 1));
  CHECK(cost_after(0, 1.4) != cost_after(0, 1));
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
    CHECK(shared.rate > (texts == 1 ? 0.985 : 0.99) * plain);  // a single text's share is twice as large
  }
}

namespace {

/// A text with a proposal, as SharedDraft takes it.
struct GrownText {
  ProposalBuilder tree{50, 40, 0};
  std::vector<Token> written{1};
  std::vector<std::uint8_t> kept;
  VerifyResult verified;

  const std::vector<Token>& text() const { return written; }
  NodeCounts nodes() const { return {.most = 40}; }
  ProposalKind kind() const { return ProposalKind::deterministic; }
  SamplingParams params() const { return {.temperature = 0}; }
  const DraftCall* bid() const { return nullptr; }
  bool proposed() const { return true; }
  const TokenTree& proposal() const { return tree; }
  const VerifyResult& result() const { return verified; }
  Stats stats() const { return {}; }
  void grant(bool) {}
  void keep(std::span<const std::uint8_t> nodes) { kept.assign(nodes.begin(), nodes.end()); }

  /// A new tree; a token is accepted as often as its confidence says.
  void grow(specula_test::Random& random) {
    tree.reset(1, 10);
    kept.clear();
    verified.clear();
    const std::int32_t nodes = 1 + random.below(39);
    for (NodeId n = 1; n < nodes; ++n) {
      // some of a few values, so that paths tie
      const auto confidence =
          static_cast<float>(random.bernoulli(0.5) ? random.uniform() : 0.25 * (1 + random.below(3)));
      const NodeId parent = random.below(n);
      tree.choose(parent, n, confidence);
      if (parent == verified.accepted.back() && random.uniform() < static_cast<double>(confidence))
        verified.accepted.push_back(n);
    }
  }
};

}  // namespace

TEST_CASE("select_nodes() of the CUDA headers keeps the same nodes for the same number") {
  std::vector<double> costs;
  for (int n = 1; n <= 400; ++n) costs.push_back(1 + 0.03 * std::max(0, n - 20));
  specula_test::Random random(134);
  int compared = 0;
  for (const int texts : {1, 2, 7}) {
    struct Text {
      GrownText* run = nullptr;
      DraftState draft = {};
    };
    detail::SharedDraft<Text> shared(BatchBudget(CostCurve(costs), CostCurve({0.02})), texts, {.most = 40},
                                     1e300);
    std::vector<GrownText> runs(static_cast<std::size_t>(texts));
    std::vector<Text> all(runs.size());
    std::vector<Text*> pointers;
    for (std::size_t b = 0; b < runs.size(); ++b) all[b].run = &runs[b], pointers.push_back(&all[b]);
    for (int round = 0; round < 60; ++round) {
      shared.begin(pointers, texts);
      std::vector<std::int32_t> begin{0};
      std::vector<Token> tokens_of;
      std::vector<NodeId> parents;
      std::vector<double> reaches;
      for (GrownText& run : runs) {
        run.grow(random);
        std::vector<double> reach{1};
        for (NodeId n = 1; n < run.tree.size(); ++n)
          reach.push_back(
              reach[static_cast<std::size_t>(run.tree.parent(n))] *
              shared.cost_model()->accept_probability(static_cast<double>(run.tree.confidence(n))));
        tokens_of.resize(tokens_of.size() + reach.size(), 1);
        parents.insert(parents.end(), run.tree.parents().begin(), run.tree.parents().end());
        reaches.insert(reaches.end(), reach.begin(), reach.end());
        begin.push_back(static_cast<std::int32_t>(reaches.size()));
      }
      shared.choose();
      std::vector<std::uint8_t> want;
      std::int32_t nodes = 0, tokens = 0;
      for (const GrownText& run : runs) want.insert(want.end(), run.kept.begin(), run.kept.end());
      const auto budget = static_cast<std::int32_t>(std::count(want.begin(), want.end(), 1));
      if (!want.empty()) {  // else all of them
        ++compared;
        REQUIRE(want.size() == reaches.size());
        std::vector<std::int32_t> kept_begin(begin.size()), row(want.size());
        std::vector<Token> kept_token(want.size());
        std::vector<NodeId> kept_parent(want.size());
        cuda::detail::SelectNodesShared memory{};
        const cuda::detail::SelectNodesArgs args{
            {begin.data(), tokens_of.data(), parents.data(), reaches.data(), &budget},
            {kept_begin.data(), kept_token.data(), kept_parent.data(), row.data()},
            texts};
        cuda::detail::NodeSelection<specula_test::SerialBlock>({}, args,
                                                               reinterpret_cast<unsigned char*>(&memory))
            .run();
        for (std::size_t b = 0; b < runs.size(); ++b) want[static_cast<std::size_t>(begin[b])] = 1;
        std::vector<std::uint8_t> got;
        for (const std::int32_t r : row) got.push_back(r >= 0);
        CHECK(got == want);
      }
      for (std::size_t b = 0; b < runs.size(); ++b) {
        nodes += runs[b].tree.size();
        shared.called(b);
      }
      shared.drafted(nodes, 0, 0.02);
      shared.verified(texts, nodes, 0, costs[static_cast<std::size_t>(nodes) - 1]);
      for (std::size_t b = 0; b < runs.size(); ++b) {
        const auto emitted = static_cast<std::int32_t>(runs[b].verified.accepted.size());
        shared.ended(b, emitted);
        tokens += emitted;
      }
      shared.end();
      CHECK(tokens >= texts);
    }
  }
  CHECK(compared >= 30);
}
