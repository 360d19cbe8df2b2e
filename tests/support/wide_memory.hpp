// SPDX-License-Identifier: MIT
// More memory than 32 bits can index. Untouched pages cost nothing.
#pragma once

#include <cstddef>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace specula_test {

/// Zero-initialised; data() is null where so much memory is not available.
class WideMemory {
 public:
  explicit WideMemory(std::size_t bytes) : bytes_(bytes) {
#if defined(__linux__)
    void* got =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got != MAP_FAILED) data_ = got;
#endif
  }
  WideMemory(const WideMemory&) = delete;
  WideMemory& operator=(const WideMemory&) = delete;
  ~WideMemory() {
#if defined(__linux__)
    if (data_) munmap(data_, bytes_);
#endif
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace specula_test
