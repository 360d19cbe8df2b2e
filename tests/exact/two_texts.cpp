// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact joint distribution of two texts whose passes are merged, without and with a budget in common.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "exact_distribution.hpp"
#include "toy_batch.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 2;
const std::array<std::vector<Token>, 2> kPrompts{{{0, 1, 0}, {1, 1}}};

/// One text's part of an enumeration of both: its keys are its own.
class OwnDraws {
 public:
  OwnDraws(ExactRandom& rng, std::int32_t text) : rng_(rng), text_(text) {}
  bool accept(double probability, const RandomKey& key) { return rng_.accept(probability, of(key)); }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    return rng_.draw(weights, of(key));
  }

 private:
  RandomKey of(RandomKey key) const {
    key.position += 1000 * text_;
    return key;
  }
  ExactRandom& rng_;
  std::int32_t text_;
};

/// A budget that has seen a draft be right in seven of ten cases where it is sure, in three where it is not.
BatchBudget experienced(CostCurve target, CostCurve draft) {
  BatchBudget budget(std::move(target), std::move(draft));
  ProposalBuilder tree(kVocab, 2, 0);
  VerifyResult result;
  for (int i = 0; i < 200; ++i) {
    const bool sure = i % 2 == 0;
    tree.reset(0, 0);
    tree.choose(0, 0, sure ? 0.9f : 0.5f);
    result.clear();
    if (i % 20 < (sure ? 14 : 6)) result.accepted.push_back(1);
    budget.see(tree, result);
  }
  return budget;
}

struct Joint {
  double error = 0;                // largest difference from the product of both texts' distributions
  std::map<int, double> proposed;  // nodes of the first round's proposals, of both: how likely
};

/// Enumerates both texts until each has `horizon` tokens more.
template <class Rule, class Shape>
Joint joint(Rule rule, Shape shape, const SamplingParams& params, std::size_t horizon, bool shares) {
  const Arithmetic exact(Isa::reference);
  ToyBatch target(2, kVocab, 1), draft(2, kVocab, 2);
  const ToyModel alone(kVocab, 1);
  std::array<SlotOf<ToyBatch>, 2> targets{{{target, 0}, {target, 1}}}, drafts{{{draft, 0}, {draft, 1}}};
  Speculator first{TreeVerifier{targets[0], rule, params}, ModelDrafter{drafts[0]}, shape};
  Speculator second{TreeVerifier{targets[1], rule, params}, ModelDrafter{drafts[1]}, shape};
  using Run = decltype(first);
  std::array<Run*, 2> runs{&first, &second};
  // At these prices a second draft token pays where the first one is likely to be accepted.
  const CostCurve costs({1, 1.2, 1.3, 1.4, 1.5, 1.6}), draft_costs({0.01, 0.012});

  ExactRandom rng;
  std::map<std::vector<std::vector<Token>>, double> outcomes;
  Joint out;
  do {
    rng.begin();
    using Rounds = BatchRounds<Run, OwnDraws>;
    const BatchSizes sizes{.texts = 2, .nodes = shape.nodes()};
    std::optional<Rounds> rounds;
    if (shares)
      rounds.emplace(sizes, experienced(costs, draft_costs));
    else
      rounds.emplace(sizes);
    std::vector<typename Rounds::Text> texts;
    for (std::size_t t = 0; t < 2; ++t) {
      runs[t]->forget(), runs[t]->start(kPrompts[t]);
      texts.push_back({.run = runs[t], .rng = {rng, static_cast<std::int32_t>(t)}});
    }
    int proposed = 0;
    const auto pass = [&](const MergedPass& wanted) {
      if (wanted.model == &draft) return run_pass(draft, wanted);
      if (proposed == 0)
        for (const SlotNodes& slot_nodes : wanted.nodes)
          proposed += static_cast<int>(slot_nodes.tokens.size());
      return run_pass(target, wanted);
    };
    while (true) {
      std::vector<typename Rounds::Text*> writing;
      for (std::size_t t = 0; t < 2; ++t)
        if (runs[t]->text().size() < kPrompts[t].size() + horizon) writing.push_back(&texts[t]);
      if (writing.empty()) break;
      run_round(writing, *rounds, pass);
    }
    std::vector<std::vector<Token>> both;
    for (std::size_t t = 0; t < 2; ++t) {
      const Tokens text = runs[t]->text().first(kPrompts[t].size() + horizon);
      both.emplace_back(text.begin(), text.end());
    }
    outcomes[both] += rng.weight();
    out.proposed[proposed] += rng.weight();
  } while (rng.next());

  std::array<TextDistribution, 2> want;
  for (std::size_t t = 0; t < 2; ++t) {
    want[t] = {{kPrompts[t], 1.0}};
    for (std::size_t i = 0; i < horizon; ++i) {
      TextDistribution longer;
      for (const auto& [text, weight] : want[t]) {
        const auto p = distribution_after(alone, text, params);
        for (std::size_t x = 0; x < p.size(); ++x) {
          std::vector<Token> next = text;
          next.push_back(static_cast<Token>(x));
          longer[next] = weight * p[x];
        }
      }
      want[t] = std::move(longer);
    }
  }
  double sum = 0;
  for (const auto& [a, p] : want[0])
    for (const auto& [b, q] : want[1]) {
      const auto found = outcomes.find({a, b});
      const double have = found == outcomes.end() ? 0.0 : found->second;
      out.error = std::max(out.error, std::abs(have - p * q));
      sum += have;
    }
  CHECK(sum == doctest::Approx(1).epsilon(1e-12));
  return out;
}

}  // namespace

TEST_CASE("texts of merged passes are independent, and have the target's distribution") {
  CHECK(joint(Rejection{}, Chain<Draw::sampled>{.length = 2}, kPlain, 2, false).error < 1e-12);
  CHECK(joint(SampleAndMatch{}, Chain<>{.length = 2}, kPlain, 2, false).error < 1e-12);
}

TEST_CASE("so they are with one budget, which drafts by what was drawn in both") {
  const auto law = [](auto rule, std::int32_t length, const SamplingParams& params, std::size_t horizon) {
    const Joint both = joint(rule, Chain<Draw::sampled>{.length = length}, params, horizon, true);
    CHECK(both.error < 1e-12);
    return both.proposed.size();
  };
  CHECK(law(Rejection{}, 2, kPlain, 2) == 3);  // or nothing depended on the draws
  CHECK(law(Rejection{}, 3, kPlain, 1) > 2);
  CHECK(law(Block{}, 2, kPlain, 1) == 3);
  CHECK(law(Traversal{}, 2, kWarm, 1) > 0);
  CHECK(law(SampleAndMatch{}, 2, kPlain, 2) == 3);
  CHECK(
      joint(Rejection{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2}}, kPlain, 1, true).error <
      1e-12);
}

TEST_CASE("and with chosen tokens, of which those are verified that pay over both") {
  CHECK(joint(Rejection{}, Chain<>{.length = 2}, kPlain, 2, true).error < 1e-12);
  CHECK(joint(Sampling{}, Chain<>{.length = 3}, kPlain, 3, true).error < 1e-12);
  CHECK(joint(Sampling{}, DynamicTree{.top_k = 2, .expansions = 1, .total = 4}, kPlain, 2, true).error <
        1e-12);
  CHECK(joint(Sampling{}, Cape{.length = 2, .budget = 4}, kPlain, 2, true).error < 1e-12);
}
