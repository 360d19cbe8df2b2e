// SPDX-License-Identifier: MIT
// Speculator: texts, KV caches, limits, errors, statistics, cascades, shared models.
#include <specula/run/speculator.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "every_shape.hpp"
#include "plain_distribution.hpp"
#include "toy_model.hpp"
#include "tree_shapes.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using List = std::vector<Token>;
using SampledChain = Chain<Draw::sampled>;
using GreedyChain = Chain<Draw::greedy>;

List list(Tokens tokens) { return {tokens.begin(), tokens.end()}; }

template <class Rule, class Shape>
auto pipeline(ToyModel& target, ToyModel& draft, Rule rule, Shape shape, SamplingParams params = {}) {
  return Speculator{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
}

/// The text of plain sampling from the target with the uniform draws of `seed`.
List plainly(const ToyModel& target, List text, std::size_t length, std::uint64_t seed,
             const SamplingParams& params = {}) {
  const PhiloxRandom rng(seed);
  specula::detail::RowScan scan(target.vocab_size());
  std::vector<float> row(static_cast<std::size_t>(target.vocab_size()));
  while (text.size() < length) {
    target.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
    const Distribution distribution = scan.distribution(row, params);
    PhiloxRandom uniforms = rng;
    text.push_back(distribution.is_point() ? distribution.point
                                           : uniforms.draw(scan.weights(distribution),
                                                           RandomKey{static_cast<std::int32_t>(text.size()),
                                                                     0, RandomStream::sample, 0}));
  }
  return text;
}

List text_of(auto& run, const List& prompt, std::size_t length, std::uint64_t seed) {
  PhiloxRandom rng(seed);
  run.start(prompt);
  while (run.text().size() < length) run.step(rng);
  return list(run.text().first(length));
}

const List kPrompt = {0, 2, 1};

}  // namespace

TEST_CASE("same seed, same text as plain sampling, over 25 seeds") {
  ToyModel target(5, 1), draft(5, 2);
  const SamplingParams warm{.temperature = 0.8f, .top_p = 0.9f};
  auto match_greedy = pipeline(target, draft, SampleAndMatch{}, GreedyChain{.length = 3});
  auto match_sampled =
      pipeline(target, draft, SampleAndMatch{}, SampledChain{.length = 3, .exit_below = 0.2f}, warm);
  auto chosen = pipeline(target, draft, Sampling{}, GreedyChain{.length = 4}, warm);
  auto rejection = pipeline(target, draft, Sampling{}, SampledChain{.length = 3});
  int same = 0;
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    CHECK(text_of(match_greedy, kPrompt, 40, seed) == plainly(target, kPrompt, 40, seed));
    match_greedy.forget();
    CHECK(text_of(match_sampled, kPrompt, 40, seed) == plainly(target, kPrompt, 40, seed, warm));
    match_sampled.forget();
    CHECK(text_of(chosen, kPrompt, 40, seed) == plainly(target, kPrompt, 40, seed, warm));
    chosen.forget();
    same += text_of(rejection, kPrompt, 40, seed) == plainly(target, kPrompt, 40, seed);
    rejection.forget();
  }
  CHECK(same < 3);  // rejection keeps the distribution, not the text
  CHECK(chosen.stats().mat() > 1.15);
}

TEST_CASE("temperature 0 gives greedy decoding's text") {
  ToyModel target(7, 1), draft(7, 2), twin(7, 1);
  const SamplingParams greedy{.temperature = 0};
  auto sampling = pipeline(target, draft, Sampling{}, SampledChain{.length = 3}, greedy);
  CHECK(text_of(sampling, kPrompt, 50, 1) == plainly(target, kPrompt, 50, 1, greedy));
  auto rule = pipeline(target, twin, Greedy{}, GreedyChain{.length = 3});
  CHECK(text_of(rule, kPrompt, 50, 1) == plainly(target, kPrompt, 50, 1, greedy));
  CHECK(rule.stats().mat() == doctest::Approx(4));  // the draft is the target
  CHECK(rule.stats().acceptance(1) == 1);
  CHECK(rule.stats().acceptance(3) == 1);
}

TEST_CASE("a run depends only on prompt and seed, not on earlier runs") {
  ToyModel target(5, 1, 2.0f, 600), draft(5, 2, 2.0f, 600);
  auto run = pipeline(target, draft, Sampling{}, SampledChain{.length = 3});
  List prompt;
  for (int i = 0; i < 300; ++i) prompt.push_back(i * i % 5);
  const List first = text_of(run, prompt, 340, 9);
  const std::int64_t appended = target.appended;
  CHECK(text_of(run, prompt, 340, 9) == first);
  CHECK(target.appended - appended == 299 - 256);  // two chunks of 128 were kept
  CHECK(list(run.text()).size() >= 340);
  List other = prompt;
  other[200] = (other[200] + 1) % 5;
  CHECK(text_of(run, other, 340, 9) != first);
  CHECK(std::equal(other.begin(), other.begin() + 299, target.cache().begin()));
  CHECK(text_of(run, prompt, 340, 9) == first);
  run.forget();
  CHECK(target.cache().empty());
  CHECK(draft.cache().empty());
  CHECK(run.text().empty());
  CHECK(text_of(run, prompt, 340, 9) == first);
  // The current text as a prompt, and a part of it.
  run.start(run.text());
  CHECK(run.text().size() >= 340);
  run.start(run.text().first(10));
  CHECK(run.text().size() == 10);
  CHECK(target.cache() == List(prompt.begin(), prompt.begin() + 9));
  CHECK(text_of(run, prompt, 340, 9) == first);
}

TEST_CASE("the KV caches follow the text") {
  ToyModel target(5, 1), draft(5, 2);
  auto run = pipeline(target, draft, Sampling{}, SampledChain{.length = 4});
  PhiloxRandom rng(3);
  run.start(kPrompt);
  while (run.room() > 5) {
    const std::size_t before = run.text().size();
    const List fresh = list(run.step(rng));
    CHECK(fresh.size() == run.result().accepted.size());
    CHECK(run.text().size() == before + fresh.size());
    CHECK(fresh == list(run.text().last(fresh.size())));
    CHECK(fresh.back() == run.result().next_token);
    CHECK(target.cache() == list(run.text().first(run.text().size() - 1)));
    CHECK(run.proposal().origin() == static_cast<std::int32_t>(before) - 1);
  }
}

TEST_CASE("limits, the stop token, and the tokens passed to the sink") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  auto run = pipeline(target, draft, SampleAndMatch{}, GreedyChain{.length = 4});
  const List want = plainly(target, kPrompt, 60, 5);
  for (const std::int32_t n : {0, 1, 2, 7, 20}) {
    List seen;
    CHECK(run.generate(kPrompt, {.max_new_tokens = n}, PhiloxRandom{5}, [&](Tokens fresh) {
      seen.insert(seen.end(), fresh.begin(), fresh.end());
    }) == Generated{n, FinishReason::limit});
    CHECK(seen == List(want.begin() + 3, want.begin() + 3 + n));
    run.forget();
  }
  for (const Token stop : {0, 1, 2, 3, 4}) {
    List seen;
    const auto at = std::find(want.begin() + 3, want.end(), stop);
    REQUIRE(at != want.end());
    PhiloxRandom rng{5};
    const Generated done =
        run.generate(kPrompt, {.max_new_tokens = 50, .stop = {&stop, 1}}, rng,
                     [&](Tokens fresh) { seen.insert(seen.end(), fresh.begin(), fresh.end()); });
    CHECK(seen == List(want.begin() + 3, at + 1));  // the stop token is the last
    CHECK(done == Generated{static_cast<std::int32_t>(seen.size()), FinishReason::stop_token});
  }
}

