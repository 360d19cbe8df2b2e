// SPDX-License-Identifier: MIT
// The nodes of a batch of proposals that a budget keeps: the likeliest over all sequences.
//
// Work: one block of 512 threads for the whole batch. It finds a bound of the reaches, 8 bits per pass.
// Traffic: every pass reads the reaches from memory; counts of digits and ballots are in shared memory.
// Reference: cost/batch_budget.hpp; tests/cuda/api/select_nodes.cpp; a sort in bench/cuda/growth_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/grow.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program growth).
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/growth.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/select.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

namespace detail {

struct SelectNodesArgs {
  Proposals in;
  SelectedNodes out;
  int sequences;
};

/// Shared memory of the selection: counts of digits, ballots of warps, and what one warp found.
struct SelectNodesShared {
  std::int32_t count[256];
  std::uint32_t ties[32], kept[32];
  std::int32_t digit, above,
      inside;  // of the digit in which the last node to keep lies: nodes above it, and in it
};

/// A selection by one block. Reaches are numbers of 64 bits (rank_value()), of which a bound is found, digit
/// by digit: larger ones are kept, and of equal ones the first.
template <class Block>
class NodeSelection {
 public:
  SPECULA_HD NodeSelection(Block block, const SelectNodesArgs& args, unsigned char* shared)
      : block_(block),
        args_(args),
        shared_(*reinterpret_cast<SelectNodesShared*>(shared)),
        sequences_(args.in.sequence_count ? smaller(args.sequences, *args.in.sequence_count)
                                          : args.sequences),
        begin_(args.in.begin[0]),
        end_(args.in.begin[sequences_]) {}

  SPECULA_HD void run() {
    mark_roots();
    find_bound();
    block_.sync();
    const int nodes = place();
    block_.sync();
    write(nodes);
  }

 private:
  /// row_of_node is 1 at roots, else 0.
  SPECULA_HD void mark_roots() const {
    for (std::int32_t i = begin_ + block_.rank(); i < end_; i += block_.size()) args_.out.row_of_node[i] = 0;
    block_.sync();
    for (int b = block_.rank(); b < sequences_; b += block_.size())
      if (args_.in.begin[b + 1] > args_.in.begin[b]) args_.out.row_of_node[args_.in.begin[b]] = 1;
    block_.sync();
  }
  /// 0 where a node is never kept for its reach: roots, and what cannot be accepted.
  SPECULA_HD std::uint64_t key_of(std::int32_t node) const {
    const double reach = args_.in.reach[node];
    return args_.out.row_of_node[node] == 0 && reach > 0 ? rank_value(reach) : 0;
  }

  /// Numbers above `bound_` are kept, and the first `ties_` of those that equal it.
  SPECULA_HD void find_bound() {
    std::int32_t wanted = larger(0, *args_.in.budget);
    if (wanted == 0) {
      bound_ = ~std::uint64_t{0};
      return;
    }
    std::uint64_t digits = 0;  // of the bound, those that are known
    SPECULA_NO_UNROLL
    for (int shift = 56; shift >= 0; shift -= 8) {
      for (int i = block_.rank(); i < 256; i += block_.size()) shared_.count[i] = 0;
      block_.sync();
      for (std::int32_t i = begin_ + block_.rank(); i < end_; i += block_.size()) {
        const std::uint64_t key = key_of(i);
        if (key > 0 && (shift == 56 || (key ^ digits) >> (shift + 8) == 0))
          atomic_add(shared_.count + (key >> shift & 255), std::int32_t{1});
      }
      block_.sync();
      if (block_.warp_rank() == 0) find_digit(wanted);
      block_.sync();
      if (shared_.digit < 0) return;  // fewer than wanted: all
      wanted -= shared_.above;
      digits |= static_cast<std::uint64_t>(shared_.digit) << shift;
      if (shared_.inside == wanted) {  // all numbers with these digits
        bound_ = digits > 0 ? digits - 1 : 0;
        return;
      }
    }
    bound_ = digits;
    ties_ = wanted;
  }
  /// By a warp: the digit in which the wanted-th largest number lies, or -1.
  SPECULA_HD void find_digit(std::int32_t wanted) const {
    const auto warp = block_.warp();
    const int per_lane = 256 / warp.size(), top = 255 - per_lane * warp.rank();
    std::int32_t mine = 0;
    for (int i = 0; i < per_lane; ++i) mine += shared_.count[top - i];
    const std::int32_t upto = inclusive_sum(warp, mine);
    const int lane = first_lane(warp.ballot(upto >= wanted));
    if (lane < 0) {
      if (warp.rank() == 0) shared_.digit = -1;
      return;
    }
    if (warp.rank() != lane) return;
    std::int32_t above = upto - mine;
    int digit = top;
    while (above + shared_.count[digit] < wanted) above += shared_.count[digit--];
    shared_.digit = digit, shared_.above = above, shared_.inside = shared_.count[digit];
  }

