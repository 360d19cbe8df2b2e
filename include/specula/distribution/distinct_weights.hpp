// SPDX-License-Identifier: MIT
// Sampling siblings without replacement: weights of the tokens not drawn yet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/distribution/row_scan.hpp"

namespace specula::detail {

/// Weights of a distribution without the tokens of a node's existing children. `masses` is workspace,
/// (ceil(V / 512)). Cost of the constructor: one tile per child.
template <class Tree>
class DistinctWeights {
 public:
  DistinctWeights(const Tree& tree, NodeId parent, const TokenWeights& base, std::span<double> masses)
      : tree_(tree), parent_(parent), base_(base), masses_(masses) {
    const std::span<const double> all = base_.tile_masses();
    std::copy(all.begin(), all.end(), masses_.begin());
    tree.children(parent, [&](NodeId c) {
      const std::int32_t tile = tree.token(c) / kTile;
      masses_[static_cast<std::size_t>(tile)] = tile_mass(*this, tile);
      return true;
    });
    total_ = merge_tiles(masses_);
  }

  double total() const { return total_; }

  // The interface of Rng::draw's weights.
  std::int32_t vocab() const { return base_.vocab(); }
  std::span<const double> tile_masses() const { return masses_; }
  double operator()(Token token) const { return tree_.has_child(parent_, token) ? 0.0 : base_(token); }
  void fill(std::int32_t tile, float* weights) const {
    base_.fill(tile, weights);
    tree_.children(parent_, [&](NodeId c) {
      if (tree_.token(c) / kTile == tile) weights[tree_.token(c) % kTile] = 0.0f;
      return true;
    });
  }

 private:
  const Tree& tree_;
  NodeId parent_;
  TokenWeights base_;
  std::span<double> masses_;
  double total_ = 0;
};

}  // namespace specula::detail
