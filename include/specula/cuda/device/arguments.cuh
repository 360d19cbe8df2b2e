// What a host can see of a caller's pointers and plans before it launches anything.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace specula {
namespace cuda {
namespace detail {

inline bool any_null(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (!p) return true;
  return false;
}

/// Whether one of the arrays is not at a multiple of its elements' size; null ones are.
template <class... T>
bool any_misaligned(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) % alignof(T) != 0) || ...);
}

/// Whether rows of `length` elements, `stride` apart, do not overlap. One row may have any stride.
inline bool are_apart(std::int64_t rows, std::int64_t stride, std::int64_t length) {
  return rows <= 1 || stride >= length || -stride >= length;
}

/// Whether a kernel can be launched so: in clusters that Hopper has, of blocks of whole warps.
inline bool is_geometry(int cluster, int threads) {
  return cluster >= 1 && cluster <= 16 && (cluster & (cluster - 1)) == 0 && threads >= 32 &&
         threads <= 1024 && threads % 32 == 0;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
