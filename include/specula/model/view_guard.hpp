// SPDX-License-Identifier: MIT
// Detects stale views of memory that is written again.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Counts the calls that change an object, a model above all, as a member of it. It belongs to one object: a
/// copy has no views yet, and the views of an object that is assigned to or moved from are stale.
class ChangeCount {
 public:
  ChangeCount() = default;
  ChangeCount(const ChangeCount&) noexcept {}
  ChangeCount(ChangeCount&& other) noexcept { other.next(); }
  ChangeCount& operator=(const ChangeCount&) noexcept {
    next();
    return *this;
  }
  ChangeCount& operator=(ChangeCount&& other) noexcept {
    next();
    other.next();
    return *this;
  }
  ~ChangeCount() = default;

  void next() noexcept { ++calls_; }
  std::uint64_t now() const noexcept { return calls_; }

 private:
  std::uint64_t calls_ = 0;
};

/// The change count of the object that a view was taken at, as a member of the view. The object must outlive
/// it. A check is one comparison, so it is made in all builds.
class ViewGuard {
 public:
  /// For a view without an object: every check fails.
  ViewGuard() = default;
  explicit ViewGuard(const ChangeCount& changes) noexcept : changes_(&changes), seen_(changes.now()) {}

  bool empty() const noexcept { return changes_ == nullptr; }
  /// Throws std::logic_error if the object was changed since, or if there is none; `what` names the view,
  /// `since` says what ended it.
  void expect_valid(const char* what, const char* since = "the model was called since") const {
    if (!changes_) fail(what, " is empty: ", "no model gave it");
    expect_current(what, since);
  }
  /// The same for a view that may be of memory which is not written again, without an object.
  void expect_current(const char* what, const char* since) const {
    if (changes_ && changes_->now() != seen_) fail(what, " is stale: ", since);
  }

 private:
  // apart, so that a check is small enough to be inlined
  [[noreturn, gnu::noinline, gnu::cold]] static void fail(const char* what, const char* is, const char* why) {
    throw std::logic_error(std::string(what) + is + why);
  }

  const ChangeCount* changes_ = nullptr;
  std::uint64_t seen_ = 0;
};

}  // namespace specula::detail
