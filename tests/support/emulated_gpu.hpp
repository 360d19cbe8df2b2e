// SPDX-License-Identifier: MIT
// Emulated GPU for tests. Runs kernel bodies written over the groups of
// <specula/cuda/detail/primitives/group.cuh>, each thread of a block separately, and throws on uses that
// are errors on a real GPU.
//
//   emulate({.clusters = 3, .blocks = 2, .threads = 64, .shared_bytes = 4096},
//           [&](EmulatedCluster cluster, int index, unsigned char* shared) { body(cluster, ..., shared); });
//
// Detected: lanes at different collectives, blocks that access the shared memory of blocks that may not
// have begun or have left, threads at different barriers, reads of uninitialised shared memory (it begins
// as NaN and -1, or as other garbage), and results that depend on the order of lanes, which is shuffled
// after every barrier; lanes of a warp that come to a barrier from different places. The address sanitizer
// sees accesses before and after a block's shared memory. With Engine::threads each thread is a std::thread,
// so that the thread sanitizer sees every pair of accesses that no barrier orders: shuffles and ballots order
// nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "emulated_copies.hpp"
#include "unobserved.hpp"

namespace specula_test {

enum class Engine : std::uint8_t { fibers, threads };

struct Grid {
  int clusters = 1;
  int blocks = 1;    // per cluster
  int threads = 32;  // of a block
  std::size_t shared_bytes = 0;
  std::uint64_t seed = 1;
  Engine engine = Engine::fibers;
};

namespace emulation {

/// Runs n functions concurrently, with barriers between them.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// `sizes`: the number of participants of each barrier. Rethrows what a function throws; throws
  /// std::runtime_error on a deadlock.
  virtual void run(int n, const std::vector<int>& sizes, const std::function<void(int)>& function) = 0;
  /// Called from inside a function.
  virtual void wait(int barrier) = 0;
  /// Yields, for loops that poll memory.
  virtual void yield() = 0;
};
std::unique_ptr<Scheduler> make_scheduler(Engine engine, std::uint64_t seed);

constexpr int kWarp = 32;
constexpr std::size_t kSlot = 64;
constexpr std::size_t kAlignment = 1024;  // of shared memory
inline unsigned char* aligned(unsigned char* allocated) {
  return allocated + (kAlignment - reinterpret_cast<std::uintptr_t>(allocated) % kAlignment) % kAlignment;
}

/// Values that the lanes of a warp exchange. Double-buffered, so that one barrier per collective is enough.
struct WarpSlots {
  alignas(16) unsigned char bytes[2][kWarp][kSlot];
  std::uint32_t kind[2][kWarp];
};

/// One running cluster.
struct Cluster {
  Scheduler* scheduler;
  int blocks, threads;
  std::vector<WarpSlots> warps;                          // (blocks * warps per block)
  std::vector<std::unique_ptr<unsigned char[]>> shared;  // (blocks)
  std::size_t shared_bytes;
  std::vector<std::atomic<bool>> left;  // (blocks) whether a thread of the block has returned

  int warps_of_block() const { return threads / kWarp; }
  // Barriers: the warps' first, then the blocks', then the cluster's, then those of blocks without a warp.
  int block_barrier(int block) const { return blocks * warps_of_block() + block; }
  int cluster_barrier() const { return blocks * warps_of_block() + blocks; }
  int others_barrier(int block) const { return cluster_barrier() + 1 + block; }
};

/// One of its threads.
struct Thread {
  Cluster* cluster;
  int block, rank;                   // block within the cluster, thread within the block
  mutable std::uint32_t turn = 0;    // collectives so far
  mutable bool met_cluster = false;  // has passed a cluster barrier: all blocks have begun
  mutable bool arrived = false;      // has arrived at the cluster's barrier and not waited yet
};

}  // namespace emulation

class EmulatedWarp {
 public:
  explicit EmulatedWarp(const emulation::Thread* thread) : thread_(thread) {}

  int rank() const { return thread_->rank % emulation::kWarp; }
  static constexpr int size() { return emulation::kWarp; }
  void sync() const {
    const int none = 0;
    exchange(none, kSync);
  }
  template <class T>
  T shuffle(T value, int from) const {
    return exchange(value, 2)[from % size()];
  }
  template <class T>
  T shuffle_xor(T value, int mask) const {
    return exchange(value, 3)[rank() ^ mask];
  }
  template <class T>
  T shuffle_up(T value, int by) const {
    return exchange(value, 4)[rank() >= by ? rank() - by : rank()];
  }
  std::uint32_t ballot(bool yes) const {
    const auto all = exchange(yes, 5);
    std::uint32_t out = 0;
    for (int lane = 0; lane < size(); ++lane) out |= static_cast<std::uint32_t>(all[lane]) << lane;
    return out;
  }

  std::uint32_t largest(std::uint32_t value) const {
    const auto all = exchange(value, 6);
    std::uint32_t out = 0;
    for (int lane = 0; lane < size(); ++lane) out = std::max(out, all[lane]);
    return out;
  }

  /// All lanes come to a barrier, from one place in the source.
  void come(int place) const {
    const auto all = exchange(place, kBarrier);
    for (int lane = 0; lane < size(); ++lane)
      if (all[lane] != place) throw std::runtime_error("lanes of a warp are at different barriers");
  }

