// SPDX-License-Identifier: MIT
// LayerSkip (ASD): the target without some of its blocks as the draft.
#include <specula/draft/layer_skip.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "self_models.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using List = std::vector<Token>;
using Drafter = LayerSkip<ToySkips>;

static_assert(LogitsDrafter<Drafter>);
static_assert(SkipsLayers<ToySkips> && !SkipsLayers<ToyModel>);
static_assert(!std::is_constructible_v<Drafter, ToySkips> &&
              !std::is_constructible_v<Drafter, const ToySkips&>);

const SamplingParams kGreedy{.temperature = 0};
constexpr NodeId kRoot = kNoParent;

std::vector<float> copy(std::span<const float> row) { return {row.begin(), row.end()}; }

/// PhiloxRandom that throws once, after `left` uniform draws.
struct BreaksOnce {
  PhiloxRandom rng{1};
  int left = -1;
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    return rng.draw(weights, key);
  }
  bool accept(double probability, const RandomKey& key) {
    if (left-- == 0) throw std::runtime_error("no uniform draw");
    return rng.accept(probability, key);
  }
};

std::vector<std::uint8_t> bits(std::initializer_list<int> layers, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (const int l : layers) out[static_cast<std::size_t>(l - 1)] = 1;
  return out;
}

/// 12 layers; the named ones have a similarity of 0.99.
std::vector<double> alike(std::initializer_list<int> layers, std::size_t count = 12) {
  std::vector<double> out(count, 0.5);
  for (const int l : layers) out[static_cast<std::size_t>(l - 1)] = 0.99;
  return out;
}

}  // namespace

TEST_CASE("the paper's algorithm 1, and each rule disabled") {
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
  choose_skipped({}, {}, out);  // not measured: the same
  CHECK(out.attention == out.mlp);
  choose_skipped(similarity, {.alike = 2, .every = 3, .keep_last = 0}, out);
  CHECK(out.mlp == bits({3, 6, 9, 12}, 12));
  choose_skipped(similarity, {.alike = 0, .every = 1, .keep_last = 20}, out);
  CHECK(out.count() == 0);
  choose_skipped(similarity, {.alike = 0.99}, out);  // at least
  CHECK(out.attention == bits({1, 3, 4, 6, 9}, 12));
  using Error = std::invalid_argument;
  CHECK_THROWS_WITH_AS(choose_skipped(alike({}, 11), {}, out),
                       "choose_skipped: 11 similarities, the model has 12 layers", Error);
  CHECK_THROWS_WITH_AS(choose_skipped(similarity, {.every = -1}, out),
                       "SkipRules::every is -1, must be in [0, 2147483647]", Error);
  CHECK_THROWS_WITH_AS(choose_skipped(similarity, {.keep_last = -1}, out),
                       "SkipRules::keep_last is -1, must be in [0, 2147483647]", Error);
  CHECK_THROWS_WITH_AS(choose_skipped(similarity, {.alike = NAN}, out),
                       "SkipRules::alike is nan, must be a cosine, or above 1 for none", Error);
}

