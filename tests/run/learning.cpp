// SPDX-License-Identifier: MIT
// labels: optimised
// A shape learns from rounds in which it was asked to propose, and from no others: rounds for the root alone,
// such as plain ones of a shared budget, change nothing of what it knows.
#include <specula/run/speculator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <specula/runtime/any_drafter.hpp>
#include <specula/runtime/any_shape.hpp>
#include <specula/specula.hpp>

#include "random.hpp"
#include "text_of.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 6, kRoom = 2000;
const std::vector<Token> kPrompt{0, 2, 5};

/// Costs in common with other texts: everything pays.
struct SharedCosts final : CostModel {
  double accept_probability(double confidence) const override { return confidence; }
  bool call_pays(const DraftCall&) override { return true; }
  bool is_shared() const override { return true; }
  bool node_pays(double, double, std::int32_t) override { return true; }
  std::int32_t best_count(std::span<const double> probabilities, std::int32_t) const override {
    return static_cast<std::int32_t>(probabilities.size());
  }
};

/// What a shape proposes in further rounds of a text, whose outcomes are scripted: its state, by behaviour.
template <class Shape, class Drafter>
std::vector<Token> future(Shape shape, Drafter drafter, CostModel* costs, Tokens begun) {
  std::vector<Token> text(begun.begin(), begun.end()), all;
  ProposalBuilder tree(kVocab, shape.nodes().most,
                       Shape::kind == ProposalKind::deterministic ? 0 : shape.nodes().most);
  PhiloxRandom rng(8);
  Random random(9);
  for (int round = 0; round < 60; ++round) {
    const Tokens context = Tokens(text).first(text.size() - 1);
    tree.reset(text.back(), static_cast<std::int32_t>(context.size()), shape.nodes().most);
    Timing timing;
    const Usage before = drafter.usage();
    specula::propose(
        shape, drafter,
        {.committed = context, .params = {}, .max_nodes = shape.nodes().most, .cost_model = costs}, tree, rng)
        .run();
    timing.draft = drafter.usage() - before;
    timing.target = {.calls = 1, .nodes = tree.size()};
    VerifyResult result;
    result.clear();
    result.accepted.push_back(0);
    for (NodeId node = tree.first_child(0); node != kNoParent && random.below(4) > 0;
         node = tree.first_child(node))
      result.accepted.push_back(node);
    result.next_token = static_cast<Token>(random.below(kVocab));
    for (std::size_t i = 1; i < result.accepted.size(); ++i) text.push_back(tree.token(result.accepted[i]));
    text.push_back(result.next_token);
    all.insert(all.end(), tree.tokens().begin(), tree.tokens().end());
    all.push_back(kNoToken);
    shape.learn(tree, result, timing);
  }
  return all;
}

/// Rounds for the root alone between others leave `shape` as it was.
template <class Shape, class MakeDrafter>
void check(const Shape& shape, MakeDrafter make_drafter) {
  static_assert(LearnsFromRounds<Shape>);
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    SharedCosts costs;
    CostModel* const model = shared ? &costs : nullptr;
    ToyModel target(kVocab, 1, 2.0f, kRoom), draft(kVocab, 2, 2.0f, kRoom), other(kVocab, 2, 2.0f, kRoom);
    Speculator run{TreeVerifier{target, Sampling{}}, make_drafter(draft), shape};
    PhiloxRandom rng(3);
    std::set<std::vector<Token>> seen;
    run.start(kPrompt);
    for (int round = 0; round < 200; ++round) {
      const bool plain = round % 3 == 2 || round % 50 > 40;
      const Shape before = run.shape();
      run.begin(rng, {}, plain && round % 2 == 0 ? nullptr : model, plain ? 1 : kRoom);
      while (run.bid()) run.grant(true);
      run.end();
      if (!plain) continue;
      CHECK(run.proposal().size() == 1);
      other.truncate(0);
      const auto want = future(before, make_drafter(other), model, run.text());
      other.truncate(0);
      CHECK(future(run.shape(), make_drafter(other), model, run.text()) == want);
      seen.insert({want.begin(), want.begin() + 40});
    }
    CHECK(seen.size() > 10);
    CHECK(run.draft_error() == "");
  }
}

