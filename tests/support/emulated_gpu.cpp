// SPDX-License-Identifier: MIT
#include "emulated_gpu.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

#include "random.hpp"

#if defined(__x86_64__) && defined(__linux__)
#define SPECULA_TEST_SWITCH_IN_ASSEMBLER
#else
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SPECULA_TEST_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPECULA_TEST_ASAN
#endif
#endif
#ifdef SPECULA_TEST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef SPECULA_TEST_SWITCH_IN_ASSEMBLER
// Saves the callee-saved registers and resumes `to`. swapcontext makes a system call per switch, which
// would dominate a test's time.
extern "C" void specula_test_switch(void** from, void* to);
asm(R"(
.text
.globl specula_test_switch
.type specula_test_switch,@function
specula_test_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size specula_test_switch,.-specula_test_switch
)");
#endif

namespace specula_test {
namespace emulation {
namespace {

#ifdef SPECULA_TEST_ASAN
constexpr std::size_t kStack = 512 * 1024;
#else
constexpr std::size_t kStack = 128 * 1024;
#endif

/// Stacks are reused: a grid of small clusters needs them thousands of times.
std::vector<std::unique_ptr<unsigned char[]>>& stacks() {
  thread_local std::vector<std::unique_ptr<unsigned char[]>> all;
  return all;
}

class Fibers : public Scheduler {
 public:
  explicit Fibers(std::uint64_t seed) : random_(seed) {}

  void run(int n, const std::vector<int>& sizes, const std::function<void(int)>& function) override {
    function_ = &function;
    barriers_.assign(sizes.size(), {});
    for (std::size_t b = 0; b < sizes.size(); ++b) barriers_[b].size = sizes[b];
    fibers_ = std::vector<Fiber>(static_cast<std::size_t>(n));
    ready_.clear();
    finished_ = 0;
    error_ = nullptr;
    while (stacks().size() < fibers_.size())
      stacks().push_back(std::unique_ptr<unsigned char[]>(new unsigned char[kStack]));
    for (int f = 0; f < n; ++f) {
      prepare(f);
      ready_.push_back(f);
    }
    current_ = -1;
    go_on();
    if (error_) std::rethrow_exception(error_);
    if (finished_ != n) throw std::runtime_error("threads of a cluster wait at different barriers");
  }

  void wait(int barrier) override {
    Barrier& b = barriers_[static_cast<std::size_t>(barrier)];
    ready_or_waiting(b);
  }

  void yield() override {
    ready_.push_back(current_);
    go_on();
  }

 private:
  struct Barrier {
    int size = 0;
    std::vector<int> waiting = {};
  };
  struct Fiber {
#ifdef SPECULA_TEST_SWITCH_IN_ASSEMBLER
    void* stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
    void* fake_stack = nullptr;
  };

  void ready_or_waiting(Barrier& b) {
    if (static_cast<int>(b.waiting.size()) + 1 == b.size) {  // the last thread to arrive releases all
      ready_.insert(ready_.end(), b.waiting.begin(), b.waiting.end());
      b.waiting.clear();
      ready_.push_back(current_);
    } else {
      b.waiting.push_back(current_);
    }
    go_on();
  }

  /// Switches to a random ready fiber, or to run() if there is none.
  void go_on() {
    int next = -1;
    if (!ready_.empty() && !error_) {
      const auto pick = static_cast<std::size_t>(random_.below(static_cast<std::int32_t>(ready_.size())));
      next = ready_[pick];
      ready_[pick] = ready_.back();
      ready_.pop_back();
    }
    if (next == current_) return;
    const int from = current_;
    current_ = next;
    transfer(from, next);
  }

  Fiber& at(int f) { return f < 0 ? main_ : fibers_[static_cast<std::size_t>(f)]; }

