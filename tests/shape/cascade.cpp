// SPDX-License-Identifier: MIT
// Cascade: the full cascade of CS-Drafting, against the recursion.
#include <specula/shape/cascade.hpp>

#include <doctest/doctest.h>

#include <specula/draft/stack.hpp>
#include <specula/study/cascade_model.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "slow_cascade.hpp"

using namespace specula;
using namespace specula_test;

namespace {

template <std::size_t n>
using CapeLimits = std::array<std::array<std::int32_t, n>, n>;

template <std::size_t n>
CapeLimits<n> random_limits(Random& random, std::int32_t most) {
  CapeLimits<n> out{};
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = r; i < n; ++i) out[r][i] = random.below(most + 1);
  return out;
}
template <std::size_t n>
Table table(const CapeLimits<n>& limits) {
  return limits_vector(limits);
}

constexpr std::int32_t kVocab = 5;

enum class Last { dense, points, silent };
/// One of them; a silent last drafter throws after too many calls.
template <std::size_t n>
Last pick_last(std::int32_t which, const CapeLimits<n>& limits) {
  return limits[n - 1][n - 1] == 0 ? Last::points : static_cast<Last>(which);
}

/// A cascade of `n` drafters that are functions of the whole text, and a copy for the reference.
template <std::size_t n>
struct Setting {
  std::uint64_t seed;
  Last last;
  double apart = 0.5;
  std::int32_t capacity = 1 << 20;

  RowOf row_of(std::size_t i) const { return related_rows(kVocab, seed, 1000 * seed + i + 1, apart); }
  DraftTokenOf draft_token_of() const {
    return related_draft_tokens(kVocab, seed, 1000 * seed + n, apart, last == Last::silent ? 0.3 : 0);
  }
  std::vector<SlowDrafter> slow() const {
    std::vector<SlowDrafter> out;
    for (std::size_t i = 0; i < n; ++i) {
      SlowDrafter drafter;
      if (i + 1 == n && last != Last::dense)
        drafter.draft_token_of = draft_token_of();
      else
        drafter.row_of = row_of(i);
      out.push_back(drafter);
    }
    return out;
  }
  template <class Use>
  void with_stack(Use use) const {
    const ScriptedPoints points(kVocab, draft_token_of());
    const auto dense = [&](std::size_t i) { return ScriptedDrafter(kVocab, row_of(i), capacity); };
    if constexpr (n == 1) {
      if (last == Last::dense) return use(Stack{dense(0)});
      use(Stack{points});
    } else if constexpr (n == 2) {
      if (last == Last::dense) return use(Stack{dense(0), dense(1)});
      use(Stack{dense(0), points});
    } else {
      if (last == Last::dense) return use(Stack{dense(0), dense(1), dense(2)});
      use(Stack{dense(0), dense(1), points});
    }
  }
};

/// Random limits, texts and drafters: the chain, its confidences and the reviewers' counts.
template <std::size_t n>
void compare(int cases, std::uint64_t seed) {
  const ReferenceArithmetic exact;  // so that both compare with the same lenience
  Random random(seed);
  int longer = 0, forgiven = 0;
  for (int i = 0; i < cases; ++i) {
    const CapeLimits<n> limits = random_limits<n>(random, n == 1 ? 8 : 4);
    const double lenience = i % 3 == 0 ? 1 : i % 3 == 1 ? 3 : random.between(1, 6);
    const Setting<n> setting{random.bits() % 1000, pick_last(i % 3 == 2 ? 2 : random.below(2), limits),
                             random.between(0, 1.5)};
    Cascade<n> shape{.limits = limits, .lenience = lenience};
    shape.reserve();
    ProposalBuilder tree(kVocab, shape.nodes().most, 0);
    tree.reset(kRoot, 3);
    NoUniforms rng;
    setting.with_stack([&](auto stack) {
      shape.propose(stack, ProposeContext{kContext, {}, shape.nodes().most}, tree, rng).run();
    });

    Text text = kContext;
    text.push_back(kRoot);
    std::vector<SlowDrafter> slow = setting.slow(), strict = setting.slow();
    const SlowText want = slow_cascade(slow, 0, slow_text(text), table(limits), lenience);
    CAPTURE(i);
    REQUIRE(is_chain_of(tree, want, text.size()));
    CHECK(tree.kind() == ProposalKind::deterministic);
    REQUIRE(shape.reviewed().size() == n - 1);
    for (std::size_t r = 0; r + 1 < n; ++r) {
      const Reviews& got = shape.reviewed()[r];
      std::int64_t offered = 0;
      for (std::size_t d = 0; d < Reviews::kDepths; ++d) {
        CHECK(got.offered[d] == slow[r].offered[d]);
        CHECK(got.accepted[d] == slow[r].accepted[d]);
        offered += got.offered[d];
      }
      longer += offered > 0;
      CHECK(got.calls == slow[r].calls);
    }
    if (lenience > 1 && n > 1) {
      const SlowText plain = slow_cascade(strict, 0, slow_text(text), table(limits), 1);
      forgiven += !is_chain_of(tree, plain, text.size());
    }
  }
  if (n > 1) CHECK(longer > cases / 3);
  if (n > 1) CHECK(forgiven > cases / 40);
}

