// labels: optimised
// Mistakes that shipped somewhere: each must be seen as a bias, or these tests prove nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

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

/// What `shape` would propose in the place of `tree`, which does not let itself be grown twice: by the same
/// coins.
template <class S, class D, class C>
TokenTree grown(S shape, D& drafter, const Round& round, const TokenTree& tree, C& chance) {
  TokenTree seen(tree.vocab(), tree.capacity(), tree.capacity());
  seen.reset(tree.token(0), tree.origin(), round.max_nodes);
  shape.propose(drafter, round, seen, chance);
  return seen;
}

/// A chain that leaves out a drawn token of low confidence: grown, looked at, and grown again without it.
struct Dropping {
  static constexpr DraftLaw law = DraftLaw::sampled;
  std::int32_t length = 2;
  float below = 0.5f;
  std::int32_t max_nodes() const { return 1 + length; }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    const Chain<Draw::sampled> whole{.length = length, .exit_below = below};
    TokenTree seen = grown(whole, drafter, round, tree, chance);
    const std::int32_t last = seen.size() - 1;
    const bool keeps = seen.confidence(last) >= below;
    Chain<Draw::sampled>{.length = keeps ? last : last - 1}.propose(drafter, round, tree, chance);
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

/// A chain that ends where the next guess would cost more than it promises: decided from what was drawn
/// before it, or, wrongly, from the guess itself, which then is left out.
struct Thrifty {
  static constexpr DraftLaw law = DraftLaw::sampled;
  std::int32_t length = 3;
  double cost = 0.4;  // of a node, in tokens
  bool looks_at_the_guess = true;
  std::int32_t max_nodes() const { return 1 + length; }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    const TokenTree seen = grown(Chain<Draw::sampled>{.length = length}, drafter, round, tree, chance);
    std::int32_t keep = 0;
    double reach = 1;
    while (keep + 1 < seen.size()) {
      const double with_it = reach * static_cast<double>(seen.confidence(keep + 1));
      if ((looks_at_the_guess ? with_it : reach) < cost) break;
      reach = with_it, ++keep;
    }
    Chain<Draw::sampled>{.length = keep}.propose(drafter, round, tree, chance);
  }
};

/// A child of the root and its child, and a second child of the root only if that grandchild is token 0.
struct SiblingByGrandchild {
  static constexpr DraftLaw law = DraftLaw::mixed;
  std::int32_t max_nodes() const { return 4; }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    Chain<Draw::sampled>{.length = 2}.propose(drafter, round, tree, chance);
    if (tree.size() == 3 && tree.token(2) == 0 && tree.room() > 0) tree.draw(0, tree.row_law(1), chance);
  }
};

/// Two children of the root; the first has one of its own only if the second is token 0.
struct ChildBySibling {
  static constexpr DraftLaw law = DraftLaw::mixed;
  std::int32_t max_nodes() const { return 4; }
  template <class D, class C>
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    SampledTree<DraftLaw::sampled_distinct>{.widths = {2}}.propose(drafter, round, tree, chance);
    if (tree.size() < 3 || tree.token(2) != 0 || tree.room() < 1) return;
    const Token token = tree.token(1);
    const NodeId root = 0;
    tree.draw(1, tree.store(1, drafter.extend({&token, 1}, {&root, 1}).row(0), round.params), chance);
  }
};

/// Two exact rules, of which what was drawn chooses one.
struct EitherRule {
  static constexpr bool exact_for(DraftLaw) { return true; }
  template <class C>
  void verify(const TokenTree& tree, const TargetLaws& target, C& chance, Verdict& out) const {
    if (tree.law() == DraftLaw::sampled)
      Traversal{}.verify(tree, target, chance, out);
    else
      Rejection{}.verify(tree, target, chance, out);
  }
};

struct DenseWeights {
  std::vector<double> w;
  std::int32_t vocab() const { return static_cast<std::int32_t>(w.size()); }
  double operator()(Token x) const { return w[static_cast<std::size_t>(x)]; }
};

/// Traversal written once more, and with the weight min(1, S / (1 - q)) of a public variant after a
/// rejection.
struct PlainTraversal {
  bool variant = false;
  static constexpr bool exact_for(DraftLaw) { return true; }
  template <class C>
  void verify(const TokenTree& tree, const TargetLaws& target, C& chance, Verdict& out) const {
    out.path.clear();
    visit(tree, target, chance, out, 0, 1);
    std::reverse(out.path.begin(), out.path.end());
  }

