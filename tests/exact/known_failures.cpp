// SPDX-License-Identifier: MIT
// labels: long optimised
// Known mistakes of published implementations. Each must show as a bias, or these tests prove nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "exact_distribution.hpp"
#include "simulated_costs.hpp"

using namespace specula;
using namespace specula_test;

namespace {

const std::vector<Token> kPrompt = {0, 1, 0, 1, 0};

template <class Rule, class Shape>
EmittedDistribution distribution_of(std::int32_t vocab, Rule rule, Shape shape, std::size_t horizon,
                                    RandomKeying keying = RandomKeying::key, std::uint64_t seed = 1) {
  ToyModel target(vocab, seed), draft(vocab, seed + 1);
  Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, shape};
  return whole_distribution(run, target, kPlain, kPrompt, horizon, keying);
}

/// What `shape` would propose in place of `tree`, with the same uniform draws. A
/// tree cannot be grown twice.
template <class S, class D, class C>
ProposalBuilder grown(S shape, D& drafter, const ProposeContext& round, const TokenTree& tree, C& rng) {
  ProposalBuilder seen(tree.vocab(), tree.capacity(), tree.capacity());
  seen.reset(tree.token(0), tree.origin(), round.max_nodes);
  specula::propose(shape, drafter, round, seen, rng).run();
  return seen;
}

/// A chain that leaves out a drawn token of low confidence: grown, inspected, and grown again without it.
struct Dropping {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  std::int32_t length = 2;
  float below = 0.5f;
  NodeCounts nodes() const { return {1 + length}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    const Chain<Draw::sampled> whole{.length = length, .exit_below = below};
    ProposalBuilder seen = grown(whole, drafter, round, tree, rng);
    const std::int32_t last = seen.size() - 1;
    const bool keeps = seen.confidence(last) >= below;
    Chain<Draw::sampled>{.length = keeps ? last : last - 1}.propose(drafter, round, tree, rng).run();
  }
};

/// Verifies as many drawn tokens as have the largest ratio of expected tokens to time, by the confidences of
/// all of them: a batch budget that looks at drafted rows before it decides what to verify.
struct BestRatio {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  NodeCounts nodes() const { return {3}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    const ProposalBuilder seen = grown(Chain<Draw::sampled>{.length = 2}, drafter, round, tree, rng);
    const double first = seen.confidence(1), second = first * seen.confidence(2);
    const std::array<double, 3> ratios{1, (1 + first) / 1.6, (1 + first + second) / 1.7};
    const auto best = std::max_element(ratios.begin(), ratios.end()) - ratios.begin();
    Chain<Draw::sampled>{.length = static_cast<std::int32_t>(best)}.propose(drafter, round, tree, rng).run();
  }
};

/// Draws from `truth`, whatever distribution is passed.
template <class C>
struct DrawsOther {
  C& rng;
  detail::TokenWeights truth;
  template <class Weights>
  Token draw(const Weights&, const RandomKey& key) {
    return rng.draw(truth, key);
  }
};

/// A draft token drawn from the draft's distribution at one temperature, recorded as drawn at another.
struct WrongDistribution {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  float drawn_at = 1, recorded_at = 1;
  NodeCounts nodes() const { return {2}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    drafter.sync(round.committed, {});
    const Token root = tree.token(0);
    const NodeId none = kNoParent;
    const auto row = drafter.extend({&root, 1}, {&none, 1}).row(0);
    detail::RowScan scan(tree.vocab());
    DrawsOther<C> other{rng, scan.weights(scan.distribution(row, {.temperature = drawn_at}))};
    tree.draw(0, tree.store(0, row, {.temperature = recorded_at}), other);
  }
};

/// Sound, with a state: a chain of two; after a chain that ended in token 0, two siblings instead. The form
/// may depend on earlier draws, provided each token has its own uniform draw.
struct Moody {
  static constexpr ProposalKind kind = ProposalKind::mixed;
  bool wide = false;
  NodeCounts nodes() const { return {3}; }
  void reset() { wide = false; }
  void learn(const TokenTree& tree, const VerifyResult&, const Timing&) {
    wide = tree.size() == 3 && tree.parent(2) == 1 && tree.token(2) == 0;
  }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    drafter.sync(round.committed, {});
    for (NodeId n = 0, parent = kNoParent; n < (wide ? 1 : 2) && tree.room() > 0; parent = n++) {
      const Token token = tree.token(n);
      const Distribution q = tree.store(n, drafter.extend({&token, 1}, {&parent, 1}).row(0), round.params);
      tree.draw(n, q, rng);
      if (wide && tree.room() > 0) tree.draw(n, q, rng);
    }
  }
};

