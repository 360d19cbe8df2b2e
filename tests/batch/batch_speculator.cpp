// SPDX-License-Identifier: MIT
// BatchSpeculator: texts in a batch are bitwise those alone, whatever joins, ends, fails and is forked beside
// them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/any.hpp>
#include <specula/batch/batch_speculator.hpp>
#include <specula/specula.hpp>

#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyModel;

// Named, or g++ warns of a local class in its coroutine.
template <class Shape>
struct PlainOf {  // a propose() that is no coroutine, around one that is
  static constexpr ProposalKind kind = Shape::kind;
  Shape shape;
  NodeCounts nodes() const { return shape.nodes(); }
  void reserve(const Sizes& sizes) {
    if constexpr (Reserves<Shape>) shape.reserve(sizes);
  }
  template <Drafter D, RandomSource C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    specula::propose(shape, drafter, round, tree, rng).run();
  }
};

namespace {

constexpr std::int32_t kVocab = 5;

/// Requests of different prompts, lengths, seeds and parameters.
std::vector<TextRequest> requests(std::size_t count, float temperature) {
  std::vector<TextRequest> all;
  for (std::size_t i = 0; i < count; ++i) {
    TextRequest request;
    for (std::size_t t = 0; t < 1 + 5 * i % 13; ++t)
      request.prompt.push_back(static_cast<Token>((i + 2 * t) % kVocab));
    request.max_new_tokens = static_cast<std::int32_t>(3 + 7 * i % 23);
    request.params.temperature = i % 5 == 4 ? 0.7f * temperature : temperature;
    request.seed = 100 + i;
    request.sequence = static_cast<std::uint32_t>(i);
    if (i % 3 == 1) request.stop = {static_cast<Token>(i % kVocab)};
    if (i % 4 == 2) request.logprobs = LogprobOptions{};
    all.push_back(request);
  }
  return all;
}

struct Text {
  std::vector<Token> tokens;
  FinishReason reason = FinishReason::cancelled;
  std::int64_t rounds = 0, proposed = 0;
  std::vector<std::int64_t> accepted;
  bool operator==(const Text&) const = default;
};
Text text_of(const std::vector<Token>& tokens, FinishReason reason, const Stats& stats) {
  return {tokens, reason, stats.rounds, stats.proposed, stats.accepted};
}

/// What a Speculator alone writes.
template <class Run>
Text write_alone(Run& run, const TextRequest& request) {
  run.verifier().set_params(request.params);
  run.forget();
  run.reset_stats();
  PhiloxRandom rng{*request.seed, request.sequence.value_or(0)};
  std::vector<Token> tokens;
  const Generated end =
      run.generate(request.prompt, {request.max_new_tokens, request.stop}, rng,
                   [&](Tokens fresh) { tokens.insert(tokens.end(), fresh.begin(), fresh.end()); });
  return text_of(tokens, end.reason, run.stats());
}
template <class Make>
std::vector<Text> alone(const std::vector<TextRequest>& all, Make make) {
  std::vector<Text> out;
  for (const TextRequest& request : all) {
    ToyBatch target(1, kVocab, 3), draft(1, kVocab, 4);
    SlotOf<ToyBatch> t(target, 0), d(draft, 0);
    auto run = make(t, d);
    out.push_back(write_alone(run, request));
  }
  return out;
}

struct Models {
  explicit Models(std::int32_t slots, std::int32_t chunk = 1000)
      : target(slots, kVocab, 3, chunk), draft(slots, kVocab, 4, chunk) {
    for (std::int32_t s = 0; s < slots; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  }
  /// What makes the pipeline of a slot.
  template <class Make>
  auto each(Make make) {
    return [this, make](std::int32_t slot) {
      return make(targets[static_cast<std::size_t>(slot)], drafts[static_cast<std::size_t>(slot)]);
    };
  }
  ToyBatch target, draft;
  std::vector<SlotOf<ToyBatch>> targets, drafts;
};

/// All requests, of which two join every third step.
template <class Make>
std::vector<Text> together(const std::vector<TextRequest>& all, Models& models, Make make,
                           std::int64_t* passes = nullptr, int* failures = nullptr) {
  BatchSpeculator batch(models.target.slots(), models.each(make), models.draft, models.target);
  std::map<TextId, std::size_t> index;
  std::vector<Text> out(all.size());
  std::size_t next = 0;
  for (int step = 0; next < all.size() || !batch.empty(); ++step) {
    if (step % 3 == 0)
      for (int i = 0; i < 2 && next < all.size(); ++i, ++next) index[batch.join(all[next])] = next;
    try {
      for (const TextResult& text : batch.step()) {
        CHECK(!text.failure);
        out[index.at(text.id)] = text_of(text.tokens, text.reason, text.stats);
      }
    } catch (const std::runtime_error&) {
      if (!failures) throw;
      ++*failures;
    }
  }
  if (passes) *passes = batch.passes();
  return out;
}

/// For any number of texts at once, every text is bitwise what it is alone, and so are its statistics.
template <class Make>
void same_texts(float temperature, Make make) {
  const std::vector<TextRequest> all = requests(12, temperature);
  const std::vector<Text> want = alone(all, make);
  for (const std::int32_t slots : {1, 2, 3, 8})
    for (const std::int32_t chunk : {1000, 3}) {
      CAPTURE(slots);
      CAPTURE(chunk);
      Models models(slots, chunk);
      CHECK(together(all, models, make) == want);
    }
}

/// A pipeline over slots; rule and shape are erased, so that the compiler sees one for each kind of draws.
template <ProposalKind kind>
struct Pipe {
  using Draft = ModelDrafter<SlotOf<ToyBatch>>;
  RuleName rule;
  std::function<AnyShape<Draft, kind>()> shape;