TEST_CASE(
    "a sink that returns false cancels, its exceptions propagate, and the text can continue after both") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  auto run = pipeline(target, draft, SampleAndMatch{}, GreedyChain{.length = 4});
  const List want = plainly(target, kPrompt, 60, 5);
  const auto rest = [&] {  // the tokens that the sink was given are those of text()
    PhiloxRandom rng{5};
    while (run.text().size() < 60) run.step(rng);
    CHECK(list(run.text().first(60)) == want);
  };
  List seen;
  int calls = 0;
  const Generated done = run.generate(kPrompt, {.max_new_tokens = 50}, PhiloxRandom{5}, [&](Tokens fresh) {
    seen.insert(seen.end(), fresh.begin(), fresh.end());
    return ++calls < 3;
  });
  CHECK(calls == 3);
  CHECK(done == Generated{static_cast<std::int32_t>(seen.size()), FinishReason::cancelled});
  CHECK(list(run.text().subspan(3)) == seen);
  rest();
  calls = 0;
  CHECK_THROWS_WITH(run.generate(kPrompt, {.max_new_tokens = 50}, PhiloxRandom{5},
                                 [&](Tokens) {
                                   if (++calls == 3) throw std::runtime_error("the sink failed");
                                 }),
                    "the sink failed");
  CHECK(list(run.text().subspan(3)) == seen);
  rest();
  // Another reason to end takes precedence.
  const auto no = [](Tokens) { return false; };
  CHECK(run.generate(kPrompt, {.max_new_tokens = 1}, PhiloxRandom{5}, no) ==
        Generated{1, FinishReason::limit});
  CHECK(run.generate(kPrompt, {.max_new_tokens = 50, .stop = {&want[3], 1}}, PhiloxRandom{5}, no) ==
        Generated{1, FinishReason::stop_token});
}

TEST_CASE(
    "a sink that finds a stop string in the middle of a round keeps the tokens before, with their figures") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 1, 2.0f, 200);  // the draft is the target: five tokens per round
  auto run = pipeline(target, draft, Greedy{}, GreedyChain{.length = 4}, {.temperature = 0});
  run.verifier().report_logprobs({});
  const List want = plainly(target, kPrompt, 60, 5, {.temperature = 0});
  for (std::int32_t end = 1; end < 24; ++end) {
    CAPTURE(end);
    run.reset_stats();
    std::int32_t seen = 0;
    const Generated done = run.generate(kPrompt, {.max_new_tokens = 50}, PhiloxRandom{5}, [&](Tokens fresh) {
      const auto keep = std::min(static_cast<std::int32_t>(fresh.size()), end - seen);
      run.count_emitted(keep);
      CHECK(run.logprobs().size() == static_cast<std::size_t>(keep));
      seen += keep;
      return seen < end;
    });
    CHECK(done == Generated{end, FinishReason::cancelled});
    CHECK(run.stats().new_tokens == end);
    CHECK(run.stats().acceptance(1) == 1);
    CHECK(run.stats().offered == run.stats().accepted);
    CHECK(list(run.text().first(static_cast<std::size_t>(3 + end))) ==
          List(want.begin(), want.begin() + 3 + end));
  }
}

