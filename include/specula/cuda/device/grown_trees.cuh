// What the growth of proposals on the device begins with, keeps, and leaves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../block/links.cuh"
#include "../block/select.cuh"
#include "../detail/host_device.cuh"
#include "../types.cuh"
#include "launch.cuh"
#include "trees.cuh"

namespace specula {
namespace cuda {

/// Where B proposals begin, arrays on the device.
struct Roots {
  const Token* token;                   // (B)
  const std::int32_t* position;         // (B) of the root in its text
  const std::int32_t* limit = nullptr;  // (B) nodes that fit, the root included; null: as many as are made
};

/// Logits of the draft after the nodes that it was last run on, in their order.
template <class Element>
struct DraftRows {
  const Element* logits;  // (R, V), rows `stride` elements apart
  std::int64_t stride;    // 64 bits: offsets never wrap
};

/// The proposals of B sequences, arrays on the device. All have the same number of nodes, `width` of the
/// plan, so begin[b] is b * width: what is there comes first, the root as node 0 and parents before their
/// children; behind it is padding, of token -1, which stands below the root and sees it and itself. Null
/// arrays are not wanted.
struct GrownTrees {
  Token* token;                        // (B, width)
  NodeId* parent;                      // (B, width) in the tree's own numbers, -1 for a root
  std::int32_t* begin = nullptr;       // (B + 1)
  std::int32_t* size = nullptr;        // (B) nodes that are there
  std::int32_t* position = nullptr;    // (B, width) in the text: the root's and the depth
  float* confidence = nullptr;         // (B, width) the draft's probability; 1 for a root, 0 for padding
  std::uint64_t* ancestors = nullptr;  // (B, width, mask_words(width)) as specula::tree_mask
  NodeId* first_child = nullptr;       // (B, width) -1: none
  NodeId* next_sibling = nullptr;      // (B, width) -1: none
};

namespace detail {

constexpr int kMostOfRow = 32;   // best tokens of a row that may become guesses
constexpr double kNoReach = -1;  // of what is not there

/// Guesses that may enter a proposal, `size` a sequence, older ones first.
struct Pool {
  double* reach;         // (B, size) chance that it and its ancestors stay: at most its parent's
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
struct Planting {
  Roots roots;
  Pool pool;
  GrownTrees out;
  const Status* status;  // (B) anything but ok: the root alone
  Status* told;          // (B) the same, for the caller; may be null
  int sequences, width;
  int spine;  // a sequence's first guesses, a chain, which come before all others
};

/// The proposal of one sequence: the root, as much of the spine as there is room for, and of the other
/// guesses those that are likeliest to stay, ties to the older; all by age. Cost: a selection among the
/// others, and n^2 steps to number and link n nodes.
template <class Group>
class Planter {
 public:
  /// 16-byte aligned shared memory for trees of `width` nodes of a pool of `guesses`.
  SPECULA_HD static std::size_t shared_bytes(int guesses, int spine, int width) {
    return Select<Group>::shared_bytes(guesses - spine) +
           (sizeof(Ranked) + 2 * sizeof(std::int32_t)) * static_cast<std::size_t>(width);
  }
  SPECULA_HD Planter(Group group, const Planting& args, int sequence, unsigned char* shared)
      : group_(group),
        args_(args),
        select_(group, shared),
        best_(reinterpret_cast<Ranked*>(shared + Select<Group>::shared_bytes(args.pool.size - args.spine))),
        of_node_(reinterpret_cast<std::int32_t*>(best_ + args.width)),
        parent_(of_node_ + args.width),
        sequence_(sequence),
        first_(args.pool.first(sequence)) {}

  SPECULA_HD void plant() {
    const Pool& pool = args_.pool;
    const int from = args_.spine, room = this->room(), chain = 1 + smaller(from, room);
    const int others = select_.best(
        pool.size - from, [&](int i) { return rank_value(pool.reach[first_ + from + i]); }, room + 1 - chain,
        best_);
    const int nodes = chain + others;
    // The pool holds no guess before its parent, so its order is one for a tree.
    for (int i = group_.rank(); i < nodes; i += group_.size()) {
      if (i < chain) {
        of_node_[i] = i - 1;
        continue;
      }
      const std::int32_t mine = best_[i - chain].index;
      int node = chain;
      for (int j = 0; j < others; ++j) node += best_[j].index < mine ? 1 : 0;
      of_node_[node] = from + mine;
    }
    group_.sync();
    for (NodeId n = group_.rank(); n < nodes; n += group_.size())
      parent_[n] = n == 0 ? kNoParent : node_before(n, pool.parent[first_ + of_node_[n]]);
    group_.sync();
    write(nodes);
  }

