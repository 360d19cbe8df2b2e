// SPDX-License-Identifier: MIT
// Thread groups (warp, block, cluster) that kernels are written over, so that CPU tests run the same code.
//
// A kernel's body is a function template over a Cluster. On a GPU that is DeviceCluster; in the tests it is
// an emulated one, of which every thread is a fiber. The concepts, by what each has beyond the one before:
//
//   Warp     rank() size() sync() shuffle(v, from) shuffle_xor(v, mask) shuffle_up(v, by) ballot(bool)
//            largest(unsigned)
//   Block    rank() size() sync() sync_others() warp() warp_rank() warp_count()
//   Cluster  rank() size() sync() arrive() wait() block() map(pointer, rank)
//
// and Cluster::Copies, a thread's asynchronous copies. A Cluster's rank() is that of this thread's block and
// size() the number of its blocks; map() turns a pointer into one's own shared memory into the same place of
// another block's. All threads of a group call its functions together and in the same order; a block's warps
// may call sync() from different places, and sync_others() is a barrier of all warps but the first.
// shuffle_up gives lanes below `by` their own value back. Whole warps come to every barrier, all lanes from
// one place, though different warps may come from different places. Nothing here orders memory but sync().
// arrive() and wait() order nothing: after them all blocks have begun.
#pragma once

#include <type_traits>
#include <utility>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/thread/async_copy.cuh"

#ifdef __CUDACC__
#include <cuda/ptx>
#endif

namespace specula {
namespace cuda {

/// One thread as a Warp of size 1: what algorithms over a Group of any size run on serially.
struct SerialGroup {
  SPECULA_HD static constexpr int rank() { return 0; }
  SPECULA_HD static constexpr int size() { return 1; }
  SPECULA_HD static void sync() {}
  template <class T>
  SPECULA_HD static T shuffle(T value, int) {
    return value;
  }
  template <class T>
  SPECULA_HD static T shuffle_xor(T value, int) {
    return value;
  }
  template <class T>
  SPECULA_HD static T shuffle_up(T value, int) {
    return value;
  }
  SPECULA_HD static std::uint32_t ballot(bool yes) { return yes; }
  SPECULA_HD static std::uint32_t largest(std::uint32_t value) { return value; }
};

#ifdef __CUDACC__

// Never called on the host; host-device so that host-device bodies can call them.

struct DeviceWarp {
  SPECULA_HD static int rank() {
#ifdef __CUDA_ARCH__
    return static_cast<int>(threadIdx.x % 32);
#else
    return 0;
#endif
  }
  SPECULA_HD static constexpr int size() { return 32; }
  SPECULA_HD static void sync() {
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
  }
  template <class T>
  SPECULA_HD static T shuffle(T value, int from) {
#ifdef __CUDA_ARCH__
    return __shfl_sync(~0u, value, from);
#else
    static_cast<void>(from);
    return value;
#endif
  }
  template <class T>
  SPECULA_HD static T shuffle_xor(T value, int mask) {
#ifdef __CUDA_ARCH__
    return __shfl_xor_sync(~0u, value, mask);
#else
    static_cast<void>(mask);
    return value;
#endif
  }
  template <class T>
  SPECULA_HD static T shuffle_up(T value, int by) {
#ifdef __CUDA_ARCH__
    return __shfl_up_sync(~0u, value, static_cast<unsigned>(by));
#else
    static_cast<void>(by);
    return value;
#endif
  }
  SPECULA_HD static std::uint32_t ballot(bool yes) {
#ifdef __CUDA_ARCH__
    return __ballot_sync(~0u, yes);
#else
    return yes;
#endif
  }
  /// The largest of all lanes' values, in one instruction.
  SPECULA_HD static std::uint32_t largest(std::uint32_t value) {
#ifdef __CUDA_ARCH__
    return __reduce_max_sync(~0u, value);
#else
    return value;
#endif
  }
};

/// A block of one dimension, its size a multiple of 32.
struct DeviceBlock {
  SPECULA_HD static int rank() {
#ifdef __CUDA_ARCH__
    return static_cast<int>(threadIdx.x);
#else
    return 0;
#endif
  }
  SPECULA_HD static int size() {
#ifdef __CUDA_ARCH__
    return static_cast<int>(blockDim.x);
#else
    return 1;
#endif
  }
  /// Not __syncthreads(), which all threads would have to call at one place. Aligned: what comes after is
  /// compiled for whole warps.
  SPECULA_HD static void sync() {
#ifdef __CUDA_ARCH__
    asm volatile("barrier.sync.aligned 0;" ::: "memory");
#endif
  }
  SPECULA_HD static void sync_others() {
#ifdef __CUDA_ARCH__
    asm volatile("barrier.sync.aligned 1, %0;" ::"r"(blockDim.x - 32) : "memory");
#endif
  }
  SPECULA_HD static DeviceWarp warp() { return {}; }
  SPECULA_HD static int warp_rank() { return rank() / 32; }
  SPECULA_HD static int warp_count() { return size() / 32; }
};

/// The cluster that a kernel was launched with; one block where the architecture has none.
struct DeviceCluster {
  using Copies = detail::DeviceCopies;
  SPECULA_HD static int rank() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return static_cast<int>(::cuda::ptx::get_sreg_cluster_ctarank());
#else
    return 0;
#endif
  }
  SPECULA_HD static int size() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return static_cast<int>(::cuda::ptx::get_sreg_cluster_nctarank());
#else
    return 1;
#endif
  }
  SPECULA_HD static void sync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    DeviceBlock::sync();
#endif
  }
  SPECULA_HD static void arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }
  SPECULA_HD static void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    DeviceBlock::sync();
