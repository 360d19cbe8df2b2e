// Acceptance probability of a path of a proposal, from the draft's confidences.
#pragma once

#include "specula/concepts.hpp"

namespace specula::detail {

/// Probability that `node` is accepted: the product along its path. 1 without a CostModel.
inline double path_reach(const ProposeContext& round, const TokenTree& tree, NodeId node) {
  double reach = 1;
  for (NodeId n = node; round.cost_model && n != 0; n = tree.parent(n))
    reach *= round.accept_probability(static_cast<double>(tree.confidence(n)));
  return reach;
}

}  // namespace specula::detail