/// The longest proposal over all outcomes of reviews: all reachable lengths.
template <std::size_t n>
std::set<std::int32_t> lengths(const CapeLimits<n>& limits, std::size_t row) {
  std::set<std::int32_t> now = {0};
  std::int32_t limit = 0;
  for (std::size_t i = row; i < n; ++i) {
    limit += limits[row][i];
    std::set<std::int32_t> steps;
    if (i + 1 == n) {
      if (limits[i][i] > 0) steps.insert(limits[i][i]);
    } else {
      for (std::int32_t s = 1; s <= *lengths(limits, i + 1).rbegin() + 1; ++s) steps.insert(s);
    }
    std::set<std::int32_t> after, open = now;
    while (!open.empty()) {
      const std::int32_t length = *open.begin();
      open.erase(open.begin());
      if (length >= limit || steps.empty()) {
        after.insert(length);
        continue;
      }
      for (const std::int32_t s : steps) open.insert(length + s);
    }
    now = after;
  }
  return now;
}

template <std::size_t n>
void check_bound(std::uint64_t seed, int tables, int texts) {
  Random random(seed);
  int reached = 0, nonempty = 0;
  for (int i = 0; i < tables; ++i) {
    CapeLimits<n> limits = random_limits<n>(random, 3);
    limits[n - 1][n - 1] = std::max(1, limits[n - 1][n - 1]);
    Cascade<n> shape{.limits = limits};
    shape.reserve();
    const std::int32_t bound = shape.nodes().most;
    CHECK(bound == 1 + *lengths(limits, 0).rbegin());
    nonempty += bound > 1;
    ProposalBuilder tree(kVocab, 200, 0);
    std::int32_t longest = 0;
    for (int text = 0; text < texts; ++text) {
      const Setting<n> setting{random.bits() % 100000, static_cast<Last>(text % 2), random.between(0, 1.5)};
      setting.with_stack([&](auto stack) {
        tree.reset(kRoot, 3);
        NoUniforms rng;
        shape.propose(stack, ProposeContext{kContext, {}, 200}, tree, rng).run();
        longest = std::max(longest, tree.size());
      });
      REQUIRE(longest <= bound);
    }
    reached += bound > 1 && longest == bound;
  }
  CHECK(reached > nonempty * 8 / 10);
}

template <std::size_t n>
void check_forecaster(std::uint64_t seed) {
  Random random(seed);
  CascadeRates rates;
  rates.acceptance.assign(n, std::vector<AcceptanceCurve>(n, AcceptanceCurve(0.5)));
  rates.draft_costs.assign(n, CostCurve({0.1}));
  specula::detail::CascadeForecaster forecaster(rates);
  for (int i = 0; i < 300; ++i) {
    CapeLimits<n> limits = random_limits<n>(random, i % 2 ? 4 : 12);
    limits[n - 1][n - 1] = std::max(1, limits[n - 1][n - 1]);
    CHECK(forecaster.max_nodes(table(limits)) == Cascade<n>{.limits = limits}.nodes().most);
  }
}

}  // namespace

TEST_CASE("the chain is that of the recursion, over random limits, texts and drafters") {
  compare<1>(200, 1);
  compare<2>(600, 2);
  compare<3>(600, 3);
}

TEST_CASE("the table of the paper") {
  const ReferenceArithmetic exact;
  const CapeLimits<3> limits = {{{8, 5, 10}, {0, 1, 10}, {0, 0, 10}}};
  Cascade<3> shape{.limits = limits, .lenience = 3};
  CHECK(shape.nodes().most == 33);
  shape.reserve();
  std::int32_t longest = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Setting<3> setting{seed, seed % 2 ? Last::points : Last::silent, 0.3};
    ProposalBuilder tree(kVocab, shape.nodes().most, 0);
    tree.reset(kRoot, 3);
    NoUniforms rng;
    setting.with_stack([&](auto stack) {
      shape.propose(stack, ProposeContext{kContext, {}, 33}, tree, rng).run();
    });
    Text text = kContext;
    text.push_back(kRoot);
    std::vector<SlowDrafter> slow = setting.slow();
    REQUIRE(is_chain_of(tree, slow_cascade(slow, 0, slow_text(text), table(limits), 3), text.size()));
    longest = std::max(longest, tree.size());
  }
  CHECK(longest > 25);
}