  /// The number of each node among those that are kept, in their order, or -1. Returns how many are kept.
  SPECULA_HD int place() const {
    const auto warp = block_.warp();
    const int rank = block_.warp_rank();
    const std::uint32_t lower = (std::uint32_t{1} << warp.rank()) - 1;
    const auto before = [&](const std::uint32_t* ballots) {
      int out = count_lanes(ballots[rank] & lower);
      for (int w = 0; w < rank; ++w) out += count_lanes(ballots[w]);
      return out;
    };
    const auto all = [&](const std::uint32_t* ballots) {
      int out = 0;
      for (int w = 0; w < block_.warp_count(); ++w) out += count_lanes(ballots[w]);
      return out;
    };
    int kept = 0, equal = 0;  // in earlier chunks
    SPECULA_NO_UNROLL
    for (std::int32_t chunk = begin_; chunk < end_; chunk += block_.size()) {
      const std::int32_t i = chunk + block_.rank();
      const bool there = i < end_, root = there && args_.out.row_of_node[i] == 1;
      const std::uint64_t key = there ? key_of(i) : 0;
      const bool tie = key > 0 && key == bound_;
      const std::uint32_t ties = warp.ballot(tie);
      if (warp.rank() == 0) shared_.ties[rank] = ties;
      block_.sync();
      const bool keep = root || key > bound_ || (tie && equal + before(shared_.ties) < ties_);
      equal += all(shared_.ties);
      const std::uint32_t keeps = warp.ballot(keep);
      if (warp.rank() == 0) shared_.kept[rank] = keeps;
      block_.sync();
      if (there) args_.out.row_of_node[i] = keep ? kept + before(shared_.kept) : -1;
      kept += all(shared_.kept);
    }
    return kept;
  }

  SPECULA_HD void write(int nodes) const {
    const std::int32_t* const begin = args_.in.begin;
    const std::int32_t* const row = args_.out.row_of_node;
    for (int b = block_.rank(); b <= sequences_; b += block_.size())
      args_.out.begin[b] = begin[b] < end_ ? row[begin[b]] : nodes;
    for (std::int32_t i = begin_ + block_.rank(); i < end_; i += block_.size()) {
      const int to = row[i];
      if (to < 0) continue;
      const std::int32_t root = begin[sequence_of(begin, sequences_, i)];
      const NodeId parent = i == root ? kNoParent : args_.in.parent ? args_.in.parent[i] : i - root - 1;
      args_.out.token[to] = args_.in.token[i];
      // A parent that was not kept, or is none, makes the tree bad for its readers.
      args_.out.parent[to] = parent >= 0 && parent < i - root && row[root + parent] >= 0
                                 ? row[root + parent] - row[root]
                                 : kNoParent;
    }
  }

  Block block_;
  const SelectNodesArgs& args_;
  SelectNodesShared& shared_;
  int sequences_;
  std::int32_t begin_, end_;
  std::uint64_t bound_ = 0;
  std::int32_t ties_ = 0;
};

/// Host-side checks of the arguments.
inline bool valid_selection(int sequences, const Proposals& in, const SelectedNodes& out) {
  return sequences >= 1 &&
         !any_null(
             {in.begin, in.token, in.reach, in.budget, out.begin, out.token, out.parent, out.row_of_node}) &&
         !any_misaligned(in.begin, in.token, in.parent, in.reach, in.budget, in.sequence_count, out.begin,
                         out.token, out.parent, out.row_of_node);
}

#ifdef __CUDACC__
/// A template, so that several files may include it.
template <int threads>
__global__ void __launch_bounds__(threads) select_nodes_kernel(const __grid_constant__ SelectNodesArgs args) {
  __shared__ __align__(16) unsigned char shared[sizeof(SelectNodesShared)];
  NodeSelection<DeviceBlock>(DeviceBlock{}, args, shared).run();
}
#endif

}  // namespace detail

#ifdef __CUDACC__

/// Of the draft tokens of `sequences` proposals at most as many are kept as the budget says: those of the
/// largest reach over all sequences, ties to the earlier sequence, then to the lower node. So BatchBudget
/// chooses on the CPU, where the number is its. All roots are kept. What is left are trees again, without
/// gaps, as Trees, tree_links() and tree attention take them. Only for draft tokens that were chosen: to
/// leave out drawn ones biases the text. No output may overlap an input. Cost: one launch of one block, which
/// reads the reaches up to nine times. Errors: cudaErrorInvalidValue for `sequences` below 1 and arrays that
/// are null or misaligned; else the launch's error. Source: Sequoia's and EAGLE-2's choice of nodes by the
/// probability of their paths (Chen et al. 2024; Li et al. 2024), over a batch.
/// @code
/// const Proposals all{grown.begin, grown.token, grown.parent, grown.reach, budget};
/// select_nodes(sequences, all, SelectedNodes{begin, token, parent, row_of_node}, stream);
/// @endcode
inline cudaError_t select_nodes(int sequences, const Proposals& in, const SelectedNodes& out,
                                cudaStream_t stream) {
  if (!detail::valid_selection(sequences, in, out)) return cudaErrorInvalidValue;
  constexpr int kThreads = 512;
  return detail::launch(detail::select_nodes_kernel<kThreads>, 1, 1, kThreads, 0, stream,
                        detail::SelectNodesArgs{in, out, sequences});
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