  auto operator()(SlotOf<ToyBatch>& target, SlotOf<ToyBatch>& draft) const {
    return Speculator{TreeVerifier{target, AnyRule<kind>(rule)}, Draft{draft}, shape()};
  }
};
template <class Shape>
Pipe<Shape::kind> pipeline(RuleName rule, Shape shape) {
  return {rule, [=] { return AnyShape<typename Pipe<Shape::kind>::Draft, Shape::kind>(shape); }};
}
/// A chain of two that throws in one of the proposals of all texts: before it asks for rows, or after.
template <class Error>
struct Throwing {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  int* calls;
  int at;
  bool late;
  Chain<> chain{.length = 2};

  NodeCounts nodes() const { return chain.nodes(); }
  template <LogitsDrafter D, RandomSource C>
  Steps propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    const bool throws = ++*calls == at;
    if (throws && !late) throw Error("on purpose");
    co_await specula::propose(chain, drafter, round, tree, rng);
    if (throws) throw Error("on purpose");
  }
};
struct ThrowingRule {
  int* calls;
  int at;
  static constexpr bool lossless_for(ProposalKind kind) { return Sampling::lossless_for(kind); }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    if (++*calls == at) throw std::runtime_error("on purpose");
    Sampling{}.decide(tree, target, rng, out);
  }
};

}  // namespace

