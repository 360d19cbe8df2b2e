// How likely a node of a proposal is to be accepted, by the draft's confidences.
#pragma once

#include "../concepts.hpp"

namespace specula::detail {

/// Chance that `node` is accepted: the product along its path. 1 where nobody asks, without a Worth.
inline double path_reach(const Round& round, const TokenTree& tree, NodeId node) {
  double reach = 1;
  for (NodeId n = node; round.worth && n != 0; n = tree.parent(n))
    reach *= round.chance(static_cast<double>(tree.confidence(n)));
  return reach;
}

}  // namespace specula::detail
