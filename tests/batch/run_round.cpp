// SPDX-License-Identifier: MIT
// run_round(): a loop of one's own over many texts; pauses, prompts in chunks, failures, and what is refused.
#include <specula/batch/run_round.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"
#include "paged_batch.hpp"

using namespace specula;
using specula_test::kSceneVocab;
using specula_test::PagedBatch;
using specula_test::ToyBatch;

namespace {

using Run = Speculator<TreeVerifier<SlotOf<PagedBatch>, Sampling>, ModelDrafter<SlotOf<PagedBatch>>, Chain<>>;

/// An engine's own loop: slots, a queue, texts that leave, are cancelled and come back after a pause.
class Engine {
 public:
  Engine(std::int32_t slots, std::int32_t pages, std::int32_t chunk, bool shares)
      : target_(slots, kSceneVocab, 3, pages, chunk), draft_(slots, kSceneVocab, 4, 1000, chunk) {
    const BatchSizes sizes{.texts = slots, .nodes = {.most = 4}, .drafts = {&draft_}};
    if (shares)
      rounds_ =
          std::make_unique<BatchRounds<Run>>(sizes, BatchBudget(CostCurve({1, 1.01}), CostCurve({0.01})));
    else
      rounds_ = std::make_unique<BatchRounds<Run>>(sizes);
    for (std::int32_t s = 0; s < slots; ++s) slots_.push_back(std::make_unique<Slot>(*this, s));
  }

  /// The texts; one whose `cancel_after` is not 0 leaves with so many tokens.
  std::vector<std::vector<Token>> write(const std::vector<TextRequest>& requests, std::size_t cancelled,
                                        std::size_t cancel_after) {
    std::vector<std::vector<Token>> out(requests.size());
    std::deque<std::size_t> queue;
    std::deque<std::pair<std::size_t, Text>> paused;
    for (std::size_t i = 0; i < requests.size(); ++i) queue.push_back(i);
    bool ended = false;
    for (;;) {
      std::vector<Text*> running;
      for (auto& slot : slots_) {
        if (!slot->free) continue;
        if (!paused.empty()) {
          if (!ended && busy() > 0) continue;
          ended = false;
          slot->request = paused.front().first;
          slot->begin(requests[slot->request]);
          slot->text.out = paused.front().second.out;
          slot->run.start(paused.front().second.kept);
          paused.pop_front();
        } else if (!queue.empty()) {
          slot->request = queue.front(), queue.pop_front();
          slot->begin(requests[slot->request]);
          slot->run.start(requests[slot->request].prompt);
        }
      }
      std::vector<Slot*> order;
      for (auto& slot : slots_)
        if (!slot->free) order.push_back(slot.get());
      std::sort(order.begin(), order.end(), [](Slot* a, Slot* b) { return a->request < b->request; });
      for (Slot* slot : order) running.push_back(&slot->text);
      if (running.empty()) return out;
      run_round(running, *rounds_, [&](const MergedPass& pass) {
        return run_pass(pass.model == &target_ ? target_ : draft_, pass);
      });
      for (Slot* slot : order) {
        Text& text = slot->text;
        CHECK(!text.failure);
        std::vector<Token>& tokens = out[slot->request];
        tokens.insert(tokens.end(), text.fresh.begin(), text.fresh.end());
        const bool cancel = slot->request == cancelled && tokens.size() >= cancel_after;
        if (text.state == TextState::paused) {
          ++pauses;
          paused.emplace_back(slot->request, text);
          slot->free = true;
        } else if (text.state == TextState::ended || cancel) {
          text.run->forget();  // which also drops a round that waits
          slot->free = ended = true;
        }
      }
    }
  }
  int pauses = 0;
  PagedBatch& target() { return target_; }

 private:
  using Text = BatchText<Run>;
  struct Slot {
    Slot(Engine& engine, std::int32_t at)
        : target(engine.target_, at),
          draft(engine.draft_, at),
          run(TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, Chain<>{.length = 3}) {}
    void begin(const TextRequest& asked) {
      text = {.run = &run,
              .rng = PhiloxRandom{*asked.seed, asked.sequence.value_or(0)},
              .limits = {asked.max_new_tokens, asked.stop}};
      run.verifier().set_params(asked.params);
      free = false;
    }
    SlotOf<PagedBatch> target, draft;
    Run run;
    Text text;
    std::size_t request = 0;
    bool free = true;
  };
  int busy() const {
    return static_cast<int>(
        std::count_if(slots_.begin(), slots_.end(), [](const auto& s) { return !s->free; }));
  }