/// A chain that ends where the next draft token would cost more than its expected gain: decided from
/// earlier draws, or, wrongly, from the draft token itself, which is then left out.
struct Thrifty {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  std::int32_t length = 3;
  double cost = 0.4;  // of a node, in tokens
  bool reads_the_token = true;
  NodeCounts nodes() const { return {1 + length}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    const ProposalBuilder seen = grown(Chain<Draw::sampled>{.length = length}, drafter, round, tree, rng);
    std::int32_t keep = 0;
    double reach = 1;
    while (keep + 1 < seen.size()) {
      const double with_it = reach * static_cast<double>(seen.confidence(keep + 1));
      if ((reads_the_token ? with_it : reach) < cost) break;
      reach = with_it, ++keep;
    }
    Chain<Draw::sampled>{.length = keep}.propose(drafter, round, tree, rng).run();
  }
};

/// The root has a child and a grandchild, and a second child only if the grandchild is token 0.
struct SiblingByGrandchild {
  static constexpr ProposalKind kind = ProposalKind::mixed;
  NodeCounts nodes() const { return {4}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    Chain<Draw::sampled>{.length = 2}.propose(drafter, round, tree, rng).run();
    if (tree.size() == 3 && tree.token(2) == 0 && tree.room() > 0)
      tree.draw(0, tree.draft_distribution(1), rng);
  }
};

/// Two children of the root; the first has one of its own only if the second is token 0.
struct ChildBySibling {
  static constexpr ProposalKind kind = ProposalKind::mixed;
  NodeCounts nodes() const { return {4}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    SampledTree<ProposalKind::sampled_distinct>{.widths = {2}}.propose(drafter, round, tree, rng).run();
    if (tree.size() < 3 || tree.token(2) != 0 || tree.room() < 1) return;
    const Token token = tree.token(1);
    const NodeId root = 0;
    tree.draw(1, tree.store(1, drafter.extend({&token, 1}, {&root, 1}).row(0), round.params), rng);
  }
};

/// Two exact rules; the drawn tokens choose between them.
struct EitherRule {
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    if (tree.kind() == ProposalKind::sampled)
      Traversal{}.decide(tree, target, rng, out);
    else
      Rejection{}.decide(tree, target, rng, out);
  }
};

/// Weights of up to 512 tokens: one tile.
struct DenseWeights {
  std::vector<double> w;
  double total = std::accumulate(w.begin(), w.end(), 0.0);
  std::int32_t vocab() const { return static_cast<std::int32_t>(w.size()); }
  double operator()(Token x) const { return w[static_cast<std::size_t>(x)]; }
  std::span<const double> tile_masses() const { return {&total, 1}; }
  void fill(std::int32_t, float* out) const {
    std::fill_n(std::copy(w.begin(), w.end(), out), detail::kTile - vocab(), 0.0f);
  }
};

/// Traversal reimplemented, optionally with the weight min(1, S / (1 - q)) after a
/// rejection, as in a public variant.
struct PlainTraversal {
  bool variant = false;
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    out.accepted.clear();
    visit(tree, target, rng, out, 0, 1);
    std::reverse(out.accepted.begin(), out.accepted.end());
  }

 private:
  template <class C>
  bool visit(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out, NodeId node,
             double weight) const {
    const Distribution distribution = target[node];
    std::vector<double> p;
    for (Token x = 0; x < tree.vocab(); ++x) p.push_back(distribution(x));
    bool found = false, rejected = false;
    tree.children(node, [&](NodeId c) {
      const Token token = tree.token(c);
      const double q = tree.draft_prob(c, token);
      found =
          visit(tree, target, rng, out, c, std::min(1.0, weight * p[static_cast<std::size_t>(token)] / q));
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
      if (node != 0 && !rng.accept(weight, tree.accept_key(node))) return false;
      out.next_token = rng.draw(DenseWeights{p}, rejected ? tree.residual_key(node) : tree.sample_key(node));
    }
    out.accepted.push_back(node);
    return true;
  }
};

