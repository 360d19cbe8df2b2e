// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of self-speculation (early exits, layer skipping), against the target's; and the
// bias of a draft that exits depending on the token it drew, but reports the distribution of its exit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "one_rule.hpp"
#include "self_models.hpp"

using namespace specula;
using namespace specula_test;

namespace {

template <class Shape>
EmittedDistribution early_exit(std::int32_t vocab, const OneRule& rule, Shape shape,
                               const SamplingParams& params, std::size_t horizon, ExitBy by) {
  ToyModel target(vocab, 1);
  ToyExits draft(vocab, 2, 3);
  Speculator run{TreeVerifier{target, rule, params}, EarlyExitDrafter{draft, {0.7f, 0.6f}, by}, shape};
  return whole_distribution(run, target, params, prompt_for(vocab), horizon);
}

template <class Shape>
EmittedDistribution skipping(std::int32_t vocab, const OneRule& rule, Shape shape,
                             const SamplingParams& params, std::size_t horizon) {
  ToySkips target(vocab, 1, 9);
  Speculator run{TreeVerifier{target, rule, params}, LayerSkip{target}, shape};
  return whole_distribution(run, target, params, prompt_for(vocab), horizon);
}

/// Each kind of draft; shorter texts whose tokens lie in three tiles, too.
template <class Shape>
double worst(std::int32_t vocab, const OneRule& rule, Shape shape, std::size_t horizon,
             const SamplingParams& params = {}) {
  const auto each = [&](std::size_t tokens) {
    return std::max({early_exit(vocab, rule, shape, params, tokens, ExitBy::confidence).error,
                     early_exit(vocab, rule, shape, params, tokens, ExitBy::sample).error,
                     skipping(vocab, rule, shape, params, tokens).error});
  };
  const double narrow = each(horizon);
  const ThreeTiles wide;
  return std::max(narrow, each(1));
}

/// The target drafts for itself in the proper sense: the draft's last exit is the target, or the target
/// without given blocks. The largest error over both.
template <class Shape>
double itself(std::int32_t vocab, const OneRule& rule, Shape shape, const SamplingParams& params,
              std::size_t horizon) {
  const ToyModel target(vocab, 3);
  const std::vector<std::int32_t> attention{1, 3}, mlp{4};
  double worst = 0;
  for (const ExitBy by : {ExitBy::confidence, ExitBy::sample}) {
    ToyModel model(vocab, 3);
    ToyExits draft(vocab, 1, 3);
    Speculator run{TreeVerifier{model, rule, params}, EarlyExitDrafter{draft, {0.7f, 0.6f}, by}, shape};
    worst = std::max(worst, whole_distribution(run, target, params, prompt_for(vocab), horizon).error);
  }
  ToySkips skips(vocab, 3, 4);
  Speculator run{TreeVerifier{skips, rule, params}, LayerSkip{skips, SkippedBlocks::given(4, attention, mlp)},
                 shape};
  return std::max(worst, whole_distribution(run, target, params, prompt_for(vocab), horizon).error);
}

/// A source of random decisions that always returns one token.
struct Says {
  Token token;
  template <class Weights>
  Token draw(const Weights&, const RandomKey&) {
    return token;
  }
};

/// The paper's algorithm as written: draws at each exit, and exits where the drawn token is likely enough.
/// It reports the distribution of that exit for the token.
struct LeavesByDraw {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  std::int32_t length = 2;
  std::vector<double> thresholds{0.45, 0.5, 0};
  NodeCounts nodes() const { return {1 + length}; }

  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    drafter.sync(round.committed, {});
    detail::RowScan scan(tree.vocab());
    NodeId parent = kNoParent;
    for (NodeId node = 0; node < length && tree.room() > 0; parent = node++) {
      const Token root = tree.token(node);
      for (std::int32_t exit = 0; exit < 3; ++exit) {
        const auto row = drafter.row(exit, {&root, 1}, {&parent, 1});
        const RandomKey key{tree.position(node) + 1, tree.origin(), RandomStream::draft,
                            static_cast<std::uint32_t>(3 * node + exit)};
        const Distribution here = scan.distribution(row, round.params);
        const Token drawn = rng.draw(scan.weights(here), key);
        if (here(drawn) < thresholds[static_cast<std::size_t>(exit)]) continue;
        Says says{drawn};
        tree.draw(node, tree.store(node, row, round.params), says);
        break;
      }
    }
  }
};