TEST_CASE("errors name limits out of range, and change nothing") {
  ToyModel target(5, 1), draft(5, 2);
  auto run = pipeline(target, draft, Sampling{}, GreedyChain{.length = 4});
  run.start(kPrompt);
  const auto generate = [&](const Limits& limits) {
    run.generate(List{4}, limits, PhiloxRandom{5}, [](Tokens) {});
  };
  const List stop{0, 5}, negative{-1};
  CHECK_THROWS_WITH_AS(generate({.max_new_tokens = -5}),
                       "Limits::max_new_tokens is -5, must be in [0, 2147483647]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(generate({.stop = stop}), "Limits::stop[1] is 5, must be in [0, 4]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(generate({.stop = negative}), "Limits::stop[0] is -1, must be in [0, 4]",
                       std::invalid_argument);
  CHECK(list(run.text()) == kPrompt);
}

TEST_CASE("a full KV cache: all tokens that fit, with shorter last proposals") {
  for (const std::int32_t capacity : {3, 4, 7, 20}) {
    ToyModel target(5, 1, 2.0f, capacity), draft(5, 2);
    auto run = pipeline(target, draft, SampleAndMatch{}, GreedyChain{.length = 4});
    const List want = plainly(target, kPrompt, static_cast<std::size_t>(capacity) + 1, 5);
    List seen;
    const Generated done = run.generate(kPrompt, {}, PhiloxRandom{5}, [&](Tokens fresh) {
      seen.insert(seen.end(), fresh.begin(), fresh.end());
    });
    CHECK(seen == List(want.begin() + 3, want.end()));  // the last token needs no slot
    CHECK(done == Generated{static_cast<std::int32_t>(seen.size()), FinishReason::context_full});
    CHECK(target.size() == capacity);
    CHECK(run.room() == 0);
    PhiloxRandom rng(5);
    CHECK_THROWS_WITH_AS(
        run.step(rng),
        ("Speculator::step: the target's context is full, " + std::to_string(capacity) + " tokens").c_str(),
        std::length_error);
  }
}

TEST_CASE("a full KV cache and trees: proposals are trimmed to the room, and the text is plain decoding's") {
  std::int32_t trimmed = 0;
  const auto generate = [&](auto shape, auto rule, bool same_text, const SamplingParams& params) {
    for (const std::int32_t capacity : {3, 4, 5, 8, 19, 40}) {
      CAPTURE(capacity);
      ToyModel target(5, 1, 2.0f, capacity), draft(5, 2, 2.0f, 100);
      auto run = pipeline(target, draft, rule, shape, params);
      PhiloxRandom rng(5);
      run.start(kPrompt);
      while (run.room() > 0) {
        const std::int32_t room = run.room();
        run.step(rng);
        REQUIRE(run.proposal().size() <= room);
        REQUIRE(run.proposal().size() <= run.shape().nodes().most);
        trimmed += room > 1 && room < run.shape().nodes().most && run.proposal().size() == room;
        REQUIRE(target.cache() == list(run.text().first(run.text().size() - 1)));
      }
      CHECK(target.size() == capacity);
      const List text = list(run.text());
      CHECK(text.size() == static_cast<std::size_t>(capacity) + 1);  // the last token needs no slot
      if (same_text) CHECK(text == plainly(target, kPrompt, text.size(), 5, params));
      CHECK_THROWS_AS(run.step(rng), std::length_error);
      CHECK(list(run.text()) == text);
    }
  };
  const auto every_rule = [&](auto shape) {
    const SamplingParams warm{.temperature = 0.8f, .top_p = 0.9f};
    generate(shape, SampleAndMatch{}, true, warm);
    generate(shape, Greedy{}, true, {.temperature = 0});
    generate(shape, Sampling{}, decltype(shape)::kind == ProposalKind::deterministic, warm);
    generate(shape, Rejection{}, false, warm);
  };
  every_rule(IidPair{.depth = 3});
  every_rule(DistinctTriple{.depth = 2});
  every_rule(DrawnThenChosen{.depth = 3, .pick = 1});
  every_rule(ChosenTwice{.depth = 3, .pick = 1});  // identical siblings: the second adds nothing
  for_every_shape([&](const auto& shape, Enumerable) { every_rule(shape); });
  CHECK(trimmed > 100);
}

TEST_CASE("trees from a drafter with a smaller KV cache than the target") {
  for (const std::int32_t capacity : {3, 4, 6, 9, 20, 33}) {
    ToyModel target(5, 1, 2.0f, 60), draft(5, 2, 2.0f, capacity);
    auto run = pipeline(target, draft, SampleAndMatch{}, IidPair{.depth = 3});
    CHECK(text_of(run, kPrompt, 40, 5) == plainly(target, kPrompt, 40, 5));
    CHECK((run.stats().proposed > 0) == (capacity > 3));
    CHECK(draft.size() <= capacity);
  }
}

TEST_CASE("identical siblings give the text of a single one") {
  ToyModel target(3, 1, 1.0f, 200), draft(3, 2, 1.0f, 200);
  auto twice = pipeline(target, draft, Sampling{}, ChosenTwice{.depth = 3, .pick = 1});
  const List text = text_of(twice, kPrompt, 100, 7);
  CHECK(text == plainly(target, kPrompt, 100, 7));
  auto once = pipeline(target, draft, Sampling{},
                       Bush<ProposalKind::deterministic, Child::chosen>{.depth = 3, .pick = 1});
  CHECK(text_of(once, kPrompt, 100, 7) == text);
  CHECK(once.stats().accepted[0] == twice.stats().accepted[0]);  // and no gain
  CHECK(once.stats().rounds == twice.stats().rounds);
}

TEST_CASE(
    "a drafter with a smaller KV cache than the target: drafting while it has room, then plain decoding") {
  for (const std::int32_t capacity : {1, 2, 3, 6, 9, 20}) {
    ToyModel target(5, 1, 2.0f, 40), draft(5, 2, 2.0f, capacity);
    auto run = pipeline(target, draft, SampleAndMatch{}, GreedyChain{.length = 4});
    CHECK(text_of(run, kPrompt, 30, 5) == plainly(target, kPrompt, 30, 5));
    CHECK((run.stats().proposed > 0) == (capacity > 3));
    CHECK(text_of(run, kPrompt, 30, 6) == plainly(target, kPrompt, 30, 6));  // and again from the start
    List longer = plainly(target, kPrompt, 12, 1);
    CHECK(text_of(run, longer, 30, 7) == plainly(target, longer, 30, 7));
  }
}

TEST_CASE("errors of start() change nothing") {
  ToyModel target(5, 1, 2.0f, 10), draft(5, 2);
  auto run = pipeline(target, draft, Sampling{}, SampledChain{.length = 3});
  PhiloxRandom rng(1);
  using Error = std::invalid_argument;
  CHECK_THROWS_WITH_AS(run.step(rng), "Speculator::step: call start() first", Error);
  run.start(kPrompt);
  run.step(rng);
  const List text = list(run.text()), cache = target.cache();
  CHECK_THROWS_WITH_AS(run.start({}), "Speculator::start: the prompt is empty; it needs at least one token",
                       Error);
  CHECK_THROWS_WITH_AS(run.start(List{0, 5}),
                       "Speculator::start: prompt token 1 is 5, the vocabulary has 5 tokens", Error);
  CHECK_THROWS_AS(run.start(List{-1}), Error);
  CHECK_THROWS_WITH_AS(run.start(List(11, 0)),
                       "Speculator::start: the prompt has 11 tokens, the target holds 10", Error);
  CHECK(list(run.text()) == text);
  CHECK(target.cache() == cache);
  run.start(List(10, 0));
  CHECK(run.room() == 1);
  CHECK(run.step(rng).size() == 1);
  ToyModel wide(6, 1);
  CHECK_THROWS_WITH_AS(pipeline(target, wide, Sampling{}, SampledChain{}),
                       "Speculator: the target's vocabulary has 5 tokens, the drafter's 6", Error);
  CHECK_THROWS_AS(pipeline(target, draft, Sampling{}, SampledChain{.length = -1}), Error);
}

TEST_CASE("errors of start() without a text do not change the target of another pipeline") {
  ToyModel target(5, 1, 2.0f, 10);
  Speculator run{TreeVerifier{target, Sampling{}}, NoDrafter{5}, GreedyChain{}};
  target.append(List{1, 2, 3, 4});  // another's
  CHECK_THROWS_AS(run.start({}), std::invalid_argument);
  CHECK_THROWS_AS(run.start(List(11, 0)), std::invalid_argument);
  CHECK(target.size() == 4);
  run.start(List(10, 0));
}

TEST_CASE("a target that fails in a round: the text is unchanged, and the next round works") {
  ToyModel target(5, 1), draft(5, 2), still(5, 1), steady(5, 2);
  auto run = pipeline(target, draft, Sampling{}, SampledChain{.length = 3});
  auto reference = pipeline(still, steady, Sampling{}, SampledChain{.length = 3});
  PhiloxRandom rng(2);
  run.start(kPrompt);
  reference.start(kPrompt);
  for (int round = 0; round < 12; ++round) {
    const List text = list(run.text()), cache = target.cache();
    (round % 2 ? target.throw_call : target.poison_call) = target.calls + 1;
    bool threw = false;
    try {
      run.step(rng);
    } catch (const std::runtime_error&) {
      threw = true;
      CHECK(list(run.text()) == text);
      CHECK(target.cache() == cache);
      CHECK(target.size() + 1 == static_cast<std::int32_t>(text.size()));
      run.step(rng);  // the same uniform draws, nothing poisoned
    }
    CHECK((threw || round % 2 == 0));  // the target's last row may be unused
    reference.step(rng);
    CHECK(list(run.text()) == list(reference.text()));
  }
  CHECK(run.stats().failed_drafts == 0);
}

namespace {

/// Counts the rounds that it learns from.
struct Pupil : SampledChain {
  int* lessons;
  void learn(const TokenTree&, const VerifyResult&, const Timing&) const { ++*lessons; }
  void reset() {}
};

/// A text of 50 tokens by sample-and-match whose draft is made to fail before its `at`-th round, -1: before
/// start(). The text is plain sampling's, nothing is drafted after the failure, and the next text drafts
/// again.
void draft_fails(ToyModel& target, auto& run, int at, const std::string& what, auto fail) {
  PhiloxRandom rng(5);
  const Stats before = run.stats();
  if (at < 0) fail();
  run.start(kPrompt);
  for (int round = 0; run.text().size() < 50; ++round) {
    if (round == at) fail();
    const bool failed = !run.draft_error().empty();
    const std::int64_t calls = run.stats().draft.calls, proposed = run.stats().proposed;
    run.step(rng);
    if (!failed) continue;
    CHECK(run.stats().draft.calls == calls);
    CHECK(run.stats().proposed == proposed);
  }
  CHECK(run.draft_error() == what);
  CHECK(list(run.text().first(50)) == plainly(target, kPrompt, 50, 5));
  CHECK(run.stats().failed_drafts - before.failed_drafts == 1);
  CHECK(text_of(run, kPrompt, 50, 6) == plainly(target, kPrompt, 50, 6));
  CHECK(run.draft_error().empty());
  CHECK(run.stats().failed_drafts - before.failed_drafts == 1);
}

}  // namespace

TEST_CASE(
    "a draft that fails ends drafting, not the text: a row with NaN, an exception of a pass or of a sync") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  auto run = pipeline(target, draft, SampleAndMatch{}, SampledChain{.length = 3});
  for (int at = 0; at < 6; ++at) {
    CAPTURE(at);
    for (const int later : {1, 2, 3}) {
      draft_fails(target, run, at, "extend failed", [&] { draft.throw_call = draft.calls + later; });
      draft_fails(target, run, at,
                  "the draft's row after node " + std::to_string(later - 1) +
                      ": a row of logits holds NaN or +infinity at token 4",
                  [&] { draft.poison_call = draft.calls + later; });
    }
  }
  ToyModel twin(5, 1, 2.0f, 200);  // whole chains are accepted, so tokens are appended
  auto good = pipeline(target, twin, SampleAndMatch{}, SampledChain{.length = 1});
  draft_fails(target, good, 1, "append failed", [&] { twin.throw_append = twin.appends + 1; });
  draft_fails(target, run, -1, "append failed", [&] { draft.throw_append = draft.appends + 1; });
}

TEST_CASE("after a draft has failed, what was drawn is verified, and the shape learns nothing") {
  int lessons = 0;
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  auto run = pipeline(target, draft, SampleAndMatch{}, Pupil{{.length = 3}, &lessons});
  PhiloxRandom rng(5);
  run.start(kPrompt);
  for (int round = 0; round < 3; ++round) run.step(rng);
  CHECK(lessons == 3);
  draft.throw_call = draft.calls + 3;
  run.step(rng);
  CHECK(run.proposal().size() == 3);  // what was drawn before the failure is verified
  for (int round = 0; round < 3; ++round) run.step(rng);
  CHECK(lessons == 3);  // plain rounds say nothing about the draft
  CHECK(run.stats().rounds == 7);
  // With the noise of the target, too.
  auto shared = pipeline(target, draft, GumbelCoupling{}, Chain<Draw::shared>{.length = 3});
  auto plain = pipeline(target, draft, GumbelCoupling{}, Chain<Draw::shared>{.length = 0});
  const List want = text_of(plain, kPrompt, 50, 3);
  draft.throw_call = draft.calls + 5;
  CHECK(text_of(shared, kPrompt, 50, 3) == want);
  CHECK(shared.draft_error() == "extend failed");
}

namespace {
/// Throws what no draft should: misuse, or something that is no std::exception.
struct Odd : NoDrafter {
  int kind;
  explicit Odd(int what) : NoDrafter(5), kind(what) {}
  void sync(Tokens, Tokens) {
    if (kind == 1) throw std::logic_error("misused");
    if (kind == 2) throw kind;
    if (kind == 3) throw std::bad_alloc();
  }
};
}  // namespace

TEST_CASE("misuse propagates, as does what is no std::exception; a lack of memory ends drafting") {
  ToyModel target(5, 1);
  const auto run = [&](int kind) {
    Speculator it{TreeVerifier{target, SampleAndMatch{}}, Odd{kind}, GreedyChain{}};
    PhiloxRandom rng(5);
    it.start(List{0});
    it.step(rng);
    CHECK(it.stats().failed_drafts == 1);
    CHECK(list(it.text()) == plainly(target, {0}, 2, 5));
  };
  CHECK_THROWS_WITH_AS(run(1), "misused", std::logic_error);
  CHECK_THROWS_AS(run(2), int);
  run(3);
}

