// SPDX-License-Identifier: MIT
// Hopper's wgmma, asynchronous copies and mbarriers for emulated blocks, written from the tables of the PTX
// manual, independent of the library's layout functions.
//
// Accumulators are NaN from a product on and get their values in the wait, which is also when the operands
// are read. Copies land, in any order, while a thread waits for a barrier. Detected: accumulators, register
// operands or tiles that are touched in flight, products without a fence, tiles written after the last
// memory fence of a thread that multiplies them, warps of a group at different products, barriers used
// before they are initialised, and threads that wait forever.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <specula/cuda/args/types.cuh>
#include <specula/cuda/detail/primitives/thread/numbers.cuh>
#include <stdexcept>
#include <utility>
#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"

namespace specula_test {

namespace emulation {

/// Where wgmma finds element (n, k) of B, 16 bits each, in shared memory that begins at address 0: PTX ISA,
/// "Strides" and "Canonical layouts" with T = 8, as ((8,m),(T,2k)):((8T,SBO),(1,T)) for K-major and
/// ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)) for MN-major, under Swizzle<3,4,3>.
inline std::uint32_t operand_address(std::uint64_t descriptor, bool transposed, int n, int k) {
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(descriptor >> bit & 0x3FFF) * 16; };
  if (descriptor >> 62 != 1) throw std::runtime_error("wgmma: not the 128-byte swizzle");
  if ((descriptor & 0x3FFF'C000'C000'C000) != 0)
    throw std::runtime_error("wgmma: bits of a descriptor that should be 0, or a base offset");
  const std::uint32_t start = field(0), leading = field(16), stride = field(32);
  const auto un = static_cast<std::uint32_t>(n), uk = static_cast<std::uint32_t>(k);
  std::uint32_t address = start;
  if (transposed)
    address += un % 64 * 2 + un / 64 * leading + uk % 8 * 128 + uk / 8 * stride;
  else
    address += un % 8 * 128 + un / 8 * stride + uk * 2;
  return address ^ (address >> 7 & 7) << 4;
}

}  // namespace emulation

/// State shared by the threads of a block.
class HopperBlock {
 public:
  /// `seed` < 0: threads run concurrently.
  HopperBlock(std::size_t shared_bytes, int threads, std::int64_t seed)
      : at_once_(seed < 0),
        random_(static_cast<std::uint64_t>(seed)),
        written_(at_once_ ? 0 : (shared_bytes + 15) / 16, 0),
        in_flight_(static_cast<std::size_t>(threads)),
        operands_(static_cast<std::size_t>(threads / 32)),
        done_(static_cast<std::size_t>(threads / 128)),
        states_(static_cast<std::size_t>(threads)) {}

 private:
  friend class EmulatedHopper;
  struct Copy {
    unsigned char* to;
    const void* from;  // null: zeros
  };
  struct Batch {
    std::vector<Copy> copies;
    std::uint64_t* barrier;
  };
  struct Operand {
    std::uint64_t product = 0;  // of the warp, counted from 1
    std::vector<float> b;
  };
  struct Product {
    float* d;
    int count;
    const std::uint32_t* a;
    std::uint32_t copy[4];
    std::uint64_t b;
    bool add, transposed;
    std::uint64_t number;
    float (*value)(std::uint16_t);
  };
  struct Sums {
    float* d;
    int count;
    float value[128];
  };
  /// Per thread. Held here since a fiber that is abandoned when another one fails frees nothing.
  struct State {
    std::vector<Copy> copies;
    std::deque<std::vector<Copy>> copy_groups;
    std::vector<Product> open;
    std::deque<std::vector<Product>> groups;
    std::vector<Sums> sums;
  };
  bool at_once_;
  Random random_;
  std::uint64_t clock_ = 0;
  std::vector<std::uint64_t> written_;  // time of the last write, per 16 bytes
  std::vector<std::deque<Batch>> in_flight_;
  std::vector<Operand> operands_;                 // of the warps
  std::vector<std::vector<std::uint64_t>> done_;  // per warpgroup: its products
  std::vector<State> states_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> turn_{0};
};

/// One of its threads; the counterpart of DeviceHopper on a GPU.
class EmulatedHopper {
 public:
  EmulatedHopper(EmulatedBlock block, unsigned char* shared, HopperBlock& all)
      : EmulatedHopper(block, shared, all, all.states_[static_cast<std::size_t>(block.rank())]) {}
  EmulatedHopper(const EmulatedHopper&) = delete;
  EmulatedHopper& operator=(const EmulatedHopper&) = delete;