/// Sample-and-match that keeps the root's weights while it reads another row.
struct KeepsWeights {
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    out.clear();
    const auto weights = target.weights(target[0]);
    if (tree.size() > 1) (void)target[1];
    out.next_token = rng.draw(weights, tree.sample_key(0));
  }
};

/// The weights of a distribution with the tile masses of another: what a view of overwritten memory is.
struct OthersMasses {
  Distribution distribution;
  std::vector<double> masses;
  std::int32_t size;
  std::int32_t vocab() const { return size; }
  double operator()(Token x) const { return distribution(x); }
  std::span<const double> tile_masses() const { return masses; }
  void fill(std::int32_t tile, float* out) const { detail::fill_tile(distribution, size, tile, out); }
};
/// The same mistake without the views that notice it: the masses of the row read last.
struct CopiesMasses {
  static constexpr bool lossless_for(ProposalKind) { return true; }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    out.clear();
    const Distribution root = target[0];
    const auto last = target.weights(target[tree.size() - 1]).tile_masses();
    out.next_token =
        rng.draw(OthersMasses{root, {last.begin(), last.end()}, tree.vocab()}, tree.sample_key(0));
  }
};
/// Enumerates by weights(x) alone, which is not what production reads.
struct ByWeightsAlone {
  ExactRandom& exact;
  bool accept(double p, const RandomKey& key) { return exact.accept(p, key); }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    std::vector<float> logs;
    for (Token x = 0; x < weights.vocab(); ++x) logs.push_back(static_cast<float>(std::log(weights(x))));
    detail::RowScan scan(weights.vocab());
    return exact.draw(scan.weights(logs, {}), key);
  }
};

/// One child of the root by each of two drafters, whose rows are kept in two slots, or the
/// second in place of the first.
struct TwoDrafts {
  static constexpr ProposalKind kind = ProposalKind::mixed;
  bool own_slot = true;
  NodeCounts nodes() const { return {3}; }
  template <class D, class C>
  void propose(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    stack.sync(round.committed, {});
    const Token root = tree.token(0);
    const NodeId none = kNoParent;
    const auto row_of = [&](auto& drafter) { return drafter.extend({&root, 1}, {&none, 1}).row(0); };
    tree.draw(0, tree.store(0, row_of(stack.head()), round.params), rng);
    if (tree.room() < 1) return;
    tree.draw(0, tree.store(own_slot ? 1 : 0, row_of(stack.tail()), round.params), rng);
  }
};

/// A chain that restarts if its token is not likely enough.
struct DropByReset {
  static constexpr ProposalKind kind = ProposalKind::sampled;
  NodeCounts nodes() const { return {2}; }
  template <class D, class C>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    Chain<Draw::sampled>{.length = 1}.propose(drafter, round, tree, rng).run();
    if (tree.confidence(1) < 2) tree.reset(tree.token(0), tree.origin());
  }
};

/// A proposal made by an engine: `parents` of its nodes, the root's first. The engine draws all tokens from
/// the draft's rows of log-probabilities.
struct EngineProposal {
  std::vector<NodeId> parents;
  bool distinct = false;        // siblings are drawn without replacement
  std::uint64_t drawn = 2;      // the draft that is drawn from
  std::uint64_t recorded = 0;   // the draft whose rows are recorded; 0: the same
  bool as_independent = false;  // recorded as independent in any case
};

/// Rows of log-probabilities (V) after texts, in memory that the engine owns and keeps.
const std::vector<float>& engine_row(std::uint64_t model, const std::vector<Token>& text) {
  static std::map<std::pair<std::uint64_t, std::vector<Token>>, std::vector<float>> rows;
  std::vector<float>& row = rows[{model, text}];
  if (row.empty()) {
    row.resize(3);
    ToyModel(3, model).row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
    const std::vector<double> p = plain_distribution(row, {});
    for (std::size_t x = 0; x < 3; ++x) row[x] = static_cast<float>(std::log(p[x]));
  }
  return row;
}