TEST_CASE("a sink that calls its own Speculator: an error, and the text goes on") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  auto run = pipeline(target, draft, SampleAndMatch{}, GreedyChain{.length = 4});
  PhiloxRandom other(9);
  List seen;
  int refused = 0;
  const auto refuses = [&](auto call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains("its own sink called"), std::logic_error);
    ++refused;
  };
  run.generate(kPrompt, {.max_new_tokens = 40}, PhiloxRandom{5}, [&](Tokens fresh) {
    refuses([&] { run.step(other); });
    refuses([&] { run.start(kPrompt); });
    refuses([&] { run.forget(); });
    refuses([&] { run.generate(kPrompt, {}, other, [](Tokens) {}); });
    CHECK(run.stats().rounds > 0);  // reading is fine
    seen.insert(seen.end(), fresh.begin(), fresh.end());
  });
  List want = plainly(target, kPrompt, 43, 5);
  CHECK(seen == List(want.begin() + 3, want.end()));
  CHECK(refused > 40);
  // Not caught, it propagates as any other exception of a sink; and the text can continue.
  CHECK_THROWS_AS(run.generate(kPrompt, {}, PhiloxRandom{5}, [&](Tokens) { run.forget(); }),
                  std::logic_error);
  PhiloxRandom rng(5);
  while (run.text().size() < 43) run.step(rng);
  CHECK(list(run.text().first(43)) == want);
  // Two samples of one prompt differ by their sequence; with the same random source they are the same.
  const auto sample = [&](PhiloxRandom source) {
    List text;
    run.generate(kPrompt, {.max_new_tokens = 30}, source,
                 [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
    return text;
  };
  CHECK(sample(PhiloxRandom(5, 1)) == sample(PhiloxRandom(5, 1)));
  CHECK(sample(PhiloxRandom(5, 1)) != sample(PhiloxRandom(5, 2)));
}

TEST_CASE("a target that fails in a prefill: start() can be called again; a draft ends drafting") {
  ToyModel target(5, 1, 2.0f, 400), draft(5, 2, 2.0f, 400);
  auto run = pipeline(target, draft, SampleAndMatch{}, SampledChain{.length = 3});
  List prompt(300, 1);
  for (ToyModel* model : {&target, &draft}) {
    model->throw_append = model->appends + 2;
    if (model == &target) {
      CHECK_THROWS_WITH(run.start(prompt), "append failed");
      PhiloxRandom rng(1);
      CHECK_THROWS_AS(run.step(rng), std::invalid_argument);
    } else {
      CHECK(text_of(run, prompt, 330, 3) == plainly(target, prompt, 330, 3));
      CHECK(run.draft_error() == "append failed");
    }
    CHECK(text_of(run, prompt, 330, 4) == plainly(target, prompt, 330, 4));
    CHECK(run.stats().proposed > 0);
    CHECK(target.cache().size() + 1 == run.text().size());
    CHECK(draft.cache().size() <= target.cache().size());
    CHECK(std::equal(draft.cache().begin(), draft.cache().end(), target.cache().begin()));
    run.forget();
    run.reset_stats();
  }
  prompt.resize(390, 2);  // longer than the room that the failed start() left
  target.throw_append = target.appends + 2;
  CHECK_THROWS_WITH(run.start(prompt), "append failed");
  run.start(prompt);
  CHECK(run.text().size() == 390);
}

TEST_CASE("counts") {
  ToyModel target(5, 1), draft(5, 2);
  auto run = pipeline(target, draft, Sampling{}, SampledChain{.length = 3});
  PhiloxRandom rng(11);
  run.start(kPrompt);
  std::int64_t tokens = 0, nodes = 0;
  std::vector<std::int64_t> offered(4), accepted(4);
  for (int i = 0; i < 12; ++i) {
    tokens += static_cast<std::int64_t>(run.step(rng).size());
    nodes += run.proposal().size();
    const auto depth = static_cast<std::size_t>(run.result().accepted_count());
    for (std::size_t d = 0; d < 3; ++d) offered[d] += d <= depth, accepted[d] += d < depth;
  }
  const Stats& s = run.stats();
  CHECK(s.rounds == 12);
  CHECK(s.new_tokens == tokens);
  CHECK(s.proposed == nodes - 12);
  CHECK(s.target.calls == 12);
  CHECK(s.target.nodes == nodes);
  CHECK(s.draft.calls == 36);
  CHECK(s.offered == offered);
  CHECK(s.accepted == accepted);
  CHECK(s.round_seconds >= s.target.seconds + s.draft.seconds);
  CHECK(s.prefill_seconds > 0);
}

TEST_CASE("statistics of a request, and of a text that ends within its last round") {
  ToyModel target(5, 1), draft(5, 1);  // the draft is the target: five tokens per round
  auto run = pipeline(target, draft, Greedy{}, GreedyChain{.length = 4}, {.temperature = 0});
  const auto counts = [&](std::int32_t tokens) {
    const Stats before = run.stats();
    run.generate(kPrompt, {.max_new_tokens = tokens}, PhiloxRandom{1}, [](Tokens) {});
    return run.stats() - before;
  };
  using Depths = std::vector<std::int64_t>;
  for (int again = 0; again < 2; ++again) {
    for (std::int32_t n = 1; n <= 5; ++n) {  // tokens beyond the end are not counted
      const Stats s = counts(n);
      CHECK(s.rounds == 1);
      CHECK(s.new_tokens == n);
      CHECK(s.accepted == Depths{n > 0, n > 1, n > 2, n > 3, 0});
      CHECK(s.offered == Depths{n > 0, n > 1, n > 2, n > 3, 0});
      CHECK(s.target.calls == 1);
      CHECK(s.drafters[0].calls == 4);
    }
    const Stats two = counts(7);
    CHECK(two.new_tokens == 7);
    CHECK(two.accepted == Depths{2, 2, 1, 1, 0});
    CHECK(two.offered == Depths{2, 2, 1, 1, 0});
    run.reset_stats();
    CHECK(run.stats().rounds == 0);
    CHECK(run.stats().round_seconds == 0);
    CHECK(run.stats().offered == Depths(5));
    REQUIRE(run.stats().drafters.size() == 1);
    CHECK(run.stats().drafters[0].nodes == 0);
  }
  // By hand, and in two steps.
  PhiloxRandom rng(1);
  CHECK_THROWS_AS(pipeline(target, draft, Greedy{}, GreedyChain{}).count_emitted(0), std::logic_error);
  run.start(kPrompt);
  run.step(rng);
  CHECK_THROWS_WITH_AS(run.count_emitted(6), "count_emitted: 6 of 5 tokens, must be 0 to 5",
                       std::invalid_argument);
  CHECK_THROWS_AS(run.count_emitted(-1), std::invalid_argument);
  run.count_emitted(4);
  CHECK(run.stats().accepted == Depths{1, 1, 1, 1, 0});
  CHECK(run.stats().offered == Depths{1, 1, 1, 1, 0});
  run.count_emitted(1);
  CHECK(run.stats().accepted == Depths{1, 0, 0, 0, 0});
  CHECK(run.stats().offered == Depths{1, 0, 0, 0, 0});
  CHECK(run.stats().new_tokens == 1);
  CHECK_THROWS_AS(run.count_emitted(2), std::invalid_argument);
  // At any time: what the last round still has to subtract does not count, and the next round does.
  run.step(rng);
  run.reset_stats();
  run.count_emitted(2);
  CHECK(run.stats().new_tokens == 0);
  CHECK(run.stats().accepted == Depths(5));
  run.step(rng);
  run.count_emitted(3);
  CHECK(run.stats().rounds == 1);
  CHECK(run.stats().accepted == Depths{1, 1, 1, 0, 0});
  run.generate(kPrompt, {.max_new_tokens = 12}, PhiloxRandom{1}, [&](Tokens) { run.reset_stats(); });
  CHECK(run.stats().rounds == 0);
  CHECK(run.stats().new_tokens == 0);
}

TEST_CASE(
    "a draft that is the target: acceptance 1.00 at every depth, for every end of the text, and every "
    "shape") {
  constexpr std::int32_t kVocab = 6, kRoom = 60;
  std::int64_t ends = 0, cut = 0, deep = 0;
  const auto check = [&](auto& run) {
    const Stats& s = run.stats();
    CHECK(s.offered == s.accepted);
    CHECK(s.acceptance(1) == 1);
    deep += s.offered[1] > 0 && s.acceptance(2) == 1;
  };
  const auto every_end = [&](auto rule, auto shape, const SamplingParams& params, auto make_drafter) {
    ToyModel target(kVocab, 1, 2.0f, kRoom);
    Speculator run{TreeVerifier{target, rule, params}, make_drafter(), shape};
    const auto text = [&](const List& prompt, const Limits& limits, FinishReason reason) {
      run.reset_stats();
      std::int32_t seen = 0;
      const Generated done = run.generate(prompt, limits, PhiloxRandom{3}, [&](Tokens fresh) {
        seen += static_cast<std::int32_t>(fresh.size());
        cut += fresh.size() < run.result().accepted.size();
      });
      CHECK(done == Generated{seen, reason});
      CHECK(run.stats().new_tokens == seen);
      check(run);
      ++ends;
    };
    for (std::int32_t n = 1; n <= 24; ++n) text(kPrompt, {.max_new_tokens = n}, FinishReason::limit);
    for (Token stop = 0; stop < kVocab; ++stop) {
      const List plain = text_of(run, kPrompt, 40, 3);
      if (std::find(plain.begin() + 3, plain.end(), stop) == plain.end()) continue;
      text(kPrompt, {.max_new_tokens = 37, .stop = {&stop, 1}}, FinishReason::stop_token);
    }
    for (std::int32_t left = 2; left <= 14; ++left)
      text(List(static_cast<std::size_t>(kRoom - left), 1), {}, FinishReason::context_full);
  };
  ToyModel one(kVocab, 1), two(kVocab, 1), three(kVocab, 1);
  const SamplingParams greedy{.temperature = 0};
  const auto single = [&](auto rule, auto shape, const SamplingParams& params) {
    every_end(rule, shape, params, [&] { return ModelDrafter{one}; });
  };
  single(Greedy{}, GreedyChain{.length = 4}, greedy);
  single(Sampling{}, AdaptiveChain<>{}, greedy);
  single(Block{}, SampledChain{.length = 4}, {});
  single(Rejection{}, SampledChain{.length = 4}, {.temperature = 0.7f, .top_p = 0.9f});
  single(Sampling{}, Cape{}, greedy);
  single(Sampling{}, Beam{}, greedy);
  single(Sampling{}, DynamicTree{}, greedy);
  single(Traversal{}, StaticTree<>{}, greedy);
  single(Rejection{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2, 1}}, {});
  single(Traversal{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2, 1}}, {});
  single(KSeq{}, SampledTree<ProposalKind::sampled_iid>{.widths = {2, 2, 1}}, {});
  single(Rejection{}, StaticTree<ProposalKind::sampled_distinct>{.form = {{0}, {1}, {0, 0}, {0, 0, 0}}}, {});
  single(GumbelCoupling{}, Chain<Draw::shared>{.length = 4}, {});
  const auto stack = [&](auto rule, auto shape, const SamplingParams& params) {
    every_end(rule, shape, params, [&] {
      return Stack{ModelDrafter{one}, ModelDrafter{two}, ModelDrafter{three}};
    });
  };
  stack(Greedy{}, Horizontal<3>{.counts = {1, 1, 2}}, greedy);
  stack(Block{}, Horizontal<3, Draw::sampled>{.counts = {1, 1, 2}}, {});
  stack(Rejection{}, Vertical<3, Draw::sampled>{.reviews = 2, .length = 2}, {});
  stack(Block{}, Cascade<3, Draw::sampled>{.limits = {{{2, 2, 2}, {0, 2, 2}, {0, 0, 2}}}, .lenience = 3}, {});
  CHECK(ends > 600);
  CHECK(cut > 200);  // texts that ended within a round
  CHECK(deep > 400);
}