  PagedBatch target_, draft_;
  std::unique_ptr<BatchRounds<Run>> rounds_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

std::vector<TextRequest> requests() {
  std::vector<TextRequest> all;
  for (std::uint32_t i = 0; i < 12; ++i) {
    TextRequest& request = all.emplace_back();
    for (std::uint32_t t = 0; t < 3 + 2 * i; ++t)
      request.prompt.push_back(static_cast<Token>((t * 3 + i) % kSceneVocab));
    request.max_new_tokens = static_cast<std::int32_t>(12 + i);
    request.params = {.temperature = i % 3 == 0 ? 0.0f : 0.7f};
    request.seed = 42, request.sequence = i;
  }
  return all;
}
/// What plain decoding writes of it.
std::vector<Token> plain(const TextRequest& request) {
  ToyBatch target(1, kSceneVocab, 3);
  SlotOf<ToyBatch> slot(target, 0);
  Speculator run{TreeVerifier{slot, Sampling{}, request.params}, NoDrafter{kSceneVocab},
                 Chain<>{.length = 0}};
  std::vector<Token> tokens;
  run.generate(request.prompt, {request.max_new_tokens, request.stop},
               PhiloxRandom{*request.seed, request.sequence.value_or(0)},
               [&](Tokens fresh) { tokens.insert(tokens.end(), fresh.begin(), fresh.end()); });
  return tokens;
}

/// Two texts by hand.
struct Pair {
  Pair() {
    for (std::int32_t s = 0; s < 2; ++s) {
      const auto i = static_cast<std::size_t>(s);
      targets.emplace_back(target, s), drafts.emplace_back(draft, s);
      runs.emplace_back(TreeVerifier{targets[i], Sampling{}}, ModelDrafter{drafts[i]}, Chain<>{.length = 2});
      runs[i].start(std::vector<Token>{1, static_cast<Token>(s)});
      texts.push_back({.run = &runs[i]});
    }
    both = {&texts[0], &texts[1]};
  }
  auto pass() {
    return [this](const MergedPass& wanted) {
      return run_pass(wanted.model == &target ? target : draft, wanted);
    };
  }
  using SlotRun =
      Speculator<TreeVerifier<SlotOf<ToyBatch>, Sampling>, ModelDrafter<SlotOf<ToyBatch>>, Chain<>>;
  ToyBatch target{2, kSceneVocab, 3}, draft{2, kSceneVocab, 4};
  std::deque<SlotOf<ToyBatch>> targets, drafts;
  std::deque<SlotRun> runs;
  std::deque<BatchText<SlotRun>> texts;
  std::vector<BatchText<SlotRun>*> both;
  const BatchSizes sizes{.texts = 2, .nodes = {.most = 3}};
};

}  // namespace

TEST_CASE(
    "own loop: too few pages, prompts in chunks, joins, leaves and a cancel; the texts are those of plain "
    "decoding") {
  const std::vector<TextRequest> all = requests();
  for (const bool shares : {false, true})
    for (const std::int32_t chunk : {1000, 5}) {
      CAPTURE(shares);
      CAPTURE(chunk);
      Engine engine(8, 30, chunk, shares);
      const auto texts = engine.write(all, 4, 10);
      CHECK(engine.pauses > 0);
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<Token> want = plain(all[i]);
        if (i == 4) {
          CHECK(texts[i].size() >= 10);
          CHECK(texts[i].size() < want.size());
          want.resize(texts[i].size());
        }
        CHECK(texts[i] == want);
      }
      CHECK(engine.target().most_pages == 30);
    }
}