 private:
  template <class C>
  bool visit(const TokenTree& tree, const TargetLaws& target, C& chance, Verdict& out, NodeId node,
             double weight) const {
    const RowLaw law = target[node];
    std::vector<double> p;
    for (Token x = 0; x < tree.vocab(); ++x) p.push_back(law(x));
    bool found = false, rejected = false;
    tree.children(node, [&](NodeId c) {
      const Token token = tree.token(c);
      const double q = tree.draft_prob(c, token);
      found =
          visit(tree, target, chance, out, c, std::min(1.0, weight * p[static_cast<std::size_t>(token)] / q));
      if (found) return false;
      double left = 0;
      std::vector<double> next;
      for (Token x = 0; x < tree.vocab(); ++x)
        left +=
            next.emplace_back(std::max(0.0, weight * p[static_cast<std::size_t>(x)] - tree.draft_prob(c, x)));
      if (left > 1e-14)
        for (std::size_t x = 0; x < p.size(); ++x) p[x] = next[x] / left;
      else
        left = 0;
      const double whole = variant ? 1 - q : left + 1 - weight;
      weight = left > 0 ? std::min(1.0, left / whole) : 0;
      rejected = true;
      return true;
    });
    if (!found) {
      if (node != 0 && !chance.accept(weight, tree.accept_site(node))) return false;
      out.next = chance.draw(DenseWeights{p}, rejected ? tree.residual_site(node) : tree.sample_site(node));
    }
    out.path.push_back(node);
    return true;
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

TEST_CASE("leaving out a drawn guess because it does not pay biases the text; not drawing it does not") {
  const Thrifty by_guess{}, before{.looks_at_the_guess = false};
  CHECK(law_of(3, Rejection{}, by_guess, 2).error > 0.01);
  CHECK(law_of(3, Traversal{}, by_guess, 2).error > 0.01);
  CHECK(law_of(3, Sampling{}, by_guess, 2).error > 0.01);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CHECK(law_of(3, Rejection{}, before, 2, CoinKey::site, seed).error < 1e-12);
    CHECK(law_of(3, Traversal{}, before, 2, CoinKey::site, seed).error < 1e-12);
  }
}

TEST_CASE("two exact rules of which the tokens choose one are not exact; each alone is, on the same shapes") {
  double biased = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto error = [&](auto rule, auto shape) {
      return law_of(3, rule, shape, 2, CoinKey::site, seed).error;
    };
    CHECK(error(Traversal{}, SiblingByGrandchild{}) < 1e-12);
    CHECK(error(Rejection{}, SiblingByGrandchild{}) < 1e-12);
    CHECK(error(Sampling{}, SiblingByGrandchild{}) < 1e-12);
    CHECK(error(SampleAndMatch{}, SiblingByGrandchild{}) < 1e-12);
    biased = std::max(biased, error(EitherRule{}, SiblingByGrandchild{}));
    // The form of the tree may depend on what was drawn anywhere in it before.
    CHECK(error(Traversal{}, ChildBySibling{}) < 1e-12);
    CHECK(error(Rejection{}, ChildBySibling{}) < 1e-12);
    CHECK(error(Sampling{}, ChildBySibling{}) < 1e-12);
  }
  CHECK(biased > 0.01);
}

TEST_CASE("traversal with a rejected node's weight as min(1, S / (1 - q)), as a public variant has it") {
  using Distinct = SampledTree<DraftLaw::sampled_distinct>;
  const auto worst = [](auto rule, auto shape) {
    double error = 0;
    for (std::uint64_t seed = 1; seed <= 3; ++seed)
      error = std::max(error, law_of(3, rule, shape, 2, CoinKey::site, seed).error);
    return error;
  };
  const PlainTraversal variant{.variant = true}, right{};
  CHECK(worst(right, Distinct{.widths = {1, 2}}) < 1e-12);
  CHECK(worst(right, Distinct{.widths = {2, 1}}) < 1e-12);
  CHECK(worst(variant, Distinct{.widths = {1, 2}}) > 1e-3);
  CHECK(worst(variant, Chain<Draw::sampled>{.length = 2}) > 1e-3);
}
