// Vectors whose storage starts on a cache line, and memory for what is read in one go.
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

namespace specula::eigen::detail {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// From a huge page on, memory begins with one and asks Linux for more of them: a pass over weights, keys and
/// values then waits less for addresses to be translated, and prefetching is not lost for want of a
/// translation.
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
      static_cast<void>(madvise(memory, whole, MADV_HUGEPAGE));  // a wish: it may be refused
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

/// Hands out memory piece by piece, each behind the last one on the next cache line, so that what is made in
/// the order of its use is read in the order of addresses. A piece keeps what it was cut from alive.
class Arena {
 public:
  /// `n` values of T, which is arithmetic, all zero.
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
  static constexpr std::size_t kChunk = 4 * kHugePage;  // what nobody takes is never touched
  std::shared_ptr<std::byte> chunk_;
  std::byte* at_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace specula::eigen::detail
