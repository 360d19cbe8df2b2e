// SPDX-License-Identifier: MIT
// Arguments of draft tree growth: roots, rows of the draft, grown trees and their links.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// 64-bit words that a node's mask takes among `nodes` nodes.
SPECULA_HD constexpr int mask_words(int nodes) { return (nodes + 63) / 64; }

/// The roots of B proposals, arrays on the device.
struct Roots {
  const Token* token;                            ///< (B) the newest token of each text
  const std::int32_t* position;                  ///< (B) of the root in its text
  const std::int32_t* limit = nullptr;           ///< (B) at most n nodes, the root included; null: no limit
  const std::int32_t* sequence_count = nullptr;  ///< sequences in this call, at most B, as Trees has it
};

/// Logits of the draft after the nodes that it was last run on, in their order.
template <class Element>
struct DraftRows {
  const Element* logits;  ///< (R, V), rows `stride` elements apart
  std::int64_t stride;    ///< V or more; 0: all rows are one
};

/// The proposals of B sequences, arrays on the device. All have the plan's `width` nodes, so begin[b] is b *
/// width. The tree comes first, the root as node 0 and parents before their children. Padding of token -1
/// follows; its parent is the root, and it sees the root and itself. Arrays that may be null are then not
/// written.
struct GrownTrees {
  Token* token;                        ///< (B, width), padding -1
  NodeId* parent;                      ///< (B, width) in the tree's own numbers, -1 for a root
  std::int32_t* begin = nullptr;       ///< (B + 1)
  std::int32_t* size = nullptr;        ///< (B) nodes without padding
  std::int32_t* position = nullptr;    ///< (B, width) in the text: the root's and the depth
  float* confidence = nullptr;         ///< (B, width) the draft's probability; 1 for a root, 0 for padding
  double* reach = nullptr;             ///< (B, width) the product of confidences down to the node
  std::uint64_t* ancestors = nullptr;  ///< (B, width, mask_words(width)) as specula::tree_mask
  NodeId* first_child = nullptr;       ///< (B, width) -1: none
  NodeId* next_sibling = nullptr;      ///< (B, width) -1: none
};

/// Proposals of B sequences to choose nodes of, all arrays on the device. Nodes of sequence b are [begin[b],
/// begin[b + 1]), the root first; GrownTrees has all of it.
struct Proposals {
  const std::int32_t* begin;  ///< (B + 1)
  const Token* token;         ///< (N)
  const NodeId* parent;       ///< (N) in the tree's own numbers, -1 for a root; null: every tree is a chain
  /// (N) probability that a node and its ancestors are accepted, at most its parent's; a root's does not
  /// matter. Nodes with none, such as padding, are never kept.
  const double* reach;
  const std::int32_t* budget;                    ///< draft tokens of all sequences to keep, at most
  const std::int32_t* sequence_count = nullptr;  ///< sequences in this call, at most B, as Trees has it
};

/// The nodes that are kept, without gaps; arrays on the device.
struct SelectedNodes {
  std::int32_t* begin;        ///< (B + 1)
  Token* token;               ///< (N) of room
  NodeId* parent;             ///< (N) likewise, in the tree's own numbers, -1 for a root
  std::int32_t* row_of_node;  ///< (N) by the numbers of the input: which of the kept ones a node is, or -1
};

/// Links, depths and masks to compute from the parents, all arrays on the device. Null ones are not written.
struct TreeLinks {
  NodeId* first_child = nullptr;   ///< (N) in the tree's own numbers; -1: none
  NodeId* next_sibling = nullptr;  ///< (N) the next node of the same parent; -1: none
  std::int32_t* depth = nullptr;   ///< (N) the root's is 0
  /// (N, mask_words(max_nodes)) bit j: node j is it or an ancestor of it, j in the tree's own numbers, as
  /// specula::tree_mask.
  std::uint64_t* ancestors = nullptr;
  Status* status = nullptr;  ///< (B) ok or bad_tree
};

