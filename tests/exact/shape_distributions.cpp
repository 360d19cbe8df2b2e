// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of every lossless pair of shape and rule, against the target's.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include <specula/accept/k_seq.hpp>
#include <specula/accept/typical.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "one_rule.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using GreedyChain = Chain<Draw::greedy>;
using SampledChain = Chain<Draw::sampled>;
using Iid = SampledTree<ProposalKind::sampled_iid>;
using Distinct = SampledTree<ProposalKind::sampled_distinct>;
using Drawn = StaticTree<ProposalKind::sampled_distinct>;

/// A shape that records the sizes of its proposals.
template <class S>
struct Noted : S {
  std::set<std::int32_t>* sizes;
  Noted(S shape, std::set<std::int32_t>& to) : S(std::move(shape)), sizes(&to) {}
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    S::propose(drafter, round, tree, rng).run();
    sizes->insert(tree.size());
  }
};

/// A cost-aware shape that has seen rounds before each text, so that it has an acceptance rate and counts
/// costs from the first round on. Without a rate, nodes cost nothing.
template <class S>
struct Warm : CostAware<S> {
  using CostAware<S>::CostAware;
  void reset() {
    CostAware<S>::reset();
    ProposalBuilder tree(4, 3, 0);
    VerifyResult result;
    for (const bool accepted : {true, true, false}) {
      tree.reset(0, 0);
      tree.choose(0, 1, 0.6f);
      result.clear();
      if (accepted) result.accepted.push_back(1);
      CostAware<S>::learn(tree, result, {.target = {1, 2, 1.0}, .draft = {1, 1, 0.1}});
    }
  }
};
template <class S>
Warm<S> warm(S shape, double node, double draft) {
  std::vector<double> target{1};
  while (target.size() < 8) target.push_back(target.back() + node);
  Warm<S> out(std::move(shape), CostCurve(target), CostCurve({draft}));
  out.carry(false);
  return out;
}

template <class Shape>
EmittedDistribution distribution_of(std::int32_t vocab, const OneRule& rule, Shape shape,
                                    const SamplingParams& params, std::size_t horizon, std::uint64_t seed,
                                    bool whole = false, Token stop = kNoToken) {
  ToyModel target(vocab, seed), draft(vocab, seed + 1);
  Speculator speculator{TreeVerifier{target, rule, params}, ModelDrafter{draft}, std::move(shape)};
  EndingAt run(speculator, stop);
  EmittedDistribution out = whole ? whole_distribution(run, target, params, prompt_for(vocab), horizon)
                                  : composed_distribution(run, target, params, prompt_for(vocab), horizon);
  out.ended = run.ended;
  return out;
}

/// Every rule that claims to be lossless for the shape: without and with truncation, with each token as a
/// stop token, over tokens in one tile and in three, and greedy on request. Three tiles take most of the
/// time, so without truncation they are for one rule.
template <class Shape>
void check(const Shape& shape, std::int32_t vocab, std::size_t horizon, std::uint64_t seeds = 2) {
  const auto worst = [&](const OneRule& rule) {
    double error = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed)
      error = std::max(error, distribution_of(vocab, rule, shape, kPlain, horizon, 10 * seed).error);
    const EmittedDistribution warm = distribution_of(vocab, rule, shape, kWarm, horizon, 5);
    std::int64_t ended = 0;
    for (Token stop = 0; stop < vocab; ++stop) {
      const EmittedDistribution it = distribution_of(vocab, rule, shape, kPlain, horizon, 10, false, stop);
      error = std::max(error, it.error), ended += it.ended;
    }
    CHECK(ended > 0);  // stop tokens were drafted
    const ThreeTiles wide;
    const EmittedDistribution apart = distribution_of(vocab, rule, shape, kWarm, horizon, 5);
    CHECK(apart.leaves == warm.leaves);
    return std::max({error, warm.error, apart.error});
  };
  CHECK(worst(Rejection{}) < 1e-12);
  CHECK(worst(Traversal{}) < 1e-12);
  CHECK(worst(Sampling{}) < 1e-12);
  CHECK(worst(SampleAndMatch{}) < 1e-12);
  {
    const ThreeTiles wide;
    CHECK(distribution_of(vocab, Traversal{}, shape, kPlain, horizon, 10).error < 1e-12);
  }
  if constexpr (Block::lossless_for(Shape::kind)) CHECK(worst(Block{}) < 1e-12);
  if constexpr (KSeq::lossless_for(Shape::kind)) CHECK(worst(KSeq{}) < 1e-12);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CHECK(distribution_of(vocab, Greedy{}, shape, kGreedy, horizon + 1, seed).error < 1e-12);
    CHECK(distribution_of(vocab, Sampling{}, shape, kGreedy, horizon + 1, seed).error < 1e-12);
  }
}

}  // namespace

