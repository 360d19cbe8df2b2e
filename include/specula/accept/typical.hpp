// Typical acceptance: a guess stays if the target finds it likely enough. Lossy.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../detail/fields.hpp"
#include "../target_laws.hpp"
#include "../token_tree.hpp"
#include "../verdict.hpp"

namespace specula {

namespace detail {

/// -sum p log p of a law with these weights, in nats. Cost: one read of the tiles that have mass.
inline double entropy(const LawWeights& weights) {
  const RowLaw& law = weights.law;
  const double top = static_cast<double>(law.shift), more = law.log_z / law.inv_t;
  std::array<float, kTile> w, padding;
  std::array<double, 16> sums{};  // apart, so that additions do not wait for each other
  for (std::int32_t t = 0; t < tile_count(weights.vocab()); ++t) {
    if (!(weights.masses[static_cast<std::size_t>(t)] > 0)) continue;
    const float* logits = tile_at(law.logits, weights.vocab(), t, padding);
    weights.fill(t, w.data());
    for (std::size_t i = 0; i < w.size(); i += sums.size())
      for (std::size_t j = 0; j < sums.size(); ++j) {
        const double p = static_cast<double>(w[i + j]);
        sums[j] += p > 0 ? p * (static_cast<double>(logits[i + j]) - top - more) : 0.0;
      }
  }
  double sum = 0;
  for (const double s : sums) sum += s;
  return std::max(0.0, -law.inv_t * sum);
}

}  // namespace detail

/// A guess x stays iff all before it stay and p(x) > min(epsilon, delta * exp(-H(p))), H being the entropy of
/// p in nats: a likely token anywhere, an unlikely one where the target itself is undecided. The deepest node
/// that stays ends the path, the first in the tree where there are several; the next token is drawn from p.
/// Never looks at q, and the text is not the target's: as a final rule it compiles only within
/// accept_lossy(). Source: Cai et al. 2024 (Medusa), section 2.3.1. Cost: two reads of a row for each node
/// that stays and has children, and a third of the last node's. Coins: one `sample`.
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
  double epsilon() const { return epsilon_; }
  double delta() const { return delta_; }
  static constexpr bool exact_for(DraftLaw) { return false; }

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    (target.check)(tree);
    out.clear();
    const std::span<detail::NodeNotes> notes = target.notes(tree);
    const auto note = [&](NodeId node) -> detail::NodeNotes& {
      return notes[static_cast<std::size_t>(node)];
    };
    // Parents come before their children. A note's weight is 1 if its node stays.
    note(0) = {};
    NodeId deepest = 0;
    for (NodeId node = 0; node < tree.size(); ++node) {
      const bool stays = note(node).weight > 0;
      if (stays && tree.depth(node) > tree.depth(deepest)) deepest = node;
      if (tree.first_child(node) == kNoParent) continue;
      double least = 0;
      if (stays) {
        note(node).law = target[node];
        note(node).has_law = true;
        least = threshold(target, note(node).law);
      }
      tree.children(node, [&](NodeId c) {
        note(c) = {};
        note(c).weight = stays && note(node).law(tree.token(c)) > least ? 1 : 0;
        return true;
      });
    }
    out.path.clear();
    for (NodeId n = deepest; n != kNoParent; n = tree.parent(n)) out.path.push_back(n);
    std::reverse(out.path.begin(), out.path.end());
    const detail::NodeNotes& last = note(deepest);
    out.next = target.sample(last.has_law ? last.law : target[deepest], tree.sample_site(deepest), chance);
  }

 private:
  double threshold(const TargetLaws& target, const RowLaw& law) const {
    const double entropy = law.is_point() ? 0.0 : detail::entropy(target.weights(law));
    return std::min(epsilon_, delta_ * std::exp(-entropy));
  }

  double epsilon_, delta_;
};

}  // namespace specula
