// SPDX-License-Identifier: MIT
// Typical acceptance (Medusa): a draft token is accepted if its target probability is high enough. Lossy.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/accept/target_distributions.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

namespace detail {

/// Entropy -sum p log p of a distribution with these weights, in nats. Cost: one read of tiles with mass.
inline double entropy(const TokenWeights& weights) {
  const Distribution& distribution = weights.distribution;
  const double top = static_cast<double>(distribution.shift), more = distribution.log_z / distribution.inv_t;
  std::array<float, kTile> w, padding;
  std::array<double, 16> sums{};  // independent sums, so that additions overlap
  const std::span<const double> masses = weights.tile_masses();
  for (std::int32_t t = 0; t < tile_count(weights.vocab()); ++t) {
    if (!(masses[static_cast<std::size_t>(t)] > 0)) continue;
    const float* logits = tile_at(distribution.logits, weights.vocab(), t, padding);
    weights.fill(t, w.data());
    for (std::size_t i = 0; i < w.size(); i += sums.size())
      for (std::size_t j = 0; j < sums.size(); ++j) {
        const double p = static_cast<double>(w[i + j]);
        sums[j] += p > 0 ? p * (static_cast<double>(logits[i + j]) - top - more) : 0.0;
      }
  }
  double sum = 0;
  for (const double s : sums) sum += s;
  return std::max(0.0, -distribution.inv_t * sum);
}

}  // namespace detail

///   specula::TreeVerifier verifier{target, specula::accept_lossy(specula::Typical{0.09, 0.3})};
///
/// A draft token x is accepted iff all its ancestors are and p(x) > min(epsilon, delta * exp(-H(p))), H being
/// the entropy of p in nats: a likely token anywhere, an unlikely one where the target is uncertain. The
/// deepest accepted node ends the path, the first of several; the next token is drawn from p. Never reads q,
/// and loses the target's distribution: as a final rule it compiles only within accept_lossy().
/// **Draws.** One `sample`.
/// **Cost.** Two reads of a row per accepted node with children, and a third of the last node's.
/// **Throws.** Constructor: std::invalid_argument out of range. decide(): std::runtime_error for a bad row.
/// **Source.** Cai et al. 2024 (Medusa), section 2.3.1.
class Typical {
 public:
  /// Throws std::invalid_argument unless epsilon is in [0, 1) and delta finite and >= 0.
  explicit Typical(double epsilon = 0.09, double delta = 0.3) : epsilon_(epsilon), delta_(delta) {
    if (!(epsilon >= 0 && epsilon < 1))
      throw std::invalid_argument("Typical: epsilon is " + detail::number(epsilon) + ", must be in [0, 1)");
    if (!(delta >= 0 && delta < 1e30))
      throw std::invalid_argument("Typical: delta is " + detail::number(delta) +
                                  ", must be finite and at least 0");
  }
  double epsilon() const { return epsilon_; }  ///< upper bound of the threshold, a probability
  double delta() const { return delta_; }      ///< factor on exp(-entropy) in the threshold
  static constexpr bool lossless_for(ProposalKind) { return false; }  ///< Lossless for no kind.

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    out.clear();
    const detail::NodeStates states = target.node_states();
    // Parents come before their children. A state's weight is 1 if its node is accepted.
    NodeId deepest = 0;
    for (NodeId node = 0; node < tree.size(); ++node) {
      const bool accepted = states[node].weight > 0;
      if (accepted && tree.depth(node) > tree.depth(deepest)) deepest = node;
      if (tree.first_child(node) == kNoParent) continue;
      double least = 0;
      if (accepted) least = threshold(target, target[node]);
      tree.children(node, [&](NodeId c) {
        states[c].weight = accepted && states[node].distribution(tree.token(c)) > least ? 1 : 0;
        return true;
      });
    }
    out.accepted.clear();
    for (NodeId n = deepest; n != kNoParent; n = tree.parent(n)) out.accepted.push_back(n);
    std::reverse(out.accepted.begin(), out.accepted.end());
    const detail::NodeState& last = states[deepest];
    out.next_token = target.sample(last.has_distribution ? last.distribution : target[deepest],
                                   tree.sample_key(deepest), rng);
  }

 private:
  double threshold(const TargetDistributions& target, const Distribution& distribution) const {
    const double entropy = distribution.is_point() ? 0.0 : detail::entropy(target.weights(distribution));
    return std::min(epsilon_, delta_ * std::exp(-entropy));
  }

  double epsilon_, delta_;
};

}  // namespace specula