/// The largest error of the distribution of two tokens of text. The engine enumerates every proposal with
/// its probability; ExactRandom enumerates every result on it.
template <class Rule>
double engine_error(const EngineProposal& form, Rule rule) {
  const auto nodes = static_cast<std::int32_t>(form.parents.size());
  ProposalBuilder tree(3, nodes, 0);  // no row is copied
  VerifyWorkspace workspace(3, nodes);
  VerifyResult result;
  std::map<std::vector<Token>, double> distribution;
  const auto text_at = [&](const std::vector<Token>& tokens, NodeId node) {
    std::vector<Token> text;
    for (; node != kNoParent; node = form.parents[static_cast<std::size_t>(node)])
      text.insert(text.begin(), tokens[static_cast<std::size_t>(node)]);
    return text;
  };
  const auto run_rule = [&](const std::vector<Token>& tokens, double weight) {
    std::vector<float> rows;
    for (NodeId n = 0; n < nodes; ++n) {
      const std::vector<float>& row = engine_row(1, text_at(tokens, n));
      rows.insert(rows.end(), row.begin(), row.end());
    }
    ExactRandom rng;
    do {
      rng.begin();
      tree.reset(0, 0);
      for (NodeId n = 1; n < nodes; ++n) {
        const NodeId parent = form.parents[static_cast<std::size_t>(n)];
        const Distribution q{
            .logits = engine_row(form.recorded ? form.recorded : form.drawn, text_at(tokens, parent)).data()};
        const Token token = tokens[static_cast<std::size_t>(n)];
        if (form.distinct && !form.as_independent)
          tree.record_distinct(parent, token, q);
        else
          tree.record(parent, token, q);
      }
      decide_checked(rule, tree, TargetDistributions({rows.data(), nodes, 3, 3}, {}, workspace), rng, result);
      std::vector<Token> text = {0};
      for (std::size_t i = 1; i < result.accepted.size(); ++i) text.push_back(tree.token(result.accepted[i]));
      text.push_back(result.next_token);
      for (Token x = 0; x < 3; ++x) {  // a missing token is drawn from the target in the next round
        if (text.size() > 2) {
          distribution[{text[1], text[2]}] += weight * rng.weight();
          break;
        }
        distribution[{text[1], x}] +=
            weight * rng.weight() *
            std::exp(static_cast<double>(engine_row(1, text)[static_cast<std::size_t>(x)]));
      }
    } while (rng.next());
  };
  const auto draw = [&](auto self, std::vector<Token> tokens, double weight) -> void {
    const auto n = tokens.size();
    if (n == form.parents.size()) return run_rule(tokens, weight);
    const std::vector<float>& q = engine_row(form.drawn, text_at(tokens, form.parents[n]));
    std::vector<double> left(3);
    for (std::size_t x = 0; x < 3; ++x) left[x] = std::exp(static_cast<double>(q[x]));
    for (std::size_t c = 1; c < n; ++c)
      if (form.distinct && form.parents[c] == form.parents[n]) left[static_cast<std::size_t>(tokens[c])] = 0;
    const double sum = left[0] + left[1] + left[2];
    for (Token x = 0; x < 3; ++x) {
      const double p = left[static_cast<std::size_t>(x)] / sum;
      if (!(p > 0)) continue;
      tokens.push_back(x);
      self(self, tokens, weight * p);
      tokens.pop_back();
    }
  };
  draw(draw, {0}, 1);
  double error = 0;
  for (Token x = 0; x < 3; ++x)
    for (Token y = 0; y < 3; ++y) {
      const double want = std::exp(static_cast<double>(engine_row(1, {0})[static_cast<std::size_t>(x)])) *
                          std::exp(static_cast<double>(engine_row(1, {0, x})[static_cast<std::size_t>(y)]));
      error = std::max(error, std::abs(distribution[{x, y}] - want));
    }
  return error;
}

}  // namespace

TEST_CASE("leaving out what was drawn biases the text; stopping after it does not") {
  CHECK(distribution_of(2, Rejection{}, Dropping{}, 3).error > 0.01);
  CHECK(distribution_of(2, Rejection{}, Dropping{.below = 0}, 3).error < 1e-12);
  CHECK(distribution_of(2, Rejection{}, Chain<Draw::sampled>{.length = 2, .exit_below = 0.5f}, 3).error <
        1e-12);
  CHECK(distribution_of(2, SampleAndMatch{}, Dropping{}, 3).error < 1e-12);  // which never reads q
}