/// Does not count its changes, so that nodes can run deeper unnoticed by the drafter.
struct Uncounted : ToyExits {
  using ToyExits::ToyExits;
  std::uint64_t change_count() const = delete;
};

/// A drafter that can return the row of any exit.
class AnyExit : public ModelDrafter<Uncounted> {
 public:
  explicit AnyExit(Uncounted& model) : ModelDrafter<Uncounted>(model), model_(&model) {}
  std::span<const float> row(std::int32_t exit, Tokens tokens, Nodes parents) {
    if (exit == 0) return rows_ = extend(tokens, parents), first(0);
    return first(exit);
  }

 private:
  std::span<const float> first(std::int32_t exit) {
    const std::int32_t row = 0;
    return model_->resume_to_exit({&row, 1}, exit).row(0);
  }
  Uncounted* model_;
  LogitsView rows_;
};

}  // namespace

TEST_CASE("every shape keeps the target's distribution over several rounds, by every lossless rule") {
  for_every_shape([](const auto& shape, const Enumerable& sizes) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>([&](const OneRule& rule) {
      for (const SamplingParams& params : {kPlain, kWarm}) {
        CAPTURE(params.temperature);
        CHECK(worst(sizes.vocab, rule, shape, 2, params) < 1e-12);
      }
    });
  });
}

TEST_CASE("longer texts in chains") {
  CHECK(worst(3, Rejection{}, Chain<Draw::sampled>{.length = 2}, 3) < 1e-12);
  CHECK(worst(3, Block{}, Chain<Draw::sampled>{.length = 2}, 3, kWarm) < 1e-12);
  CHECK(worst(3, Sampling{}, Chain<>{.length = 2}, 4) < 1e-12);
  CHECK(worst(2, Rejection{}, Chain<Draw::sampled>{.length = 3, .exit_below = 0.5f}, 4) < 1e-12);
}

TEST_CASE("adaptive chains keep it") {
  using Threshold = AdaptiveChain<ThresholdEnd, Draw::sampled>;
  using Heuristic = AdaptiveChain<HeuristicEnd, Draw::sampled>;
  // State carried between texts is just another initial state; an enumeration replays one.
  for (const float threshold : {0.3f, 0.6f, 0.9f}) {
    const ThresholdEnd end{.longest = 2, .threshold = threshold, .step = 1, .inertia = 0.5f};
    CHECK(worst(2, Rejection{}, Threshold{.end = end, .carry = false}, 4) < 1e-12);
    CHECK(worst(2, Block{}, Threshold{.end = end, .carry = false}, 4) < 1e-12);
    CHECK(worst(3, Sampling{}, AdaptiveChain<>{.end = end, .carry = false}, 4) < 1e-12);
  }
  for (const std::int32_t now : {1, 2, 3})
    CHECK(worst(2, Rejection{}, Heuristic{.end = {.longest = 3, .now = now}, .carry = false}, 4) < 1e-12);
}

TEST_CASE("greedy decoding's text, and a vocabulary of one token") {
  CHECK(worst(3, Greedy{}, Chain<>{.length = 3}, 6, kGreedy) < 1e-12);
  CHECK(worst(3, Sampling{}, DynamicTree{}, 6, kGreedy) < 1e-12);
  CHECK(worst(1, Rejection{}, Chain<Draw::sampled>{.length = 3}, 4) < 1e-12);
}

