// Detects stale views of a model's memory.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Counts the calls that change a model, as a member of it. It belongs to one object: a copy has no views
/// yet, and the views of a model that is assigned to or moved from are stale.
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

/// The change count of the model that a view was taken at, as a member of the view. The model must outlive
/// it. A check is one comparison, so it is made in all builds.
class ViewGuard {
 public:
  /// For a view without a model: every check fails.
  ViewGuard() = default;
  explicit ViewGuard(const ChangeCount& model) noexcept : model_(&model), seen_(model.now()) {}

  bool empty() const noexcept { return model_ == nullptr; }
  /// Throws std::logic_error if the model was called since, or if there is none; `what` names the view.
  void(check)(const char* what) const {
    if (!model_) throw std::logic_error(std::string(what) + " is empty: no model gave it");
    if (model_->now() != seen_)
      throw std::logic_error(std::string(what) + " is stale: the model was called since");
  }

 private:
  const ChangeCount* model_ = nullptr;
  std::uint64_t seen_ = 0;
};

}  // namespace specula::detail