TEST_CASE("a budget that looks at what was drawn before it verifies: 3/4 in place of 1/2") {
  // After 2 the tokens 0 and 1 are equally likely; 2 surely follows 0, and anything may follow 1.
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> table{none, none, 0, none, 0, 0, 0, 0, 0, 0, none, none, 0, 0, 0, 0};
  const auto first_token = [&](auto shape) {
    const Arithmetic exact(Isa::reference);
    BigramModel target(table, 4), draft(table, 4);
    Speculator run{TreeVerifier{target, Rejection{}}, ModelDrafter{draft}, shape};
    ExactRandom rng;
    std::array<double, 4> law{};
    do {
      rng.begin();
      run.start(std::vector<Token>{3, 2});
      const Token token = run.step(rng)[0];
      law[static_cast<std::size_t>(token)] += rng.weight();
    } while (rng.next());
    return law;
  };
  CHECK(first_token(BestRatio{})[0] == doctest::Approx(0.75).epsilon(1e-12));
  CHECK(first_token(Chain<Draw::sampled>{.length = 2})[0] == doctest::Approx(0.5).epsilon(1e-12));
  // Drawn tokens that were to be left out are refused.
  ProposalBuilder tree(4, 3, 3);
  BigramModel draft(table, 4);
  ModelDrafter drafter{draft};
  PhiloxRandom rng{1};
  tree.reset(2, 0);
  Chain<Draw::sampled>{.length = 2}.propose(drafter, {{}, {}, 3}, tree, rng).run();
  const std::vector<std::uint8_t> none_kept(static_cast<std::size_t>(tree.size()));
  CHECK_THROWS_WITH_AS(tree.keep(none_kept),
                       "ProposalBuilder::keep: draft tokens were drawn, and must all be verified",
                       std::logic_error);
}

TEST_CASE("recording a distribution other than the one drawn from biases the text") {
  CHECK(distribution_of(3, Rejection{}, WrongDistribution{.drawn_at = 1.0f, .recorded_at = 0.5f}, 2).error >
        0.01);
  CHECK(distribution_of(3, Rejection{}, WrongDistribution{.drawn_at = 0.5f, .recorded_at = 1.0f}, 2).error >
        0.01);
  CHECK(distribution_of(3, Rejection{}, WrongDistribution{.drawn_at = 0.5f, .recorded_at = 0.5f}, 2).error <
        1e-12);  // not the target's distribution: harmless
}

TEST_CASE(
    "keys without the round's origin repeat uniform draws; an enumerator of fresh uniform draws does not "
    "detect it") {
  double biased = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const EmittedDistribution sound = distribution_of(3, Rejection{}, Moody{}, 3, RandomKeying::key, seed);
    const EmittedDistribution without =
        distribution_of(3, Rejection{}, Moody{}, 3, RandomKeying::key_without_origin, seed);
    const EmittedDistribution fresh = distribution_of(3, Rejection{}, Moody{}, 3, RandomKeying::fresh, seed);
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
    ProposalBuilder tree(2, 2, 1);
    VerifyWorkspace workspace(2, 2);
    ExactRandom rng;
    VerifyResult result;
    double zero = 0;
    do {
      rng.begin();
      tree.reset(0, 0);
      detail::RowScan scan(2);
      DrawsOther<ExactRandom> always_0{rng, scan.weights(scan.distribution(only_0, {}))};
      if (record_the_choice)
        tree.choose(0, 0, 0.6f);
      else
        tree.draw(0, tree.store(0, q, {}), always_0);
      decide_checked(Rejection{}, tree, TargetDistributions({p.data(), 2, 2, 2}, {}, workspace), rng, result);
      if ((result.accepted_count() > 0 ? tree.token(1) : result.next_token) == 0) zero += rng.weight();
    } while (rng.next());
    return zero;
  };
  CHECK(prob_of_0(false) == doctest::Approx(0.5 / 0.6).epsilon(1e-6));  // 0.833
  CHECK(prob_of_0(true) == doctest::Approx(0.5).epsilon(1e-12));
}