TEST_CASE("texts in a batch are those alone: chains, chosen, drawn and with shared noise") {
  same_texts(0, pipeline(RuleName::sampling, Chain<>{.length = 4}));
  same_texts(0.8f, pipeline(RuleName::sampling, Chain<Draw::sampled>{.length = 4}));
  same_texts(0.8f, pipeline(RuleName::token, Chain<Draw::sampled>{.length = 3, .exit_below = 0.3f}));
  same_texts(0.8f, pipeline(RuleName::gumbel, Chain<Draw::shared>{.length = 4}));
  same_texts(0, pipeline(RuleName::sampling, Chain<>{.length = 0}));
}
TEST_CASE("texts in a batch are those alone: trees") {
  same_texts(0, pipeline(RuleName::sampling, Cape{.length = 3, .budget = 7}));
  same_texts(0.8f, pipeline(RuleName::sampling, Beam{.width = 2, .length = 3}));
  same_texts(0.8f, pipeline(RuleName::match, DynamicTree{.top_k = 2, .expansions = 2, .total = 5}));
  same_texts(0.8f, pipeline(RuleName::sampling, StaticTree<>{.form = {{0}, {1}, {0, 0}, {0, 1}}}));
  same_texts(0.8f,
             pipeline(RuleName::sampling, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2}}));
  same_texts(0.8f, pipeline(RuleName::sampling, SampledTree<ProposalKind::sampled_iid>{.widths = {2, 1}}));
}
TEST_CASE("texts in a batch are those alone: costs that are given, and what a text learns") {
  const CostCurve target({1, 1.2, 1.4, 1.6, 1.8, 2}), draft({0.1});
  CostAware bounded{Chain<>{.length = 4}, target, draft};
  bounded.carry(false);
  same_texts(0, pipeline(RuleName::sampling, bounded));
  same_texts(0.8f, pipeline(RuleName::sampling, AdaptiveChain<HeuristicEnd, Draw::sampled>{.carry = false}));
}
TEST_CASE("texts in a batch are those alone: a shape that is no coroutine runs unmerged") {
  same_texts(0.8f, pipeline(RuleName::sampling, PlainOf<Chain<Draw::sampled>>{{.length = 3}}));
  const std::vector<TextRequest> all = requests(12, 0);
  Models merged(4), apart(4);
  std::int64_t passes = 0;
  together(all, merged, pipeline(RuleName::sampling, Chain<>{.length = 3}));
  together(all, apart, pipeline(RuleName::sampling, PlainOf<Chain<>>{{.length = 3}}), &passes);
  CHECK(2 * merged.draft.passes < apart.draft.passes);
  CHECK(merged.target.passes == apart.target.passes);
  CHECK(passes == apart.target.passes);
}
TEST_CASE("texts in a batch are those alone: cascades of two batched drafts") {
  using Draft = ModelDrafter<SlotOf<ToyBatch>>;
  using Drafts = Stack<Draft, Draft>;
  using Shape = AnyShape<Drafts, ProposalKind::sampled>;
  using Slots = std::vector<SlotOf<ToyBatch>>;
  const std::vector<TextRequest> all = requests(8, 0.8f);
  const auto write = [&](std::int32_t slots, const std::function<Shape()>& shape) {
    ToyBatch target(slots, kVocab, 3, 3), better(slots, kVocab, 4, 3), worse(slots, kVocab, 5, 3);
    Slots t, b, w;
    for (std::int32_t s = 0; s < slots; ++s)
      t.emplace_back(target, s), b.emplace_back(better, s), w.emplace_back(worse, s);
    const auto make = [&](std::int32_t slot) {
      const auto s = static_cast<std::size_t>(slot);
      return Speculator{TreeVerifier{t[s], Rejection{}}, Drafts{Draft{b[s]}, Draft{w[s]}}, shape()};
    };
    std::vector<Text> out(all.size());
    if (slots == 1) {
      auto run = make(0);
      for (std::size_t i = 0; i < all.size(); ++i) out[i] = write_alone(run, all[i]);
      return out;
    }
    BatchSpeculator batch(slots, make, worse, better, target);
    for (const TextRequest& request : all) batch.join(request);
    while (!batch.empty())
      for (const TextResult& text : batch.step())
        out[static_cast<std::size_t>(text.id - 1)] = text_of(text.tokens, text.reason, text.stats);
    return out;
  };
  const auto same = [&](auto shape) {
    const auto make = [=] { return Shape(shape); };
    CHECK(write(4, make) == write(1, make));
  };
  same(Cascade<2, Draw::sampled>{.limits = {{{3, 2}, {0, 2}}}, .lenience = 2});
  same(Vertical<2, Draw::sampled>{.reviews = 2, .length = 2});
  same(Horizontal<2, Draw::sampled>{.counts = {2, 2}});
}

