// SPDX-License-Identifier: MIT
// Glide: a draft conditioned on the target's keys and values.
#include <specula/draft/conditioned.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <type_traits>
#include <vector>

#include "conditioned_models.hpp"
#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept

using namespace specula;
using namespace specula_test;

namespace {

using List = std::vector<Token>;
using Drafter = Glide<ToyGlide, SeenModel>;

static_assert(LogitsDrafter<Drafter>);
static_assert(
    std::is_same_v<decltype(Glide{std::declval<ToyGlide&>(), std::declval<SeenModel&>()}), Drafter>);
static_assert(!std::is_constructible_v<Drafter, ToyGlide, SeenModel&> &&
              !std::is_constructible_v<Drafter, ToyGlide&, SeenModel> &&
              !std::is_constructible_v<Drafter, ToyGlide, SeenModel> &&
              !std::is_constructible_v<Drafter, const ToyGlide&, SeenModel&>);

constexpr std::int32_t kVocab = 5;
const SamplingParams kGreedy{.temperature = 0};

/// Texts of a greedy run and of a second one with a common prefix; what the draft saw of them, and whether
/// draft tokens were accepted.
template <class Run>
void check_text(Run& run, const SeenModel& target, std::size_t count = 60, double mat = 1.2) {
  List prompt;
  for (int i = 0; i < 290; ++i) prompt.push_back(i * i % 3);
  for (const int changed : {0, 200, 270}) {
    if (changed) prompt[static_cast<std::size_t>(changed)] = 4;
    List text = prompt;
    run.generate(prompt, {.max_new_tokens = static_cast<std::int32_t>(count)}, PhiloxRandom{1},
                 [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
    CHECK(text == greedily(target, prompt, count));
  }
  CHECK(run.stats().mat() > mat);
}

}  // namespace

TEST_CASE("the text is that of plain decoding, for any shape") {
  for (const bool lazy : {true, false}) {
    CAPTURE(lazy);
    SeenModel target(kVocab, 1, 2.0f, 400);
    ToyGlide draft(kVocab, 1, 1.0f, lazy, 400);
    const TreeVerifier verifier{target, Sampling{}, kGreedy};
    Speculator chain{verifier, Glide{draft, target}, Chain<>{.length = 4}};
    check_text(chain, target);
    Speculator cape{verifier, Glide{draft, target}, Cape{}};
    check_text(cape, target, 60, chain.stats().mat());
    Speculator tree{verifier, Glide{draft, target}, DynamicTree{.top_k = 3, .expansions = 3, .total = 12}};
    check_text(tree, target);
    Speculator fixed{verifier, Glide{draft, target},
                     StaticTree<>{.form = {{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}}}};
    check_text(fixed, target);
  }
}

TEST_CASE("Glide drafts and reviews in a cascade") {
  SeenModel target(kVocab, 1, 2.0f, 400);
  ToyGlide draft(kVocab, 1, 1.0f, true, 400);
  ToyModel small(kVocab, 1, 1.0f, 400);
  const TreeVerifier verifier{target, Sampling{}, kGreedy};
  Speculator reviews{verifier, Stack{Glide{draft, target}, ModelDrafter{small}},
                     Cascade<2>{.limits = {{{5, 3}, {0, 2}}}}};
  check_text(reviews, target);
  Speculator drafts{verifier, Stack{ModelDrafter{small}, Glide{draft, target}, MaxGram{kVocab}},
                    Cascade<3>{.limits = {{{4, 3, 2}, {0, 2, 2}, {0, 0, 2}}}}};
  check_text(drafts, target);
}

TEST_CASE(
    "each round computes the accepted tokens and the draft tokens, with the round's view of the target") {
  SeenModel target(kVocab, 1, 2.0f, 400);
  ToyGlide draft(kVocab, 1, 1.0f, true, 400);
  Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, Glide{draft, target}, Chain<>{.length = 4}};
  PhiloxRandom rng(1);
  run.start(List{1, 2, 3, 4});
  std::size_t fresh = 3;  // context that the draft has not computed
  for (int round = 0; round < 80; ++round) {
    const auto size = static_cast<std::int32_t>(run.text().size()) - 1;
    draft.seen.clear();
    const std::size_t more = run.step(rng).size();
    REQUIRE(draft.seen.size() == fresh + 4);
    for (std::size_t i = 0; i < draft.seen.size(); ++i) {
      CHECK(draft.seen[i].position == size - static_cast<std::int32_t>(fresh) + static_cast<std::int32_t>(i));
      CHECK(draft.seen[i].view_size == size);
      CHECK(draft.seen[i].node == (i >= fresh));
    }
    fresh = more;
  }
  CHECK(run.stats().draft.calls == 4 * 80);
  CHECK(run.stats().draft.nodes == 4 * 80);
}

TEST_CASE("a draft whose KV cache is smaller than the target's: the text continues without it") {
  SeenModel target(kVocab, 1, 2.0f, 400);
  ToyGlide draft(kVocab, 1, 1.0f, true, 320);
  Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, Glide{draft, target}, Chain<>{.length = 4}};
  check_text(run, target, 100, 1.1);
  ToyGlide tiny(kVocab, 1, 1.0f, true, 100);
  Speculator other{TreeVerifier{target, Sampling{}, kGreedy}, Glide{tiny, target}, Chain<>{.length = 4}};
  check_text(other, target, 60, 0.9);
}