  /// The values of all lanes; valid until this lane's next collective but one.
  template <class T>
  class Given {
   public:
    explicit Given(const unsigned char* bytes) : bytes_(bytes) {}
    T operator[](int lane) const {
      const Unobserved unobserved(false);
      T out;
      std::memcpy(&out, bytes_ + static_cast<std::size_t>(lane) * emulation::kSlot, sizeof(T));
      return out;
    }

   private:
    const unsigned char* bytes_;
  };
  static constexpr std::uint32_t kSync = 1, kBarrier = 7;
  /// Allgather of values of at most 64 bytes, from which every collective is built. `kind` tells
  /// collectives apart; those of other headers begin at 16.
  template <class T>
  Given<T> exchange(const T& value, std::uint32_t kind) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= emulation::kSlot);
    emulation::Cluster& cluster = *thread_->cluster;
    const int warp = thread_->block * cluster.warps_of_block() + thread_->rank / emulation::kWarp;
    emulation::WarpSlots& slots = cluster.warps[static_cast<std::size_t>(warp)];
    const Unobserved unobserved(kind != kSync);  // the slots are no memory of the kernel's
    const std::uint32_t flip = thread_->turn++ % 2;
    const auto lane = static_cast<std::size_t>(rank());
    std::memcpy(slots.bytes[flip][lane], &value, sizeof(T));
    slots.kind[flip][lane] = kind << 8 | static_cast<std::uint32_t>(sizeof(T));
    cluster.scheduler->wait(warp);
    for (const std::uint32_t other : slots.kind[flip])
      if (other != slots.kind[flip][lane])
        throw std::runtime_error("lanes of a warp are at different collectives");
    return Given<T>(slots.bytes[flip][0]);
  }

 private:
  const emulation::Thread* thread_;
};

class EmulatedBlock {
 public:
  explicit EmulatedBlock(const emulation::Thread* thread) : thread_(thread) {}

  int rank() const { return thread_->rank; }
  int size() const { return thread_->cluster->threads; }
  void sync(int place = __builtin_LINE()) const {
    warp().come(place);
    thread_->cluster->scheduler->wait(thread_->cluster->block_barrier(thread_->block));
  }
  void sync_others(int place = __builtin_LINE()) const {
    if (warp_rank() == 0) throw std::runtime_error("the first warp is at a barrier of the others");
    warp().come(place);
    thread_->cluster->scheduler->wait(thread_->cluster->others_barrier(thread_->block));
  }
  EmulatedWarp warp() const { return EmulatedWarp(thread_); }
  int warp_rank() const { return rank() / emulation::kWarp; }
  int warp_count() const { return size() / emulation::kWarp; }
  /// Yields, for loops that poll memory.
  void yield() const { thread_->cluster->scheduler->yield(); }

 private:
  const emulation::Thread* thread_;
};

class EmulatedCluster {
 public:
  using Copies = EmulatedCopies;

  explicit EmulatedCluster(const emulation::Thread* thread) : thread_(thread) {}

  int rank() const { return thread_->block; }
  int size() const { return thread_->cluster->blocks; }
  void sync(int place = __builtin_LINE()) const {
    arrive(place);
    wait(place);
  }
  void arrive(int place = __builtin_LINE()) const {
    block().warp().come(place);
    if (thread_->arrived) throw std::runtime_error("a thread arrives twice at the cluster's barrier");
    thread_->arrived = true;
  }
  void wait(int place = __builtin_LINE()) const {
    block().warp().come(place);
    if (!thread_->arrived) throw std::runtime_error("a thread waits for the cluster and has not arrived");
    thread_->arrived = false;
    thread_->cluster->scheduler->wait(thread_->cluster->cluster_barrier());
    thread_->met_cluster = true;
  }
  EmulatedBlock block() const { return EmulatedBlock(thread_); }
  template <class T>
  T* map(T* shared, int rank) const {
    const auto& all = thread_->cluster->shared;
    const auto offset = reinterpret_cast<unsigned char*>(shared) - base(all, thread_->block);
    if (offset < 0 || static_cast<std::size_t>(offset) >= thread_->cluster->shared_bytes || rank < 0 ||
        rank >= size())
      throw std::runtime_error("map: not in this block's shared memory, or no such block");
    if (rank != thread_->block && !thread_->met_cluster)
      throw std::runtime_error(
          "map: the other block may not have begun; a barrier of the cluster must come before");
    if (thread_->cluster->left[static_cast<std::size_t>(rank)])
      throw std::runtime_error(
          "map: the other block has left; a barrier of the cluster must come before that");
    return reinterpret_cast<T*>(base(all, rank) + offset);
  }
  unsigned char* shared() const { return base(thread_->cluster->shared, thread_->block); }

 private:
  static unsigned char* base(const std::vector<std::unique_ptr<unsigned char[]>>& all, int rank) {
    return emulation::aligned(all[static_cast<std::size_t>(rank)].get());
  }
  const emulation::Thread* thread_;
};

/// Runs the clusters of a grid one after the other, in an order drawn from the seed. Every thread calls
/// `body` with the index of its cluster and the shared memory of its block (1,024-byte aligned).
void emulate(const Grid& grid, const std::function<void(EmulatedCluster, int, unsigned char*)>& body);

}  // namespace specula_test