#endif
  }
  SPECULA_HD static DeviceBlock block() { return {}; }
  template <class T>
  SPECULA_HD static T* map(T* shared, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    T* out;
    asm("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(shared), "r"(rank));
    return out;
#else
    static_cast<void>(rank);
    return shared;
#endif
  }
};

#endif  // __CUDACC__

/// A cluster without the first warp of each block, as a Cluster: these warps work while the first ones
/// decide. The first warps take part in its barriers, except those of a block; a word in each block's shared
/// memory counts the barriers for them.
template <class Cluster>
class OtherWarps {
 public:
  using Copies = typename Cluster::Copies;

  class Block {
   public:
    using Warp = decltype(std::declval<Cluster>().block().warp());

    SPECULA_HD explicit Block(Cluster cluster) : cluster_(cluster) {}
    SPECULA_HD int rank() const { return cluster_.block().rank() - Warp::size(); }
    SPECULA_HD int size() const { return cluster_.block().size() - Warp::size(); }
    SPECULA_HD void sync() const { cluster_.block().sync_others(); }
    SPECULA_HD Warp warp() const { return cluster_.block().warp(); }
    SPECULA_HD int warp_rank() const { return cluster_.block().warp_rank() - 1; }
    SPECULA_HD int warp_count() const { return cluster_.block().warp_count() - 1; }

   private:
    Cluster cluster_;
  };

  SPECULA_HD OtherWarps(Cluster cluster, int* barriers) : cluster_(cluster), barriers_(barriers) {}
  SPECULA_HD int rank() const { return cluster_.rank(); }
  SPECULA_HD int size() const { return cluster_.size(); }
  SPECULA_HD void sync() const {
    if (block().rank() == 0) ++*barriers_;
    cluster_.sync();
  }
  SPECULA_HD void arrive() const { cluster_.arrive(); }
  SPECULA_HD void wait() const { cluster_.wait(); }
  SPECULA_HD Block block() const { return Block(cluster_); }
  template <class T>
  SPECULA_HD T* map(T* shared, int rank) const {
    return cluster_.map(shared, rank);
  }

 private:
  Cluster cluster_;
  int* barriers_;
};

namespace detail {

struct Max {
  template <class T>
  SPECULA_HD T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Min {
  template <class T>
  SPECULA_HD T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Sum {
  template <class T>
  SPECULA_HD T operator()(T a, T b) const {
    return a + b;
  }
};

/// op over the warp's values, the same bits in every lane: halves are combined, and a + b is b + a.
template <class Warp, class T, class Op>
SPECULA_HD T reduce(Warp warp, T value, Op op) {
  for (int mask = warp.size() / 2; mask > 0; mask /= 2) value = op(value, warp.shuffle_xor(value, mask));
  return value;
}

#ifdef __CUDACC__
/// By the hardware's reduction, which only 32-bit integers have.
template <class Op>
SPECULA_HD int reduce(DeviceWarp, int value, Op) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<Op, Max>)
    return __reduce_max_sync(~0u, value);
  else if constexpr (std::is_same_v<Op, Min>)
    return __reduce_min_sync(~0u, value);
  else
    return __reduce_add_sync(~0u, value);
#else
  return value;
#endif
}
#endif  // __CUDACC__

/// Sum of the values of the lanes up to this one.
template <class Warp, class T>
SPECULA_HD T inclusive_sum(Warp warp, T value) {
  for (int by = 1; by < warp.size(); by *= 2) {
    const T before = warp.shuffle_up(value, by);
    if (warp.rank() >= by) value = before + value;
  }
  return value;
}

/// The lowest lane whose bit is set, and the highest; -1 if there is none.
SPECULA_HD int first_lane(std::uint32_t ballot) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(ballot)) - 1;
#else
  return ballot ? __builtin_ctz(ballot) : -1;
#endif
}
SPECULA_HD int last_lane(std::uint32_t ballot) {
#ifdef __CUDA_ARCH__
  return 31 - __clz(static_cast<int>(ballot));
#else
  return ballot ? 31 - __builtin_clz(ballot) : -1;
#endif
}
SPECULA_HD int count_lanes(std::uint32_t ballot) {
#ifdef __CUDA_ARCH__
  return __popc(ballot);
#else
  return __builtin_popcount(ballot);
#endif
}

/// op over the block's values; `scratch` is shared memory for one value per warp, free again once the
/// function returns.
template <class Block, class T, class Op>
SPECULA_HD T block_reduce(Block block, T value, Op op, T* scratch) {
  value = reduce(block.warp(), value, op);
  if (block.warp().rank() == 0) scratch[block.warp_rank()] = value;
  block.sync();
  value = scratch[0];
  for (int w = 1; w < block.warp_count(); ++w) value = op(value, scratch[w]);
  block.sync();
  return value;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
