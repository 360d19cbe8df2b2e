// Detects use of a moved-from object (use after move).
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// A member that records whether its object was moved from.
class Alive {
 public:
  Alive() = default;
  Alive(const Alive&) = default;
  Alive& operator=(const Alive&) = default;
  Alive(Alive&& other) noexcept : yes_(std::exchange(other.yes_, false)) {}
  Alive& operator=(Alive&& other) noexcept {
    const bool yes = std::exchange(other.yes_, false);  // in this order a self-move changes nothing
    yes_ = yes;
    return *this;
  }
  ~Alive() = default;

  /// Throws std::logic_error if the object was moved from; `what` names it.
  void expect(const char* what) const {
    if (!yes_) throw std::logic_error(std::string(what) + ": it was moved from");
  }

 private:
  bool yes_ = true;
};

}  // namespace specula::detail