TEST_CASE(
    "log-probabilities of every emitted token and of the likeliest ones, in trees, for every rule and "
    "truncation") {
  const auto logits = [](const ToyModel& target, Tokens before) {
    std::vector<float> row(static_cast<std::size_t>(target.vocab_size()));
    target.row(before.size() > 1 ? before[before.size() - 2] : -1, before.back(), row.data());
    return row;
  };
  // ln p of a row, independent of the library: in long double, -infinity for truncated tokens.
  const auto logs = [](const std::vector<float>& row, const SamplingParams& params) {
    const std::vector<double> kept = plain_distribution(row, params);
    const auto top = static_cast<long double>(*std::max_element(row.begin(), row.end()));
    const long double t = params.greedy() ? 1 : static_cast<long double>(params.temperature);
    long double sum = 0;
    std::vector<double> out;
    for (std::size_t x = 0; x < row.size(); ++x)
      if (kept[x] > 0) sum += std::exp((static_cast<long double>(row[x]) - top) / t);
    for (std::size_t x = 0; x < row.size(); ++x)
      out.push_back(kept[x] > 0
                        ? static_cast<double>((static_cast<long double>(row[x]) - top) / t - std::log(sum))
                        : -std::numeric_limits<double>::infinity());
    return out;
  };
  const auto near = [](double a, double b) { return a == b || std::abs(a - b) < 2e-6; };
  std::size_t excluded = 0, cut = 0;
  const auto check = [&](auto rule, auto shape, const SamplingParams& params, bool processed) {
    ToyModel target(6, 1, 4.0f, 100), draft(6, 2, 4.0f, 100);
    auto run = pipeline(target, draft, rule, shape, params);
    run.verifier().report_logprobs({.top = 3, .processed = processed});
    CHECK(run.logprobs().size() == 0);
    List text = kPrompt;
    for (const std::int32_t tokens : {41, 42, 43}) {
      text = kPrompt;
      run.generate(kPrompt, {.max_new_tokens = tokens}, PhiloxRandom{7}, [&](Tokens fresh) {
        const Logprobs got = run.logprobs();
        REQUIRE(got.size() == fresh.size());
        cut += fresh.size() < run.result().accepted.size();
        for (std::size_t i = 0; i < fresh.size(); ++i) {
          const std::vector<float> row = logits(target, text);
          const std::vector<double> want = logs(row, processed ? params : SamplingParams{});
          CHECK(got[i].token == fresh[i]);
          CHECK(near(got[i].logprob, want[static_cast<std::size_t>(fresh[i])]));
          List order{0, 1, 2, 3, 4, 5};
          const auto logit = [&](Token x) { return row[static_cast<std::size_t>(x)]; };
          std::sort(order.begin(), order.end(),
                    [&](Token a, Token b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
          REQUIRE(got.top(i).size() == 3);
          for (std::size_t k = 0; k < 3; ++k) {
            CHECK(got.top(i)[k].token == order[k]);
            CHECK(near(got.top(i)[k].logprob, want[static_cast<std::size_t>(order[k])]));
            excluded += std::isinf(got.top(i)[k].logprob);
          }
          text.push_back(fresh[i]);
        }
      });
      CHECK(run.logprobs().size() > 0);
    }
    if (decltype(shape)::kind == ProposalKind::deterministic && !params.greedy())
      CHECK(text ==
            plainly(target, kPrompt, text.size(), 7, params));  // requesting them does not change the text
  };
  const SamplingParams warm{.temperature = 0.7f, .top_p = 0.8f}, hot{.temperature = 2.5f, .top_k = 2};
  for (const bool processed : {false, true}) {
    check(Sampling{}, DistinctTriple{.depth = 2}, warm, processed);
    check(Sampling{}, IidPair{.depth = 3}, hot, processed);
    check(Sampling{}, SampledChain{.length = 4}, {}, processed);
    check(Sampling{}, GreedyChain{.length = 4}, warm, processed);
    check(Greedy{}, GreedyChain{.length = 4}, {.temperature = 0}, processed);
  }
  CHECK(excluded > 100);
  CHECK(cut > 5);
}

TEST_CASE("a round in steady state allocates nothing") {
  const auto count = [](auto rule, auto shape, const SamplingParams& params, bool logprobs = false) {
    ToyModel target(900, 1, 4.0f, 200), draft(900, 2, 4.0f, 200);
    auto run = pipeline(target, draft, rule, shape, params);
    if (logprobs) run.verifier().report_logprobs({.top = 5, .processed = true});
    PhiloxRandom rng(1);
    run.start(kPrompt);
    run.step(rng);  // the first truncation allocates its workspace
    const AllocationCount allocated;
    for (int i = 0; i < 30; ++i) run.step(rng);
    return allocated.count();
  };
  CHECK(count(Greedy{}, GreedyChain{.length = 4}, {}) == 0);
  CHECK(count(Sampling{}, SampledChain{.length = 4}, {.temperature = 0}) == 0);
  CHECK(count(Sampling{}, SampledChain{.length = 4}, {}) == 0);
  CHECK(count(Sampling{}, SampledChain{.length = 4},
              {.temperature = 0.7f, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f}) == 0);
  CHECK(count(SampleAndMatch{}, SampledChain{.length = 4}, {.top_p = 0.5f}) == 0);
  CHECK(count(Sampling{}, SampledChain{.length = 4}, {.top_p = 0.5f}, true) == 0);
}

namespace {

/// Declares that it chooses, but draws.
struct Liar {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  NodeCounts nodes() const { return {2}; }
  template <Drafter D, RandomSource C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    drafter.sync(round.committed, {});
    const Token token = tree.token(0);
    const NodeId parent = kNoParent;
    Distribution drawn_from;
    drawn_from.logits = drafter.extend({&token, 1}, {&parent, 1}).row(0).data();
    drawn_from.log_z = 1;
    tree.draw(0, drawn_from, rng);
  }
};

}  // namespace

TEST_CASE("a shape whose draws contradict its declared kind is an error, and the text is kept") {
  ToyModel target(5, 1), draft(5, 2);
  auto run = pipeline(target, draft, Sampling{}, Liar{});
  PhiloxRandom rng(1);
  run.start(kPrompt);
  CHECK_THROWS_AS(run.step(rng), std::logic_error);
  CHECK(run.text().size() == kPrompt.size());
  CHECK_THROWS_AS(run.result(), std::logic_error);
}

TEST_CASE("parameters may change between rounds, and bad ones change nothing") {
  ToyModel target(5, 1), draft(5, 2);
  auto run = pipeline(target, draft, Sampling{}, GreedyChain{.length = 2}, {.temperature = 0.5f});
  CHECK_THROWS_AS(run.verifier().set_params({.top_p = 2.0f}), std::invalid_argument);
  CHECK(run.verifier().params().temperature == 0.5f);
  run.verifier().set_params({.temperature = 0.0f});
  PhiloxRandom one(1), two(2);
  run.start(kPrompt);
  for (int i = 0; i < 5; ++i) run.step(one);
  const std::vector<Token> first(run.text().begin(), run.text().end());
  run.start(kPrompt);
  for (int i = 0; i < 5; ++i) run.step(two);
  CHECK(std::equal(first.begin(), first.end(), run.text().begin(),
                   run.text().end()));  // greedy: no uniform draws
}

namespace {

/// Adds up the parts of Stats::draft.
Usage together(const Stats& stats) {
  Usage sum;
  for (const Usage& part : stats.drafters) sum += part;
  return sum;
}

/// A random cascade of three drafters, every kind in turn.
template <Draw mode, class Use>
void with_cascade(std::uint64_t i, Use use) {
  std::uint64_t h = i * 0x9E3779B97F4A7C15ull + 1;
  const auto below = [&](std::uint64_t n) {
    h ^= h >> 31, h *= 0xBF58476D1CE4E5B9ull, h ^= h >> 27;
    return static_cast<std::int32_t>(h % n);
  };
  const double lenience = i % 2 ? 3 : 1;
  if (i % 3 == 0) return use(Horizontal<3, mode>{.counts = {below(4), below(3), below(5)}});
  if (i % 3 == 1)
    return use(Vertical<3, mode>{.reviews = below(4), .length = below(5), .lenience = lenience});
  Cascade<3, mode> shape{.lenience = lenience};
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t d = r; d < 3; ++d) shape.limits[r][d] = below(4);
  use(shape);
}

}  // namespace

