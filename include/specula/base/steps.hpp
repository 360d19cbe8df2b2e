// SPDX-License-Identifier: MIT
// Steps: a coroutine that can wait for its caller to run a pass, with its frame in an arena.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"
#include "specula/base/has_member.hpp"

/// @cond
// The return type of this library's coroutines. -fsanitize=function of clang 14, a part of its
// undefined-behaviour sanitizer, cannot compile one that is a template.
#if defined(__clang__) && __clang_major__ < 15
#define SPECULA_STEPS [[clang::no_sanitize("function")]] ::specula::Steps
#else
#define SPECULA_STEPS ::specula::Steps
#endif
/// @endcond

namespace specula {

/// Memory of coroutine frames, which nest as calls do: a stack of blocks. Blocks are kept, and frames never
/// move. The memory of a frame that is freed out of order is used again when no frame is alive.
class StepsArena {
 public:
  /// The first block has `bytes` bytes; each further one is at least as large as all before it.
  explicit StepsArena(std::size_t bytes = 4096) { grow(bytes); }
  StepsArena(StepsArena&&) noexcept = default;  ///< Requires that no frame is alive.
  StepsArena& operator=(StepsArena&&) = delete;

  std::size_t frames() const { return frames_; }  ///< frames that are alive

  /// @cond
  void* take(std::size_t bytes) {
    while (blocks_[block_].used + bytes > blocks_[block_].memory.size())
      if (++block_ == blocks_.size()) grow_for(bytes);
    Block& block = blocks_[block_];
    void* const at = block.memory.data() + block.used;
    block.used += bytes;
    ++frames_;
    return at;
  }
  void give_back(void* at, std::size_t bytes) noexcept {
    if (--frames_ == 0) {
      for (Block& block : blocks_) block.used = 0;
      block_ = 0;
      return;
    }
    Block& block = blocks_[block_];
    if (static_cast<std::byte*>(at) + bytes != block.memory.data() + block.used) return;
    block.used -= bytes;
    if (block.used == 0 && block_ > 0) --block_;
  }
  /// @endcond

 private:
  struct Block {
    std::vector<std::byte> memory;  // of one size
    std::size_t used;
  };
  void grow(std::size_t bytes) { blocks_.push_back({std::vector<std::byte>(bytes), 0}); }
  void grow_for(std::size_t bytes) {
    --block_;  // if there is no memory
    std::size_t all = bytes;
    for (const Block& block : blocks_) all += block.memory.size();
    grow(all);
    ++block_;
  }

  std::vector<Block> blocks_;
  std::size_t block_ = 0, frames_ = 0;
};

class Steps;

namespace detail {

SPECULA_HAS_MEMBER(steps_arena)

/// The arena among a coroutine's parameters: that of the first which has one.
template <class A, class... Rest>
StepsArena& arena_of(A& first, Rest&... rest) {
  if constexpr (has_steps_arena<A>())
    return first.steps_arena();
  else if constexpr (sizeof...(Rest) > 0)
    return arena_of(rest...);
  else
    static_assert(
        !sizeof(A),
        "a function that returns Steps needs a ProposalBuilder& among its parameters, which has the "
        "memory of its frame");
}

struct StepsPromise {
  static constexpr std::size_t kHead = alignof(std::max_align_t);  // where a frame's arena is noted
  static constexpr std::size_t with_head(std::size_t bytes) {
    return kHead + (bytes + kHead - 1) / kHead * kHead;
  }

  // Inline, or g++ 12 says that the one does not match the other (-Wmismatched-new-delete).
  template <class... A>
  [[gnu::always_inline]] static void* operator new(std::size_t bytes, A&... parameters) {
    StepsArena& arena = arena_of(parameters...);
    void* const at = arena.take(with_head(bytes));
    ::new (at) StepsArena*(&arena);
    return static_cast<std::byte*>(at) + kHead;
  }
  [[gnu::always_inline]] static void operator delete(void* frame, std::size_t bytes) noexcept {
    void* const at = static_cast<std::byte*>(frame) - kHead;
    (*static_cast<StepsArena**>(at))->give_back(at, with_head(bytes));
  }

  /// Goes on with what waited for this.
  struct Ended {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<StepsPromise> ended) const noexcept {
      if (const std::coroutine_handle<> waiting = ended.promise().caller) return waiting;
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  Steps get_return_object();
  std::suspend_always initial_suspend() const noexcept { return {}; }
  Ended final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  void unhandled_exception() noexcept { failure = std::current_exception(); }

  std::coroutine_handle<> caller;  // null while the caller has not had to wait
  std::exception_ptr failure;
};

}  // namespace detail

/// What a function returns that can wait: a coroutine, to be awaited by another one or run() by any function.
/// It begins only then. As long as nothing makes it wait, `co_await f()` is a nested call of f: nothing is
/// suspended, and a debugger shows the whole stack. Its frame lies in the arena of its ProposalBuilder
/// parameter, so it allocates nothing. It stores references to its parameters of reference type, `this`
/// included, which must outlive it: `co_await Chain<>{}.propose(...)` is right, and returning that is not.
///
///   Steps propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
///     const LogitsView rows = co_await ask(drafter, tree, tokens, parents);
///     ...
///   }
class [[nodiscard]] Steps {
 public:
  using promise_type = detail::StepsPromise;  ///< for the compiler

  Steps() = default;  ///< One that has ended.
  Steps(Steps&& other) noexcept
      : frame_(std::exchange(other.frame_, nullptr)) {}  ///< Leaves one that has ended.
  /// Destroys what it was.
  Steps& operator=(Steps&& other) noexcept {
    Steps old(std::move(*this));
    frame_ = std::exchange(other.frame_, nullptr);
    return *this;
  }
  /// Also while it waits; what it waits for is destroyed with it.
  ~Steps() {
    if (frame_) frame_.destroy();
  }

  /// Runs it to its end. Throws what it throws, and std::logic_error if it waits for a pass.
  void run() {
    if (!advance()) throw std::logic_error("Steps::run: it waits for a pass that its caller must run");
    rethrow();
  }
  /// Begins it; false if it waits now. Requires that it has not begun.
  bool advance() {
    if (!done()) frame_.resume();
    return done();
  }
  bool done() const { return !frame_ || frame_.done(); }  ///< whether it has ended
  /// Throws what it threw. Requires that it has ended.
  void rethrow() {
    if (frame_ && frame_.promise().failure) std::rethrow_exception(std::move(frame_.promise().failure));
  }

  /// @cond
  bool await_ready() { return advance(); }
  void await_suspend(std::coroutine_handle<> caller) noexcept { frame_.promise().caller = caller; }
  void await_resume() { rethrow(); }
  /// @endcond

 private:
  friend promise_type;
  explicit Steps(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_ = nullptr;
};

namespace detail {
inline Steps StepsPromise::get_return_object() {
  return Steps(std::coroutine_handle<StepsPromise>::from_promise(*this));
}
}  // namespace detail

}  // namespace specula
