// Lenient rejection sampling: accepts more draft tokens than rejection sampling. Lossy.
#pragma once

#include <utility>

#include "specula/accept/target_distributions.hpp"
#include "specula/base/fields.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// Accepts x with probability min(1, lenience * p(x) / q(x)); the residual after a rejection is norm((p - q
/// / lenience)+). At temperature 0: accepts x if it is the target's first largest logit, or if q(x) <=
/// lenience * p(x), p being the softmax at temperature 1. Lenience 1 is rejection sampling. Lossless for no
/// proposal kind: as a final rule it compiles only within accept_lossy(). Source: Cascade Speculative
/// Drafting, section 3.1. Cost and uniform draws: as Rejection.
class Lenient {
 public:
  /// Throws std::invalid_argument unless lenience is in [1, 1e30].
  explicit Lenient(double lenience) : lenience_(lenience) {
    detail::expect_in("Lenient: lenience", lenience, 1.0, detail::kMostLenience);
  }
  double lenience() const { return lenience_; }
  static constexpr bool lossless_for(ProposalKind) { return false; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Lenient", tree);
    out.clear();
    const bool greedy = target.params().greedy();
    for (NodeId at = 0; at != kNoParent;) {
      const NodeId from = at;
      const Distribution distribution =
          target.distribution(from, greedy ? SamplingParams{} : target.params());
      const Token best = greedy ? target.argmax(from) : kNoToken;
      detail::Residual* left = nullptr;
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        const Token token = tree.token(c);
        const double draft_prob =
            greedy ? static_cast<double>(tree.confidence(c)) : tree.draft_prob(c, token);
        if (greedy) {
          if (token == best || (lenience_ > 1 && draft_prob <= lenience_ * distribution(token))) at = c;
          return at == kNoParent;
        }
        const double target_prob = left ? left->prob(token) : distribution(token);
        if (rng.accept(lenience_ * target_prob / draft_prob, tree.accept_key(c))) {
          at = c;
          return false;
        }
        if (!left) left = &target.residual(distribution);
        left->reject(tree, c, lenience_);
        return true;
      });
      if (at != kNoParent)
        out.accepted.push_back(at);
      else if (greedy)
        out.next_token = best;
      else if (left)
        out.next_token = rng.draw(left->measured(), tree.residual_key(from));
      else
        out.next_token = target.sample(distribution, tree.sample_key(from), rng);
    }
  }

 private:
  double lenience_;
};

/// A rule whose caller accepts that the text will not have the target's distribution.
template <class Rule>
struct AcceptLossy : Rule {
  static constexpr bool lossless_for(ProposalKind) { return true; }
  static constexpr bool lossy = true;

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    (Rule::verify)(tree, target.for_lossy(), rng, out);
  }
};

/// Lets an unsound pair of shape and rule compile: the text loses the target's distribution.
template <class Rule>
AcceptLossy<Rule> accept_lossy(Rule rule) {
  return {std::move(rule)};
}

}  // namespace specula
