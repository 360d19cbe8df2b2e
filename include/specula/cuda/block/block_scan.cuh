// Prefix sums over a block: each thread gives some integers and gets the sums of all that come before.
//
// On a device this is CUB's BlockScan, which comes with the toolkit; on any other block the plain sum that it
// must equal. Integers only: their sums do not depend on the order of adding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../detail/host_device.cuh"
#include "../group.cuh"

#ifdef __CUDACC__
#include <cub/block/block_scan.cuh>
#endif

namespace specula {
namespace cuda {
namespace detail {

/// Prefix sums of T, std::uint32_t or std::uint64_t, by a Block of `threads` threads, a multiple of 32. All
/// of them call a function together. Thread r holds numbers [r * items, (r + 1) * items) of the sequence;
/// they are replaced by their prefix sums, and all threads get the sum of everything. Sums wrap.
///
/// `shared` is written to; it may be used again, and by another scan, after a barrier. Cost: on a device one
/// barrier, 5 steps of shuffles, and an addition per warp.
template <class Block, class T, int threads>
class BlockScan {
  static_assert(std::is_unsigned<T>::value, "sums of floats would depend on their order");

 public:
  /// 16-byte aligned shared memory.
  SPECULA_HD static constexpr std::size_t shared_bytes() { return sizeof(T) * threads; }
  SPECULA_HD BlockScan(Block block, unsigned char* shared)
      : block_(block), sums_(reinterpret_cast<T*>(shared)) {}

  /// Without the number itself: the first becomes 0.
  template <int items>
  SPECULA_HD T exclusive_sum(T (&values)[items]) const {
    return sum<items, false>(values);
  }
  /// With it.
  template <int items>
  SPECULA_HD T inclusive_sum(T (&values)[items]) const {
    return sum<items, true>(values);
  }

 private:
  template <int items, bool inclusive>
  SPECULA_HD T sum(T (&values)[items]) const {
    T mine = 0;
    for (const T v : values) mine += v;
    sums_[block_.rank()] = mine;
    block_.sync();
    T before = 0, all = 0;
    for (int r = 0; r < threads; ++r) {
      if (r == block_.rank()) before = all;
      all += sums_[r];
    }
    for (T& v : values) {
      const T through = before + v;
      v = inclusive ? through : before;
      before = through;
    }
    return all;
  }

  Block block_;
  T* sums_;  // (threads)
};

#ifdef __CUDACC__

template <class T, int threads>
class BlockScan<DeviceBlock, T, threads> {
  static_assert(std::is_unsigned<T>::value, "sums of floats would depend on their order");
  using Scan = cub::BlockScan<T, threads, cub::BLOCK_SCAN_WARP_SCANS>;

 public:
  SPECULA_HD static constexpr std::size_t shared_bytes() { return sizeof(typename Scan::TempStorage); }
  SPECULA_HD BlockScan(DeviceBlock, unsigned char* shared)
      : shared_(reinterpret_cast<typename Scan::TempStorage*>(shared)) {}

  template <int items>
  SPECULA_HD T exclusive_sum(T (&values)[items]) const {
    T all = 0;
#ifdef __CUDA_ARCH__
    Scan(*shared_).ExclusiveSum(values, values, all);
#endif
    return all;
  }
  template <int items>
  SPECULA_HD T inclusive_sum(T (&values)[items]) const {
    T all = 0;
#ifdef __CUDA_ARCH__
    Scan(*shared_).InclusiveSum(values, values, all);
#endif
    return all;
  }

 private:
  typename Scan::TempStorage* shared_;
};

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
