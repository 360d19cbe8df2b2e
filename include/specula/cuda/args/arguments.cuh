// SPDX-License-Identifier: MIT
// Host-side checks of pointers, strides and plans before a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "specula/cuda/args/types.cuh"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace specula {
namespace cuda {

/// Device memory that launches work in. Plans of one stream may share all of it, in arrays of the largest
/// size. Launches that may run at the same time need arrays of their own, else their results are mixed.
struct Workspace {
  void* parts = nullptr;              ///< 16-byte aligned; content does not matter
  std::size_t part_bytes = 0;         ///< part_bytes() of the plan or more
  std::uint32_t* counters = nullptr;  ///< zeros at first (zero_counters()); zeros again after every launch
  std::size_t counter_bytes = 0;      ///< counter_bytes() of the plan or more
};

namespace detail {

/// Whether a workspace has at least these sizes.
inline bool is_room(const Workspace& w, std::size_t part_bytes, std::size_t counter_bytes) {
  const auto holds = [](const void* p, std::size_t has, std::size_t wanted, std::size_t alignment) {
    return wanted == 0 || (p && has >= wanted && reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
  };
  return holds(w.parts, w.part_bytes, part_bytes, 16) &&
         holds(w.counters, w.counter_bytes, counter_bytes, alignof(std::uint32_t));
}

inline bool any_null(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (!p) return true;
  return false;
}

/// Whether one of the arrays is not aligned to its elements' size; null ones are.
template <class... T>
bool any_misaligned(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) % alignof(T) != 0) || ...);
}

inline bool is_aligned(const ParamArrays& p) {
  return !any_misaligned(p.all, p.temperature, p.top_k, p.top_p, p.min_p);
}

/// Whether rows of `length` elements, `stride` apart, do not overlap. One row may have any stride.
inline bool are_apart(std::int64_t rows, std::int64_t stride, std::int64_t length) {
  return rows <= 1 || stride >= length || -stride >= length;
}

/// Whether a kernel can be launched in this geometry: clusters of a size that Hopper has, of blocks of whole
/// warps.
inline bool is_geometry(int cluster, int threads) {
  return cluster >= 1 && cluster <= 16 && (cluster & (cluster - 1)) == 0 && threads >= 32 &&
         threads <= 1024 && threads % 32 == 0;
}

}  // namespace detail

#ifdef __CUDACC__
/// Zeros the counters, in the stream. Once, before the first launch; and after a launch that was aborted.
inline cudaError_t zero_counters(const Workspace& workspace, cudaStream_t stream) {
  if (workspace.counter_bytes == 0) return cudaSuccess;
  return cudaMemsetAsync(workspace.counters, 0, workspace.counter_bytes, stream);
}
#endif

}  // namespace cuda
}  // namespace specula
