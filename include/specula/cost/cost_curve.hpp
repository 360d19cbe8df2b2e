// SPDX-License-Identifier: MIT
// Cost curve T(n): the time of a model's forward pass over n nodes, given or learned from measured passes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"
#include "specula/base/fields.hpp"

namespace specula {

/// Seconds, or any other unit, by number of nodes. A learned curve has a value for each size that was
/// measured recently: a mean in which a single measurement counts little, since a thread may have been
/// interrupted. Values are forgotten over some 700 measurements of other sizes, so that a size that once was
/// slow is tried again. Between two measured sizes the curve is what it would be if most of the rise came
/// late (the square of the way), beyond the largest it is flat: the least that a size can cost is assumed
/// until it is measured, so a choice of the cheapest finds the plateaus. at_most() is the cautious side.
/// A straight curve has lines between measured sizes, and is at_most() beyond them: for sizes too many to be
/// measured one by one.
class CostCurve {
 public:
  /// A learned curve.
  CostCurve() = default;
  /// A given curve: seconds[n - 1] for n nodes, extrapolated with the last slope (flat if it falls). Throws
  /// std::invalid_argument unless there is at least one value and all are finite and not negative.
  explicit CostCurve(std::vector<double> seconds) : given_(std::move(seconds)) {
    if (given_.empty()) throw std::invalid_argument("CostCurve: no values");
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (!(given_[i] >= 0) || !std::isfinite(given_[i]))
        throw std::invalid_argument("CostCurve: value " + detail::number(i) + " is " +
                                    detail::number(given_[i]) + ", must be finite and >= 0");
  }

  static constexpr double kSure = 1.5;     ///< weight from which a size counts fully
  static constexpr double kMemory = 32;    ///< largest weight of a size
  static constexpr double kOutlier = 1.5;  ///< a cost this many times another one: one was an interruption
  static constexpr double kNoBound = std::numeric_limits<double>::max();  ///< of believe()

  bool given() const { return !given_.empty(); }  ///< Whether the curve was given, not learned.
  /// How often `nodes` was measured recently; 2^24 for a given curve. Below 1/2 it is forgotten.
  double weight(std::int32_t nodes) const {
    const auto n = static_cast<std::size_t>(std::max(1, nodes));
    return given() ? 1 << 24 : n <= sizes_.size() ? sizes_[n - 1].weight : 0.0;
  }
  /// Whether `nodes` was measured recently, or given.
  bool knows(std::int32_t nodes) const { return weight(nodes) >= kForgotten; }
  /// Whether two costs differ so much that one of them was an interruption.
  static bool differ(double a, double b) { return a > kOutlier * b || b > kOutlier * a; }
  /// The least and the most that T(nodes) is expected to be: T of the nearest sizes that it knows, `nodes`
  /// itself if that is one; the most is what was measured, if T does not count that fully yet. Cost: O(sizes
  /// reserved).
  std::pair<double, double> bounds(std::int32_t nodes) const {
    if (given()) return {(*this)(nodes), (*this)(nodes)};
    std::int32_t below = std::min(nodes, largest_), above = std::max(1, nodes);
    while (below > 0 && !knows(below)) --below;
    while (above <= largest_ && !knows(above)) ++above;
    const double low = below > 0 ? (*this)(below) : 0.0;
    if (above > largest_) return {low, kNoBound};
    const double high = std::max((*this)(above), sizes_[static_cast<std::size_t>(above - 1)].value);
    return {below > 0 ? std::min(low, high) : 0.0, std::max(low, high)};
  }
  /// The largest size that it knows, 0 if none; 2^24 for a given curve.
  std::int32_t largest() const { return given() ? 1 << 24 : largest_; }
  void make_straight() { straight_ = true; }  ///< see above; a given curve stays as it is
  /// Allocates for sizes up to `nodes`.
  void reserve(std::int32_t nodes) {
    if (given() || sizes_.size() >= static_cast<std::size_t>(nodes)) return;
    sizes_.resize(static_cast<std::size_t>(nodes));
  }

  /// What a pass over any size costs as long as none was measured; 0 without this.
  void assume(double cost) { assumed_ = cost; }
  /// Learns from a pass that seems to have taken `cost`, and returns what to believe of it: the one place
  /// where interruptions are capped. One that takes more than 1.5 times, or less than 1 / 1.5, of what is
  /// known of its size was interrupted: at_most() is believed. Of a size that is not known, what its first
  /// pass takes beyond 1.5 times at_most() is not: engines plan and allocate once for each size, over a
  /// network for several passes' time; nor is more than `most` of the second. `slack`: how far a single cost
  /// may be off by the clock's steps.
  double believe(std::int32_t nodes, double cost, double most, double slack = 0) {
    if (given()) return (*this)(nodes);
    const double dear = at_most(nodes);
    if (knows(nodes)) {
      const double believed = capped(nodes, cost, slack);
      learn(nodes, cost, slack);
      return believed;
    }
    if (dear > 0 && cost > dear + slack && differ(cost, dear)) {
      const std::uint64_t size = std::uint64_t{1} << (nodes % 64);
      if ((begun_ & size) == 0) return begun_ |= size, std::min(dear, most);
    }
    cost = std::min(cost, std::max(most, slack));
    learn(nodes, cost, slack);
    return cost;
  }