TEST_CASE("every shape") {
  for_every_shape([](const auto& shape, const Enumerable& sizes) {
    check(shape, sizes.vocab, std::min<std::size_t>(3, sizes.horizon));
  });
}

TEST_CASE("longer chains") {
  check(GreedyChain{.length = 3}, 4, 3);
  check(SampledChain{.length = 3}, 3, 3);
  check(SampledChain{.length = 3, .exit_below = 0.5f}, 3, 3);
}

TEST_CASE("trees of likely draft tokens") {
  check(Cape{.length = 3, .budget = 8, .extras = {.counts = {3, 2, 1, 1}}}, 4, 3);
  check(Cape{.length = 3}, 3, 4);  // more runners-up asked for than there are tokens
  check(Beam{.width = 4, .length = 2}, 3, 3);
  check(DynamicTree{.top_k = 3, .expansions = 2, .total = 9}, 3, 4);
}

TEST_CASE("trees of draws, with replacement") {
  check(Iid{.widths = {3}}, 3, 2, 1);
  check(Iid{.widths = {2, 1}}, 3, 2, 1);
  check(Iid{.widths = {2, 2}}, 2, 2);
  check(Iid{.widths = {1, 2}}, 3, 3, 1);
}

TEST_CASE("trees of draws, without replacement") {
  check(Distinct{.widths = {3}}, 4, 1);
  check(Distinct{.widths = {2, 1}}, 3, 2);
  check(Distinct{.widths = {2, 2}}, 2, 3);
  check(Distinct{.widths = {3, 2}}, 2, 2);  // more children than tokens
  check(Distinct{.widths = {1, 2}}, 3, 3, 1);
}

TEST_CASE("trees of a fixed form, chosen by rank") {
  check(StaticTree<>{.form = {{1}, {2}, {1, 0}, {1, 2}}}, 3, 4);  // the likeliest is not among them
}

TEST_CASE("trees of a fixed form, drawn without replacement") {
  check(Drawn{.form = {{0}, {1}, {1, 0}, {1, 1}}}, 2, 3);  // the second draw goes on, the first does not
  check(Drawn{.form = {{0}, {0, 0}, {0, 1}, {0, 1, 0}}}, 2, 3);
  check(Drawn{.form = {{0}, {1}, {2}}}, 4, 1);
}

TEST_CASE("no room for all children: none of the last level, or only those of the first nodes") {
  for (const std::int32_t capacity : {8, 9, 10, 11}) {
    ToyModel target(2, 1, 2.0f, capacity), draft(2, 2);
    Speculator run{TreeVerifier{target, Traversal{}}, ModelDrafter{draft}, Distinct{.widths = {2, 2, 1}}};
    CHECK(composed_distribution(run, target, kPlain, prompt_for(2), 2).error < 1e-12);
    ToyModel full(2, 1, 2.0f, capacity);
    Speculator fixed{TreeVerifier{full, Traversal{}}, ModelDrafter{draft},
                     Drawn{.form = {{0}, {1}, {0, 0}, {1, 0}, {1, 1}, {0, 0, 0}, {0, 0, 1}}}};
    CHECK(composed_distribution(fixed, full, kPlain, prompt_for(2), 2).error < 1e-12);
  }
}

