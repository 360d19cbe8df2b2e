// SPDX-License-Identifier: MIT
// Arguments of verification where the vocabulary is split over several GPUs.
#pragma once

#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// The rules of a split vocabulary.
enum class ShardedRule { greedy, sample_and_match, rejection };

/// A shard's partial of one tile of 512 tokens after one node. The candidates are the tokens that the uniform
/// draws of the node's next token would pick inside this tile, should the tile be picked.
struct TilePartial {
  float maximum,  ///< the largest logit
      sum;        ///< of 2^(l log2(e) / T - unit), unit the integer nearest to the maximum's exponent
  float rest;     ///< the same without the node's children
  Token first;    ///< of the tile's largest logits
  Token sample,   ///< by the uniform draw of RandomStream::sample
      residual;   ///< by that of RandomStream::residual, without the node's children
};

/// One shard: tokens [first_token, first_token + tokens) of the vocabulary. All shards but the last hold the
/// same number of tokens, a multiple of 512.
template <class Element>
struct ShardRows {
  const Element* logits;  ///< (N, tokens), rows `stride` elements apart, in the order of the batch's nodes
  std::int64_t stride;    ///< elements between rows
  int first_token,        ///< the shard's first, a multiple of 512
      tokens;             ///< how many it has
  ParamArrays params = nullptr;  ///< (B) temperature alone
};

/// The partials of all shards, gathered: shard s's part begins at s * (N * tiles_of_shard).
struct GatheredPartials {
  const TilePartial* tiles;   ///< (S, N, tiles_of_shard)
  const float* child_logits;  ///< (S, N) of each node's token in its parent's row; -infinity: another shard's
  int shards,                 ///< S
      tiles_of_shard;         ///< tiles of 512 tokens of the largest shard
};

namespace detail {

template <class Element>
bool valid_shard(const ShardRows<Element>& rows, int nodes) {
  return rows.tokens >= 1 && rows.first_token >= 0 && rows.first_token % kTile == 0 && rows.logits &&
         !any_misaligned(rows.logits) && is_aligned(rows.params) &&
         are_apart(nodes, rows.stride, rows.tokens);
}
inline bool valid_gathered(const GatheredPartials& g, int vocab) {
  return !any_null({g.tiles, g.child_logits}) && !any_misaligned(g.tiles, g.child_logits) && g.shards >= 1 &&
         static_cast<std::int64_t>(g.shards) * g.tiles_of_shard >= tile_count(vocab);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
