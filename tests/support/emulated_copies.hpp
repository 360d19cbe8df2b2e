// SPDX-License-Identifier: MIT
// Asynchronous copies (cp.async) of a thread on the emulated GPU.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

namespace specula_test {

/// The destination is NaN from the copy on and gets its bytes only in wait(), which exposes a missing wait
/// or barrier and a stage that is overwritten while another thread reads it.
class EmulatedCopies {
 public:
  void copy(void* to_shared, const void* from, bool real) {
    if (reinterpret_cast<std::uintptr_t>(to_shared) % 16 != 0 ||
        reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
      throw std::runtime_error("cp.async: not 16-byte aligned");
    std::memset(to_shared, 0xFF, 16);
    open_.push_back({to_shared, real ? from : nullptr});
  }
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  template <int kGroups>
  void wait() {
    for (; groups_.size() > kGroups; groups_.pop_front())
      for (const Copy& c : groups_.front()) {
        if (c.from)
          std::memcpy(c.to, c.from, 16);
        else
          std::memset(c.to, 0, 16);
      }
  }
  /// Whether no copy is in flight.
  bool idle() const { return groups_.empty() && open_.empty(); }

 private:
  struct Copy {
    void* to;
    const void* from;
  };
  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
};

}  // namespace specula_test
