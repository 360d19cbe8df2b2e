// SPDX-License-Identifier: MIT
// labels: slow optimised
// Known mistakes in cascades. Each must show as a bias, or the tests of their distributions prove nothing.
#include <doctest/doctest.h>

#include <vector>

#include "exact_distribution.hpp"
#include "hash_gram.hpp"

using namespace specula;
using namespace specula_test;

namespace {

const std::vector<Token> kPrompt = {0, 1, 0, 1, 0};

/// One draft token of a stack's tail, reviewed by its head with lenience, then recorded as drawn
/// from the head's distribution.
struct NaiveReview {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  double lenience = 1;
  NodeCounts nodes() const { return {2}; }
  template <class D, class C>
  void propose(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    const Token root = tree.token(0);
    const NodeId none = kNoParent;
    const auto row_of = [&](auto& drafter) {
      drafter.sync(round.committed, {});
      const auto row = drafter.extend({&root, 1}, {&none, 1}).row(0);
      return std::vector<float>(row.begin(), row.end());
    };
    const std::vector<float> head_row = row_of(stack.head()), tail_row = row_of(stack.tail());
    ProposalBuilder reviewed(tree.vocab(), 2, 2);
    reviewed.reset(root, tree.origin());
    reviewed.draw(0, reviewed.store(0, tail_row, round.params), rng);
    review(reviewed, 1, head_row, round.params, lenience, rng);
    Returns<C> same{reviewed.token(1)};
    tree.draw(0, tree.store(0, head_row, round.params), same);
  }
  template <class C>
  struct Returns {
    Token token;
    template <class Weights>
    Token draw(const Weights&, const RandomKey&) {
      return token;
    }
  };
};

template <class Rule, class Shape>
EmittedDistribution distribution_of_stack(std::int32_t vocab, Rule rule, Shape shape, std::size_t horizon,
                                          RandomKeying keying = RandomKeying::key, std::uint64_t seed = 1) {
  ToyModel target(vocab, seed), first(vocab, seed + 1), second(vocab, seed + 2);
  Speculator run{TreeVerifier{target, rule}, Stack{ModelDrafter{first}, ModelDrafter{second}}, shape};
  return whole_distribution(run, target, kPlain, kPrompt, horizon, keying);
}

}  // namespace

TEST_CASE("recording the reviewer's distribution instead of q_eff biases the text, if it is lenient") {
  for (const std::uint64_t seed : {1, 4}) {
    const double naive =
        distribution_of_stack(2, Rejection{}, NaiveReview{.lenience = 3}, 3, RandomKeying::key, seed).error;
    MESSAGE("q instead of q_eff at lenience 3: off by " << naive);
    CHECK(naive > 1e-2);
    CHECK(
        distribution_of_stack(2, Rejection{}, NaiveReview{.lenience = 1}, 3, RandomKeying::key, seed).error <
        1e-12);
    CHECK(distribution_of_stack(2, Rejection{}, Vertical<2, Draw::sampled>{.length = 1, .lenience = 3}, 3,
                                RandomKeying::key, seed)
              .error < 1e-12);
  }
}

TEST_CASE("levels of a cascade that share uniform draws, and uniform draws without origin") {
  ToyModel target(2, 3), first(2, 4), second(2, 5);
  const auto off = [&](RandomKeying keying) {
    Speculator run{TreeVerifier{target, Block{}}, Stack{ModelDrafter{first}, HashGram(2, 6)},
                   Vertical<2, Draw::sampled>{.reviews = 2, .length = 1, .lenience = 3}};
    return whole_distribution(run, target, kPlain, kPrompt, 3, keying);
  };
  CHECK(off(RandomKeying::key).error < 1e-12);
  const EmittedDistribution origin = off(RandomKeying::key_without_origin);
  CHECK(origin.error > 1e-3);

  const auto three = [&](RandomKeying keying) {
    Speculator run{TreeVerifier{target, Rejection{}},
                   Stack{ModelDrafter{first}, ModelDrafter{second}, HashGram(2, 6)},
                   Cascade<3, Draw::sampled>{.limits = {{{2, 0, 0}, {0, 1, 0}, {0, 0, 1}}}, .lenience = 3}};
    return whole_distribution(run, target, kPlain, kPrompt, 2, keying);
  };
  CHECK(three(RandomKeying::key).error < 1e-12);
  CHECK(three(RandomKeying::key).reused == 0);
  const EmittedDistribution levels = three(RandomKeying::key_without_counter);
  MESSAGE("levels that share uniform draws: off by " << levels.error << "; no origin: " << origin.error);
  CHECK(levels.error > 1e-3);
  CHECK(levels.reused > 0);
}
