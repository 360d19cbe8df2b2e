// SPDX-License-Identifier: MIT
// Lenient rejection sampling: accepts more draft tokens than rejection sampling. Lossy.
#pragma once

#include "specula/accept/exact_rules.hpp"
#include "specula/accept/rules/rejection.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

///   specula::TreeVerifier verifier{target, specula::accept_lossy(specula::Lenient{2.0})};
///
/// Accepts x with probability min(1, lenience * p(x) / q(x)); the residual after a rejection is norm((p - q /
/// lenience)+). At temperature 0: accepts x if it is the target's first largest logit, or if q(x) is at most
/// lenience times p(x), p being the softmax at temperature 1. Lenience 1 is rejection sampling. Lossless for
/// no proposal kind: as a final rule it compiles only within accept_lossy().
/// **Draws.** As Rejection; nothing at temperature 0. **Cost.** As Rejection.
/// **Throws.** Constructor: std::invalid_argument unless lenience is in [1, 1e30]. decide(): as Rejection.
/// **Source.** Cascade Speculative Drafting, section 3.1.
class Lenient {
 public:
  /// Throws std::invalid_argument unless lenience is in [1, 1e30].
  explicit Lenient(double lenience) : lenience_(lenience) {
    detail::expect_in("Lenient: lenience", lenience, 1.0, detail::kMaxLenience);
  }
  double lenience() const { return lenience_; }                       ///< factor on p
  static constexpr bool lossless_for(ProposalKind) { return false; }  ///< Lossless for no kind.

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    if (target.params().greedy()) return verify_greedily(tree, target, out);
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::rejection(verifier, lenience_);
  }

 private:
  void verify_greedily(const TokenTree& tree, const TargetDistributions& target, VerifyResult& out) const {
    out.clear();
    for (NodeId at = 0; at != kNoParent;) {
      const NodeId from = at;
      const Distribution softmax = target.distribution(from, SamplingParams{});
      const Token best = target.argmax(from);
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        const Token token = tree.token(c);
        const double draft_prob = static_cast<double>(tree.confidence(c));
        if (token == best || (lenience_ > 1 && draft_prob <= lenience_ * softmax(token))) at = c;
        return at == kNoParent;
      });
      if (at != kNoParent)
        out.accepted.push_back(at);
      else
        out.next_token = best;
    }
  }

  double lenience_;
};

}  // namespace specula
