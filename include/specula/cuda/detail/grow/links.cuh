// SPDX-License-Identifier: MIT
// Links of a tree from its parents: depths, children, siblings, attention masks.
#pragma once

#include <cstdint>

#include "specula/cuda/args/growth.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/shares.cuh"

namespace specula {
namespace cuda {

namespace detail {

constexpr NodeId kNoNode = -2;  // matches no parent, not even a root's

/// Places that the parents of `nodes` nodes take in shared memory, padded so that they can be read in
/// vectors.
SPECULA_HD constexpr int parent_places(int nodes) { return (nodes + 7) / 8 * 8; }

// `parent` is in shared memory, 16-byte aligned, (parent_places(nodes)): parent[0] is kNoParent, others are
// earlier nodes, and kNoNode follows to the end.

struct Family {
  NodeId first_child, next_sibling;  // kNone: none
  static constexpr NodeId kNone = 0x7FFFFFFF;
};
struct alignas(16) FourNodes {
  NodeId v[4];
};
/// The links that lane `part` of `share` finds; the lanes take groups of eight later nodes in turn, from the
/// end, without a branch on their parents. The lowest of all lanes' results are the node's.
template <int share>
SPECULA_HD Family family_of(NodeId node, int nodes, const NodeId* parent, int part) {
  constexpr int kEight = 8;
  const NodeId above = parent[node];
  Family out{Family::kNone, Family::kNone};
  SPECULA_NO_UNROLL
  for (int begin = parent_places(nodes) - kEight * (1 + part); begin + kEight > node + 1;
       begin -= kEight * share) {
    const auto* at = reinterpret_cast<const FourNodes*>(parent + begin);
    const FourNodes x[2] = {at[0], at[1]};
    SPECULA_UNROLL
    for (int e = kEight - 1; e >= 0; --e) {
      const NodeId p = x[e / 4].v[e % 4], n = begin + e;
      out.first_child = p == node ? n : out.first_child;
      out.next_sibling = ((p == above) & (n > node)) ? n : out.next_sibling;
    }
  }
  return out;
}

struct Lineage {
  std::int32_t depth;  // the root's is 0
  std::uint64_t word;  // of its mask: bit j of all words together is set iff node j is it or an ancestor
};
SPECULA_HD Lineage lineage_of(NodeId node, int word, const NodeId* parent) {
  Lineage out{-1, 0};
  SPECULA_NO_UNROLL
  for (NodeId n = node; n >= 0; n = parent[n]) {
    ++out.depth;
    out.word |= n / 64 == word ? std::uint64_t{1} << (n % 64) : 0;
  }
  return out;
}

/// Outputs of the links, arrays on the device; null ones are not written.
struct LinkArrays {
  NodeId* first_child;       // (N)
  NodeId* next_sibling;      // (N)
  std::int32_t* depth;       // (N) plus `origin`
  std::uint64_t* ancestors;  // (N, words)
  int words;
  std::int32_t origin = 0;
};

/// This thread's rank where a quarter of the group, number `quarter`, comes first: so work that few threads
/// can do goes to other warps than the work before.
template <class Group>
SPECULA_HD int rank_from_quarter(Group group, int quarter) {
  const int rank = group.rank() - quarter * (group.size() / 4);
  return rank < 0 ? rank + group.size() : rank;
}

/// By a Group: what nodes [0, nodes) have, at `first` of the arrays; and of nodes [nodes, width), which are
/// not there: no links, and they see the root and themselves.
template <class Group>
SPECULA_HD void write_links(Group group, const LinkArrays& out, std::int64_t first, int nodes, int width,
                            const NodeId* parent) {
  constexpr int kShare = share_of<Group>();
  each_task<kShare>(group, out.first_child || out.next_sibling ? width : 0, [&](NodeId n, int part, int) {
    Family family{Family::kNone, Family::kNone};
    if (n < nodes) family = family_of<kShare>(n, nodes, parent, part);
    SPECULA_UNROLL
    for (int mask = 1; mask < kShare; mask *= 2) {
      const auto warp = warp_of(group, 0);
      family.first_child = smaller(family.first_child, warp.shuffle_xor(family.first_child, mask));
      family.next_sibling = smaller(family.next_sibling, warp.shuffle_xor(family.next_sibling, mask));
    }
    if (n >= width || part != 0) return;
    const auto or_no_parent = [](NodeId node) { return node == Family::kNone ? kNoParent : node; };
    if (out.first_child) out.first_child[first + n] = or_no_parent(family.first_child);
    if (out.next_sibling) out.next_sibling[first + n] = or_no_parent(family.next_sibling);
  });
  const int words = out.ancestors ? out.words : out.depth ? 1 : 0;
  SPECULA_NO_UNROLL
  for (int i = rank_from_quarter(group, 2); i < width * words; i += group.size()) {
    const NodeId n = i / words;
    const int w = i % words;
    Lineage line{n == 0 ? 0 : 1, (n / 64 == w ? std::uint64_t{1} << (n % 64) : 0) | (w == 0 ? 1u : 0u)};
    if (n < nodes) line = lineage_of(n, w, parent);
    if (out.ancestors) out.ancestors[first * words + i] = line.word;
    if (out.depth && w == 0) out.depth[first + n] = out.origin + line.depth;
  }
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