  /// believe() without learning; `cost` itself of a size that is not known.
  double capped(std::int32_t nodes, double cost, double slack) const {
    const double now = (*this)(nodes);
    return knows(nodes) && differ(cost, now) && std::abs(cost - now) > slack ? at_most(nodes) : cost;
  }

  /// Records that a pass over `nodes` took `cost`, give or take `slack`. Does nothing for a given curve.
  /// Cost: O(sizes reserved).
  void learn(std::int32_t nodes, double cost, double slack = 0) {
    if (given() || nodes < 1 || !(cost >= 0) || !std::isfinite(cost)) return;
    reserve(std::max(nodes, largest_));  // a curve that was moved from lacks its sizes
    for (std::int32_t i = 0; i < largest_; ++i) sizes_[static_cast<std::size_t>(i)].weight *= kFade;
    Size& size = sizes_[static_cast<std::size_t>(nodes - 1)];
    if (size.weight < kForgotten) {
      // What agrees with what was forgotten is remembered for longer each time.
      const bool agrees = size.start > 0 && !differ(cost, size.value);
      const double start = agrees ? std::min(2 * size.start, kMemory / 2) : 1;
      size = {cost, start, start};
    } else if (differ(cost, size.value) && std::abs(cost - size.value) > slack) {
      size.weight *= kDoubt;
      if (size.weight < kForgotten || (size.weight < kSure && cost < size.value)) size = {cost, 1, 1};
    } else {
      const double memory = slack > size.value ? kLongMemory : kMemory;  // what is coarse needs a longer mean
      size.weight = std::min(size.weight + 1, memory);
      size.value += (cost - size.value) / size.weight;
    }
    update();
  }

  /// T(nodes); 0 while no pass was recorded. Cost: O(1).
  double operator()(std::int32_t nodes) const {
    const auto n = static_cast<std::size_t>(std::max(1, nodes));
    if (given()) {
      if (n <= given_.size() || given_.size() == 1) return given_[std::min(n, given_.size()) - 1];
      const double last = given_.back(), slope = std::max(0.0, last - given_[given_.size() - 2]);
      return last + slope * static_cast<double>(n - given_.size());
    }
    return largest_ > 0 ? known(n).cost : assumed_;
  }
  /// A cautious T(nodes): beyond the largest size measured a node costs half of an average one of that size.
  double at_most(std::int32_t nodes) const {
    if (given() || largest_ == 0) return (*this)(nodes);
    return nodes > largest_ ? highest_ * (1 + 0.5 * (nodes - largest_) / largest_)
                            : known(static_cast<std::size_t>(std::max(1, nodes))).most;
  }

 private:
  static constexpr double kFade = 1 - 1.0 / 1024, kForgotten = 0.5, kDoubt = 0.8, kLongMemory = 256;

  struct Size {
    double value = 0, weight = 0;  // measured
    double start = 0;              // the weight that it began with
    double cost = 0, most = 0;     // of the curve
  };

  const Size& known(std::size_t n) const {
    static constexpr Size kNone{};
    return sizes_.empty() || largest_ == 0 ? kNone
                                           : sizes_[std::min(n, static_cast<std::size_t>(largest_)) - 1];
  }
  /// Costs of the sizes up to largest_.
  void update() {
    std::size_t from = 0;  // sizes done
    double low = 0, high = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const Size& size = sizes_[i];
      if (size.weight < kForgotten) continue;
      const double below = from > 0 ? low : size.value;
      low = size.value > below && size.weight < kSure ? 0.5 * (below + size.value) : size.value;
      high = std::max(high, size.value);
      for (std::size_t k = from; k <= i; ++k) {
        const double way = static_cast<double>(k + 1 - from) / static_cast<double>(i + 1 - from);
        sizes_[k].cost = below + (low - below) * (straight_ ? way : way * way);
        sizes_[k].most = high;
      }
      if (size.weight >= kSure) sizes_[i].most = size.value;
      from = i + 1;
    }
    largest_ = static_cast<std::int32_t>(from);
    highest_ = high;
  }

  std::vector<double> given_;  // by nodes - 1
  std::vector<Size> sizes_;    // likewise
  std::int32_t largest_ = 0;   // measured size
  double highest_ = 0;         // cost measured
  double assumed_ = 0;         // cost of all sizes before that
  std::uint64_t begun_ = 0;    // sizes whose first pass was left out, by their number modulo 64
  bool straight_ = false;
};

}  // namespace specula