 private:
  /// Guesses that there is room for.
  SPECULA_HD int room() const {
    if (args_.status[sequence_] != Status::ok) return 0;
    const int width = args_.width;
    return (args_.roots.limit ? larger(1, smaller(width, args_.roots.limit[sequence_])) : width) - 1;
  }

  /// The node before `node` that is `guess` of the pool, -1 being the root. A parent is older than its child
  /// and no less likely to stay, so it is there.
  SPECULA_HD NodeId node_before(NodeId node, std::int32_t guess) const {
    NodeId low = 0, high = node;  // of_node_[low] <= guess < of_node_[high]
    while (high - low > 1) {
      const NodeId middle = (low + high) / 2;
      if (of_node_[middle] <= guess)
        low = middle;
      else
        high = middle;
    }
    return low;
  }

  SPECULA_HD void write(int nodes) const {
    const GrownTrees& out = args_.out;
    const std::int64_t to = static_cast<std::int64_t>(sequence_) * args_.width;
    const std::int32_t position = args_.roots.position[sequence_];
    for (NodeId n = group_.rank(); n < args_.width; n += group_.size()) {
      const bool there = n < nodes;
      const std::int64_t guess = first_ + (there && n > 0 ? of_node_[n] : 0);
      out.token[to + n] = !there ? kNoToken : n == 0 ? args_.roots.token[sequence_] : args_.pool.token[guess];
      out.parent[to + n] = there ? parent_[n] : 0;
      if (out.position) out.position[to + n] = position + (there ? depth_of(n, parent_) : 1);
      if (out.confidence)
        out.confidence[to + n] = !there ? 0.0f : n == 0 ? 1.0f : args_.pool.confidence[guess];
    }
    const LinkArrays links{out.first_child, out.next_sibling, nullptr, out.ancestors,
                           mask_words(args_.width)};
    write_links(group_, links, to, nodes, parent_);
    write_no_links(group_, links, to, nodes, args_.width);
    if (group_.rank() != 0) return;
    if (args_.told) args_.told[sequence_] = args_.status[sequence_];
    if (out.size) out.size[sequence_] = nodes;
    if (out.begin) out.begin[sequence_] = static_cast<std::int32_t>(to);
    if (out.begin && sequence_ == args_.sequences - 1)
      out.begin[args_.sequences] = static_cast<std::int32_t>(to + args_.width);
  }

  Group group_;
  const Planting& args_;
  Select<Group> select_;
  Ranked* best_;           // (width)
  std::int32_t* of_node_;  // (width) guess of the pool, -1 for the root
  NodeId* parent_;         // (width)
  int sequence_;
  std::int64_t first_;
};

#ifdef __CUDACC__

constexpr int kPlantingThreads = 256;

/// The proposals, a block each. A template, so that several files may include it.
template <int threads>
__global__ void __launch_bounds__(threads) planting_kernel(const __grid_constant__ Planting args) {
  extern __shared__ __align__(16) unsigned char shared[];
  Planter<DeviceBlock>(DeviceBlock{}, args, static_cast<int>(blockIdx.x), shared).plant();
}

/// Lets trees of `width` nodes be chosen from pools of `guesses`, for which a block takes `shared_bytes`.
/// Outside of captures. cudaErrorInvalidValue where it has less.
inline cudaError_t prepare_planting(int guesses, int spine, int width, int device,
                                    std::size_t* shared_bytes) {
  DeviceLimits limits;
  const cudaError_t error = device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  *shared_bytes = Planter<DeviceBlock>::shared_bytes(guesses, spine, width);
  if (*shared_bytes > static_cast<std::size_t>(limits.shared_bytes)) return cudaErrorInvalidValue;
  return prepare(planting_kernel<kPlantingThreads>, *shared_bytes, 1);
}
inline cudaError_t plant(const Planting& args, std::size_t shared_bytes, cudaStream_t stream) {
  return launch(planting_kernel<kPlantingThreads>, args.sequences, 1, kPlantingThreads, shared_bytes, stream,
                args);
}

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