TEST_CASE("prompts that begin alike are read once, and the texts are those alone") {
  const auto make = pipeline(RuleName::sampling, Chain<Draw::sampled>{.length = 3});
  std::vector<TextRequest> all;
  for (std::size_t i = 0; i < 12; ++i) {
    TextRequest& request = all.emplace_back();
    for (Token t = 0; t < 24; ++t) request.prompt.push_back(t * t % kVocab);
    // Some go on differently, some are the same prompt, one is its beginning and one is another.
    for (std::size_t t = 0; t < i % 4; ++t) request.prompt.push_back(static_cast<Token>((i + t) % kVocab));
    if (i == 6) request.prompt.resize(20);
    if (i == 9) request.prompt.front() = 3;
    request.max_new_tokens = static_cast<std::int32_t>(4 + i % 5);
    request.params.temperature = 0.8f;
    request.seed = 7, request.sequence = static_cast<std::uint32_t>(i);
  }
  const std::vector<Text> want = alone(all, make);
  for (const std::int32_t slots : {1, 2, 4, 12})
    for (const std::int32_t chunk : {1000, 3}) {
      CAPTURE(slots);
      CAPTURE(chunk);
      Models models(slots, chunk);
      CHECK(together(all, models, make) == want);
      if (slots == 1 || chunk == 1000) continue;
      // The first prompt, the other one, what follows the beginning, and a chunk that rides along for each.
      CHECK(models.target.ran <= 24 + 24 + 12 * (4 + 3));
      CHECK(models.target.forked + models.target.ran >= 12 * 20);
      CHECK(models.draft.forked > 0);
    }
  // A prompt goes on with a text that has ended, while other texts take the other slot.
  Models models(2, 3);
  BatchSpeculator batch(2, models.each(make), models.draft, models.target);
  std::vector<Token> text = all[0].prompt;
  for (int turn = 0; turn < 5; ++turn) {
    CAPTURE(turn);
    TextRequest request = all[0];
    request.prompt = text, request.max_new_tokens = 5;
    const std::int64_t before = models.target.ran;
    batch.join(request);
    std::vector<Token> written;
    while (!batch.empty())
      for (const TextResult& ended : batch.step()) written = ended.tokens;
    const auto one = alone({request}, make);
    CHECK(written == one[0].tokens);
    if (turn > 0) CHECK(models.target.ran - before <= 3);
    text.insert(text.end(), written.begin(), written.end());
    batch.join({.prompt = {4}, .max_new_tokens = 1});
    while (!batch.empty()) batch.step();
  }
}

TEST_CASE("of free slots that a text shares nothing with it takes the one whose last text is older") {
  Models models(2);
  BatchSpeculator batch(2, models.each(pipeline(RuleName::sampling, Chain<>{.length = 2})), models.draft,
                        models.target);
  std::vector<Token> text(20, 1);
  const auto write = [&](const std::vector<Token>& prompt) {
    batch.join({.prompt = prompt, .max_new_tokens = 2, .params = {.temperature = 0}});
    std::vector<Token> tokens;
    while (!batch.empty())
      for (const TextResult& ended : batch.step()) tokens = ended.tokens;
    return tokens;
  };
  write(std::vector<Token>(20, 0));
  const std::vector<Token> written = write(text);
  text.insert(text.end(), written.begin(), written.end());
  write({2});
  const std::int64_t before = models.target.ran;
  write(text);
  CHECK(models.target.ran - before <= 2);  // the newer text was still there
}

TEST_CASE("a prompt that goes on with a text of which a cascade's drafts hold tokens that were rejected") {
  using Draft = ModelDrafter<SlotOf<ToyBatch>>;
  constexpr std::int32_t kTexts = 2;
  ToyBatch target(kTexts, kVocab, 3), better(kTexts, kVocab, 4), worse(kTexts, kVocab, 5);
  std::vector<SlotOf<ToyBatch>> t, b, w;
  for (std::int32_t s = 0; s < kTexts; ++s)
    t.emplace_back(target, s), b.emplace_back(better, s), w.emplace_back(worse, s);
  BatchSpeculator batch(
      kTexts,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{t[s], Rejection{}}, Stack{Draft{b[s]}, Draft{w[s]}},
                          Vertical<2, Draw::sampled>{.reviews = 2, .length = 2}};
      },
      worse, better, target);
  const TextId first = batch.join({.prompt = {0, 1, 2, 3}, .max_new_tokens = 50});
  for (int i = 0; i < 20; ++i) {
    batch.step();
    const Tokens text = batch.text(first);
    if (text.empty()) break;
    std::vector<Token> longer(text.begin(), text.end());
    longer.push_back(0);
    batch.join({.prompt = longer, .max_new_tokens = 1});
    for (const TextResult& ended : batch.step())
      CHECK(!ended.failure);  // the toys refuse a fork of other tokens
  }
  CHECK(target.forked > 50);
  CHECK(better.forked > 0);
}