TEST_CASE("limits, stop tokens and sinks end a text; what was emitted is `fresh`") {
  Pair pair;
  BatchRounds<Pair::SlotRun> rounds(pair.sizes);
  const std::vector<Token> stop{0, 1, 2, 3, 4};
  pair.texts[0].limits.stop = stop;
  pair.texts[1].limits.max_new_tokens = 4;
  std::vector<Token> seen;
  pair.texts[1].sink = [&](Tokens fresh) {
    seen.insert(seen.end(), fresh.begin(), fresh.end());
    return true;
  };
  run_round(pair.both, rounds, pair.pass());
  CHECK(pair.texts[0].state == TextState::ended);
  CHECK(pair.texts[0].out == Generated{1, FinishReason::stop_token});
  CHECK(pair.texts[0].fresh.size() == 1);
  std::size_t emitted = pair.texts[1].fresh.size();
  std::vector<BatchText<Pair::SlotRun>*> one{&pair.texts[1]};
  while (pair.texts[1].state == TextState::writing) {
    run_round(one, rounds, pair.pass());
    emitted += pair.texts[1].fresh.size();
  }
  CHECK(pair.texts[1].out == Generated{4, FinishReason::limit});
  CHECK(emitted == 4);
  CHECK(seen.size() == 4);
  Pair none;
  none.texts[0].limits.max_new_tokens = 0;
  BatchRounds<Pair::SlotRun> others(none.sizes);
  run_round(none.both, others, none.pass());
  CHECK(none.texts[0].out == Generated{0, FinishReason::limit});
  CHECK(none.texts[0].fresh.empty());
  CHECK(none.texts[1].state == TextState::writing);
}

TEST_CASE(
    "a failing pass: of the target no text has changed, of a draft drafting ends; a sink's failure is its "
    "text's") {
  Pair pair;
  BatchRounds<Pair::SlotRun> rounds(pair.sizes, BatchBudget(CostCurve({1, 1.01}), CostCurve({0.01})));
  pair.target.throw_pass = 1;
  CHECK_THROWS_WITH(run_round(pair.both, rounds, pair.pass()), "the pass failed");
  for (const auto& text : pair.texts) {
    CHECK(text.state == TextState::joined);
    CHECK(text.run->text().size() == 2);
    CHECK_FALSE(text.run->in_round());
  }
  pair.draft.throw_pass = pair.draft.passes + 1;
  for (int i = 0; i < 10; ++i) run_round(pair.both, rounds, pair.pass());
  for (auto& run : pair.runs) CHECK(run.draft_error() == "the pass failed");
  pair.texts[0].sink = [](Tokens) -> bool { throw std::runtime_error("no disk"); };
  run_round(pair.both, rounds, pair.pass());
  CHECK(pair.texts[0].state == TextState::failed);
  CHECK_THROWS_WITH(std::rethrow_exception(pair.texts[0].failure), "no disk");
  CHECK(pair.texts[0].fresh.empty());
  CHECK(pair.texts[1].state == TextState::writing);
}

TEST_CASE("an engine's own pass may let prompts wait; one with another number of rows fails") {
  Pair pair;
  BatchRounds<Pair::SlotRun> rounds(pair.sizes);
  const auto only_first = [&](const MergedPass& wanted) {
    ToyBatch& model = wanted.model == &pair.target ? pair.target : pair.draft;
    std::erase_if(wanted.nodes, [](const SlotNodes& slot_nodes) { return slot_nodes.slot == 1; });
    return PassRows{model.extend(wanted.nodes)};
  };
  run_round(pair.both, rounds, only_first);
  CHECK(pair.texts[0].state == TextState::writing);
  CHECK(pair.texts[1].state == TextState::reading);
  CHECK(pair.texts[1].run->in_round());
  run_round(pair.both, rounds, pair.pass());
  CHECK(pair.texts[1].state == TextState::writing);
  const std::size_t size = pair.runs[0].text().size();
  const auto too_few = [&](const MergedPass& wanted) {
    PassRows got = pair.pass()(wanted);
    if (wanted.model == &pair.target) --got.rows.rows;
    return got;
  };
  CHECK_THROWS_AS(run_round(pair.both, rounds, too_few), std::invalid_argument);
  CHECK(pair.runs[0].text().size() == size);
  run_round(pair.both, rounds, pair.pass());
  CHECK(pair.runs[0].text().size() > size);
}

