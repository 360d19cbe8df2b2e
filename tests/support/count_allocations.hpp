// SPDX-License-Identifier: MIT
// Counts heap allocations. Include it in exactly one translation unit of a program: it replaces the global
// operator new and delete. With glibc, and outside the sanitizers (which replace malloc themselves), it also
// counts direct calls of the malloc family, because Eigen's temporaries never pass through operator new.
#pragma once

#if __has_include(<mm_malloc.h>)
#include <mm_malloc.h>  // clang's declares posix_memalign without noexcept: it must come before ours
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPECULA_TEST_COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SPECULA_TEST_COUNTS_MALLOC 0
#endif
#endif
#if !defined(SPECULA_TEST_COUNTS_MALLOC)
#if defined(__GLIBC__)
#define SPECULA_TEST_COUNTS_MALLOC 1
#else
#define SPECULA_TEST_COUNTS_MALLOC 0
#endif
#endif

namespace specula_test {

inline std::atomic<std::int64_t> allocations{0};

/// The allocations of all threads since its construction. Read it into a variable before a CHECK, which
/// allocates too.
///
///     specula_test::AllocationCount allocated;
///     run.step(rng);
///     const auto n = allocated.count();
///     CHECK(n == 0);
class AllocationCount {
 public:
  std::int64_t count() const { return allocations.load(std::memory_order_relaxed) - start_; }

 private:
  std::int64_t start_ = allocations.load(std::memory_order_relaxed);
};

inline std::atomic<std::int64_t> until_failure{0};

/// While it lives, one allocation by new fails: the one after `after` successful ones.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t after) { until_failure = after + 1; }
  ~FailingAllocation() { until_failure = 0; }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
};

}  // namespace specula_test

#if SPECULA_TEST_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t n, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* p);

void* malloc(std::size_t size) noexcept {
  specula_test::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) noexcept {
  specula_test::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  specula_test::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  specula_test::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) noexcept {
  specula_test::allocations.fetch_add(1, std::memory_order_relaxed);
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;  // ENOMEM
}
void free(void* p) noexcept { __libc_free(p); }
}
#endif

namespace specula_test::allocating {

inline void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (size == 0) size = 1;
#if !SPECULA_TEST_COUNTS_MALLOC
  allocations.fetch_add(1, std::memory_order_relaxed);
#endif
  return alignment == 0 ? std::malloc(size)
                        : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

inline void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  if (until_failure.load(std::memory_order_relaxed) > 0 && --until_failure == 0) throw std::bad_alloc();
  if (void* p = allocate(size, alignment)) return p;
  throw std::bad_alloc();
}

}  // namespace specula_test::allocating

// If these were inlined, g++ would warn of memory from new passed to free.
#define SPECULA_TEST_NOINLINE __attribute__((noinline))

SPECULA_TEST_NOINLINE void* operator new(std::size_t size) {
  return specula_test::allocating::allocate_or_throw(size, 0);
}
SPECULA_TEST_NOINLINE void* operator new(std::size_t size, std::align_val_t alignment) {
  return specula_test::allocating::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
SPECULA_TEST_NOINLINE void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return specula_test::allocating::allocate(size, 0);
}
SPECULA_TEST_NOINLINE void* operator new(std::size_t size, std::align_val_t alignment,
                                         const std::nothrow_t&) noexcept {
  return specula_test::allocating::allocate(size, static_cast<std::size_t>(alignment));
}
SPECULA_TEST_NOINLINE void* operator new[](std::size_t size) {
  return specula_test::allocating::allocate_or_throw(size, 0);
}
SPECULA_TEST_NOINLINE void* operator new[](std::size_t size, std::align_val_t alignment) {
  return specula_test::allocating::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
SPECULA_TEST_NOINLINE void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return specula_test::allocating::allocate(size, 0);
}
SPECULA_TEST_NOINLINE void* operator new[](std::size_t size, std::align_val_t alignment,
                                           const std::nothrow_t&) noexcept {
  return specula_test::allocating::allocate(size, static_cast<std::size_t>(alignment));
}
SPECULA_TEST_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete(void* p, std::size_t) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(p);
}
SPECULA_TEST_NOINLINE void operator delete[](void* p) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
SPECULA_TEST_NOINLINE void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
SPECULA_TEST_NOINLINE void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(p);
}