  void transfer(int from, int to) {
    Fiber &a = at(from), &b = at(to);
#ifdef SPECULA_TEST_ASAN
    const bool ends = from >= 0 && ended_ == from;
    const void* bottom = to < 0 ? main_bottom_ : stacks()[static_cast<std::size_t>(to)].get();
    __sanitizer_start_switch_fiber(ends ? nullptr : &a.fake_stack, bottom, to < 0 ? main_size_ : kStack);
#endif
#ifdef SPECULA_TEST_SWITCH_IN_ASSEMBLER
    specula_test_switch(&a.stack_pointer, b.stack_pointer);
#else
    swapcontext(&a.context, &b.context);
#endif
    arrived(a);
  }
  void arrived([[maybe_unused]] Fiber& here) {
#ifdef SPECULA_TEST_ASAN
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(here.fake_stack, &bottom, &size);
    if (!main_bottom_) main_bottom_ = bottom, main_size_ = size;  // the first switch comes from run()
#endif
  }

  static Fibers*& active() {
    thread_local Fibers* one = nullptr;
    return one;
  }
  static void entry() {
    Fibers& self = *active();
    self.arrived(self.at(self.current_));
    self.live();
    std::abort();  // a finished fiber is never resumed
  }
  void live() {
    try {
      (*function_)(current_);
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    ++finished_;
    ended_ = current_;
    go_on();
  }

  void prepare(int f) {
    active() = this;
    unsigned char* stack = stacks()[static_cast<std::size_t>(f)].get();
    Fiber& fiber = fibers_[static_cast<std::size_t>(f)];
#ifdef SPECULA_TEST_ASAN
    __asan_unpoison_memory_region(stack, kStack);  // the fiber before it never returned from its first frame
#endif
#ifdef SPECULA_TEST_SWITCH_IN_ASSEMBLER
    auto top = reinterpret_cast<std::uintptr_t>(stack + kStack) & ~std::uintptr_t{63};
    auto* words = reinterpret_cast<void**>(top - 64);
    std::fill(words - 6, words + 8, nullptr);
    words[0] = reinterpret_cast<void*>(&Fibers::entry);  // where `ret` goes; below it the six saved registers
    fiber.stack_pointer = words - 6;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Fibers::entry, 0);
#endif
  }

  Random random_;
  const std::function<void(int)>* function_ = nullptr;
  std::vector<Barrier> barriers_;
  std::vector<Fiber> fibers_;
  Fiber main_;
  std::vector<int> ready_;
  int current_ = -1, finished_ = 0, ended_ = -1;
  std::exception_ptr error_;
  const void* main_bottom_ = nullptr;
  std::size_t main_size_ = 0;
};

class Threads : public Scheduler {
 public:
  void run(int n, const std::vector<int>& sizes, const std::function<void(int)>& function) override {
    barriers_ = std::vector<Barrier>(sizes.size());
    for (std::size_t b = 0; b < sizes.size(); ++b) barriers_[b].size = sizes[b];
    std::vector<std::thread> threads;
    for (int t = 0; t < n; ++t)
      threads.emplace_back([&, t] {
        try {
          function(t);
        } catch (...) {
          fail(std::current_exception());
        }
      });
    for (std::thread& t : threads) t.join();
    if (error_) std::rethrow_exception(error_);
  }

  void wait(int barrier) override {
    Barrier& b = barriers_[static_cast<std::size_t>(barrier)];
    std::unique_lock lock(b.mutex);
    const std::uint64_t phase = b.phase;
    if (++b.arrived == b.size) {
      b.arrived = 0;
      ++b.phase;
      b.changed.notify_all();
      return;
    }
    if (!b.changed.wait_for(lock, std::chrono::seconds(60), [&] { return b.phase != phase || b.failed; }))
      throw std::runtime_error("threads of a cluster wait at different barriers");
    if (b.phase == phase) throw std::runtime_error("another thread of the cluster failed");
  }

  void yield() override { std::this_thread::yield(); }