TEST_CASE("cost-aware: the size depends on what was drawn before, the distribution does not") {
  const auto sizes_of = [](auto shape, std::int32_t vocab, std::size_t horizon, std::size_t least) {
    std::set<std::int32_t> sizes;
    check(Noted(shape, sizes), vocab, horizon);
    CAPTURE(sizes.size());
    CHECK(sizes.size() >= least);
  };
  sizes_of(warm(SampledChain{.length = 4}, 0.3, 0.02), 2, 3, 3);
  sizes_of(warm(SampledChain{.length = 3}, 0.25, 0.02), 3, 2, 3);
  sizes_of(warm(Distinct{.widths = {1, 2, 1}}, 0.12, 0.02), 2, 2, 3);
  sizes_of(warm(Distinct{.widths = {2, 1, 1}}, 0.12, 0.02), 3, 1, 3);
  sizes_of(warm(Chain<Draw::greedy>{.length = 4}, 0.25, 0.02), 4, 3, 2);
  sizes_of(warm(Cape{.length = 3}, 0.2, 0.02), 4, 3, 3);
  sizes_of(warm(DynamicTree{.top_k = 2, .expansions = 2, .total = 6}, 0.2, 0.02), 4, 3, 3);
  sizes_of(warm(Beam{.width = 2, .length = 3}, 0.2, 0.02), 4, 3, 2);
  sizes_of(warm(StaticTree<>{.form = {{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}}}, 0.2, 0.02), 4, 3, 3);
  sizes_of(warm(Drawn{.form = {{0}, {0, 0}, {0, 1}, {0, 0, 0}}}, 0.12, 0.02), 2, 2, 3);
}

TEST_CASE("whole pipelines over several rounds: uniform draws and state count") {
  const auto whole = [](std::int32_t vocab, const OneRule& rule, auto shape, std::size_t horizon,
                        const SamplingParams& params = kPlain) {
    return distribution_of(vocab, rule, shape, params, horizon, 1, true).error;
  };
  for (const bool wide : {false, true}) {
    const ThreeTiles tiles(wide);
    CHECK(whole(3, Traversal{}, SampledChain{.length = 2}, 3) < 1e-12);
    CHECK(whole(3, Traversal{}, SampledChain{.length = 2}, 4, kWarm) < 1e-12);
    CHECK(whole(2, Block{}, SampledChain{.length = 3, .exit_below = 0.5f}, 4) < 1e-12);
    CHECK(whole(2, Sampling{}, Distinct{.widths = {2, 2}}, 3) < 1e-12);
    CHECK(whole(3, Traversal{}, Distinct{.widths = {2}}, 3) < 1e-12);
    CHECK(whole(2, Traversal{}, Iid{.widths = {2, 1}}, 3) < 1e-12);
    CHECK(whole(2, KSeq{}, Iid{.widths = {2, 1}}, 3) < 1e-12);
    CHECK(whole(3, Traversal{}, DynamicTree{.top_k = 2, .expansions = 1, .total = 4}, 4) < 1e-12);
    CHECK(whole(3, Sampling{}, Cape{.length = 2}, 4) < 1e-12);
    CHECK(whole(3, Sampling{}, StaticTree<>{.form = {{0}, {1}, {0, 0}}}, 4) < 1e-12);
    CHECK(whole(2, Traversal{}, Drawn{.form = {{0}, {1}, {1, 0}}}, 3) < 1e-12);
  }

  std::set<std::int32_t> sizes;
  const auto cheap = [&](auto shape, double node) {
    CostAware out(shape, CostCurve({1, 1 + node, 1 + 2 * node}), CostCurve({0.02}));
    out.carry(false);
    sizes.clear();
    return Noted(out, sizes);
  };
  CHECK(whole(2, Traversal{}, cheap(SampledChain{.length = 3}, 0.45), 5) < 1e-12);
  CHECK(sizes.size() > 1);
  CHECK(whole(2, Rejection{}, cheap(SampledChain{.length = 3}, 0.45), 5) < 1e-12);
  CHECK(whole(2, Sampling{}, cheap(Distinct{.widths = {2, 1}}, 0.22), 4) < 1e-12);
  CHECK(sizes.size() > 1);
  CHECK(whole(3, Sampling{}, cheap(Cape{.length = 2}, 0.3), 4) < 1e-12);
  CHECK(sizes.size() > 1);
}

