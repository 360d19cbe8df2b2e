// SPDX-License-Identifier: MIT
// labels: optimised
// CostAware: proposals limited to draft tokens that pay, under simulated costs.

#include <specula/shape/cost_aware.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "simulated_costs.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 40;
constexpr int kRounds = 3000, kWarm = 500;

/// Two cores, a GPU, tiles of 16 nodes, a machine on which drafting never pays, and drafts that are too
/// expensive.
const Cost kTwoCores = [](std::int32_t n) { return n == 1 ? 1.0 : n == 2 ? 1.2 : 1.33 + 0.37 * (n - 3); };
const Cost kGpu = [](std::int32_t n) { return 1 + 0.0005 * n; };
const Cost kStairs = [](std::int32_t n) { return 1 + 0.3 * ((n - 1) / 16); };
const Cost kLinear = [](std::int32_t n) { return 1.0 * n; };
const Cost kCheapDraft = [](std::int32_t n) { return 0.05 + 0.001 * n; };
const Cost kDearDraft = [](std::int32_t) { return 0.9; };

Simulated run(auto shape, const Tables& tables, const Cost& target, const Cost& draft) {
  return simulate(tables, Sampling{}, shape, target, draft, kRounds, kWarm);
}

/// The best of the fixed chains, plain decoding among them.
template <Draw mode>
double best_chain(const Tables& tables, const Cost& target, const Cost& draft) {
  double best = 0;
  for (const std::int32_t length : {0, 1, 2, 3, 4, 6, 8})
    best = std::max(best, run(Chain<mode>{.length = length}, tables, target, draft).rate);
  return best;
}

const Cape kWideCape{.length = 8, .budget = 60, .extras = CapeExtras::fixed(7)};

}  // namespace

TEST_CASE("a cost-aware chain is within 3% of the best fixed length, for any cost of nodes") {
  for (const double noise : {1.0, 2.5}) {
    const Tables tables = similar_tables(kVocab, 1.6, noise, 5);
    for (const Cost& cost : {kTwoCores, kGpu, kStairs, kLinear}) {
      const double best = best_chain<Draw::greedy>(tables, cost, kCheapDraft);
      CHECK(run(CostAware(Chain<>{.length = 8}), tables, cost, kCheapDraft).rate > 0.97 * best);
    }
    const double best = best_chain<Draw::sampled>(tables, kTwoCores, kCheapDraft);
    CHECK(run(CostAware(Chain<Draw::sampled>{.length = 8}), tables, kTwoCores, kCheapDraft).rate >
          0.965 * best);
  }
}

TEST_CASE("the same shape is narrow if nodes cost time and wide if they do not") {
  const Tables tables = similar_tables(kVocab, 1.6, 1.0, 5);
  const Simulated narrow = run(CostAware(kWideCape), tables, kTwoCores, kCheapDraft),
                  stairs = run(CostAware(kWideCape), tables, kStairs, kCheapDraft),
                  wide = run(CostAware(kWideCape), tables, kGpu, kCheapDraft);
  CHECK(narrow.nodes < 2);
  CHECK(stairs.nodes > 8);
  CHECK(stairs.nodes < 15.5);  // 16 with the root: the first step
  CHECK(wide.nodes > 15);
  for (const Cost& cost : {kTwoCores, kStairs, kGpu}) {
    double best = best_chain<Draw::greedy>(tables, cost, kCheapDraft);
    best = std::max({best, run(Cape{}, tables, cost, kCheapDraft).rate,
                     run(kWideCape, tables, cost, kCheapDraft).rate,
                     run(Cape{.length = 2, .extras = CapeExtras::fixed(1)}, tables, cost, kCheapDraft).rate});
    CHECK(run(CostAware(kWideCape), tables, cost, kCheapDraft).rate > 0.97 * best);
  }
}

