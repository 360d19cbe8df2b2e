// Block verification: verifies one path as a whole.
#pragma once

#include <stdexcept>

#include "specula/accept/traversal.hpp"

namespace specula {

/// With P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i)): accepts the longest prefix i whose own uniform
/// draw is below h_i = S_i / (S_i + 1 - P_i), S_i = sum (P_i p - q)+, with h = P at the end; then draws from
/// norm((P_i p - q)+), after the end from p. No rule for one path accepts more, and a path's length may
/// depend on the drawn tokens (Sun et al. 2024). Equals Traversal on a chain, which runs from the end to the
/// beginning, so rows are read a second time only after a rejection. Cost and uniform draws: as Traversal.
/// Throws std::invalid_argument if the proposal is no chain or shares the target's noise.
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
