// SPDX-License-Identifier: MIT
// Arrays one after the other in a block's shared memory.
#pragma once

#include <cstddef>

#include "specula/base/host_device.hpp"

// Under the address sanitizer, which sees the emulated GPU's memory, no thread may touch the gap after an
// array.
#if defined(__SANITIZE_ADDRESS__)
#define SPECULA_GUARDS_ARRAYS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPECULA_GUARDS_ARRAYS
#endif
#endif
#if defined(SPECULA_GUARDS_ARRAYS) && !defined(__CUDACC__)
#include <sanitizer/asan_interface.h>
#else
#undef SPECULA_GUARDS_ARRAYS
#endif

namespace specula {
namespace cuda {
namespace detail {

/// Bytes after an array: none, or in tests a multiple of every alignment.
#ifdef SPECULA_GUARDS_ARRAYS
constexpr std::size_t kArrayGap = 64;
#else
constexpr std::size_t kArrayGap = 0;
#endif

/// What an array of n takes.
template <class T, class Integer>
SPECULA_HD constexpr std::size_t array_bytes(Integer n) {
  return static_cast<std::size_t>(n) * sizeof(T) + kArrayGap;
}

/// The array of n ends, and its gap begins.
template <class T, class Integer>
SPECULA_HD void end_array(T* array, Integer n) {
#ifdef SPECULA_GUARDS_ARRAYS
  __asan_poison_memory_region(array + n, kArrayGap);
#else
  static_cast<void>(array), static_cast<void>(n);
#endif
}

/// The array after one of n.
template <class Next, class T, class Integer>
SPECULA_HD Next* behind(T* array, Integer n) {
  end_array(array, n);
  return reinterpret_cast<Next*>(reinterpret_cast<unsigned char*>(array + n) + kArrayGap);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
