// What follows from the parents of a tree's nodes: depths, links to children and siblings, who sees whom.
#pragma once

#include <cstdint>

#include "../detail/host_device.cuh"
#include "../types.cuh"

namespace specula {
namespace cuda {

/// 64-bit words that a node's mask takes among `nodes` nodes.
SPECULA_HD constexpr int mask_words(int nodes) { return (nodes + 63) / 64; }

namespace detail {

// `parent` is in shared memory, (nodes): parent[0] is negative, others are earlier nodes.

SPECULA_HD int depth_of(NodeId node, const NodeId* parent) {
  int out = 0;
  for (NodeId n = node; n > 0; n = parent[n]) ++out;
  return out;
}
/// The first node from `from` on that is a child of `node`, or kNoParent.
SPECULA_HD NodeId child_from(NodeId from, NodeId node, int nodes, const NodeId* parent) {
  for (NodeId n = from; n < nodes; ++n)
    if (parent[n] == node) return n;
  return kNoParent;
}
SPECULA_HD NodeId first_child_of(NodeId node, int nodes, const NodeId* parent) {
  return child_from(node + 1, node, nodes, parent);
}
SPECULA_HD NodeId next_sibling_of(NodeId node, int nodes, const NodeId* parent) {
  return node == 0 ? kNoParent : child_from(node + 1, parent[node], nodes, parent);
}
/// Word `word` of the node's mask: bit j of all words together is set iff node j is it or an ancestor.
SPECULA_HD std::uint64_t ancestor_word(NodeId node, int word, const NodeId* parent) {
  std::uint64_t out = 0;
  for (NodeId n = node; n >= 0; n = parent[n])
    if (n / 64 == word) out |= std::uint64_t{1} << (n % 64);
  return out;
}

/// Where links go, arrays of the device; null ones are not wanted.
struct LinkArrays {
  NodeId* first_child;       // (N)
  NodeId* next_sibling;      // (N)
  std::int32_t* depth;       // (N)
  std::uint64_t* ancestors;  // (N, words)
  int words;
};

/// By a Group: what nodes [0, nodes) have, at `first` of the arrays.
template <class Group>
SPECULA_HD void write_links(Group group, const LinkArrays& out, std::int64_t first, int nodes,
                            const NodeId* parent) {
  for (NodeId n = group.rank(); n < nodes; n += group.size()) {
    if (out.first_child) out.first_child[first + n] = first_child_of(n, nodes, parent);
    if (out.next_sibling) out.next_sibling[first + n] = next_sibling_of(n, nodes, parent);
    if (out.depth) out.depth[first + n] = depth_of(n, parent);
  }
  if (out.ancestors)
    for (int i = group.rank(); i < nodes * out.words; i += group.size())
      out.ancestors[first * out.words + i] = ancestor_word(i / out.words, i % out.words, parent);
}

/// The same for nodes [from, to) that are not there: no links, and they see the root and themselves.
template <class Group>
SPECULA_HD void write_no_links(Group group, const LinkArrays& out, std::int64_t first, int from, int to) {
  for (NodeId n = from + group.rank(); n < to; n += group.size()) {
    if (out.first_child) out.first_child[first + n] = kNoParent;
    if (out.next_sibling) out.next_sibling[first + n] = kNoParent;
    if (out.depth) out.depth[first + n] = n == 0 ? 0 : 1;
  }
  if (out.ancestors)
    for (int i = from * out.words + group.rank(); i < to * out.words; i += group.size()) {
      const int n = i / out.words, word = i % out.words;
      out.ancestors[first * out.words + i] =
          (n / 64 == word ? std::uint64_t{1} << (n % 64) : 0) | (word == 0 ? std::uint64_t{1} : 0);
    }
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