TEST_CASE("a cascade in which the target drafts for itself keeps it") {
  ToySkips target(2, 1, 9);
  ToyExits small(2, 5, 3);
  Speculator run{TreeVerifier{target, Rejection{}},
                 Stack{LayerSkip{target}, EarlyExitDrafter{small, {0.6f, 0.5f}}},
                 Cascade<2, Draw::sampled>{.limits = {{{2, 1}, {0, 1}}}, .lenience = 2}};
  CHECK(whole_distribution(run, target, kPlain, prompt_for(2), 3).error < 1e-12);
}

TEST_CASE("a target's own exits, and the target without given blocks, keep it in every shape") {
  for_every_shape([](const auto& shape, const Enumerable& sizes) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>(
        [&](const OneRule& rule) { CHECK(itself(sizes.vocab, rule, shape, kPlain, 2) < 1e-12); });
  });
  CHECK(itself(3, Rejection{}, Chain<Draw::sampled>{.length = 2}, kWarm, 3) < 1e-12);
  CHECK(itself(3, Sampling{}, DynamicTree{.top_k = 2, .expansions = 2, .total = 5}, kWarm, 4) < 1e-12);
}

TEST_CASE("exiting depending on the drawn token, and reporting the exit's distribution, biases the text") {
  ToyModel target(3, 1);
  Uncounted draft(3, 2, 3, 1.2f);
  Speculator naive{TreeVerifier{target, Rejection{}}, AnyExit{draft}, LeavesByDraw{.length = 1}};
  CHECK(whole_distribution(naive, target, kPlain, prompt_for(3), 2).error > 0.01);
  for (const ExitBy by : {ExitBy::confidence, ExitBy::sample}) {
    Speculator ours{TreeVerifier{target, Rejection{}}, EarlyExitDrafter{draft, {0.45f, 0.5f}, by},
                    Chain<Draw::sampled>{.length = 1}};
    CHECK(whole_distribution(ours, target, kPlain, prompt_for(3), 2).error < 1e-12);
    CHECK(ours.drafter().exit_counts()[2] > 0);
    if (by == ExitBy::confidence) CHECK(ours.drafter().exit_counts()[0] > 0);
  }
}

TEST_CASE("the mixture over exits is the distribution of a token whose draw decides the exit") {
  struct Case {
    float scale, first, second;
  };
  bool twice = false;  // tokens exit at the first exit and at the second
  for (const Case& c : {Case{2.0f, 0.6f, 0.4f}, {1.0f, 0.3f, 0.3f}}) {
    ToyExits draft(4, 3, 3, c.scale);
    EarlyExitDrafter drafter{draft, {c.first, c.second}, ExitBy::sample};
    const std::vector<Token> context{0, 1};
    for (Token root = 0; root < 4; ++root) {
      drafter.sync(context, {});
      const NodeId none = kNoParent;
      const auto row = drafter.extend({&root, 1}, {&none, 1}).row(0);
      std::vector<double> want(4), left;
      double going = 1, sum = 0;
      for (int exit = 0; exit < 3; ++exit) {
        std::vector<float> logits(4);
        draft.end(exit).row(1, root, logits.data());
        const std::vector<double> p = plain_distribution(logits, {});
        const double threshold = exit == 0 ? c.first : exit == 1 ? c.second : 0.0f;
        double below = 0;
        for (std::size_t x = 0; x < 4; ++x)
          if (p[x] >= threshold)
            want[x] += going * p[x];
          else
            below += p[x];
        going *= below;
        left.push_back(below);
      }
      for (std::size_t x = 0; x < 4; ++x) {
        CHECK(std::exp(static_cast<double>(row[x])) == doctest::Approx(want[x]).epsilon(1e-5));
        sum += std::exp(static_cast<double>(row[x]));
      }
      CHECK(sum == doctest::Approx(1));
      twice |= left[0] > 0 && left[0] < 1 && left[1] > 0 && left[1] < 1;
    }
  }
  CHECK(twice);
}