  // ---- copies

  void copy(void* to, const void* from, bool real) {
    if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
      throw std::runtime_error("cp.async: not 16-byte aligned");
    std::memset(to, 0xFF, 16);
    write(to);
    copies_.push_back({static_cast<unsigned char*>(to), real ? from : nullptr});
  }
  void commit() {
    copy_groups_.push_back(std::move(copies_));
    copies_.clear();
  }
  template <int kGroups>
  void wait() {
    for (; copy_groups_.size() > kGroups; copy_groups_.pop_front())
      for (const HopperBlock::Copy& c : copy_groups_.front()) land(c);
  }
  void load(const void* shared, std::uint32_t (&words)[4]) { std::memcpy(words, shared, 16); }
  void store(void* shared, const std::uint32_t (&words)[4]) {
    std::memcpy(shared, words, 16);
    write(shared);
    stored_ = true;
  }
  void arrive_after_copies(std::uint64_t* barrier) {
    HopperBlock::Batch batch{std::move(copies_), barrier};
    copies_.clear();
    if (all_.at_once_)
      land(batch);
    else
      all_.in_flight_[static_cast<std::size_t>(block_.rank())].push_back(std::move(batch));
  }

  // ---- barriers. A word: the phase, pending arrivals, expected arrivals, a mark.

  void init(std::uint64_t* barrier, int arrivals) {
    const auto n = static_cast<std::uint64_t>(arrivals);
    __atomic_store_n(barrier, kMark << 48 | n << 32 | n << 16, __ATOMIC_RELEASE);
  }
  void arrive(std::uint64_t* barrier) {
    if (stored_) throw std::runtime_error("mbarrier: what was stored for products is not fenced");
    std::uint64_t old = load(barrier), next;
    do {
      const std::uint64_t all = old >> 32 & 0xFFFF, missing = (old >> 16 & 0xFFFF) - 1;
      next = missing > 0 ? old - (1 << 16) : kMark << 48 | all << 32 | all << 16 | ((old + 1) & 0xFFFF);
    } while (!__atomic_compare_exchange_n(barrier, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  }
  void wait_for(std::uint64_t* barrier, std::uint32_t parity) {
    if (parity > 1) throw std::runtime_error("mbarrier: a parity is 0 or 1");
    wait_until([&] { return (load(barrier) & 1) != parity; });
  }
  template <int kThreads>
  void sync_first() {
    if (block_.rank() >= kThreads) throw std::runtime_error("bar.sync: not one of the first threads");
    const std::uint32_t turn = all_.turn_.load();
    if (all_.arrived_.fetch_add(1) + 1 == kThreads) {
      all_.arrived_.store(0);
      all_.turn_.store(turn + 1);
    } else {
      wait_until([&] { return all_.turn_.load() != turn; });
    }
  }

  // ---- registers

  template <int kRegisters>
  void raise_registers() {
    static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "setmaxnreg");
  }
  template <int kRegisters>
  void lower_registers() {
    static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "setmaxnreg");
  }

  // ---- products