TEST_CASE("trees are trimmed to the nodes that pay") {
  const Tables tables = similar_tables(kVocab, 1.6, 1.0, 5);
  const DynamicTree tree{.top_k = 8, .expansions = 4, .total = 59};
  CHECK(run(CostAware(tree), tables, kGpu, kCheapDraft).rate >
        0.97 * run(tree, tables, kGpu, kCheapDraft).rate);
  CHECK(run(CostAware(tree), tables, kTwoCores, kCheapDraft).rate >
        5 * run(tree, tables, kTwoCores, kCheapDraft).rate);
  CHECK(run(CostAware(tree), tables, kTwoCores, kCheapDraft).rate > 1.05);  // and plain decoding is 1
  CHECK(run(CostAware(Beam{}), tables, kTwoCores, kCheapDraft).rate > 1.05);
  using Drawn = SampledTree<ProposalKind::sampled_distinct>;
  CHECK(run(CostAware(Drawn{}), tables, kGpu, kCheapDraft).rate >
        0.97 * run(Drawn{}, tables, kGpu, kCheapDraft).rate);
  CHECK(run(CostAware(Drawn{}), tables, kTwoCores, kCheapDraft).rate > 0.97);
}

TEST_CASE("if drafting does not pay, it decodes plainly, with occasional trials") {
  const Tables tables = similar_tables(kVocab, 1.6, 2.5, 5);
  const Simulated hopeless = run(CostAware(Chain<>{.length = 8}), tables, kLinear, kCheapDraft);
  CHECK(hopeless.rate > 0.97);
  CHECK(hopeless.nodes < 0.1);
  const double plain = run(Chain<>{.length = 0}, tables, kGpu, kDearDraft).rate;
  CHECK(run(CostAware(Chain<>{.length = 8}), tables, kGpu, kDearDraft).rate > 0.97 * plain);
}

TEST_CASE("noisy measurements, and outliers of ten times, do no harm") {
  const Tables tables = similar_tables(kVocab, 1.6, 1.0, 5);
  for (const Cost& cost : {kTwoCores, kGpu}) {
    double best = 0, reached = 0;
    for (const std::uint64_t seed : {9, 10, 11, 12}) {
      const auto random = std::make_shared<Random>(seed);
      const auto noisy = [&](const Cost& of) {
        return [of, random](std::int32_t n) {
          return of(n) * (random->bernoulli(0.02) ? 10.0 : random->between(0.9, 1.3));
        };
      };
      // All have the same noise; compared is the true cost of the proposals.
      double fixed = 0;
      for (const std::int32_t length : {0, 1, 2, 3, 4, 8})
        fixed = std::max(fixed, run(Chain<>{.length = length}, tables, noisy(cost), noisy(kCheapDraft)).rate);
      best += fixed;
      reached += run(CostAware(Chain<>{.length = 8}), tables, noisy(cost), noisy(kCheapDraft)).rate;
    }
    CHECK(reached > 0.94 * best);
  }
}

TEST_CASE("a change of the machine is detected") {
  const Tables tables = similar_tables(kVocab, 1.6, 1.0, 5);
  BigramModel target(tables.target, kVocab, 1 << 20), draft(tables.draft, kVocab, 1 << 20);
  bool busy = false;
  const Cost changing = [&](std::int32_t n) { return busy ? kTwoCores(n) : kGpu(n); };
  using V = TreeVerifier<BigramModel, Sampling>;
  using D = ModelDrafter<BigramModel>;
  Speculator run{SimulatedVerifier<V>(V{target, Sampling{}}, changing),
                 SimulatedDrafter<D>(D{draft}, kCheapDraft), CostAware(kWideCape)};
  PhiloxRandom rng(2);
  // in texts of 100 rounds: in one text a long pause makes the draft's catch-up too expensive to try again
  const auto nodes_over = [&](int rounds) {
    const std::int64_t before = run.stats().proposed;
    for (int i = 0; i < rounds; ++i) {
      if (i % 100 == 0) run.start(std::vector<Token>{1, 2, 3});
      run.step(rng);
    }
    return static_cast<double>(run.stats().proposed - before) / rounds;
  };
  nodes_over(500);
  CHECK(nodes_over(200) > 12);
  busy = true;
  nodes_over(1500);
  CHECK(nodes_over(500) < 2.5);
  busy = false;
  nodes_over(3000);
  CHECK(nodes_over(500) > 8);
}