TEST_CASE("cascades: greedy text is plain decoding's, and the drafters' parts add up: 200 pipelines") {
  const SamplingParams greedy{.temperature = 0};
  std::int64_t proposed = 0, accepted = 0, parts = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    ToyModel target(3, i), first(3, i + 1), second(3, i + 2);
    const List want = plainly(target, kPrompt, 40, 0, greedy);
    const auto check = [&](auto rule, auto shape, auto last) {
      Speculator run{TreeVerifier{target, rule, greedy},
                     Stack{ModelDrafter{first}, ModelDrafter{second}, last}, shape};
      CHECK(text_of(run, kPrompt, 40, i) == want);
      const Stats& s = run.stats();
      REQUIRE(s.drafters.size() == 3);
      CHECK(together(s).calls == s.draft.calls);
      CHECK(together(s).nodes == s.draft.nodes);
      CHECK(together(s).seconds == doctest::Approx(s.draft.seconds).epsilon(1e-9));
      CHECK(s.drafters[0].calls == run.drafter().template get<0>().usage().calls);
      CHECK(s.drafters[1].nodes == run.drafter().template get<1>().usage().nodes);
      proposed += s.proposed, accepted += s.new_tokens - s.rounds;
      parts += s.drafters[0].calls > 0 && s.drafters[1].calls > 0 && s.drafters[2].calls > 0;
      CHECK(target.cache() == list(run.text().first(run.text().size() - 1)));
    };
    if (i % 4 < 2)
      with_cascade<Draw::greedy>(i, [&](auto shape) { check(Greedy{}, shape, MaxGram(3)); });
    else
      with_cascade<Draw::sampled>(i, [&](auto shape) { check(Sampling{}, shape, MaxGram(3)); });
  }
  CHECK(proposed > 5000);
  CHECK(accepted > 1500);
  CHECK(parts > 80);
}

TEST_CASE("cascades under sample-and-match: the text is that of plain sampling") {
  const SamplingParams warm{.temperature = 0.8f, .top_p = 0.9f};
  for (std::uint64_t i = 0; i < 60; ++i) {
    CAPTURE(i);
    ToyModel target(4, i), first(4, i + 1), second(4, i + 2);
    with_cascade<Draw::sampled>(i, [&](auto shape) {
      Speculator run{TreeVerifier{target, SampleAndMatch{}, warm},
                     Stack{ModelDrafter{first}, ModelDrafter{second}, MaxGram(4)}, shape};
      CHECK(text_of(run, kPrompt, 40, i) == plainly(target, kPrompt, 40, i, warm));
    });
  }
}

TEST_CASE("cascades: a full KV cache of the target or of the drafters") {
  for (const std::int32_t capacity : {3, 4, 5, 8, 19, 40})
    for (std::uint64_t i = 0; i < 12; ++i) {
      CAPTURE(capacity);
      CAPTURE(i);
      ToyModel target(4, 1, 2.0f, capacity), first(4, 2, 2.0f, 60), second(4, 3, 2.0f, 60);
      ToyModel wide(4, 1, 2.0f, 60), small(4, 2, 2.0f, capacity);
      with_cascade<Draw::sampled>(i, [&](auto shape) {
        Speculator full{TreeVerifier{target, SampleAndMatch{}},
                        Stack{ModelDrafter{first}, ModelDrafter{second}, MaxGram(4)}, shape};
        const auto most = static_cast<std::size_t>(capacity) + 1;
        CHECK(text_of(full, kPrompt, most, 5) == plainly(target, kPrompt, most, 5));
        CHECK(full.room() == 0);
        Speculator tight{TreeVerifier{wide, SampleAndMatch{}},
                         Stack{ModelDrafter{second}, ModelDrafter{small}, MaxGram(4)}, shape};
        CHECK(text_of(tight, kPrompt, 50, 5) == plainly(wide, kPrompt, 50, 5));
      });
    }
}

TEST_CASE("cascades: a drafter that fails within a proposal ends drafting; the next text drafts again") {
  constexpr std::int32_t kRoom = 400;
  ToyModel target(4, 1, 2, kRoom), first(4, 2, 2, kRoom), second(4, 3, 2, kRoom);
  const Cascade<3, Draw::sampled> shape{.limits = {{{3, 2, 2}, {0, 2, 2}, {0, 0, 2}}}, .lenience = 3};
  Speculator run{TreeVerifier{target, SampleAndMatch{}},
                 Stack{ModelDrafter{first}, ModelDrafter{second}, MaxGram(4)}, shape};
  PhiloxRandom rng(2);
  std::int64_t partial = 0, failed = 0;
  for (int text = 0; text < 120; ++text) {
    CAPTURE(text);
    run.start(kPrompt);
    for (int round = 0; round < 3; ++round) run.step(rng);
    ToyModel& model = text % 3 == 0 ? first : second;
    if (text % 5 == 4)
      model.throw_append = model.appends + 1;
    else
      (text % 2 ? model.throw_call : model.poison_call) = model.calls + 1 + text % 4 / 2;
    const std::int64_t before = run.stats().failed_drafts;
    while (run.draft_error().empty() && run.text().size() < 60) {
      run.step(rng);
      if (!run.draft_error().empty()) partial += run.proposal().size() > 1;
    }
    model.throw_call = model.poison_call = model.throw_append = -1;  // a row may not have been read
    failed += run.stats().failed_drafts - before;
    const std::int64_t calls = run.stats().draft.calls;
    if (run.draft_error().empty()) continue;
    while (run.text().size() < 60) run.step(rng);
    CHECK(run.stats().draft.calls == calls);
    CHECK(list(run.text().first(60)) == plainly(target, kPrompt, 60, 2));
  }
  CHECK(failed > 60);
  CHECK(partial > 40);
  CHECK(text_of(run, kPrompt, 60, 4) == plainly(target, kPrompt, 60, 4));
  CHECK(run.draft_error().empty());
  CHECK(together(run.stats()).calls == run.stats().draft.calls);
}