TEST_CASE("a round allocates nothing") {
  SeenModel target(kVocab, 1, 2.0f, 1200);
  ToyGlide draft(kVocab, 1, 1.0f, true, 1200);
  ToyModel small(kVocab, 1, 1.0f, 1200);
  const auto check = [&](auto run) {
    run->start(List{1, 2, 3});
    PhiloxRandom rng(7);
    std::int64_t allocated = 0;
    for (int round = 0; round < 100; ++round) {
      draft.seen.clear();
      const AllocationCount counted;
      run->step(rng);
      allocated += counted.count();
    }
    CHECK(allocated == 0);
    CHECK(run->stats().proposed > 100);
  };
  const TreeVerifier verifier{target, Sampling{}};
  Speculator cape{verifier, Glide{draft, target}, Cape{}};
  check(&cape);
  Speculator cascade{verifier, Stack{Glide{draft, target}, ModelDrafter{small}},
                     Cascade<2, Draw::sampled>{.limits = {{{5, 3}, {0, 2}}}}};
  check(&cascade);
}

TEST_CASE("a round interrupted by the target's exception can be repeated; one of the draft ends drafting") {
  SeenModel target(kVocab, 1, 2.0f, 400), fresh(kVocab, 1, 2.0f, 400);
  ToyGlide draft(kVocab, 1, 1.0f, true, 400);
  Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, Glide{draft, target}, Chain<>{.length = 4}};
  PhiloxRandom rng(1);
  const List prompt = {1, 2, 3, 4};
  run.start(prompt);
  for (int round = 0; round < 40; ++round) {
    if (round % 5 == 0) target.throw_view = target.view_calls + 1;
    if (round % 5 == 1) draft.model.throw_call = draft.model.calls + 3;
    if (round % 5 == 2) draft.model.throw_append = draft.model.appends + 1;
    if (round % 5 == 3) target.throw_call = target.calls + 1;
    if (round % 5 == 3) CHECK_THROWS_AS(run.step(rng), std::runtime_error);
    if (round % 5 < 3) {
      run.step(rng);
      CHECK(!run.draft_error().empty());
      run.start(List(run.text().begin(), run.text().end()));  // drafts again
    }
    draft.seen.clear();
    run.step(rng);
    CHECK(draft.seen.back().view_size == target.size() - run.result().accepted_count() - 1);
  }
  CHECK(List(run.text().begin(), run.text().end()) ==
        greedily(fresh, prompt, run.text().size() - prompt.size()));
}

TEST_CASE("a stack of two drafters over one draft model is refused, in either order") {
  SeenModel target(kVocab, 1);
  ToyGlide draft(kVocab, 1, 1.0f, true);
  const char* same = "Stack: two drafters have the same model, which holds one text";
  CHECK_THROWS_WITH_AS((Stack{Glide{draft, target}, ModelDrafter{draft}}), same, std::invalid_argument);
  CHECK_THROWS_WITH_AS((Stack{ModelDrafter{draft}, Glide{draft, target}}), same, std::invalid_argument);
  CHECK_THROWS_WITH_AS((Stack{Glide{draft, target}, Glide{draft, target}}), same, std::invalid_argument);
  CHECK(Glide{draft, target}.cache_id() == &draft);
}