TEST_CASE(
    "with given curves nothing depends on the clock; with learned ones sample-and-match keeps the text") {
  const Tables tables = similar_tables(kVocab, 1.6, 1.0, 5);
  const auto text = [&](auto rule, auto shape, std::uint64_t clock_seed) {
    BigramModel target(tables.target, kVocab, 1 << 16), draft(tables.draft, kVocab, 1 << 16);
    const auto random = std::make_shared<Random>(clock_seed);
    const Cost jitter = [random](std::int32_t n) { return (1 + 0.2 * n) * random->between(0.2, 3); };
    using V = TreeVerifier<BigramModel, decltype(rule)>;
    using D = ModelDrafter<BigramModel>;
    Speculator run{SimulatedVerifier<V>(V{target, rule}, jitter), SimulatedDrafter<D>(D{draft}, jitter),
                   shape};
    std::vector<Token> out;
    run.generate(std::vector<Token>{1, 2, 3}, {.max_new_tokens = 400}, PhiloxRandom{4},
                 [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
    return out;
  };
  using Sampled = Chain<Draw::sampled>;
  const CostCurve target({1, 1.2, 1.4, 1.8, 2.2}), draft({0.1});
  CHECK(text(Rejection{}, CostAware(Sampled{.length = 4}, target, draft), 1) ==
        text(Rejection{}, CostAware(Sampled{.length = 4}, target, draft), 2));
  CHECK(text(Rejection{}, CostAware(Sampled{.length = 4}), 1) !=
        text(Rejection{}, CostAware(Sampled{.length = 4}), 2));
  const auto plain = text(SampleAndMatch{}, Chain<>{.length = 0}, 1);
  CHECK(text(SampleAndMatch{}, CostAware(Sampled{.length = 4}), 1) == plain);
  CHECK(text(SampleAndMatch{}, CostAware(kWideCape), 2) == plain);
  CHECK(text(Sampling{}, CostAware(Chain<>{.length = 6}), 3) == plain);
}

TEST_CASE("point masses have learned acceptance, too: a drafter that is always wrong is not used") {
  struct Wrong {  // one token per node, never the target's
    std::vector<Token> tokens;
    std::int32_t vocab_size() const { return kVocab; }
    std::int32_t capacity() const { return 1 << 20; }
    void truncate(std::int32_t) {}
    void sync(Tokens, Tokens) {}
    PointMasses extend(Tokens asked, Nodes) {
      tokens.assign(asked.size(), kVocab - 1);
      return {tokens};
    }
  };
  Tables tables = similar_tables(kVocab, 1.6, 1.0, 5);
  for (std::int32_t row = 0; row < kVocab; ++row)
    tables.target[static_cast<std::size_t>(row * kVocab + kVocab - 1)] = -1e4f;
  BigramModel target(tables.target, kVocab, 1 << 20);
  using V = TreeVerifier<BigramModel, Sampling>;
  Speculator run{SimulatedVerifier<V>(V{target, Sampling{}}, kTwoCores), Wrong{},
                 CostAware(Chain<>{.length = 8})};
  PhiloxRandom rng(2);
  run.start(std::vector<Token>{1, 2, 3});
  for (int i = 0; i < 200; ++i) run.step(rng);
  const std::int64_t before = run.stats().proposed;
  for (int i = 0; i < 400; ++i) run.step(rng);
  CHECK(run.stats().proposed - before < 100);
}

TEST_CASE("reset() keeps the costs, and resets acceptance only on request") {
  CostAware shape(Chain<>{.length = 3});
  ProposalBuilder tree(4, 4, 0);
  VerifyResult result;
  result.clear();
  for (int i = 0; i < 50; ++i) {
    tree.reset(0, 0);
    tree.choose(0, 1, 0.9f);
    shape.learn(tree, result, {.target = {1, 2, 0.5}, .draft = {1, 1, 0.1}});
  }
  CHECK(shape.budget().estimator().accept_probability(0.9) < 0.25);
  CHECK(shape.budget().rate() > 0);
  shape.reset();
  CHECK(shape.budget().estimator().accept_probability(0.9) < 0.25);
  shape.carry(false).reset();
  CHECK(shape.budget().estimator().accept_probability(0.9) == doctest::Approx(0.9));
  CHECK(shape.budget().balance() == Balance::kAtFirst);
  CHECK(shape.budget().target_costs().knows(2));
}

static_assert(ProposalShape<CostAware<Chain<>>, ModelDrafter<BigramModel>>);
static_assert(CostAware<Chain<Draw::sampled>>::kind == ProposalKind::sampled);
