// SPDX-License-Identifier: MIT
// Links and attention masks of trees from the parents of their nodes.
//
// Work: one block of 128 threads per tree, whose parents are in shared memory.
// Reference: verify/tree_mask.hpp; tests/cuda/api/tree_links.cpp; bench/cuda/growth_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/grow.cu
// Check: scripts/gpu --out FOLDER --sections check (program growth).
#pragma once

#include "specula/cuda/args/growth.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/grow/links.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

namespace detail {

struct TreeLinksArgs {
  const std::int32_t* begin;
  const NodeId* parent;
  TreeLinks out;
  int max_nodes;
  const std::int32_t* sequence_count;
};

/// By a Group; `shared` holds the parents of max_nodes nodes, then a flag.
template <class Group>
SPECULA_HD void tree_links(Group group, const TreeLinksArgs& args, int sequence, unsigned char* shared) {
  if (!is_live(sequence, args.sequence_count)) return;
  auto* parent = reinterpret_cast<NodeId*>(shared);
  auto* bad = behind<std::int32_t>(parent, parent_places(args.max_nodes));
  end_array(bad, 1);
  const std::int64_t first = args.begin[sequence];
  const std::int64_t nodes = args.begin[sequence + 1] - first;
  const bool fits = nodes >= 0 && nodes <= args.max_nodes;
  if (group.rank() == 0) *bad = fits ? 0 : 1;
  group.sync();
  if (fits && nodes > 0) {
    const int n = static_cast<int>(nodes);
    for (NodeId i = group.rank(); i < parent_places(n); i += group.size()) {
      const NodeId p = i >= n ? kNoNode : args.parent ? args.parent[first + i] : i - 1;
      parent[i] = p;
      if (i < n && (i == 0 ? p != kNoParent : p < 0 || p >= i)) atomic_add(bad, std::int32_t{1});
    }
    group.sync();
    const LinkArrays out{args.out.first_child, args.out.next_sibling, args.out.depth, args.out.ancestors,
                         mask_words(args.max_nodes)};
    write_links(group, out, first, *bad == 0 ? n : 0, n, parent);
  }
  if (group.rank() == 0 && args.out.status)
    args.out.status[sequence] = *bad == 0 ? Status::ok : Status::bad_tree;
}

SPECULA_HD std::size_t tree_links_shared_bytes(int max_nodes) {
  return array_bytes<NodeId>(parent_places(max_nodes)) + array_bytes<std::int32_t>(1);
}

#ifdef __CUDACC__
/// A template, so that several files may include it.
template <int threads>
__global__ void __launch_bounds__(threads) tree_links_kernel(const __grid_constant__ TreeLinksArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  tree_links(DeviceBlock{}, args, static_cast<int>(blockIdx.x), shared);
}
#endif

}  // namespace detail

#ifdef __CUDACC__

/// Links, depths and masks of `sequences` trees; tree b has nodes [begin[b], begin[b + 1]) of `parent`, in
/// its own numbers, (N), -1 for a root; a null `parent` means that all are chains. A tree with a parent that
/// is no earlier node gets no links and bad_tree; one of more than `max_nodes` gets bad_tree alone; an empty
/// slot is ok. `sequence_count`, on the device, is the number of trees in this call, as Trees has it. No
/// output may overlap an input. Cost: one launch with one block per tree and 4 bytes of shared memory per
/// node; each node reads the nodes after it, and its ancestors. Errors: cudaErrorInvalidValue for sizes below
/// 0, `max_nodes` not in [1, 12,000], no `begin`, or a misaligned array.
/// @code
/// TreeLinks links;  // what is null is not written
/// links.depth = depth, links.ancestors = ancestors;
/// tree_links(sequences, max_nodes, begin, parent, links, stream);
/// @endcode
inline cudaError_t tree_links(int sequences, int max_nodes, const std::int32_t* begin, const NodeId* parent,
                              const TreeLinks& out, cudaStream_t stream,
                              const std::int32_t* sequence_count = nullptr) {
  if (!detail::valid_links(sequences, max_nodes, begin, parent, out, sequence_count))
    return cudaErrorInvalidValue;
  constexpr int kThreads = 128;
  return detail::launch(detail::tree_links_kernel<kThreads>, sequences, 1, kThreads,
                        detail::tree_links_shared_bytes(max_nodes), stream,
                        detail::TreeLinksArgs{begin, parent, out, max_nodes, sequence_count});
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
