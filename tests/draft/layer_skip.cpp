#include <doctest/doctest.h>
#include <specula/draft/layer_skip.hpp>

#include <specula/specula.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "self_models.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using List = std::vector<Token>;
using Drafter = LayerSkip<ToySkips>;

static_assert(DenseDrafter<Drafter>);
static_assert(SkipsLayers<ToySkips> && MeasuresSimilarity<ToySkips>);
static_assert(!SkipsLayers<ToyModel> && !MeasuresSimilarity<ToyModel>);
static_assert(!std::is_constructible_v<Drafter, ToySkips> &&
              !std::is_constructible_v<Drafter, const ToySkips&>);

const SamplingParams kGreedy{.temperature = 0};
constexpr NodeId kRoot = kNoParent;

std::vector<std::uint8_t> bits(std::initializer_list<int> layers, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (const int l : layers) out[static_cast<std::size_t>(l - 1)] = 1;
  return out;
}

/// 12 layers; those named are alike to the degree of .99.
std::vector<double> alike(std::initializer_list<int> layers, std::size_t count = 12) {
  std::vector<double> out(count, 0.5);
  for (const int l : layers) out[static_cast<std::size_t>(l - 1)] = 0.99;
  return out;
}

}  // namespace

TEST_CASE("algorithm 1, and each rule switched off") {
  SkippedBlocks out(12);
  const auto similarity = alike({1, 4, 6, 11, 12});
  choose_skipped(similarity, {}, out);  // thresholding, every third, not the last two
  CHECK(out.mlp == bits({3, 6, 9}, 12));
  CHECK(out.attention == bits({1, 3, 4, 6, 9}, 12));
  CHECK(out.count() == 8);
  choose_skipped(similarity, {.every = 0, .keep_last = 0}, out);  // thresholding alone
  CHECK(out.mlp == bits({}, 12));
  CHECK(out.attention == bits({1, 4, 6, 11, 12}, 12));
  choose_skipped(similarity, {.every = 0}, out);  // and rule 2
  CHECK(out.attention == bits({1, 4, 6}, 12));
  choose_skipped(similarity, {.alike = 2}, out);  // rules 1 and 2
  CHECK(out.mlp == bits({3, 6, 9}, 12));
  CHECK(out.attention == out.mlp);
  choose_skipped({}, {}, out);  // nothing was measured: the same
  CHECK(out.attention == out.mlp);
  choose_skipped(similarity, {.alike = 2, .every = 3, .keep_last = 0}, out);
  CHECK(out.mlp == bits({3, 6, 9, 12}, 12));
  choose_skipped(similarity, {.alike = 0, .every = 1, .keep_last = 20}, out);
  CHECK(out.count() == 0);
  choose_skipped(similarity, {.alike = 0.99}, out);  // at least
  CHECK(out.attention == bits({1, 3, 4, 6, 9}, 12));
  CHECK_THROWS_AS(choose_skipped(alike({}, 11), {}, out), std::invalid_argument);
  CHECK_THROWS_AS(choose_skipped(similarity, {.every = -1}, out), std::invalid_argument);
  CHECK_THROWS_AS(choose_skipped(similarity, {.keep_last = -1}, out), std::invalid_argument);
}

