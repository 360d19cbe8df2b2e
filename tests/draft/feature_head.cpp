// SPDX-License-Identifier: MIT
// FeatureHead (EAGLE, HASS): a draft conditioned on the target's features.
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
using Drafter = FeatureHead<ToyHead, SeenModel>;

static_assert(LogitsDrafter<Drafter>);
static_assert(
    std::is_same_v<decltype(FeatureHead{std::declval<ToyHead&>(), std::declval<SeenModel&>()}), Drafter>);
static_assert(!std::is_constructible_v<Drafter, ToyHead, SeenModel&> &&
              !std::is_constructible_v<Drafter, ToyHead&, SeenModel> &&
              !std::is_constructible_v<Drafter, ToyHead, SeenModel> &&
              !std::is_constructible_v<Drafter, const ToyHead&, SeenModel&>);

constexpr std::int32_t kVocab = 5;
const SamplingParams kGreedy{.temperature = 0};

template <class Run>
void check_text(Run& run, const SeenModel& target) {
  for (const List& prompt : {List{2}, List{1, 2, 3}, List{1, 2, 3, 4, 0}}) {
    List text = prompt;
    run.generate(prompt, {.max_new_tokens = 80}, PhiloxRandom{1},
                 [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
    CHECK(text == greedily(target, prompt, 80));
  }
  CHECK(run.stats().mat() > 1.2);
}

}  // namespace

TEST_CASE("the text is that of plain decoding, for any shape") {
  for (const bool lazy : {true, false}) {
    CAPTURE(lazy);
    SeenModel target(kVocab, 1, 2.0f, 200);
    ToyHead head(kVocab, 1, 1.0f, lazy, 200);
    const TreeVerifier verifier{target, Sampling{}, kGreedy};
    Speculator tree{verifier, FeatureHead{head, target},
                    DynamicTree{.top_k = 3, .expansions = 3, .total = 12}};
    check_text(tree, target);
    Speculator beam{verifier, FeatureHead{head, target}, Beam{}};
    check_text(beam, target);
    Speculator fixed{verifier, FeatureHead{head, target}, StaticTree<>{}};
    check_text(fixed, target);
    CHECK(fixed.stats().draft.calls == 5 * fixed.stats().rounds);  // a call per level
    Speculator chain{verifier, FeatureHead{head, target}, Chain<>{}};
    check_text(chain, target);
  }
}

TEST_CASE("two drafters of a stack that are conditioned on one target do not disturb each other") {
  SeenModel target(kVocab, 1, 2.0f, 200);
  ToyHead head(kVocab, 1, 1.0f, true, 200);
  ToyGlide glide(kVocab, 1, 2.0f, true, 200);
  Speculator run{TreeVerifier{target, Sampling{}, kGreedy},
                 Stack{FeatureHead{head, target}, Glide{glide, target}, MaxGram{kVocab}},
                 Cascade<3>{.limits = {{{4, 3, 2}, {0, 2, 2}, {0, 0, 2}}}}};
  check_text(run, target);
  // Both are synced before either of them drafts.
  run.start(List{1, 2, 3});
  auto& stack = run.drafter();
  stack.sync(List{1, 2}, {});
  const LogitsView rows = stack.get<0>().extend(List{3}, std::vector<NodeId>{-1});
  const std::vector<float> want = head.row(List{1, 2, 3}, 2);
  CHECK(std::equal(want.begin(), want.end(), rows.row(0).begin()));
  CHECK(stack.get<1>().extend(List{3}, std::vector<NodeId>{-1}).rows == 1);
}

TEST_CASE(
    "every level of a tree sees the features of the round's context; the next round also sees those of the "
    "accepted tokens") {
  SeenModel target(kVocab, 1, 2.0f, 400);
  ToyHead head(kVocab, 1, 1.0f, true, 400);
  const std::int32_t drafted = 1 + 3 * 3;
  Speculator run{TreeVerifier{target, Sampling{}}, FeatureHead{head, target},
                 DynamicTree{.top_k = 3, .expansions = 3, .total = 12}};
  PhiloxRandom rng(1);
  run.start(List{1, 2, 3, 4});
  std::size_t fresh = 3;
  for (int round = 0; round < 80; ++round) {
    const auto size = static_cast<std::int32_t>(run.text().size()) - 1;
    head.seen.clear();
    const std::size_t more = run.step(rng).size();
    REQUIRE(head.seen.size() == fresh + drafted);
    for (std::size_t i = 0; i < head.seen.size(); ++i) {
      CHECK(head.seen[i].view_size == size);
      CHECK(head.seen[i].node == (i >= fresh));
      if (i < fresh)
        CHECK(head.seen[i].position ==
              size - static_cast<std::int32_t>(fresh) + static_cast<std::int32_t>(i));
      else
        CHECK(head.seen[i].position >= size);
    }
    fresh = more;
  }
}

TEST_CASE("a round allocates nothing") {
  SeenModel target(kVocab, 1, 2.0f, 1200);
  ToyHead head(kVocab, 1, 1.0f, true, 1200);
  const auto check = [&](auto& run) {
    run.start(List{1, 2, 3});
    PhiloxRandom rng(7);
    std::int64_t allocated = 0;
    for (int round = 0; round < 100; ++round) {
      head.seen.clear();
      const AllocationCount counted;
      run.step(rng);
      allocated += counted.count();
    }
    CHECK(allocated == 0);
    CHECK(run.stats().proposed > 100);
  };
  Speculator tree{TreeVerifier{target, Sampling{}}, FeatureHead{head, target}, DynamicTree{}};
  check(tree);
  Speculator draws{TreeVerifier{target, Sampling{}}, FeatureHead{head, target},
                   SampledTree<ProposalKind::sampled_distinct>{}};
  check(draws);
}
