// What a host can see of a caller's pointers before it launches anything.
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

}  // namespace detail
}  // namespace cuda
}  // namespace specula
