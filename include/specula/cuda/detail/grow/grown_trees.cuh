// SPDX-License-Identifier: MIT
// Draft trees grown on the device: candidate pool, and selection of the likeliest nodes.
//
// Work: build_tree_kernel has one block of 512 threads per sequence.
// Traffic: reaches of the pool are read once into shared memory, then tokens and parents of the chosen nodes.
// Forms: dynamic_tree_rerank() has no spine; cape_finish() has one of L tokens, which precedes all others.
// Reference: shape/dynamic_tree.hpp, shape/cape.hpp; tests/cuda/api/grow_dynamic_tree.cpp, grow_cape.cpp;
// bench/cuda/growth_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/grow.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program growth).
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/growth.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/grow/links.cuh"
#include "specula/cuda/detail/primitives/block/select.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

namespace detail {

constexpr int kMaxOfRow = 32;    // best tokens of a row that may become draft tokens
constexpr double kNoReach = -1;  // of a missing draft token

/// Draft tokens that may enter a proposal, `size` a sequence, older ones first.
struct Pool {
  double* reach;         // (B, size) probability that it and its ancestors are accepted, at most its parent's
  Token* token;          // (B, size)
  std::int32_t* parent;  // (B, size) in the pool, -1: the root
  float* confidence;     // (B, size)
  int size;

  static std::size_t bytes(int sequences, int size) {
    return static_cast<std::size_t>(sequences) * static_cast<std::size_t>(size) *
           (sizeof(double) + sizeof(Token) + sizeof(std::int32_t) + sizeof(float));
  }
  /// At an address that is a multiple of 8.
  static Pool at(void* memory, int sequences, int size) {
    const auto n = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(size);
    Pool out;
    out.reach = static_cast<double*>(memory);
    out.token = reinterpret_cast<Token*>(out.reach + n);
    out.parent = out.token + n;
    out.confidence = reinterpret_cast<float*>(out.parent + n);
    out.size = size;
    return out;
  }
  SPECULA_HD std::int64_t first(int sequence) const { return static_cast<std::int64_t>(sequence) * size; }
  SPECULA_HD void put(std::int64_t at, Token new_token, std::int32_t new_parent, double prob,
                      double new_reach) const {
    reach[at] = new_reach;
    token[at] = new_token;
    parent[at] = new_parent;
    confidence[at] = static_cast<float>(prob);
  }
};

/// How the proposals of a batch are chosen from a pool.
struct BuildTreeArgs {
  Roots roots;
  Pool pool;
  GrownTrees out;
  const Status* status;  // (B) anything but ok: the root alone
  Status* status_out;    // (B) the same, for the caller; may be null
  int sequences, width;
  int spine;  // a sequence's first draft tokens, a chain; they precede all others
};

/// The proposal of one sequence: the root, as much of the spine as fits, and of the other draft tokens those
/// most likely to be accepted, ties to the older; all ordered by age. Cost: a selection among the others, a
/// pass over the later nodes for each node, and a traversal to its root.
template <class Group>
class TreeBuilder {
 public:
  /// 16-byte aligned shared memory for trees of `width` nodes of a pool of `draft_tokens`.
  SPECULA_HD static std::size_t shared_bytes(int draft_tokens, int spine, int width) {
    return Select<Group>::shared_bytes(draft_tokens - spine) + 2 * array_bytes<NodeId>(parent_places(width)) +
           array_bytes<std::int32_t>(draft_tokens - spine);
  }
  SPECULA_HD TreeBuilder(Group group, const BuildTreeArgs& args, int sequence, unsigned char* shared)
      : group_(group),
        args_(args),
        select_(group, args.pool.size - args.spine, 0, shared),
        parent_(reinterpret_cast<NodeId*>(shared + Select<Group>::shared_bytes(args.pool.size - args.spine))),
        chosen_(behind<std::int32_t>(parent_, parent_places(args.width))),
        node_of_(behind<NodeId>(chosen_, parent_places(args.width))),
        sequence_(sequence),
        first_(args.pool.first(sequence)) {
    end_array(node_of_, args.pool.size - args.spine);
  }

  SPECULA_HD void build_tree() {
    if (!is_live(sequence_, args_.roots.sequence_count)) return;
    const Pool& pool = args_.pool;
    const int from = args_.spine;
    const Status status = args_.status[sequence_];
    const std::int32_t limit = args_.roots.limit ? args_.roots.limit[sequence_] : args_.width;
    select_.read(pool.size - from, [&](int i) { return rank_value(pool.reach[first_ + from + i]); });
    // Number of draft tokens that fit: 0 for a bad sequence.
    const int room = status == Status::ok ? larger(1, smaller(args_.width, limit)) - 1 : 0;
    const int chain = 1 + smaller(from, room);
    const int others = select_.choose(room + 1 - chain, [&](int i, int place) {
      chosen_[place] = i;
      node_of_[i] = chain + place;
    });
    write(chain, chain + others, status);
  }

