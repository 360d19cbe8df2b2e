// SPDX-License-Identifier: MIT
// Persistent thread team with a barrier, for data-parallel passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "specula/cpu/inputs.hpp"

namespace specula::cpu {

/// The calling thread is member 0, the others wait between runs. run() does not allocate. Not for concurrent
/// callers.
class ThreadTeam {
 public:
  /// Throws std::invalid_argument unless 1 <= size <= 256.
  explicit ThreadTeam(std::int32_t size) : size_(size) {
    if (size < 1 || size > 256)
      throw std::invalid_argument("threads is " + std::to_string(size) + ", must be 1 to 256");
    members_.reserve(static_cast<std::size_t>(size - 1));
    try {
      for (std::int32_t member = 1; member < size; ++member)
        members_.emplace_back([this, member] { serve(member); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam() { stop(); }

  std::int32_t size() const { return size_; }  ///< members, the caller included

  /// Runs body(member) on every member at once and returns when all have; `body` must not throw.
  template <class Body>
  void run(Body& body) {
    if (size_ == 1) return body(0);
    body_ = &body;
    call_ = [](void* of, std::int32_t member) { (*static_cast<Body*>(of))(member); };
    start_.fetch_add(1, std::memory_order_release);
    start_.notify_all();
    body(0);
    barrier();
  }

  /// Called by every member inside a run: waits for all members.
  void barrier() {
    if (size_ == 1) return;
    const std::uint32_t turn = turn_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.fetch_add(1, std::memory_order_release);
      turn_.notify_all();
      return;
    }
    wait_while(turn_, turn);
  }

 private:
  /// Spins for the microseconds that a product takes; then yields, since the missing member may be waiting
  /// for a core (on a busy machine 8 times as fast as spinning on); then sleeps.
  static void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int spin = 0; spin < 500; ++spin) {
      if (value.load(std::memory_order_acquire) != old) return;
#if SPECULA_X86
      __builtin_ia32_pause();
#endif
    }
    for (int turn = 0; turn < 50; ++turn) {
      if (value.load(std::memory_order_acquire) != old) return;
      std::this_thread::yield();
    }
    value.wait(old, std::memory_order_acquire);
  }

  void serve(std::int32_t member) {
    for (std::uint32_t seen = 0;;) {
      wait_while(start_, seen);
      ++seen;
      if (stopping_.load(std::memory_order_acquire)) return;
      call_(body_, member);
      barrier();
    }
  }

  void stop() {
    stopping_.store(true, std::memory_order_release);
    start_.fetch_add(1, std::memory_order_release);
    start_.notify_all();
    for (auto& member : members_) member.join();
  }

  std::int32_t size_;
  std::atomic<std::uint32_t> start_{0}, turn_{0};
  std::atomic<std::int32_t> arrived_{0};
  std::atomic<bool> stopping_{false};
  void (*call_)(void*, std::int32_t) = nullptr;
  void* body_ = nullptr;
  std::vector<std::thread> members_;
};

}  // namespace specula::cpu