TEST_CASE("max_nodes is reached and never exceeded") {
  check_bound<1>(1, 10, 3);
  check_bound<2>(2, 40, 120);
  check_bound<3>(3, 20, 300);
  CHECK(Cascade<2>{}.nodes().most == 1);
  constexpr std::int32_t kLarge = 1 << 30;
  CHECK(Cascade<2>{.limits = {{{kLarge, kLarge}, {0, kLarge}}}}.nodes().most == 1 << 24);  // trees refuse it
}

TEST_CASE("the theory has the same number of nodes") {
  check_forecaster<1>(1);
  check_forecaster<2>(2);
  check_forecaster<3>(3);
  check_forecaster<4>(4);
}

TEST_CASE("little room: a valid chain that fits, and no drafter is called beyond its KV cache") {
  Random random(9);
  for (int i = 0; i < 300; ++i) {
    const CapeLimits<3> limits = random_limits<3>(random, 4);
    Cascade<3> greedy{.limits = limits, .lenience = 2};
    Cascade<3, Draw::sampled> sampled{.limits = limits, .lenience = 2};
    greedy.reserve(), sampled.reserve();
    const std::int32_t room = 1 + random.below(greedy.nodes().most);
    const Setting<3> setting{random.bits() % 1000, pick_last(i % 3, limits), 0.5,
                             static_cast<std::int32_t>(kContext.size()) + room};
    ProposalBuilder tree(kVocab, sampled.nodes().most, sampled.nodes().most);
    PhiloxRandom rng(static_cast<std::uint64_t>(i));
    const auto propose = [&](auto& shape) {
      tree.reset(kRoot, 3, room);
      setting.with_stack([&](auto stack) {
        shape.propose(stack, ProposeContext{kContext, {}, room}, tree, rng).run();
      });
      REQUIRE(tree.size() <= room);
      CHECK(tree.is_chain());
      if (limits[0][0] > 0 && room > 1) CHECK(tree.size() > 1);
    };
    propose(greedy);
    CHECK(tree.kind() == ProposalKind::deterministic);
    propose(sampled);
    for (NodeId n = 1; n < tree.size(); ++n) CHECK(tree.draft_prob(n, tree.token(n)) > 0);
  }
}

TEST_CASE("drafters without draft tokens end their turns") {
  const DraftTokenOf nothing = [](const Text&) { return kNoToken; };
  const RowOf row_of = related_rows(kVocab, 1, 2, 0.5);
  NoUniforms rng;
  ProposalBuilder tree(kVocab, 100, 0);
  const auto size = [&](auto shape, auto stack) {
    shape.reserve();
    tree.reset(kRoot, 3);
    shape.propose(stack, ProposeContext{kContext, {}, 100}, tree, rng).run();
    return tree.size();
  };
  CHECK(size(Cascade<1>{.limits = {{{4}}}}, Stack{ScriptedPoints(kVocab, nothing)}) == 1);
  Stack two{ScriptedDrafter(kVocab, row_of), ScriptedPoints(kVocab, nothing)};
  CHECK(size(Cascade<2>{.limits = {{{0, 4}, {0, 4}}}}, two) == 1);
  CHECK(size(Cascade<2>{.limits = {{{3, 4}, {0, 4}}}}, two) == 4);  // a token per review, as if it drafted
  CHECK(size(Cascade<2>{.limits = {{{3, 0}, {0, 0}}}}, two) == 4);
}

TEST_CASE("temperature 0 draws nothing: the sampled cascade is the greedy one") {
  Random random(12);
  for (int i = 0; i < 100; ++i) {
    const CapeLimits<3> limits = random_limits<3>(random, 3);
    Cascade<3> greedy{.limits = limits, .lenience = 2};
    Cascade<3, Draw::sampled> sampled{.limits = limits, .lenience = 2};
    static_assert(Cascade<3>::kind == ProposalKind::deterministic &&
                  Cascade<3, Draw::sampled>::kind == ProposalKind::sampled);
    greedy.reserve(), sampled.reserve();
    const Setting<3> setting{random.bits() % 1000, pick_last(i % 3, limits)};
    ProposalBuilder one(kVocab, greedy.nodes().most, 0),
        other(kVocab, greedy.nodes().most, greedy.nodes().most);
    one.reset(kRoot, 3), other.reset(kRoot, 3);
    NoUniforms rng;
    setting.with_stack([&](auto stack) {
      greedy.propose(stack, ProposeContext{kContext, {}, 100}, one, rng).run();
    });
    setting.with_stack([&](auto stack) {
      sampled.propose(stack, ProposeContext{kContext, {.temperature = 0}, 100}, other, rng).run();
    });
    CHECK(std::equal(one.tokens().begin(), one.tokens().end(), other.tokens().begin(), other.tokens().end()));
    CHECK(other.kind() == ProposalKind::deterministic);
  }
}