TEST_CASE("a pass that fails, at any call: the texts are the same, and it goes on") {
  const std::vector<TextRequest> all = requests(6, 0.8f);
  const auto make = pipeline(RuleName::sampling, Chain<Draw::sampled>{.length = 2});
  const std::vector<Text> want = alone(all, make);
  for (int call = 1; call <= 30; ++call) {
    CAPTURE(call);
    Models models(3, 2);
    models.target.throw_pass = call;
    int failures = 0;
    const std::vector<Text> have = together(all, models, make, nullptr, &failures);
    CHECK(failures == (call <= models.target.passes ? 1 : 0));
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(have[i].tokens == want[i].tokens);
  }
  // Of a draft: drafting ends in the texts that waited, as it does alone; at temperature 0 the texts are the
  // same.
  const std::vector<TextRequest> greedy = requests(6, 0);
  const auto chosen = pipeline(RuleName::sampling, Chain<>{.length = 2});
  const std::vector<Text> chosen_alone = alone(greedy, chosen);
  for (int call = 1; call <= 30; ++call) {
    Models models(3, 2);
    models.draft.throw_pass = call;
    const std::vector<Text> have = together(greedy, models, chosen);
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(have[i].tokens == chosen_alone[i].tokens);
  }
}

TEST_CASE("a fault ends its text alone: a bad row, a rule, a sink; the others are as without it") {
  std::vector<TextRequest> all = requests(6, 0.8f);
  const auto make = pipeline(RuleName::sampling, Chain<Draw::sampled>{.length = 2});
  const std::vector<Text> want = alone(all, make);
  const auto run = [&](Models& models) {
    BatchSpeculator batch(3, models.each(make), models.draft, models.target);
    for (const TextRequest& request : all) batch.join(request);
    std::vector<std::string> failures(all.size());
    while (!batch.empty())
      for (const TextResult& text : batch.step()) {
        const auto i = static_cast<std::size_t>(text.id - 1);
        if (!text.failure) {
          CHECK(text_of(text.tokens, text.reason, text.stats) == want[i]);
          continue;
        }
        try {
          std::rethrow_exception(text.failure);
        } catch (const std::exception& e) {
          failures[i] = e.what();
        }
        CHECK(text.tokens.size() < want[i].tokens.size());
        CHECK(std::equal(text.tokens.begin(), text.tokens.end(), want[i].tokens.begin()));
      }
    return failures;
  };
  {
    Models models(3);
    models.target.poison_pass = 2;
    models.target.poison_slot = 1;
    const auto failures = run(models);
    CHECK(std::count(failures.begin(), failures.end(), "") == 5);
    CHECK(failures[1].find("NaN") != std::string::npos);
  }
  {
    Models models(3);
    int calls = 0;
    all[0].sink = [&](Tokens) -> bool { return ++calls == 2 ? throw std::runtime_error("no disk") : true; };
    const auto failures = run(models);
    CHECK(failures[0] == "no disk");
    CHECK(std::count(failures.begin(), failures.end(), "") == 5);
    all[0].sink = nullptr;
  }
}

TEST_CASE(
    "a shape or a rule that throws, at any call: its text ends, or goes on plainly, and the others are as "
    "without it") {
  const std::vector<TextRequest> all = requests(5, 0);
  const std::vector<Text> want = alone(all, pipeline(RuleName::sampling, Chain<>{.length = 2}));
  const auto run = [&](auto shape, int rule_throws) {
    Models models(3);
    int decided = 0, failures = 0;
    BatchSpeculator batch(
        3,
        [&](std::int32_t slot) {
          const auto s = static_cast<std::size_t>(slot);
          return Speculator{TreeVerifier{models.targets[s], ThrowingRule{&decided, rule_throws}},
                            ModelDrafter{models.drafts[s]}, shape};
        },
        models.draft, models.target);
    for (const TextRequest& request : all) batch.join(request);
    while (!batch.empty())
      for (const TextResult& text : batch.step()) {
        const std::vector<Token>& wanted = want[static_cast<std::size_t>(text.id - 1)].tokens;
        if (!text.failure) {
          CHECK(text.tokens == wanted);
          continue;
        }
        CHECK_THROWS_WITH(std::rethrow_exception(text.failure), "on purpose");
        ++failures;
        REQUIRE(text.tokens.size() < wanted.size());
        CHECK(std::equal(text.tokens.begin(), text.tokens.end(), wanted.begin()));
      }
    return failures;
  };
  for (int at = 1; at <= 10; ++at) {
    CAPTURE(at);
    for (const bool late : {false, true}) {
      CAPTURE(late);
      int misused = 0, failed = 0;
      CHECK(run(Throwing<std::logic_error>{&misused, at, late}, -1) == 1);
      CHECK(run(Throwing<std::runtime_error>{&failed, at, late}, -1) == 0);
      CHECK(misused >= at);
    }
    int none = 0;
    CHECK(run(Throwing<std::runtime_error>{&none, -1, false}, at) == 1);
  }
}