/// Number of runners-up per confidence: counts[i] of them where it lies in (thresholds[i - 1],
/// thresholds[i]], as specula::CapeExtras. The defaults are the paper's.
struct CapeExtras {
  float thresholds[3] = {0.3f, 0.6f, 0.8f};  ///< bounds of the draft's confidence, ascending
  std::int32_t counts[4] = {7, 5, 3, 1};     ///< runners-up, from low to high confidence

  /// Runners-up at this confidence.
  SPECULA_HD int operator()(float confidence) const {
    int bin = 0;
    while (bin < 3 && confidence > thresholds[bin]) ++bin;
    // Chosen, not indexed: an index that is not known beforehand would put the array in memory.
    return bin == 0 ? counts[0] : bin == 1 ? counts[1] : bin == 2 ? counts[2] : counts[3];
  }
  /// The largest of the counts.
  SPECULA_HD int most() const {
    return detail::larger(detail::larger(counts[0], counts[1]), detail::larger(counts[2], counts[3]));
  }
};

/// Capacities of the proposals, known to the host.
struct CapeCapacity {
  int sequences = 1;       ///< B
  int length = 4;          ///< L: tokens of the spine
  int budget = 32;         ///< draft tokens of a proposal
  int vocab = 0;           ///< V
  CapeExtras extras = {};  ///< at most 31
};

/// Tokens of the spines, arrays on the device; the inputs of one call of the draft are contiguous.
struct CapeSpine {
  Token* token;            ///< (L, B) -1 after a bad row
  std::int32_t* position;  ///< (L, B) in the text
};

/// Capacities of the proposals, known to the host. The defaults are the published ones.
struct DynamicTreeCapacity {
  int sequences = 1;   ///< B
  int top_k = 10;      ///< K: best tokens of a row, and nodes of a level that the draft is run on; at most 32
  int expansions = 5;  ///< E: times that the draft is run on such a level
  int total = 59;      ///< draft tokens of a proposal
  int vocab = 0;       ///< V
};

/// Nodes that the draft is run on after the root, level by level, arrays on the device; the inputs of one
/// call of the draft are contiguous. The draft's nodes are numbered: its root is 0, slot i of level l (from
/// 0) is 1 + l * K + i. Slots without a draft token have token -1 and the root as their parent; the draft's
/// rows of them are not read.
struct DraftLevels {
  Token* token;              ///< (E, B, K)
  NodeId* parent;            ///< (E, B, K) node of the draft
  std::int32_t* position;    ///< (E, B, K) in the text
  std::uint64_t* ancestors;  ///< (E, B, K, draft_words) bit j: it sees node j of the draft
};

namespace detail {

// Host-side checks of a caller's arguments. Rows may all be one, with a stride of 0.

template <class Element>
bool valid_rows(const DraftRows<Element>& rows, int vocab) {
  return rows.logits && !any_misaligned(rows.logits) && (rows.stride == 0 || rows.stride >= vocab);
}
/// Memory of a pool and of what follows it.
inline bool valid_workspace(const void* workspace, std::size_t size, std::size_t needed) {
  return workspace && reinterpret_cast<std::uintptr_t>(workspace) % alignof(double) == 0 && size >= needed;
}
inline bool valid_trees(const Roots& roots, const GrownTrees& out, const Status* status) {
  return !any_null({roots.token, roots.position, out.token, out.parent}) &&
         !any_misaligned(roots.token, roots.position, roots.limit, roots.sequence_count, out.token,
                         out.parent, out.begin, out.size, out.position, out.confidence, out.reach,
                         out.ancestors, out.first_child, out.next_sibling, status);
}
inline bool valid_links(int sequences, int max_nodes, const std::int32_t* begin, const NodeId* parent,
                        const TreeLinks& out, const std::int32_t* sequence_count) {
  return sequences >= 0 && max_nodes >= 1 && max_nodes <= 12000 && (begin || sequences == 0) &&
         !any_misaligned(begin, parent, out.first_child, out.next_sibling, out.depth, out.ancestors,
                         out.status, sequence_count);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