 private:
  /// The pool's number of a node that is neither padding nor the root.
  SPECULA_HD std::int32_t draft_token_of(NodeId node, int chain) const {
    return node < chain ? node - 1 : args_.spine + chosen_[node - chain];
  }
  /// The node of a draft token that has a child. It is chosen: it is older and at least as likely to be
  /// accepted.
  SPECULA_HD NodeId node_of(std::int32_t draft_token) const {
    return draft_token < args_.spine ? draft_token + 1 : node_of_[draft_token - args_.spine];
  }

  /// The pool holds no draft token before its parent, so its order is one for a tree.
  SPECULA_HD void write(int chain, int nodes, Status status) const {
    const GrownTrees& out = args_.out;
    const Pool& pool = args_.pool;
    const std::int64_t to = static_cast<std::int64_t>(sequence_) * args_.width;
    const std::int32_t position = args_.roots.position[sequence_];
    SPECULA_NO_UNROLL
    for (NodeId n = group_.rank(); n < parent_places(args_.width); n += group_.size()) {
      const bool draft_token = n > 0 && n < nodes;
      const std::int32_t above = draft_token ? pool.parent[first_ + draft_token_of(n, chain)] : kNoParent;
      const NodeId parent = n >= nodes ? kNoNode : above < 0 ? n == 0 ? kNoParent : 0 : node_of(above);
      parent_[n] = parent;
      if (n < args_.width) out.parent[to + n] = n < nodes ? parent : 0;
    }
    SPECULA_NO_UNROLL
    for (NodeId n = rank_from_quarter(group_, 2); n < args_.width; n += group_.size()) {
      const bool draft_token = n > 0 && n < nodes;
      const std::int64_t from = first_ + (draft_token ? draft_token_of(n, chain) : 0);
      const Token token = draft_token ? pool.token[from] : n == 0 ? args_.roots.token[sequence_] : kNoToken;
      const float confidence = draft_token ? pool.confidence[from] : n == 0 ? 1.0f : 0.0f;
      out.token[to + n] = token;
      if (out.confidence) out.confidence[to + n] = confidence;
      if (out.reach) out.reach[to + n] = draft_token ? pool.reach[from] : n == 0 ? 1.0 : 0.0;
    }
    group_.sync();
    const LinkArrays links{out.first_child, out.next_sibling,        out.position,
                           out.ancestors,   mask_words(args_.width), position};
    write_links(group_, links, to, nodes, args_.width, parent_);
    if (group_.rank() != 0) return;
    if (args_.status_out) args_.status_out[sequence_] = status;
    if (out.size) out.size[sequence_] = nodes;
    if (out.begin) out.begin[sequence_] = static_cast<std::int32_t>(to);
    if (out.begin &&
        (sequence_ == args_.sequences - 1 || !is_live(sequence_ + 1, args_.roots.sequence_count)))
      out.begin[sequence_ + 1] = static_cast<std::int32_t>(to + args_.width);
  }

  Group group_;
  const BuildTreeArgs& args_;
  Select<Group> select_;
  NodeId* parent_;        // (parent_places(width))
  std::int32_t* chosen_;  // (width) of the draft tokens after the spine, by age
  NodeId* node_of_;       // (draft tokens after the spine) of those that are chosen
  int sequence_;
  std::int64_t first_;
};

#ifdef __CUDACC__

constexpr int kBuildTreeThreads = 512;

/// The proposals, one block each. A template, so that several files may include it.
template <int threads>
__global__ void __launch_bounds__(threads) build_tree_kernel(const __grid_constant__ BuildTreeArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  TreeBuilder<DeviceBlock>(DeviceBlock{}, args, static_cast<int>(blockIdx.x), shared).build_tree();
}

/// Lets trees of `width` nodes be chosen from pools of `draft_tokens`, for which a block takes
/// `shared_bytes`. Outside of captures. cudaErrorInvalidValue where it has less.
inline cudaError_t prepare_build_tree(int draft_tokens, int spine, int width, int device,
                                      std::size_t* shared_bytes) {
  DeviceLimits limits;
  cudaError_t error = check_current(device);
  if (error == cudaSuccess) error = device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  *shared_bytes = TreeBuilder<DeviceBlock>::shared_bytes(draft_tokens, spine, width);
  if (*shared_bytes > static_cast<std::size_t>(limits.shared_bytes)) return cudaErrorInvalidValue;
  return prepare(build_tree_kernel<kBuildTreeThreads>, *shared_bytes, 1);
}
inline cudaError_t build_tree(const BuildTreeArgs& args, std::size_t shared_bytes, cudaStream_t stream) {
  return launch(build_tree_kernel<kBuildTreeThreads>, args.sequences, 1, kBuildTreeThreads, shared_bytes,
                stream, args);
}

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
