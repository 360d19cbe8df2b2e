// SPDX-License-Identifier: MIT
// What a round waits for where its caller runs the passes of its models: rows, and leave for a draft call.
#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

#include "specula/base/rows.hpp"
#include "specula/model/pass_request.hpp"

namespace specula {

/// A pass of a draft that a shape proposes before it makes it: see CostModel.
struct DraftCall {
  double reach = 1;        ///< probability that the parent of a draft token is accepted, summed over the pass
  std::int32_t width = 1;  ///< nodes of the pass
  std::int32_t adds = 1;   ///< draft tokens that it adds to the proposal
  std::int32_t nodes = 1;  ///< size of the proposal so far, root included
};

namespace detail {

/// What a coroutine awaits for leave to make a draft call. While it waits, `place` points to it.
class GrantWaiter {
 public:
  GrantWaiter(GrantWaiter*& place, const DraftCall& call) : place_(place), call_(call) {}
  ~GrantWaiter() {
    if (place_ == this) place_ = nullptr;
  }
  GrantWaiter(const GrantWaiter&) = delete;
  GrantWaiter& operator=(const GrantWaiter&) = delete;

  const DraftCall& call() const { return call_; }
  /// Goes on with what waits, to its end or to its next wait.
  void grant(bool pays) {
    pays_ = pays;
    place_ = nullptr;
    frame_.resume();  // which may destroy this
  }

  void suspend(std::coroutine_handle<> frame) noexcept {
    frame_ = frame;
    place_ = this;
  }
  bool pays() const { return pays_; }

 private:
  GrantWaiter*& place_;
  DraftCall call_;
  std::coroutine_handle<> frame_;
  bool pays_ = false;
};

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
  void change(const PassRequest& request) { request_ = request; }
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