TEST_CASE(
    "cascades: members whose capacity is reached are left out, the others draft to the end of the text") {
  std::int64_t after = 0;
  for (const std::int32_t capacity : {1, 4, 5, 6, 9, 20})
    for (std::uint64_t i = 0; i < 24; ++i)
      for (int tight = static_cast<int>(i % 2); tight < 3; tight += 2) {
        CAPTURE(capacity);
        CAPTURE(i);
        CAPTURE(tight);
        ToyModel target(3, 1, 2.0f, 60);
        ToyModel first(3, 2, 2.0f, tight == 1 ? 60 : capacity),
            second(3, 3, 2.0f, tight == 0 ? 60 : capacity);
        with_cascade<Draw::sampled>(i, [&](auto shape) {
          Speculator run{TreeVerifier{target, SampleAndMatch{}},
                         Stack{ModelDrafter{first}, ModelDrafter{second}, MaxGram(3)}, shape};
          PhiloxRandom rng(5);
          run.start(kPrompt);
          std::int64_t late = 0;
          while (run.text().size() < 55) {
            const std::int64_t before = run.stats().proposed;
            const bool full = static_cast<std::int32_t>(run.text().size()) > capacity;
            run.step(rng);
            late += full ? run.stats().proposed - before : 0;
          }
          CHECK(list(run.text().first(55)) == plainly(target, kPrompt, 55, 5));
          CHECK(run.stats().failed_drafts == 0);
          CHECK(first.size() <= first.capacity());
          CHECK(second.size() <= second.capacity());
          after += late;
        });
      }
  CHECK(after > 500);
  // A shape for a single drafter drafts while the first has room.
  ToyModel target(3, 1, 2.0f, 60), small(3, 2, 2.0f, 9), large(3, 3, 2.0f, 60);
  const auto single = [&](auto shape) {
    for (const bool first : {true, false}) {
      ToyModel& head = first ? small : large;
      ToyModel& tail = first ? large : small;
      Speculator run{TreeVerifier{target, SampleAndMatch{}}, Stack{ModelDrafter{head}, ModelDrafter{tail}},
                     shape};
      CHECK(text_of(run, kPrompt, 55, 5) == plainly(target, kPrompt, 55, 5));
      CHECK(run.stats().failed_drafts == 0);
      CHECK((run.drafter().usage(0).calls > 20) == !first);
    }
  };
  for_every_shape([&](const auto& shape, Enumerable) { single(shape); });
}

TEST_CASE("cascades: prompts with a common prefix, for every member") {
  ToyModel target(4, 1, 2.0f, 500), first(4, 2, 2.0f, 500), second(4, 3, 2.0f, 500);
  const Cascade<3, Draw::sampled> shape{.limits = {{{2, 2, 2}, {0, 2, 2}, {0, 0, 2}}}, .lenience = 3};
  Speculator run{TreeVerifier{target, SampleAndMatch{}},
                 Stack{ModelDrafter{first}, ModelDrafter{second}, MaxGram(4)}, shape};
  List prompt(300);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<Token>(i * i % 7 % 4);
  const List want = plainly(target, prompt, 340, 9);
  CHECK(text_of(run, prompt, 340, 9) == want);
  const std::int64_t appended = target.appended;
  CHECK(text_of(run, prompt, 340, 9) == want);
  CHECK(target.appended - appended == 299 - 256);  // two chunks of 128 were kept
  List other = prompt;
  other[200] = (other[200] + 1) % 4;
  CHECK(text_of(run, other, 340, 9) == plainly(target, other, 340, 9));
  for (const ToyModel* model : {&first, &second})
    CHECK(std::equal(other.begin(), other.begin() + 299, model->cache().begin()));
  CHECK(text_of(run, prompt, 340, 9) == want);
  run.forget();
  CHECK(first.cache().empty());
  CHECK(second.cache().empty());
  CHECK(text_of(run, prompt, 340, 9) == want);
}

namespace {

/// A ToyModel that does not count its changes.
struct Uncounted : private ToyModel {
  using ToyModel::append, ToyModel::cache, ToyModel::capacity, ToyModel::commit, ToyModel::extend,
      ToyModel::row, ToyModel::size, ToyModel::ToyModel, ToyModel::truncate, ToyModel::vocab_size,
      ToyModel::appended;
};
static_assert(CountsChanges<ToyModel>);
static_assert(LanguageModel<Uncounted> && !CountsChanges<Uncounted>);

/// A SampleAndMatch text of 40 tokens with a disturbance before its `at`-th round: the round throws an error
/// that contains `cause` and changes nothing, the text continues from text(), and it is plain sampling's.
template <class Target, class Draft>
void disturbed(Target& target, Draft& draft, const ToyModel& twin, const char* cause, auto disturb) {
  Speculator run{TreeVerifier{target, SampleAndMatch{}}, ModelDrafter{draft}, GreedyChain{.length = 3}};
  PhiloxRandom rng(5);
  run.start(kPrompt);
  for (int round = 0; round < 4; ++round) run.step(rng);
  const List text = list(run.text());
  disturb(run);
  const Stats before = run.stats();
  for (int again = 0; again < 2; ++again)
    CHECK_THROWS_WITH_AS(run.step(rng), doctest::Contains(cause), std::logic_error);
  CHECK(list(run.text()) == text);
  CHECK(run.stats().rounds == before.rounds);
  run.start(run.text());
  while (run.text().size() < 40) run.step(rng);
  CHECK(list(run.text().first(40)) == plainly(twin, kPrompt, 40, 5));
}

constexpr const char* kUsed =
    "Either the model's truncate() or commit() leaves a wrong size(), or it was called since the last round: "
    "by another Speculator over the same model";

}  // namespace

TEST_CASE("one model as target and draft is an error of the constructor, in a stack too") {
  ToyModel target(5, 1), draft(5, 2);
  const char* const same =
      "Speculator: the same model is target and draft; a model holds one text, so the "
      "drafter needs one of its own (LayerSkip drafts in the target's cache)";
  CHECK_THROWS_WITH_AS(pipeline(target, target, Block{}, SampledChain{.length = 2}), same,
                       std::invalid_argument);
  const auto stacked = [&](ToyModel& first, ToyModel& second) {
    Speculator run{TreeVerifier{target, Block{}},
                   Stack{ModelDrafter{first}, ModelDrafter{second}, MaxGram(5)},
                   Horizontal<3, Draw::sampled>{.counts = {1, 1, 1}}};
  };
  CHECK_THROWS_WITH_AS(stacked(draft, target), same, std::invalid_argument);
  CHECK_THROWS_WITH_AS(stacked(target, draft), same, std::invalid_argument);
  CHECK_THROWS_WITH_AS(stacked(draft, draft), "Stack: two drafters have the same model, which holds one text",
                       std::invalid_argument);
}

namespace {
/// The same model at another address, like a wrapper.
struct Alias {
  ToyModel* model;
  std::int32_t vocab_size() const { return model->vocab_size(); }
  std::int32_t size() const { return model->size(); }
  std::int32_t capacity() const { return model->capacity(); }
  void append(Tokens tokens) { model->append(tokens); }
  LogitsView extend(Tokens tokens, Nodes parents) { return model->extend(tokens, parents); }
  void commit(Nodes path) { model->commit(path); }
  void truncate(std::int32_t n) { model->truncate(n); }
};
}  // namespace

