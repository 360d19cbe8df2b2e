// Mistakes that shipped somewhere: each must be seen as a bias, or these tests prove nothing.
#include <doctest/doctest.h>

#include <utility>

#include "exact_law.hpp"

using namespace specula;
using namespace specula_test;

namespace {

const SamplingParams kPlain{};
const std::vector<Token> kPrompt = {0, 1, 0, 1, 0};

template <class Rule, class Shape>
Law law_of(std::int32_t vocab, Rule rule, Shape shape, std::size_t horizon, CoinKey key = CoinKey::site,
           std::uint64_t seed = 1) {
  ToyModel target(vocab, seed), draft(vocab, seed + 1);
  Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, shape};
  return whole_law(run, target, kPlain, kPrompt, horizon, key);
}

/// A chain that leaves out a drawn token of low confidence: grown, looked at, and grown again without it by
/// the same coins.
struct Dropping {
  static constexpr DraftLaw law = DraftLaw::sampled;
  std::int32_t length = 2;
  float below = 0.5f;
  std::int32_t max_nodes() const { return 1 + length; }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    Chain<Draw::sampled>{.length = length, .exit_below = below}.propose(drafter, round, tree, chance);
    const std::int32_t last = tree.size() - 1;
    if (tree.confidence(last) >= below) return;
    tree.reset(tree.token(0), tree.origin(), round.max_nodes);
    Chain<Draw::sampled>{.length = last - 1}.propose(drafter, round, tree, chance);
  }
};

/// Draws from `truth` whatever it is asked to draw from.
template <class C>
struct DrawsOther {
  C& chance;
  detail::LawWeights truth;
  template <class Weights>
  Token draw(const Weights&, const Site& site) {
    return chance.draw(truth, site);
  }
};

/// A guess drawn from the draft's law at one temperature, recorded as drawn at another.
struct WrongLaw {
  static constexpr DraftLaw law = DraftLaw::sampled;
  float drawn_at = 1, recorded_at = 1;
  std::int32_t max_nodes() const { return 2; }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    drafter.sync(round.context, {});
    const Token root = tree.token(0);
    const NodeId none = kNoParent;
    const auto row = drafter.extend({&root, 1}, {&none, 1}).row(0);
    detail::RowScan scan(tree.vocab());
    DrawsOther<C> other{chance, scan.weights(scan.law(row, {.temperature = drawn_at}))};
    tree.draw(0, tree.store(0, row, {.temperature = recorded_at}), other);
  }
};

/// Sound, with a state: a chain of two, and after one that ended in token 0, two siblings instead. What it
/// then draws may depend on what was drawn before, as long as it is drawn with a coin of its own.
struct Moody {
  static constexpr DraftLaw law = DraftLaw::mixed;
  bool wide = false;
  std::int32_t max_nodes() const { return 3; }
  void reset() { wide = false; }
  void learn(const TokenTree& tree, const Verdict&) {
    wide = tree.size() == 3 && tree.parent(2) == 1 && tree.token(2) == 0;
  }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    drafter.sync(round.context, {});
    for (NodeId n = 0, parent = kNoParent; n < (wide ? 1 : 2) && tree.room() > 0; parent = n++) {
      const Token token = tree.token(n);
      const RowLaw q = tree.store(n, drafter.extend({&token, 1}, {&parent, 1}).row(0), round.params);
      tree.draw(n, q, chance);
      if (wide && tree.room() > 0) tree.draw(n, q, chance);
    }
  }
};

}  // namespace

TEST_CASE("leaving out what was drawn biases the text; stopping after it does not") {
  CHECK(law_of(2, Rejection{}, Dropping{}, 3).error > 0.01);
  CHECK(law_of(2, Rejection{}, Dropping{.below = 0}, 3).error < 1e-12);
  CHECK(law_of(2, Rejection{}, Chain<Draw::sampled>{.length = 2, .exit_below = 0.5f}, 3).error < 1e-12);
  CHECK(law_of(2, SampleAndMatch{}, Dropping{}, 3).error < 1e-12);  // which never looks at q
}

TEST_CASE("recording another law than the one drawn from biases the text") {
  CHECK(law_of(3, Rejection{}, WrongLaw{.drawn_at = 1.0f, .recorded_at = 0.5f}, 2).error > 0.01);
  CHECK(law_of(3, Rejection{}, WrongLaw{.drawn_at = 0.5f, .recorded_at = 1.0f}, 2).error > 0.01);
  CHECK(law_of(3, Rejection{}, WrongLaw{.drawn_at = 0.5f, .recorded_at = 0.5f}, 2).error <
        1e-12);  // not the target's: no matter
}

TEST_CASE("sites without the round's origin bring coins back; an enumerator of fresh coins does not see it") {
  double biased = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Law sound = law_of(3, Rejection{}, Moody{}, 3, CoinKey::site, seed);
    const Law without = law_of(3, Rejection{}, Moody{}, 3, CoinKey::site_without_origin, seed);
    const Law fresh = law_of(3, Rejection{}, Moody{}, 3, CoinKey::fresh, seed);
    CHECK(sound.error < 1e-12);
    CHECK(sound.reused == 0);
    CHECK(without.reused > 0);
    CHECK(fresh.error < 1e-12);
    biased = std::max(biased, without.error);
  }
  CHECK(biased > 1e-3);
}

TEST_CASE("tokens picked deterministically but tested with p / q, as llama.cpp's tree example does") {
  const ReferenceArithmetic reference;
  const std::vector<float> p = {std::log(0.5f), std::log(0.5f), /**/ 0, 0},
                           q = {std::log(0.6f), std::log(0.4f)}, only_0 = {0, -1e4f};
  const auto prob_of_0 = [&](bool record_the_choice) {
    TokenTree tree(2, 2, 1);
    VerifyWorkspace workspace(2, 2);
    ExactChance chance;
    Verdict verdict;
    double zero = 0;
    do {
      chance.begin();
      tree.reset(0, 0);
      detail::RowScan scan(2);
      DrawsOther<ExactChance> always_0{chance, scan.weights(scan.law(only_0, {}))};
      if (record_the_choice)
        tree.choose(0, 0, 0.6f);
      else
        tree.draw(0, tree.store(0, q, {}), always_0);
      Rejection{}.verify(tree, TargetLaws({p.data(), 2, 2, 2}, {}, workspace), chance, verdict);
      if ((verdict.accepted() > 0 ? tree.token(1) : verdict.next) == 0) zero += chance.weight();
    } while (chance.next());
    return zero;
  };
  CHECK(prob_of_0(false) == doctest::Approx(0.5 / 0.6).epsilon(1e-6));  // .833
  CHECK(prob_of_0(true) == doctest::Approx(0.5).epsilon(1e-12));
}
