// SPDX-License-Identifier: MIT
// Arguments of tree attention over a paged KV cache.
#pragma once

#include <cstdint>

#include "specula/cuda/args/paged_kv.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// Capacities of the batches, known to the host; everything else is device arrays, so that one captured graph
/// serves every round.
struct TreeAttentionCapacity {
  int sequences = 1;    ///< B, at most; some may have no nodes
  int max_nodes = 64;   ///< of a tree, the root included; further ones are not computed
  int query_heads = 0;  ///< Hq, a multiple of kv_heads
  int kv_heads = 0;     ///< Hkv
  int max_tokens = 0;   ///< committed, per sequence; longer ones are correct too, but not split further
  int splits = 0;       ///< at most n per sequence; 0: as many as fill the device
  /// Splits have a fixed length: a sequence's result then has the same bits for every batch and every
  /// capacity.
  bool batch_invariant = false;
};

/// Attention of proposals over a cache, all arrays on the device. Node i of sequence b is query begin[b] + i;
/// its K and V are already in slot length[b] + i of the sequence, or after those of `earlier`. See
/// tree_attention(). Stored: the cache's element type, Element or Float8E4M3.
template <class Element, class Stored = Element>
struct TreeAttentionArgs {
  const Element* q;           ///< (N, Hq, D) 16-byte aligned, nodes `q_stride` elements apart
  std::int64_t q_stride;      ///< a multiple of 8
  PagedKv<Stored> kv;         ///< the cache
  const std::int32_t* begin;  ///< (B + 1) where a sequence's nodes begin
  const std::uint64_t* mask;  ///< (N, words) as specula::tree_mask: bit j of node i iff j is i or above it
  int words;                  ///< 0 and no mask: the queries see the whole cache, and there is no tail
  Element* out;               ///< (N, Hq, D) 16-byte aligned, nodes `out_stride` elements apart
  std::int64_t out_stride;    ///< a multiple of 8
  float* lse = nullptr;       ///< (N, Hq) log-sum-exp of the scaled products, if wanted
  float scale = 1.0f;         ///< of the products of q and k
  float softcap = 0.0f;       ///< 0: off; else products become softcap * tanh(scale * product / softcap)
  int window = 0;             ///< 0: off; else key k is visible iff position(q) - position(k) < window
  const std::int32_t* position = nullptr;  ///< (N) of nodes in their text; only with a window
  const std::int32_t* depth = nullptr;     ///< (N) in place of `position`: length[b] + depth
  const float* k_scale = nullptr;          ///< (Hkv) what stored keys are multiplied by; null: 1
  const float* v_scale = nullptr;          ///< (Hkv) and stored values
  /// (B) if wanted: ok, or bad_tree where the tree has a negative number of nodes or more than the plan's, or
  /// slots are outside the sequence's pages. Such nodes are not written and such slots are masked.
  Status* status = nullptr;
  const std::int32_t* sequence_count = nullptr;  ///< sequences in this call, at most B, as Trees has it
  /// (B) nodes of each tree that ran in calls before; null: none. Query begin[b] + i is then node earlier[b]
  /// + i, in slot length[b] + earlier[b] + i, and its mask has bits for all of them. Without a window.
  const std::int32_t* earlier = nullptr;
};

}  // namespace cuda
}  // namespace specula
