// SPDX-License-Identifier: MIT
// Cache-line aligned vectors, and an arena for data that is read in one sweep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "specula/base/compiler_options.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace specula::cpu::detail {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Storage of at least one huge page is aligned to huge pages, and Linux is advised to use them: a pass over
/// weights, keys and values then has fewer TLB misses, and no prefetch is dropped because of one.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    void* const memory = ::operator new(n * sizeof(T), alignment(n));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (const std::size_t whole = n * sizeof(T) / kHugePage * kHugePage; whole > 0)
      static_cast<void>(madvise(memory, whole, MADV_HUGEPAGE));  // advice: it may be refused
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* p, std::size_t n) { ::operator delete(p, alignment(n)); }
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }

 private:
  static std::align_val_t alignment(std::size_t n) {
    return std::align_val_t{n * sizeof(T) < kHugePage ? kCacheLine : kHugePage};
  }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

/// Arena: allocates pieces one after the other, each on the next cache line, so that data allocated in the
/// order of its use is read in the order of addresses. A piece keeps the chunk that it lies in alive.
class Arena {
 public:
  /// `n` zeros of type T, which must be arithmetic.
  template <class T>
  std::shared_ptr<T[]> take(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    const std::size_t bytes = (n * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
    if (bytes > left_) {
      const std::size_t size = std::max(bytes, kChunk);
      chunk_ = {AlignedAllocator<std::byte>().allocate(size),
                [size](std::byte* p) { AlignedAllocator<std::byte>().deallocate(p, size); }};
      at_ = chunk_.get();
      left_ = size;
    }
    T* const piece = ::new (static_cast<void*>(at_)) T[n]();
    at_ += bytes;
    left_ -= bytes;
    return {chunk_, piece};
  }

 private:
  static constexpr std::size_t kChunk = 32 * kHugePage;  // unused memory is never touched
  std::shared_ptr<std::byte> chunk_;
  std::byte* at_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace specula::cpu::detail
