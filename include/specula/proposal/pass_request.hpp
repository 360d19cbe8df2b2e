// What a round waits for where somebody else runs the passes of its models.
#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

#include "specula/base/rows.hpp"

namespace specula {

/// A pass that a waiting round wants: these nodes in a slot of a model of many texts, merged with those of
/// other texts or alone. Valid until the round is given the rows.
struct PassRequest {
  const void* batch = nullptr;  ///< the model of many texts, by what the slot's batch() says (RunsInBatch)
  std::int32_t slot = 0;        ///< the text's place in it
  Tokens tokens;                ///< (nodes)
  Nodes parents;                ///< (nodes) in the slot's numbers, as in LanguageModel::extend()
};

namespace detail {

/// What a coroutine awaits for the rows of a pass. While it waits, `place` points to it.
class PassWaiter {
 public:
  PassWaiter(PassWaiter*& place, const PassRequest& request) : place_(place), request_(request) {}
  ~PassWaiter() {
    if (place_ == this) place_ = nullptr;
  }
  PassWaiter(const PassWaiter&) = delete;
  PassWaiter& operator=(const PassWaiter&) = delete;

  const PassRequest& request() const { return request_; }
  /// Goes on with what waits, to its end or to the next pass.
  void give(const LogitsView& rows) {
    rows_ = rows;
    go_on();
  }
  void fail(std::exception_ptr failure) {
    failure_ = std::move(failure);
    go_on();
  }

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> frame) noexcept {
    frame_ = frame;
    place_ = this;
  }
  LogitsView await_resume() {
    if (failure_) std::rethrow_exception(std::move(failure_));
    return rows_;
  }

 private:
  void go_on() {
    place_ = nullptr;
    frame_.resume();  // which may destroy this
  }

  PassWaiter*& place_;
  PassRequest request_;
  std::coroutine_handle<> frame_;
  LogitsView rows_{};
  std::exception_ptr failure_;
};

}  // namespace detail

}  // namespace specula