const auto kAlone = [](ToyModel& draft) { return ModelDrafter{draft}; };
const auto kWithCopies = [](ToyModel& draft) { return Stack{ModelDrafter{draft}, MaxGram(kVocab)}; };
const CostCurve kTarget({1, 1.1, 1.2, 1.3, 1.4}), kDraft({0.1});

}  // namespace

TEST_CASE("adaptive chains") {
  check(AdaptiveChain<HeuristicEnd>{}, kAlone);
  check(AdaptiveChain<>{}, kAlone);
  check(AdaptiveChain<>{.end = {.unbounded = true}}, kAlone);
  check(AdaptiveChain<ThresholdEnd, Draw::sampled>{}, kAlone);
}
TEST_CASE("cost-aware shapes") {
  check(CostAware(Chain<>{.length = 6}, kTarget, kDraft), kAlone);
  check(CostAware(Cape{.length = 3, .budget = 12, .extras = CapeExtras::fixed(2)}, kTarget, kDraft), kAlone);
  check(CostAware(AdaptiveChain<HeuristicEnd>{}, kTarget, kDraft), kAlone);
}
TEST_CASE("copies or drafts") {
  check(Either(Chain<>{.length = 4}, 4, kTarget, kDraft), kWithCopies);
  check(Either(AdaptiveChain<HeuristicEnd>{}, 4, kTarget, kDraft), kWithCopies);
}

TEST_CASE("these are all shapes that learn") {
  std::set<std::string> found;
  const std::filesystem::path headers = SPECULA_MODELS_DIR "/../../include/specula";
  for (const auto& file : std::filesystem::recursive_directory_iterator(headers))
    if (file.path().extension() == ".hpp" &&
        text_of(file.path()).find(" learn(const TokenTree& tree") != std::string::npos)
      found.insert(file.path().filename().string());
  found.erase("optional_members.hpp");  // the concept
  CHECK(found ==
        std::set<std::string>{"adaptive_chain.hpp", "any_shape.hpp", "cost_aware.hpp", "either.hpp"});
}

namespace {

/// Counts the rounds that it proposed in, and those that it learned from.
struct Counts {
  int proposed = 0, learned = 0, nodes = 0;
};
struct Counting : Chain<> {
  Counts* counts;
  template <Drafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    ++counts->proposed;
    co_await Chain<>::propose(drafter, round, tree, rng);
  }
  void learn(const TokenTree& tree, const VerifyResult&, const Timing&) {
    ++counts->learned;
    counts->nodes += tree.size();
    CHECK(counts->learned == counts->proposed);
  }
  void reset() {}
};

template <class Shape>
void check_counts(Shape shape, Counts& counts) {
  ToyModel target(kVocab, 1, 2.0f, 400),
      draft(kVocab, 2, 2.0f, 60);  // the draft is full long before the target
  Speculator run{TreeVerifier{target, Sampling{}}, AnyDrafter(ModelDrafter{draft}), std::move(shape)};
  PhiloxRandom rng(3);
  run.start(kPrompt);
  int asked = 0;
  for (int round = 0; round < 120; ++round) {
    const bool plain = round % 3 == 1;
    const bool full = run.text().size() >= 60;  // no room for a draft token
    run.begin(rng, {}, nullptr, plain ? 1 : kRoom);
    run.end();
    asked += !plain && !full;
  }
  CHECK(asked > 10);
  CHECK(counts.proposed == asked);
  CHECK(counts.learned == asked);
  CHECK(counts.nodes > 2 * asked);
  CHECK(run.stats().rounds == 120);
}

}  // namespace

TEST_CASE(
    "a shape learns once after each propose(), not when the draft has no room, behind an AnyShape too") {
  Counts typed, erased;
  check_counts(Counting{{.length = 3}, &typed}, typed);
  check_counts(AnyShape<AnyDrafter, ProposalKind::deterministic>(Counting{{.length = 3}, &erased}), erased);
}