  std::uint32_t shared_address(const void* p) const {
    const auto offset = static_cast<const unsigned char*>(p) - shared_;
    if (offset < 0 || offset >= 227 * 1024) throw std::runtime_error("not in shared memory");
    return static_cast<std::uint32_t>(offset);
  }
  void fence_memory() {
    seen_ = all_.at_once_ ? 0 : all_.clock_;
    stored_ = false;
  }
  void fence_products() { fenced_ = true; }
  void commit_products() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  template <int kTransposed, class Element, int kCount>
  void multiply(Element, float (&d)[kCount][4], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
    static_assert(kCount % 1 == 0 && 8 * kCount <= 256, "N is 8 to 256");
    if (!fenced_) throw std::runtime_error("wgmma without a fence before it");
    Product p{&d[0][0],         4 * kCount, &a[0],        {a[0], a[1], a[2], a[3]}, b, add != 0,
              kTransposed != 0, 0,          half<Element>};
    p.number = ++products_;
    check_same(p);
    if (Sums* s = find(p.d)) {
      if (s->count != p.count) throw std::runtime_error("wgmma: sums of another shape under way");
    } else {
      Sums sums{p.d, p.count, {}};
      std::memcpy(sums.value, p.d, sizeof(float) * static_cast<std::size_t>(p.count));
      std::fill_n(p.d, p.count, specula::cuda::detail::float_of(kPoison));
      sums_.push_back(sums);
    }
    check_tile(p);
    open_.push_back(p);
  }
  template <int kGroups>
  void wait_products() {
    fenced_ = false;
    for (; groups_.size() > kGroups; groups_.pop_front())
      for (const Product& p : groups_.front()) compute(p);
    for (std::size_t i = 0; i < sums_.size();) {
      if (under_way(sums_[i].d)) {
        ++i;
        continue;
      }
      for (int j = 0; j < sums_[i].count; ++j)
        if (specula::cuda::detail::bits_of(sums_[i].d[j]) != kPoison)
          throw std::runtime_error("wgmma: sums were touched under way");
      std::memcpy(sums_[i].d, sums_[i].value, sizeof(float) * static_cast<std::size_t>(sums_[i].count));
      sums_.erase(sums_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (all_.at_once_) warp_.sync();  // a warp waits together; else its first lane reads for all
  }
  template <int kCount>
  void settle(float (&d)[kCount][4]) {
    if (find(&d[0][0])) throw std::runtime_error("wgmma: settled before the wait");
  }

  /// Whether nothing is in flight.
  bool idle() const {
    if (!copies_.empty() || !open_.empty() || !sums_.empty()) return false;
    for (const auto& group : groups_)
      if (!group.empty()) return false;
    for (const auto& group : copy_groups_)
      if (!group.empty()) return false;
    return all_.in_flight_[static_cast<std::size_t>(block_.rank())].empty();
  }

 private:
  EmulatedHopper(EmulatedBlock block, unsigned char* shared, HopperBlock& all, HopperBlock::State& mine)
      : block_(block),
        warp_(block.warp()),
        shared_(shared),
        all_(all),
        copies_(mine.copies),
        copy_groups_(mine.copy_groups),
        open_(mine.open),
        groups_(mine.groups),
        sums_(mine.sums) {}

  static constexpr std::uint64_t kMark = 0xBA44;
  static constexpr std::uint32_t kPoison = 0x7FC0DEAD;

  using Product = HopperBlock::Product;
  using Sums = HopperBlock::Sums;
  template <class Element>
  static float half(std::uint16_t bits) {
    return specula::cuda::detail::to_float(Element{bits});
  }

  static std::uint64_t load(std::uint64_t* barrier) {
    if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0) throw std::runtime_error("mbarrier: not aligned");
    const std::uint64_t word = __atomic_load_n(barrier, __ATOMIC_ACQUIRE);
    if (word >> 48 != kMark) throw std::runtime_error("mbarrier: used before init, or overwritten");
    return word;
  }
  template <class Done>
  void wait_until(Done done) {
    const auto begin = std::chrono::steady_clock::now();
    for (int polls = 0; !done(); ++polls) {
      if (!all_.at_once_) {
        land_some();
        if (polls > 200000) throw std::runtime_error("a thread waits for ever");
      } else if (polls % 1000 == 999 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(60)) {
        throw std::runtime_error("a thread waits for ever");
      }
      block_.yield();
    }
  }
  void write(const void* to) {
    if (!all_.at_once_) all_.written_[shared_address(to) / 16] = ++all_.clock_;
  }
  void land(const HopperBlock::Batch& batch) {
    for (const HopperBlock::Copy& c : batch.copies) land(c);
    arrive(batch.barrier);
  }
  void land(const HopperBlock::Copy& c) {
    if (c.from)
      std::memcpy(c.to, c.from, 16);
    else
      std::memset(c.to, 0, 16);
    write(c.to);
  }
  void land_some() {
    for (int i = all_.random_.below(8); i > 0; --i) {
      auto& queue = all_.in_flight_[static_cast<std::size_t>(
          all_.random_.below(static_cast<std::int32_t>(all_.in_flight_.size())))];
      if (queue.empty()) continue;
      land(queue.front());
      queue.pop_front();
    }
  }

  Sums* find(const float* d) {
    for (Sums& s : sums_)
      if (s.d == d) return &s;
    return nullptr;
  }
  bool under_way(const float* d) const {
    for (const Product& p : open_)
      if (p.d == d) return true;
    for (const auto& group : groups_)
      for (const Product& p : group)
        if (p.d == d) return true;
    return false;
  }
  /// All warps of a warpgroup must issue the same product.
  void check_same(const Product& p) {
    if (all_.at_once_) return;
    auto& done = all_.done_[static_cast<std::size_t>(block_.rank() / 128)];
    const std::uint64_t what =
        (p.b * 4 + (p.add ? 2 : 0) + (p.transposed ? 1 : 0)) * 256 + static_cast<std::uint64_t>(p.count);
    if (done.size() + 1 == p.number) done.push_back(what);
    if (done.at(static_cast<std::size_t>(p.number - 1)) != what)
      throw std::runtime_error("wgmma: warps of a group at different products");
  }
  /// No byte of the tile was written after this thread's last memory fence.
  void check_tile(const Product& p) {
    if (all_.at_once_) return;
    for (int n = 0; n < 2 * p.count; n += p.transposed ? 8 : 1)
      for (int k = 0; k < 16; k += p.transposed ? 1 : 8)
        if (all_.written_.at(emulation::operand_address(p.b, p.transposed, n, k) / 16) > seen_)
          throw std::runtime_error("wgmma: a tile was written after the thread's last memory fence");
  }
  std::vector<float> tile(const Product& p) {
    check_tile(p);
    std::vector<float> b(static_cast<std::size_t>(32 * p.count));
    for (int n = 0; n < 2 * p.count; ++n)
      for (int k = 0; k < 16; ++k) {
        std::uint16_t bits;
        std::memcpy(&bits, shared_ + emulation::operand_address(p.b, p.transposed, n, k), 2);
        b[static_cast<std::size_t>(16 * n + k)] = p.value(bits);
      }
    return b;
  }
  void compute(const Product& p) {
    struct Registers {
      std::uint32_t a[4];
    };
    for (int i = 0; i < 4; ++i)
      if (p.a[i] != p.copy[i]) throw std::runtime_error("wgmma: A was touched under way");
    const auto given = warp_.exchange(Registers{{p.copy[0], p.copy[1], p.copy[2], p.copy[3]}}, 24);
    std::vector<float> b_tile;
    const std::vector<float>* b = &b_tile;
    if (all_.at_once_) {
      b_tile = tile(p);
    } else {  // the first lane that continues reads for all
      HopperBlock::Operand& operand = all_.operands_[static_cast<std::size_t>(block_.warp_rank())];
      if (operand.product != p.number) operand = {p.number, tile(p)};
      b = &operand.b;
    }
    const int group = warp_.rank() / 4, in_group = warp_.rank() % 4;
    float rows[2][16];
    for (int lane = 0; lane < 4; ++lane) {
      const Registers r = given[4 * group + lane];
      for (int reg = 0; reg < 4; ++reg)
        for (int i = 0; i < 2; ++i)
          rows[reg % 2][2 * lane + i + 8 * (reg / 2)] =
              p.value(static_cast<std::uint16_t>(i == 0 ? r.a[reg] : r.a[reg] >> 16));
    }
    Sums& sums = *find(p.d);
    for (int j = 0; j < p.count; ++j) {
      const int column = 8 * (j / 4) + 2 * in_group + j % 2;
      const float* x = rows[j % 4 / 2];
      const float* y = b->data() + 16 * column;
      float s = p.add ? sums.value[j] : 0;
      for (int k = 0; k < 16; ++k) s += x[k] * y[k];
      sums.value[j] = s;
    }
  }

  EmulatedBlock block_;
  EmulatedWarp warp_;
  unsigned char* shared_;
  HopperBlock& all_;
  std::vector<HopperBlock::Copy>& copies_;
  std::deque<std::vector<HopperBlock::Copy>>& copy_groups_;
  std::vector<Product>& open_;
  std::deque<std::vector<Product>>& groups_;
  std::vector<Sums>& sums_;
  std::uint64_t products_ = 0, seen_ = 0;
  bool fenced_ = false, stored_ = false;
};

}  // namespace specula_test