TEST_CASE("texts of two drafts: the order of their passes, and which text waits for one that fails") {
  ToyBatch second(2, kSceneVocab, 5);
  for (const bool fails : {false, true})
    for (const bool turned : {false, true}) {
      CAPTURE(fails);
      CAPTURE(turned);
      Pair pair;
      SlotOf<ToyBatch> other(second, 1);
      Pair::SlotRun run{TreeVerifier{pair.targets[1], Sampling{}}, ModelDrafter{other}, Chain<>{.length = 2}};
      run.start(std::vector<Token>{1, 1});
      pair.texts[1].run = &run;
      BatchSizes sizes = pair.sizes;
      if (turned) sizes.drafts = {&second};  // the first draft is not named, so it comes after
      BatchRounds<Pair::SlotRun> rounds(sizes);
      std::vector<const void*> order;
      run_round(pair.both, rounds, [&](const MergedPass& wanted) {
        order.push_back(wanted.model);
        if (fails && wanted.model == &pair.draft) throw std::runtime_error("the pass failed");
        return run_pass(wanted.model == &pair.target ? pair.target
                        : wanted.model == &second    ? second
                                                     : pair.draft,
                        wanted);
      });
      REQUIRE(order.size() == (fails ? 4 : 5));
      CHECK(order[0] == (turned ? &second : &pair.draft));
      CHECK(order.back() == &pair.target);
      CHECK(pair.runs[0].draft_error() == (fails ? "the pass failed" : ""));
      CHECK(run.draft_error().empty());
      for (const auto& text : pair.texts) CHECK(text.state == TextState::writing);
    }
}

TEST_CASE("without its draft, a text's rounds are plain") {
  Pair pair;
  BatchRounds<Pair::SlotRun> rounds(pair.sizes);
  for (auto& text : pair.texts) text.drafts = false;
  run_round(pair.both, rounds, pair.pass());
  CHECK(pair.draft.passes == 0);
  for (const auto& text : pair.texts) CHECK(text.fresh.size() == 1);
}

TEST_CASE("what is refused, before anything begins") {
  Pair pair;
  BatchRounds<Pair::SlotRun> one({.texts = 1, .nodes = {.most = 3}});
  CHECK_THROWS_AS(run_round(pair.both, one, pair.pass()), std::invalid_argument);
  CHECK_THROWS_AS(BatchRounds<Pair::SlotRun>({.texts = 0}), std::invalid_argument);
  CHECK_THROWS_AS(BatchRounds<Pair::SlotRun>(pair.sizes, BatchBudget(), 0.5), std::invalid_argument);
  BatchRounds<Pair::SlotRun> small({.texts = 2, .nodes = {.most = 2}}, BatchBudget());
  CHECK_THROWS_AS(run_round(pair.both, small, pair.pass()), std::invalid_argument);
  // 256 texts of 2^23 nodes are one more than can be counted.
  CHECK_THROWS_WITH_AS(BatchRounds<Pair::SlotRun>({.texts = 256, .nodes = {.most = 1 << 23}}, BatchBudget()),
                       doctest::Contains("2147483648 nodes"), std::invalid_argument);
  BatchRounds<Pair::SlotRun> rounds(pair.sizes);
  pair.texts[0].limits.max_new_tokens = 0;  // it would end
  for (const TextState state : {TextState::ended, TextState::failed, TextState::paused}) {
    pair.texts[1].state = state;
    CHECK_THROWS_AS(run_round(pair.both, rounds, pair.pass()), std::logic_error);
    CHECK(pair.texts[0].state == TextState::joined);
  }
  for (const auto& run : pair.runs) CHECK_FALSE(run.in_round());
}

TEST_CASE("one budget is refused where the target's passes are not merged") {
  ToyBatch target(1, kSceneVocab, 3), draft(1, kSceneVocab, 4);
  SlotOf<ToyBatch> t(target, 0), d(draft, 0);
  Speculator path{PathVerifier{t, Sampling{}}, ModelDrafter{d}, Chain<>{.length = 2}};
  path.start(std::vector<Token>{1});
  using PathRun = decltype(path);
  BatchText<PathRun> text{.run = &path};
  const std::vector<BatchText<PathRun>*> all{&text};
  const auto pass = [&](const MergedPass& wanted) { return run_pass(draft, wanted); };
  BatchRounds<PathRun> shared({.texts = 1, .nodes = {.most = 3}}, BatchBudget());
  CHECK_THROWS_WITH_AS(run_round(all, shared, pass), doctest::Contains("PathVerifier"),
                       std::invalid_argument);
  BatchRounds<PathRun> apart({.texts = 1, .nodes = {.most = 3}});
  run_round(all, apart, pass);  // each shape decides alone
  CHECK(text.state == TextState::writing);
}