TEST_CASE("given blocks are skipped in every text, and similarity is not measured") {
  const SkippedBlocks given =
      SkippedBlocks::given(12, std::vector<std::int32_t>{5, 2, 12}, std::vector<std::int32_t>{2});
  using Error = std::invalid_argument;
  ToySkips target(5, 1, 12, 2.0f, 400);
  CHECK_THROWS_WITH_AS((LayerSkip{target, SkippedBlocks(11)}),
                       "LayerSkip: blocks of 11 layers, the target has 12", Error);
  SkippedBlocks uneven(12);
  uneven.mlp.pop_back();
  CHECK_THROWS_AS((LayerSkip{target, uneven}), Error);
  target.similar.assign(12, 0.99);
  Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, LayerSkip{target, given}, Chain<>{.length = 3}};
  ToyModel plain(5, 1, 2.0f, 400);
  for (const List& prompt : {List{0, 1, 2}, List{4, 3}}) {
    List text = prompt, want = prompt;
    run.generate(prompt, {.max_new_tokens = 40}, PhiloxRandom{1},
                 [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
    std::vector<float> row(5);
    while (want.size() < text.size()) {
      plain.row(want[want.size() - 2], want.back(), row.data());
      want.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    CHECK(text == want);
    CHECK(run.drafter().skipped() == given);
  }
  CHECK(target.asked == 0);
  const Usage& usage = run.drafter().usage();
  CHECK(usage.layers == 10.0 * static_cast<double>(usage.nodes));  // of 24 blocks four are skipped
  // The rows are those of the target without these blocks; blocks that the rules choose give other rows.
  ToySkips one(5, 1, 12), other(5, 1, 12);
  const List context{0, 1, 2};
  const auto first_row = [&](ToySkips& model, auto drafter) {
    model.append(context);
    drafter.sync(context, {});
    const Token token = 3;
    return copy(drafter.extend({&token, 1}, {&kRoot, 1}).row(0));
  };
  CHECK(first_row(one, LayerSkip{one, given}) != first_row(other, LayerSkip{other}));
}

TEST_CASE("the text is that of plain decoding, for any shape, and blocks are chosen once per text") {
  for (const std::uint64_t seed : {1u, 2u}) {
    ToySkips target(5, seed, 12, 2.0f, 400);
    const auto check = [&](auto shape) {
      Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, LayerSkip{target}, shape};
      for (const double like : {0.5, 0.99}) {
        target.similar.assign(12, like);
        target.asked = 0;
        List prompt{0, 1, 2}, text = prompt;
        run.generate(prompt, {.max_new_tokens = 60}, PhiloxRandom{1},
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
      // 12 layers, of which 3 or 6.5 are skipped.
      CHECK(usage.layers <= 9.0 * static_cast<double>(usage.nodes));
      CHECK(usage.layers >= 5.5 * static_cast<double>(usage.nodes));
    };
    check(Chain<>{.length = 4});
    check(Cape{});
    check(DynamicTree{.top_k = 3, .expansions = 3, .total = 12});
    check(AdaptiveChain<>{});
  }
}

TEST_CASE(
    "nodes that match the draft tokens of a sync are kept; other draft tokens are computed with the next "
    "nodes") {
  ToySkips target(5, 1, 12);
  const List context{0, 1, 2};
  target.append(context);
  LayerSkip drafter{target};
  const auto row_after = [&](Token token, NodeId parent = kRoot) {
    return copy(drafter.extend({&token, 1}, {&parent, 1}).row(0));
  };
  drafter.sync(context, {});
  row_after(3);
  const auto deep = row_after(4, 0);
  CHECK(target.skipping == 2);
  CHECK(target.node_count() == 2);
  drafter.sync(context, List{3, 4});  // both are kept
  row_after(1);
  CHECK(target.skipping == 3);
  CHECK(target.node_count() == 3);
  drafter.sync(context, List{3});  // so is this one, but the nodes after it do not match: all are dropped
  CHECK(row_after(4) == deep);
  CHECK(target.skipping == 4);
  CHECK(target.node_count() == 2);
  drafter.sync(context, List{3, 1});  // 1 was not kept
  CHECK(row_after(4) != deep);
  CHECK(target.skipping == 5);
  CHECK(target.node_count() == 3);
  drafter.sync(context, List{3, 1, 4, 2});  // a prefix is
  const auto far = row_after(0);
  CHECK(target.skipping == 6);
  CHECK(target.node_count() == 5);
  const auto farther = row_after(2, 0);
  // Node numbers restart with each sync, and rows are those of a new drafter.
  ToySkips other(5, 1, 12);
  other.append(context);
  LayerSkip fresh{other};
  fresh.sync(context, List{3, 1, 4, 2});
  const List tokens{0, 2};
  const std::vector<NodeId> parents{kRoot, 0};
  const LogitsView rows = fresh.extend(tokens, parents);
  REQUIRE(rows.rows == 2);
  CHECK(copy(rows.row(0)) == far);
  CHECK(copy(rows.row(1)) == farther);
  CHECK(fresh.usage().calls == 1);
  CHECK(fresh.usage().nodes == 2);
  // Another caller has used the target: its nodes are gone, and are not reused.
  target.truncate(3);
  drafter.sync(context, List{3});
  CHECK(row_after(4) == deep);
  drafter.truncate(3);
  drafter.sync(context, List{3});
  CHECK(row_after(4) == deep);
  CHECK(target.node_count() == 2);
}

TEST_CASE("bad calls are refused, and an interrupted call is repaired") {
  ToySkips target(5, 1, 12);
  target.append(List{0, 1, 2});
  LayerSkip drafter{target};
  const List context{0, 1, 2};
  CHECK_THROWS_WITH_AS(drafter.sync(List{0, 1}, {}),
                       "LayerSkip::sync: a context of 2 tokens, but the target holds 3; bring the target "
                       "there first",
                       std::logic_error);
  CHECK_THROWS_AS(drafter.sync(List{0, 1, 2, 3}, {}), std::logic_error);
  drafter.sync(context, {});
  CHECK_THROWS_WITH_AS(drafter.sync(List{0}, {}),
                       "LayerSkip::sync: a context of 1 tokens after one of 3; truncate first",
                       std::invalid_argument);
  drafter.truncate(1);
  target.truncate(1);
  drafter.sync(List{0}, {});
  target.append(List{1, 2});  // brought there first
  drafter.sync(context, {});
  const List two{3, 4};
  const std::vector<NodeId> second_bad{kRoot, 1}, chain{kRoot, 0};
  CHECK_THROWS_WITH_AS(drafter.extend(two, second_bad), "LayerSkip::extend: parent 1 of 1 nodes",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drafter.extend(two, {&kRoot, 1}), "LayerSkip::extend: 1 parents for 2 tokens",
                       std::invalid_argument);
  CHECK(target.node_count() == 0);
  const auto want = copy(drafter.extend(two, chain).row(1));
  CHECK(target.node_count() == 2);
  target.throw_skipping = target.skipping + 1;
  const Token token = 1;
  const NodeId last = 1;
  CHECK_THROWS_AS(drafter.extend({&token, 1}, {&last, 1}), std::runtime_error);
  CHECK(target.node_count() == 2);
  drafter.sync(context, List{3, 4});  // which still exist
  const auto runs = target.skipping;
  drafter.extend({&token, 1}, {&kRoot, 1});
  CHECK(target.skipping == runs + 1);
  CHECK(target.node_count() == 3);
  // A target with as many nodes of another caller as the drafter's own.
  target.truncate(3);
  drafter.truncate(3);
  drafter.sync(context, {});
  target.extend(List{1}, std::vector<NodeId>{kRoot});
  drafter.sync(context, {});
  CHECK(copy(drafter.extend(two, chain).row(1)) == want);
  CHECK(target.size() == 3);
  CHECK_THROWS_AS(LayerSkip(target, SkipRules{.every = -1}), std::invalid_argument);

  struct Short : ToySkips {  // one row too few
    using ToySkips::ToySkips;
    LogitsView extend_skipping(Tokens tokens, Nodes parents, const SkippedBlocks& out) {
      LogitsView rows = ToySkips::extend_skipping(tokens, parents, out);
      --rows.rows;
      return rows;
    }
  } few(5, 1, 12);
  few.append(context);
  LayerSkip over{few};
  over.sync(context, {});
  CHECK_THROWS_WITH_AS(over.extend(two, chain),
                       "LayerSkip::extend: the target gave 1 rows of 5 logits for 2 nodes over 5 tokens",
                       std::invalid_argument);
}

TEST_CASE("after a rule threw once, nothing is lost") {
  for (const bool tree : {false, true}) {
    ToySkips target(5, 1, 12, 2.0f, 400);
    target.similar.assign(12, 0.5);
    const auto check = [&](auto shape) {
      Speculator run{TreeVerifier{target, Rejection{}}, LayerSkip{target}, shape};
      run.start(List{0, 1, 2});
      BreaksOnce rng;
      run.step(rng);
      rng.left = 0;
      const List before(run.text().begin(), run.text().end());
      CHECK_THROWS_WITH_AS(run.step(rng), "no uniform draw", std::runtime_error);
      CHECK(List(run.text().begin(), run.text().end()) == before);
      for (int i = 0; i < 5; ++i) run.step(rng);
      CHECK(run.text().size() > before.size() + 4);
    };
    if (tree)
      check(DynamicTree{.top_k = 2, .expansions = 2, .total = 5});
    else
      check(Chain<Draw::sampled>{.length = 3});
  }
}

TEST_CASE("as the reviewer of a cascade LayerSkip needs no more nodes than the proposal") {
  for (const std::int32_t capacity : {60, 61, 70}) {
    ToySkips target(5, 1, 12, 2.0f, capacity);
    ToyModel small(5, 9, 2.0f, capacity);
    Speculator run{TreeVerifier{target, Sampling{}, kGreedy}, Stack{LayerSkip{target}, ModelDrafter{small}},
                   Cascade<2>{.limits = {{{8, 0}, {0, 4}}}}};
    List text{0, 1, 2};
    run.generate(List(text), {.max_new_tokens = 200}, PhiloxRandom{1},
                 [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
    CHECK(text.size() >= static_cast<std::size_t>(capacity));
    CHECK(target.most_nodes <= run.shape().nodes().most);
  }
}

TEST_CASE("rounds allocate nothing") {
  ToySkips target(5, 1, 12, 2.0f, 400);
  Speculator run{TreeVerifier{target, Rejection{}}, LayerSkip{target}, Chain<Draw::sampled>{.length = 3}};
  run.start(List{0, 1, 2});
  PhiloxRandom rng(1);
  run.step(rng);
  AllocationCount allocated;
  for (int i = 0; i < 20; ++i) run.step(rng);
  const auto n = allocated.count();
  CHECK(n == 0);
}

TEST_CASE("a model that skips no block counts all its layers") {
  ToySkips model(5, 1, 12);
  ModelDrafter drafter{model};
  drafter.sync(List{0, 1}, {});
  const List tokens{1, 2};
  const std::vector<NodeId> parents{kRoot, 0};
  drafter.extend(tokens, parents);
  CHECK(drafter.usage().layers == 24);
}