 private:
  struct Barrier {
    std::mutex mutex;
    std::condition_variable changed;
    int size = 0, arrived = 0;
    std::uint64_t phase = 0;
    bool failed = false;
  };
  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = error;
    }
    for (Barrier& b : barriers_) {
      const std::lock_guard lock(b.mutex);
      b.failed = true;
      b.changed.notify_all();
    }
  }
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<Barrier> barriers_;
};

/// The address sanitizer reports accesses to hidden memory.
void hide([[maybe_unused]] const unsigned char* from, [[maybe_unused]] std::size_t bytes) {
#ifdef SPECULA_TEST_ASAN
  __asan_poison_memory_region(from, bytes);
#endif
}
void expose([[maybe_unused]] const unsigned char* from, [[maybe_unused]] std::size_t bytes) {
#ifdef SPECULA_TEST_ASAN
  __asan_unpoison_memory_region(from, bytes);
#endif
}

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(Engine engine, std::uint64_t seed) {
  if (engine == Engine::threads) return std::make_unique<Threads>();
  return std::make_unique<Fibers>(seed);
}

}  // namespace emulation

void emulate(const Grid& grid, const std::function<void(EmulatedCluster, int, unsigned char*)>& body) {
  using namespace emulation;
  if (grid.clusters < 0 || grid.blocks < 1 || grid.blocks > 16 || grid.threads < kWarp ||
      grid.threads % kWarp != 0)
    throw std::invalid_argument("emulate: " + std::to_string(grid.clusters) + " clusters of " +
                                std::to_string(grid.blocks) + " blocks of " + std::to_string(grid.threads) +
                                " threads");
  Random random(grid.seed);
  std::vector<int> order(static_cast<std::size_t>(grid.clusters));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(i)))]);

  const auto scheduler = make_scheduler(grid.engine, random.bits());
  Cluster cluster{scheduler.get(),
                  grid.blocks,
                  grid.threads,
                  {},
                  {},
                  grid.shared_bytes,
                  std::vector<std::atomic<bool>>(static_cast<std::size_t>(grid.blocks))};
  cluster.warps.resize(static_cast<std::size_t>(grid.blocks * cluster.warps_of_block()));
  std::vector<int> sizes(cluster.warps.size(), kWarp);
  sizes.insert(sizes.end(), static_cast<std::size_t>(grid.blocks), grid.threads);
  sizes.push_back(grid.blocks * grid.threads);
  sizes.insert(sizes.end(), static_cast<std::size_t>(grid.blocks), grid.threads - kWarp);
  for (int b = 0; b < grid.blocks; ++b)
    cluster.shared.push_back(
        std::unique_ptr<unsigned char[]>(new unsigned char[grid.shared_bytes + kAlignment]));
  std::vector<Thread> threads;
  for (int t = 0; t < grid.blocks * grid.threads; ++t)
    threads.push_back({&cluster, t / grid.threads, t % grid.threads});
  for (const int index : order) {
    const int poison =
        random.bernoulli(0.5) ? 0xFF : 0x3F;  // uninitialised: NaN and -1, or 0.75 and a large number
    for (const auto& shared : cluster.shared) {
      expose(shared.get(), grid.shared_bytes + kAlignment);
      std::memset(shared.get(), poison, grid.shared_bytes + kAlignment);
      unsigned char* const begin = aligned(shared.get());
      const auto front = static_cast<std::size_t>(begin - shared.get());
      hide(shared.get(), front);
      hide(begin + grid.shared_bytes, kAlignment - front);
    }
    for (Thread& t : threads) t.turn = 0, t.met_cluster = t.arrived = false;
    for (auto& left : cluster.left) left = false;
    scheduler->run(static_cast<int>(threads.size()), sizes, [&](int t) {
      const EmulatedCluster mine(&threads[static_cast<std::size_t>(t)]);
      body(mine, index, mine.shared());
      cluster.left[static_cast<std::size_t>(threads[static_cast<std::size_t>(t)].block)] = true;
    });
  }
}

}  // namespace specula_test
