// SPDX-License-Identifier: MIT
// K-sequential selection (SpecTr): one test for all siblings that were drawn independently from one
// distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include "specula/accept/target_distributions.hpp"
#include "specula/base/rows.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

///   specula::TreeVerifier verifier{target, specula::KSeq{}};
///
/// A node's k children, drawn with replacement from q, are tested in order with min(1, p(x) / (rho q(x))); if
/// none is accepted, the next token is drawn from norm((p - rho q)+). rho in [1, k] solves 1 - (1 - b)^k =
/// rho b, b = sum min(q, p / rho) being the probability that one test accepts, so that the accepted and the
/// residual mass add up to p. A lone child has rho 1, which is rejection sampling; point masses are rejected
/// one after the other, as in rejection sampling. Requires that k does not depend on the children's tokens.
/// Accepts more than Rejection where k > 1, but less than the optimal rule.
/// **Draws.** As Rejection.
/// **Cost.** One row read per node of the accepted path; where k > 1, its target's and its draft's row again
/// for each of about 8 trial values of rho, and once more if all children are rejected.
/// **Throws.** decide(): std::runtime_error for a bad row, std::invalid_argument for siblings neither
/// independent nor point masses.
/// **Source.** Sun et al. 2023 (SpecTr, algorithm 2).
struct KSeq {
  /// Lossless for siblings drawn independently.
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled_iid; }

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    expect_independent(tree.kind());
    out.clear();
    for (NodeId at = 0; at != kNoParent;) {
      const NodeId from = at, first = tree.first_child(from);
      const Distribution distribution = target[from];
      const bool points = first != kNoParent && tree.draft_distribution(first).is_point();
      const double rho = points ? 1 : threshold(tree, from, target, distribution);
      std::optional<detail::ResidualView> left;
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        const Token token = tree.token(c);
        const double target_prob = left ? left->prob(token) : distribution(token);
        if (rng.accept(target_prob / (rho * tree.draft_prob(c, token)), tree.accept_key(c))) {
          at = c;
          return false;
        }
        if (points) {
          if (!left) left = target.residual(distribution);
          left->reject(tree, c);
        }
        return true;
      });
      if (at != kNoParent) {
        out.accepted.push_back(at);
      } else if (first == kNoParent) {
        out.next_token = target.sample(distribution, tree.sample_key(from), rng);
      } else {
        if (!left) {
          left = target.residual(distribution);
          left->reject(tree, first, 1 / rho);
        }
        out.next_token = rng.draw(left->measured(), tree.residual_key(from));
      }
    }
  }

 private:
  static void expect_independent(ProposalKind kind) {
    if (kind != ProposalKind::deterministic && kind != ProposalKind::sampled &&
        kind != ProposalKind::sampled_iid)
      throw std::invalid_argument(
          "KSeq: siblings must be drawn independently from one distribution, or be chosen; Rejection and "
          "Traversal take any");
  }

  /// rho of the children of `node`, whose distribution must be no point mass. The distribution of the text
  /// is off by at most |excess| at the value returned.
  static double threshold(const TokenTree& tree, NodeId node, const TargetDistributions& target,
                          const Distribution& distribution) {
    const NodeId first = tree.first_child(node);
    std::int32_t k = 0;
    tree.children(node, [&](NodeId) { return ++k, true; });
    if (k < 2) return 1;
    // Accepted mass minus the mass of p for it: decreasing in rho.
    const auto excess = [&](double rho) {
      const double b = 1 / rho - target.residual(distribution).reject(tree, first, 1 / rho);
      return 1 - std::pow(1 - b, k) - rho * b;
    };
    const double tolerance = detail::isa() == Isa::reference ? 1e-14 : 1e-7;
    double low = 1, high = k, at_low = excess(low);
    if (at_low <= tolerance) return low;
    double at_high = excess(high);
    if (at_high >= -tolerance) return high;
    // Between the false position and the middle: never slower than bisection (Oliveira and Takahashi 2020,
    // ITP).
    const double width = high - low, narrow = width * tolerance / 8;
    for (double reach = width; high - low > narrow; reach /= 2) {
      const double middle = (low + high) / 2;
      const double straight = low + (high - low) * at_low / (at_low - at_high);
      const double inwards = 0.2 * (high - low) * (high - low) / width;
      double rho =
          straight < middle ? std::min(straight + inwards, middle) : std::max(straight - inwards, middle);
      // the largest distance from the middle that is no slower than bisection
      const double most = std::max(0.0, reach - (high - low) / 2);
      rho = std::clamp(rho, middle - most, middle + most);
      const double here = excess(rho);
      if (std::abs(here) <= tolerance) return rho;
      (here > 0 ? low : high) = rho;
      (here > 0 ? at_low : at_high) = here;
    }
    return low;
  }
};

}  // namespace specula
