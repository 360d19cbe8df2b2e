// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include examples/05_own_rule.cpp && ./a.out
//
// A rule of your own, and its proof: all outcomes of its draws, which must add up to the target's p.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <specula/specula.hpp>

using namespace specula;

/// Rejection sampling of a chain: accepts x with probability min(1, p(x) / q(x)), else draws norm((p - q)+).
struct TokenByToken {
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }
  template <class C>
  void decide(const TokenTree& tree, const TargetDistributions& target, C& rng, VerifyResult& out) const {
    out.clear();  // the accepted path is the root alone
    for (NodeId at = 0;; at = out.accepted.back()) {
      const Distribution p = target[at];
      const NodeId child = tree.first_child(at);
      if (child == kNoParent) {  // all draft tokens were accepted
        out.next_token = target.sample(p, tree.sample_key(at), rng);
        return;
      }
      const Token x = tree.token(child);
      if (!rng.accept(p(x) / tree.draft_prob(child, x), tree.accept_key(child))) {
        auto residual = target.residual(p);
        residual.reject(tree, child);
        out.next_token = rng.draw(residual.measured(), tree.residual_key(at));
        return;
      }
      out.accepted.push_back(child);
    }
  }
};
static_assert(AcceptanceRule<TokenByToken>);

/// In place of random numbers: every outcome of every draw, by weights(x). Throws if the tiles of 512 tokens
/// and their masses, by which PhiloxRandom draws, say something else.
class EveryOutcome {
 public:
  double weight = 1;  // the probability of this outcome
  void begin() { depth_ = 0, weight = 1; }
  bool next() {  // false after the last one
    while (!trail_.empty() && !possible(trail_.back(), trail_.back().pick + 1)) trail_.pop_back();
    return !trail_.empty();
  }
  bool accept(double probability, const RandomKey&) {
    const double p = std::clamp(probability, 0.0, 1.0);
    return choose({p, 1 - p}) == 0;
  }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey&) {
    std::vector<double> p;
    double total = 0;
    for (Token x = 0; x < weights.vocab(); ++x) total += p.emplace_back(weights(x));
    for (std::size_t t = 0; 512 * t < p.size(); ++t) {
      std::array<float, 512> tile;
      weights.fill(static_cast<std::int32_t>(t), tile.data());
      double mass = 0, apart = 0;
      for (std::size_t x = 512 * t; x < std::min(512 * (t + 1), p.size()); mass += p[x++])
        apart = std::max(apart, std::abs(static_cast<double>(tile[x % 512]) - p[x]));
      if (std::max(apart, std::abs(weights.tile_masses()[t] - mass)) > 1e-4) throw std::logic_error("tiles");
    }
    for (double& x : p) x /= total;
    return static_cast<Token>(choose(p));
  }

 private:
  struct Choice {
    std::vector<double> distribution;
    std::size_t pick = 0;
  };
  static bool possible(Choice& choice, std::size_t from) {
    for (choice.pick = from; choice.pick < choice.distribution.size(); ++choice.pick)
      if (choice.distribution[choice.pick] > 0) return true;
    return false;
  }
  std::size_t choose(std::vector<double> distribution) {
    if (depth_ == trail_.size()) possible(trail_.emplace_back(Choice{std::move(distribution)}), 0);
    const Choice& choice = trail_[depth_++];
    weight *= choice.distribution[choice.pick];
    return choice.pick;
  }
  std::vector<Choice> trail_;
  std::size_t depth_ = 0;
};

int main() {
  constexpr std::int32_t kVocab = 1201;                               // three possible tokens, in three tiles
  std::vector<float> q(kVocab, -INFINITY), p(2 * kVocab, -INFINITY);  // p: after the root, after its child
  for (std::size_t i = 0; i < 3; ++i) {
    q[600 * i] = std::array{0.3f, -0.5f, 1.0f}[i];
    p[600 * i] = p[kVocab + 600 * i] = std::array{1.0f, 0.0f, -1.0f}[i];
  }
  ProposalBuilder tree(kVocab, /*nodes*/ 2, /*stored rows*/ 2);
  VerifyWorkspace workspace(kVocab, 2);
  const TargetDistributions target({p.data(), 2, kVocab, kVocab}, {}, workspace);
  VerifyResult result;
  std::vector<double> emitted(kVocab);  // the distribution of the first token
  EveryOutcome rng;
  do {
    rng.begin();
    tree.reset(0, 0);
    tree.draw(0, tree.store(0, q, {}), rng);
    decide_checked(TokenByToken{}, tree, target, rng, result);
    const Token first = result.accepted_count() > 0 ? tree.token(1) : result.next_token;
    emitted[static_cast<std::size_t>(first)] += rng.weight;
  } while (rng.next());
  double bias = 0;
  for (Token x = 0; x < kVocab; ++x)
    bias = std::max(bias, std::abs(emitted[static_cast<std::size_t>(x)] - target[0](x)));
  std::printf("largest difference from the target's distribution: %.1e\n", bias);
  return bias < 1e-6 ? 0 : 1;  // rows are floats
}