TEST_CASE("one model at two addresses as target and draft is detected by its size, before a wrong token") {
  ToyModel target(5, 1);
  Alias alias{&target};
  Speculator run{TreeVerifier{target, SampleAndMatch{}}, ModelDrafter{alias}, GreedyChain{.length = 2}};
  const char* const used = "a verifier, another drafter or another pipeline works in the same model";
  CHECK_THROWS_WITH_AS(run.start(kPrompt), doctest::Contains(used), std::logic_error);
  PhiloxRandom rng(5);
  run.start(List{2});  // nothing to prefill
  run.step(rng);
  const List text = list(run.text());
  CHECK_THROWS_WITH_AS(run.step(rng), doctest::Contains(used), std::logic_error);
  CHECK(list(run.text()) == text);
  CHECK(text == plainly(target, {2}, text.size(), 5));
}

TEST_CASE("use of the target by another caller within a text: an error, and the text can continue") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  Uncounted plain(5, 1, 2.0f, 200), plain_draft(5, 2, 2.0f, 200);
  const auto both = [&](auto disturb) {
    disturbed(target, draft, target, kUsed, [&](auto& run) { disturb(run, target); });
    disturbed(plain, plain_draft, target, kUsed, [&](auto& run) { disturb(run, plain); });
  };
  both([](auto&, auto& model) { model.truncate(1); });
  both([](auto& run, auto&) { run.verifier().truncate(1); });
  both([](auto&, auto& model) { model.append(List{1}); });
  both([](auto&, auto& model) {  // a second pipeline is constructed, but not used
    ToyModel other(5, 3);
    Speculator second{TreeVerifier{model, Sampling{}}, ModelDrafter{other}, GreedyChain{}};
  });
  both([](auto&, auto& model) {  // or is
    Speculator second{TreeVerifier{model, Sampling{}}, NoDrafter{5}, GreedyChain{}};
    second.generate(List{3, 3}, {.max_new_tokens = 4}, PhiloxRandom{1}, [](Tokens) {});
  });
  // With the same number of tokens, only a count of changes detects it.
  disturbed(target, draft, target, kUsed, [&](auto& run) {
    const auto held = static_cast<std::size_t>(target.size());
    Speculator second{TreeVerifier{target, Sampling{}}, NoDrafter{5}, GreedyChain{}};
    second.start(List(held + 1, 0));
    REQUIRE(run.verifier().size() + 1 == static_cast<std::int32_t>(run.text().size()));
  });
}

TEST_CASE("use of the draft by another caller within a text: an error, and the text can continue") {
  ToyModel target(5, 1, 2.0f, 200), draft(5, 2, 2.0f, 200);
  Uncounted plain(5, 1, 2.0f, 200), plain_draft(5, 2, 2.0f, 200);
  const char* const used = "a verifier, another drafter or another pipeline works in the same model";
  const auto both = [&](auto disturb) {
    disturbed(target, draft, target, used, [&](auto&) { disturb(draft); });
    disturbed(plain, plain_draft, target, used, [&](auto&) { disturb(plain_draft); });
  };
  both([](auto& model) { model.truncate(1); });
  both([](auto& model) { model.append(List{1}); });
  both([](auto& model) {
    ToyModel other(5, 3);
    Speculator second{TreeVerifier{other, Sampling{}}, ModelDrafter{model}, GreedyChain{}};
  });
  disturbed(target, draft, target, used, [&](auto&) {  // with the same number of tokens
    const List others(static_cast<std::size_t>(draft.size()), 0);
    draft.truncate(0);
    draft.append(others);
  });
}

TEST_CASE(
    "pipelines that use one target and one draft in turn: each prompt is prefilled anew, and the texts are "
    "right") {
  const auto turns = [](auto& target, auto& draft, const ToyModel& twin, std::int64_t kept) {
    Speculator a{TreeVerifier{target, SampleAndMatch{}}, ModelDrafter{draft}, GreedyChain{.length = 3}};
    Speculator b{TreeVerifier{target, Sampling{}, SamplingParams{.temperature = 0.7f}}, ModelDrafter{draft},
                 GreedyChain{.length = 2}};
    List one(300, 1), two(300, 2);  // prompts of equal length, and so KV caches of equal size
    one[0] = two[0] = 0;
    for (const std::uint64_t seed : {1u, 2u}) {
      CHECK(text_of(a, one, 320, seed) == plainly(twin, one, 320, seed));
      CHECK(text_of(b, two, 320, seed) == plainly(twin, two, 320, seed, {.temperature = 0.7f}));
    }
    CHECK(text_of(a, one, 320, 3) == plainly(twin, one, 320, 3));
    const std::int64_t appended = target.appended;
    CHECK(text_of(a, one, 320, 4) == plainly(twin, one, 320, 4));
    CHECK(target.appended - appended == 299 - kept);
  };
  ToyModel target(5, 1, 2.0f, 400), draft(5, 2, 2.0f, 400);
  turns(target, draft, target, 256);
  Uncounted plain(5, 1, 2.0f, 400), plain_draft(5, 2, 2.0f, 400);
  turns(plain, plain_draft, target, 0);  // without a count of changes, other use cannot be excluded
}

TEST_CASE("a prompt that fits is accepted even if another pipeline left a longer text in the target") {
  ToyModel target(5, 1, 2.0f, 60);
  Speculator a{TreeVerifier{target, Sampling{}}, NoDrafter{5}, GreedyChain{}};
  Speculator b{TreeVerifier{target, Sampling{}}, NoDrafter{5}, GreedyChain{}};
  a.start(List(5, 1));
  b.start(List(55, 2));
  a.start(List(50, 3));
  CHECK(a.text().size() == 50);
}

namespace {
/// Its commit() throws after committing.
struct Late : ToyModel {
  using ToyModel::ToyModel;
  int commits = 0;
  void commit(Nodes path) {
    ToyModel::commit(path);
    if (++commits % 3 == 0) throw std::runtime_error("after the commit");
  }
};
}  // namespace

TEST_CASE("a commit() that throws after committing: the round is undone, and the text is plain sampling's") {
  Late target(5, 1);
  ToyModel draft(5, 2);
  Speculator run{TreeVerifier{target, SampleAndMatch{}}, ModelDrafter{draft}, GreedyChain{.length = 3}};
  PhiloxRandom rng(5);
  run.start(kPrompt);
  int thrown = 0;
  while (run.text().size() < 40) {
    const List text = list(run.text());
    try {
      run.step(rng);
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()) == "after the commit");
      CHECK(list(run.text()) == text);
      ++thrown;
    }
    REQUIRE(target.cache() == list(run.text().first(run.text().size() - 1)));
  }
  CHECK(thrown > 3);
  CHECK(list(run.text().first(40)) == plainly(target, kPrompt, 40, 5));
}

namespace {
/// Its change_count() throws at a given call.
struct Forgetful : ToyModel {
  using ToyModel::ToyModel;
  mutable int asked = 0;
  int fails_at = -1;
  std::uint64_t change_count() const {
    if (++asked == fails_at) throw std::runtime_error("generation failed");
    return ToyModel::change_count();
  }
};
/// Its learn() throws.
struct Unteachable : GreedyChain {
  void learn(const TokenTree&, const VerifyResult&, const Timing&) const {
    throw std::runtime_error("learn failed");
  }
  void reset() {}
};
}  // namespace

TEST_CASE(
    "a change_count() that throws after the round: its tokens are kept, and the next round requires "
    "start()") {
  Forgetful target(5, 1);
  Speculator run{TreeVerifier{target, SampleAndMatch{}}, NoDrafter{5}, GreedyChain{}};
  PhiloxRandom rng(5);
  run.start(kPrompt);
  target.fails_at = target.asked + 2;  // first before the round
  CHECK(run.step(rng).size() == 1);
  CHECK_THROWS_WITH_AS(run.step(rng), doctest::Contains(kUsed), std::logic_error);
  run.start(run.text());
  while (run.text().size() < 20) run.step(rng);
  CHECK(list(run.text()) == plainly(target, kPrompt, 20, 5));
}

TEST_CASE("a learn() that throws: text() has the round's tokens, and can continue") {
  ToyModel target(5, 1);
  Speculator run{TreeVerifier{target, SampleAndMatch{}}, NoDrafter{5}, Unteachable{}};
  PhiloxRandom rng(5);
  run.start(kPrompt);
  while (run.text().size() < 20) {
    const std::size_t before = run.text().size();
    CHECK_THROWS_WITH(run.step(rng), "learn failed");
    CHECK(run.text().size() == before + 1);
    CHECK(run.stats().rounds == static_cast<std::int64_t>(run.text().size() - kPrompt.size()));
  }
  CHECK(list(run.text()) == plainly(target, kPrompt, 20, 5));
}