TEST_CASE("the text is the target's own, whatever the shape, and blocks are chosen once a text") {
  for (const std::uint64_t seed : {1u, 2u}) {
    ToySkips target(5, seed, 12, 2.0f, 400);
    const auto check = [&](auto shape) {
      Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, LayerSkip{target}, shape};
      for (const double like : {0.5, 0.99}) {
        target.similar.assign(12, like);
        target.asked = 0;
        List prompt{0, 1, 2}, text = prompt;
        run.generate(prompt, {.max_new_tokens = 60}, PhiloxChance{1},
                     [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
        CHECK(target.asked == 1);
        CHECK(run.drafter().skipped().count() == (like > 0.9 ? 10 + 3 : 6));
        ToyModel plain(5, seed, 2.0f, 400);
        List want = prompt;
        std::vector<float> row(5);
        while (want.size() < 63) {
          plain.row(want[want.size() - 2], want.back(), row.data());
          want.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
        }
        CHECK(text == want);
      }
      const Usage& usage = run.drafter().usage();
      CHECK(usage.calls > 0);
      // 12 layers, of which 3 or 6.5 are left out.
      CHECK(usage.layers <= 9.0 * static_cast<double>(usage.nodes));
      CHECK(usage.layers >= 5.5 * static_cast<double>(usage.nodes));
    };
    check(Chain<>{.length = 4});
    check(Cape{});
    check(DynamicTree{.top_k = 3, .expansions = 3, .total = 12});
    check(AdaptiveChain<>{});
  }
}

TEST_CASE("a guess that was drafted stays; one that was not is run") {
  ToySkips target(5, 1, 12);
  target.append(List{0, 1, 2});
  LayerSkip drafter{target};
  const List context{0, 1, 2};
  drafter.sync(context, {});
  const Token first = 3, second = 4;
  const NodeId root = 0;
  drafter.extend({&first, 1}, {&kRoot, 1});
  const auto row = drafter.extend({&second, 1}, {&root, 1}).row(0);
  const std::vector<float> deep(row.begin(), row.end());
  CHECK(target.skipping == 2);
  drafter.sync(context, List{3});
  CHECK(target.skipping == 2);  // 3 is there
  const auto again = drafter.extend({&second, 1}, {&kRoot, 1}).row(0);
  CHECK(std::vector<float>(again.begin(), again.end()) == deep);
  drafter.sync(context, List{3, 1});
  CHECK(target.skipping == 4);  // 1 was not
  const auto other = drafter.extend({&second, 1}, {&kRoot, 1}).row(0);
  CHECK(std::vector<float>(other.begin(), other.end()) != deep);
  // Others have used the target: its nodes are gone, and are not taken for there.
  target.truncate(3);
  drafter.sync(context, List{3});
  const auto anew = drafter.extend({&second, 1}, {&kRoot, 1}).row(0);
  CHECK(std::vector<float>(anew.begin(), anew.end()) == deep);
}

TEST_CASE("bad calls are refused, and what broke off is made up for") {
  ToySkips target(5, 1, 12);
  target.append(List{0, 1, 2});
  LayerSkip drafter{target};
  const List context{0, 1, 2};
  CHECK_THROWS_AS(drafter.sync(List{0, 1}, {}), std::logic_error);
  CHECK_THROWS_AS(drafter.sync(List{0, 1, 2, 3}, {}), std::logic_error);
  drafter.sync(context, {});
  CHECK_THROWS_AS(drafter.sync(List{0}, {}), std::invalid_argument);
  const Token token = 3;
  const NodeId none = 0, first = 0;
  CHECK_THROWS_AS(drafter.extend({&token, 1}, {&none, 1}), std::invalid_argument);
  target.throw_skipping = target.skipping + 1;
  CHECK_THROWS_AS(drafter.extend({&token, 1}, {&kRoot, 1}), std::runtime_error);
  drafter.sync(context, {});
  drafter.extend({&token, 1}, {&kRoot, 1});
  drafter.extend({&token, 1}, {&first, 1});
  CHECK(target.node_count() == 2);
  CHECK(target.size() == 3);
  CHECK_THROWS_AS(LayerSkip(target, SkipRules{.every = -1}), std::invalid_argument);
}

TEST_CASE("rounds allocate nothing") {
  ToySkips target(5, 1, 12, 2.0f, 400);
  Speculator run{TreeVerifier{target, Rejection{}}, LayerSkip{target}, Chain<Draw::sampled>{.length = 3}};
  run.start(List{0, 1, 2});
  PhiloxChance chance(1);
  run.step(chance);
  AllocationCount allocated;
  for (int i = 0; i < 20; ++i) run.step(chance);
  const auto n = allocated.count();
  CHECK(n == 0);
}