TEST_CASE("a chain is a tree with one branch: the same distribution, the same tokens in a round") {
  const auto round = [](const OneRule& rule, auto shape, const SamplingParams& params, std::uint64_t seed) {
    return distribution_of(3, rule, shape, params, 1, seed, true);
  };
  const SampledChain chain{.length = 3};
  const Distinct distinct{.widths = {1, 1, 1}};
  const Iid iid{.widths = {1, 1, 1}};
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const SamplingParams& params : {kPlain, kWarm}) {
      const auto same = [&](const OneRule& rule) {
        const EmittedDistribution one = round(rule, chain, params, seed);
        CHECK(one.error < 1e-12);
        for (const EmittedDistribution& other :
             {round(rule, distinct, params, seed), round(rule, iid, params, seed)}) {
          CHECK(other.error < 1e-12);
          CHECK(other.mat == doctest::Approx(one.mat).epsilon(1e-12));
          CHECK(other.leaves == one.leaves);
        }
        return one.mat;
      };
      const double token = same(Rejection{}), traversal = same(Traversal{});
      same(SampleAndMatch{});
      CHECK(same(Sampling{}) == doctest::Approx(traversal).epsilon(1e-12));
      CHECK(round(Block{}, chain, params, seed).mat == doctest::Approx(traversal).epsilon(1e-12));
      CHECK(round(KSeq{}, iid, params, seed).mat == doctest::Approx(token).epsilon(1e-12));
      CHECK(traversal > token + 1e-3);  // since it verifies the path as a whole
    }
}

TEST_CASE("traversal accepts more than rejection, also on trees") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto mat = [&](const OneRule& rule, auto shape) {
      return distribution_of(3, rule, shape, kPlain, 1, seed, true).mat;
    };
    const Distinct distinct{.widths = {2, 1}};
    const Iid iid{.widths = {2, 1}};
    CHECK(mat(Traversal{}, distinct) > mat(Rejection{}, distinct) + 1e-3);
    CHECK(mat(Traversal{}, iid) > mat(Rejection{}, iid) + 1e-3);
  }
}

// The complete table of what each rule is lossless for.
template <class Rule>
constexpr bool exactly(bool deterministic, bool sampled, bool iid, bool distinct, bool mixed, bool shared) {
  return Rule::lossless_for(ProposalKind::deterministic) == deterministic &&
         Rule::lossless_for(ProposalKind::sampled) == sampled &&
         Rule::lossless_for(ProposalKind::sampled_iid) == iid &&
         Rule::lossless_for(ProposalKind::sampled_distinct) == distinct &&
         Rule::lossless_for(ProposalKind::mixed) == mixed &&
         Rule::lossless_for(ProposalKind::shared) == shared;
}
static_assert(exactly<Greedy>(true, true, true, true, true, true));
static_assert(exactly<SampleAndMatch>(true, true, true, true, true, true));
static_assert(exactly<Rejection>(true, true, true, true, true, false));
static_assert(exactly<Traversal>(true, true, true, true, true, false));
static_assert(exactly<Sampling>(true, true, true, true, true, false));
static_assert(exactly<Block>(false, true, false, false, false, false));
static_assert(exactly<KSeq>(false, false, true, false, false, false));
static_assert(exactly<GumbelCoupling>(true, true, true, true, true, true));
static_assert(exactly<Lenient>(false, false, false, false, false, false));
static_assert(exactly<Typical>(false, false, false, false, false, false));

// The proposal kind of every shape.
static_assert(GreedyChain::kind == ProposalKind::deterministic &&
              SampledChain::kind == ProposalKind::sampled &&
              Chain<Draw::shared>::kind == ProposalKind::shared);
static_assert(Cape::kind == ProposalKind::deterministic && Beam::kind == ProposalKind::deterministic &&
              DynamicTree::kind == ProposalKind::deterministic);
static_assert(StaticTree<>::kind == ProposalKind::deterministic &&
              Drawn::kind == ProposalKind::sampled_distinct);
static_assert(Iid::kind == ProposalKind::sampled_iid && Distinct::kind == ProposalKind::sampled_distinct);
static_assert(CostAware<Iid>::kind == Iid::kind && CostAware<Cape>::kind == Cape::kind);
