// Verification of one path as a whole: the best that can be done with it.
#pragma once

#include <stdexcept>

#include "specula/accept/traversal.hpp"

namespace specula {

/// With P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i)): accepts the longest beginning i whose own uniform
/// draw is below h_i = S_i / (S_i + 1 - P_i), S_i = sum (P_i p - q)+, at the end h = P; then draws from
/// norm((P_i p - q)+), after the end from p. No rule for one path accepts more, and a path's length may
/// depend on what was drawn (Sun et al. 2024). It is Traversal on a chain, from the end to the beginning, so
/// rows are read a second time only where something was rejected. Cost and uniform draws: see there. Throws
/// std::invalid_argument on a proposal that is no chain, or shares the target's noise.
struct Block {
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Block", tree);
    if (!tree.is_chain())
      throw std::invalid_argument("Block: the proposal is no chain; Traversal takes trees");
    (Traversal{}.verify)(tree, target, rng, out);
  }
};

}  // namespace specula