TEST_CASE(
    "leaving out a drawn draft token because it does not pay biases the text; not drawing it does not") {
  const Thrifty by_token{}, before{.reads_the_token = false};
  CHECK(distribution_of(3, Rejection{}, by_token, 2).error > 0.01);
  CHECK(distribution_of(3, Traversal{}, by_token, 2).error > 0.01);
  CHECK(distribution_of(3, Sampling{}, by_token, 2).error > 0.01);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CHECK(distribution_of(3, Rejection{}, before, 2, RandomKeying::key, seed).error < 1e-12);
    CHECK(distribution_of(3, Traversal{}, before, 2, RandomKeying::key, seed).error < 1e-12);
  }
}

TEST_CASE(
    "two drafts at one node: exact if each keeps its own row, refused if one would replace the other's") {
  const auto error = [](auto rule, bool own_slot) {
    ToyModel target(3, 1), first(3, 2), second(3, 3);
    Speculator run{TreeVerifier{target, rule}, Stack{ModelDrafter{first}, ModelDrafter{second}},
                   TwoDrafts{own_slot}};
    return whole_distribution(run, target, kPlain, kPrompt, 2).error;
  };
  CHECK(error(Rejection{}, true) < 1e-12);
  CHECK(error(Traversal{}, true) < 1e-12);
  CHECK_THROWS_WITH_AS(error(Rejection{}, false),
                       "ProposalBuilder: the row of node 0 cannot be replaced: node 1 was drawn from it",
                       std::invalid_argument);
}

TEST_CASE("weights kept while another row is read: refused, in one tile and in four") {
  for (const std::int32_t vocab : {6, 2000}) {
    CAPTURE(vocab);
    ToyModel target(vocab, 1), draft(vocab, 2);
    Speculator run{TreeVerifier{target, KeepsWeights{}}, ModelDrafter{draft}, Chain<>{.length = 1}};
    run.start(kPrompt);
    PhiloxRandom production(1);
    ExactRandom exact;
    exact.begin();
    const char* message = "a view of weights is stale: another row was read since";
    CHECK_THROWS_WITH_AS(run.step(production), message, std::logic_error);
    CHECK_THROWS_WITH_AS(run.step(exact), message, std::logic_error);
    CHECK(std::vector<Token>(run.text().begin(), run.text().end()) == kPrompt);
  }
}

TEST_CASE(
    "masses of another row: unnoticed where there is one tile or an enumeration reads weights alone, "
    "refused by the exact tests in three tiles") {
  const ReferenceArithmetic reference;
  const auto first_token = [](auto draws) {  // the distribution of the first token, and the target's own
    ToyModel target(3, 1), draft(3, 2);
    Speculator run{TreeVerifier{target, CopiesMasses{}}, ModelDrafter{draft}, Chain<>{.length = 1}};
    std::vector<double> seen(static_cast<std::size_t>(target.vocab_size()));
    draws([&](auto& rng, double weight) {
      run.start(kPrompt);
      run.step(rng);
      seen[static_cast<std::size_t>(run.text()[kPrompt.size()])] += weight;
    });
    double error = 0;
    const std::vector<double> want = distribution_after(target, kPrompt, kPlain);
    for (std::size_t x = 0; x < want.size(); ++x) error = std::max(error, std::abs(seen[x] - want[x]));
    return error;
  };
  const auto enumerated = [&](bool weights_alone) {
    return first_token([&](auto round) {
      ExactRandom probe, exact;
      std::vector<double> of_branch;
      do {  // a branch's weight is known at its end: two passes in the same order
        probe.begin();
        ByWeightsAlone alone{probe};
        if (weights_alone)
          round(alone, 0.0);
        else
          round(probe, 0.0);
        of_branch.push_back(probe.weight());
      } while (probe.next());
      auto weight = of_branch.begin();
      do {
        exact.begin();
        ByWeightsAlone alone{exact};
        if (weights_alone)
          round(alone, *weight++);
        else
          round(exact, *weight++);
      } while (exact.next());
    });
  };
  const auto sampled = [&] {
    return first_token([](auto round) {
      constexpr int n = 4000;
      for (std::uint32_t i = 0; i < n; ++i) {
        PhiloxRandom rng(1, i);
        round(rng, 1.0 / n);
      }
    });
  };
  CHECK(enumerated(false) < 1e-12);  // one tile has all the mass, whatever the row
  CHECK(sampled() < 0.03);
  const ThreeTiles tiles;
  CHECK(enumerated(true) < 1e-6);
  CHECK(sampled() > 0.05);
  CHECK_THROWS_AS(enumerated(false), std::logic_error);
}