TEST_CASE("a text that fails in a round whose pass of the target fails too is returned, the others go on") {
  const std::vector<TextRequest> all = requests(3, 0);
  const std::vector<Text> want = alone(all, pipeline(RuleName::sampling, Chain<>{.length = 2}));
  Models models(3);
  int calls = 0;
  BatchSpeculator batch(
      3,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{models.targets[s], Sampling{}}, ModelDrafter{models.drafts[s]},
                          Throwing<std::logic_error>{&calls, 1, false}};
      },
      models.draft, models.target);
  for (const TextRequest& request : all) batch.join(request);
  models.target.throw_pass = 1;
  CHECK_THROWS_WITH(batch.step(), "the pass failed");
  std::size_t ended = 0;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      ++ended;
      CHECK((text.failure != nullptr) == (text.id == 1));
      if (text.id != 1) CHECK(text.tokens == want[static_cast<std::size_t>(text.id - 1)].tokens);
    }
  CHECK(ended == 3);
}

TEST_CASE("join, cancel at any step, and what is refused") {
  const auto make = pipeline(RuleName::sampling, Chain<>{.length = 2});
  const std::vector<TextRequest> all = requests(5, 0);
  const std::vector<Text> want = alone(all, make);
  for (int at = 0; at < 6; ++at) {
    Models models(2, 2);
    BatchSpeculator batch(2, models.each(make), models.draft, models.target);
    CHECK(batch.empty());
    for (const TextRequest& request : all) batch.join(request);
    std::size_t ended = 0;
    for (int step = 0; !batch.empty(); ++step) {
      if (step == at)
        for (const TextId id : {TextId{2}, TextId{5}}) CHECK(batch.cancel(id));
      for (const TextResult& text : batch.step()) {
        ++ended;
        const Text& whole = want[static_cast<std::size_t>(text.id - 1)];
        const bool cancelled = text.id == 2 || text.id == 5;
        if (cancelled) {
          CHECK(text.reason == FinishReason::cancelled);
          CHECK(text.tokens.size() <= whole.tokens.size());
          CHECK(std::equal(text.tokens.begin(), text.tokens.end(), whole.tokens.begin()));
        } else {
          CHECK(text.tokens == whole.tokens);
        }
      }
      CHECK(batch.running() <= 2);
    }
    CHECK(ended == all.size());
    CHECK_FALSE(batch.cancel(1));
    CHECK_FALSE(batch.cancel(0));
    TextRequest hot;
    hot.params.temperature = -1;
    CHECK_THROWS_AS(batch.join(hot), std::invalid_argument);
    TextRequest stops;
    stops.stop = {kVocab};
    CHECK_THROWS_AS(batch.join(stops), std::invalid_argument);
    batch.join({});  // an empty prompt is its own failure
    const auto& ends = batch.step();
    REQUIRE(ends.size() == 1);
    CHECK(ends.front().failure != nullptr);
    CHECK(batch.empty());
  }
  Models models(2);
  CHECK_THROWS_AS(BatchSpeculator(
                      3,
                      [&](std::int32_t slot) {
                        return make(models.targets[static_cast<std::size_t>(slot)], models.drafts[0]);
                      },
                      models.draft, models.target),
                  std::invalid_argument);
}

TEST_CASE("a long prompt does not hold up the others: it is read in chunks, in their passes") {
  Models models(2, 4);
  const auto make = pipeline(RuleName::sampling, Chain<>{.length = 2});
  BatchSpeculator batch(2, models.each(make), models.draft, models.target);
  const TextId shorter = batch.join({.prompt = {1}, .max_new_tokens = 30, .params = {.temperature = 0}});
  const TextId longer =
      batch.join({.prompt = std::vector<Token>(40, 2), .max_new_tokens = 5, .params = {.temperature = 0}});
  std::size_t written = 0;
  while (batch.text(longer).size() <= 40) {
    CHECK(batch.step().empty());
    CHECK(batch.text(shorter).size() > written);
    written = batch.text(shorter).size();
    if (written > 25) break;
  }
  CHECK(models.target.most_rows <= 4 + 3 + 3);
  CHECK(written > 5);
}