TEST_CASE("a shape cannot restart its proposal; the text is kept") {
  ToyModel target(3, 1), draft(3, 2);
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, DropByReset{}};
  PhiloxRandom rng(1);
  run.start(kPrompt);
  CHECK_THROWS_WITH_AS(
      run.step(rng),
      "ProposalBuilder::reset: a shape is proposing, and tokens that it has drawn must not be dropped",
      std::logic_error);
  CHECK(std::vector<Token>(run.text().begin(), run.text().end()) == kPrompt);
}

TEST_CASE(
    "tokens that an engine drew itself: exact by the distribution that they were drawn from, biased by "
    "another") {
  const ReferenceArithmetic reference;
  const EngineProposal chain{.parents = {kNoParent, 0, 1}}, siblings{.parents = {kNoParent, 0, 0, 1}},
      distinct{.parents = {kNoParent, 0, 0, 1}, .distinct = true};
  const auto worst = [](EngineProposal form, auto rule) {
    double error = 0;
    for (const std::uint64_t draft : {2, 3, 5}) {
      form.drawn = draft;
      error = std::max(error, engine_error(form, rule));
    }
    return error;
  };
  // Rows of log-probabilities are floats: their sums are 1 within their rounding.
  CHECK(worst(chain, Block{}) < 1e-6);
  CHECK(worst(chain, Rejection{}) < 1e-6);
  CHECK(worst(siblings, Traversal{}) < 1e-6);
  CHECK(worst(siblings, Rejection{}) < 1e-6);
  CHECK(worst(siblings, KSeq{}) < 1e-6);
  CHECK(worst(distinct, Traversal{}) < 1e-6);
  CHECK(worst(distinct, Rejection{}) < 1e-6);

  EngineProposal wrong = chain;
  wrong.recorded = 7;
  CHECK(worst(wrong, Block{}) > 1e-2);
  CHECK(worst(wrong, Rejection{}) > 1e-2);
  CHECK(worst(wrong, SampleAndMatch{}) < 1e-6);  // which never reads it
  wrong = siblings, wrong.recorded = 7;
  CHECK(worst(wrong, Traversal{}) > 1e-2);
  CHECK(worst(wrong, KSeq{}) > 1e-2);
  wrong = distinct, wrong.as_independent = true;  // drawn without replacement, recorded as drawn with it
  CHECK(worst(wrong, Traversal{}) > 1e-2);
  CHECK(worst(wrong, Rejection{}) > 1e-2);
}

TEST_CASE("two exact rules of which the tokens choose one are not exact; each alone is, on the same shapes") {
  const auto error = [&](auto rule, auto shape) { return distribution_of(3, rule, shape, 2).error; };
  CHECK(error(Traversal{}, SiblingByGrandchild{}) < 1e-12);
  CHECK(error(Rejection{}, SiblingByGrandchild{}) < 1e-12);
  CHECK(error(Sampling{}, SiblingByGrandchild{}) < 1e-12);
  CHECK(error(SampleAndMatch{}, SiblingByGrandchild{}) < 1e-12);
  CHECK(error(EitherRule{}, SiblingByGrandchild{}) > 0.01);
  // The form of the tree may depend on any earlier draw in it.
  CHECK(error(Traversal{}, ChildBySibling{}) < 1e-12);
  CHECK(error(Rejection{}, ChildBySibling{}) < 1e-12);
  CHECK(error(Sampling{}, ChildBySibling{}) < 1e-12);
}

TEST_CASE("traversal with a rejected node's weight as min(1, S / (1 - q)), as a public variant has it") {
  using Distinct = SampledTree<ProposalKind::sampled_distinct>;
  const auto error = [](auto rule, auto shape) { return distribution_of(3, rule, shape, 2).error; };
  const PlainTraversal variant{.variant = true}, right{};
  CHECK(error(right, Distinct{.widths = {1, 2}}) < 1e-12);
  CHECK(error(right, Distinct{.widths = {2, 1}}) < 1e-12);
  CHECK(error(variant, Distinct{.widths = {1, 2}}) > 1e-3);
  CHECK(error(variant, Chain<Draw::sampled>{.length = 2}) > 1e-3);
}