TEST_CASE(
    "share() is refused where the target's passes are not merged, and share() may follow rounds that wait") {
  Models models(2, 2);
  const auto over = [&](auto verifier_of) {
    return [&, verifier_of](std::int32_t slot) {
      const auto s = static_cast<std::size_t>(slot);
      return Speculator{verifier_of(models.targets[s]), ModelDrafter{models.drafts[s]}, Chain<>{.length = 2}};
    };
  };
  BatchSpeculator paths(2, over([](auto& slot) {
                          return PathVerifier{slot, Sampling{}};
                        }),
                        models.draft, models.target);
  CHECK_THROWS_WITH_AS(paths.share(BatchBudget()), doctest::Contains("PathVerifier"), std::invalid_argument);
  CHECK(paths.budget() == nullptr);
  ToyBatch other(2, kVocab, 3);
  BatchSpeculator foreign(2, over([](auto& slot) {
                            return TreeVerifier{slot, Sampling{}};
                          }),
                          models.draft, other);
  CHECK_THROWS_WITH_AS(foreign.share(BatchBudget()), doctest::Contains("another model"),
                       std::invalid_argument);

  const std::vector<TextRequest> all = requests(6, 0);
  const std::vector<Text> want = alone(all, pipeline(RuleName::sampling, Chain<>{.length = 2}));
  BatchSpeculator batch(2, over([](auto& slot) {
                          return TreeVerifier{slot, Sampling{}};
                        }),
                        models.draft, models.target);
  for (const TextRequest& request : all) batch.join(request);
  for (int step = 0; !batch.empty(); ++step) {
    if (step % 3 == 1) batch.share(BatchBudget(CostCurve({1, 1.01}), CostCurve({0.01})), 10.0 + step);
    for (const TextResult& text : batch.step())
      CHECK(text.tokens == want[static_cast<std::size_t>(text.id - 1)].tokens);
  }
}

TEST_CASE("share() holds from the next step on, also for rounds that wait") {
  Models models(2, 2);
  BatchSpeculator batch(2, models.each(pipeline(RuleName::sampling, Chain<>{.length = 2})), models.draft,
                        models.target);
  for (const Token first : {0, 1})
    batch.join({.prompt = std::vector<Token>(12, first), .max_new_tokens = 8, .params = {.temperature = 0}});
  batch.step();  // reads a chunk
  REQUIRE(models.draft.queued(0) > 0);
  batch.share(BatchBudget(CostCurve({1, 2}), CostCurve({100})));  // no draft pays
  std::size_t ended = 0;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      ++ended;
      CHECK(text.stats.proposed == 0);
      CHECK(text.tokens.size() == 8);
    }
  CHECK(ended == 2);
}

TEST_CASE("a text owes nothing of what its slot's last text has missed of the draft") {
  Models models(2);
  BatchSpeculator batch(2, models.each(pipeline(RuleName::sampling, Chain<>{.length = 1})), models.draft,
                        models.target);
  batch.share(BatchBudget(CostCurve({1, 1, 1, 100}), CostCurve({0.001, 0.002})));  // one draft token is free
  const auto join = [&](std::int32_t tokens) {
    return batch.join({.prompt = {1, 2}, .max_new_tokens = tokens, .params = {.temperature = 0}});
  };
  models.draft.throw_pass = 1;
  const TextId failed = join(30);
  while (batch.text(failed).size() < 10) batch.step();
  join(40);
  while (!batch.empty()) batch.step();
  const TextId first = join(1), second = join(1);  // the first in the slot of the text that ended first
  std::map<TextId, std::int64_t> proposed;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) proposed[text.id] = text.stats.proposed;
  CHECK(proposed[first] == 1);
  CHECK(proposed[second] == 0);
}

TEST_CASE("a draft that waits for a model that the batch was not given fails its text, by name") {
  Models models(1);
  BatchSpeculator batch(1, models.each(pipeline(RuleName::sampling, Chain<>{.length = 2})), models.target);
  batch.join({.prompt = {1}, .max_new_tokens = 4});
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      REQUIRE(text.failure);
      CHECK_THROWS_WITH_AS(std::rethrow_exception(text.failure), doctest::Contains("was not given"),
                           std::logic_error);
    }
}
