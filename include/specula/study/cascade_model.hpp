// SPDX-License-Identifier: MIT
// Analytic model of cascade speculative drafting: expected tokens, calls and speedup, without simulation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/cost/cost_curve.hpp"
#include "specula/shape/detail/cascade_bounds.hpp"
#include "specula/study/cascade_rates.hpp"
#include "specula/study/speedup.hpp"

namespace specula {

/// Expected values per round.
struct CascadeForecast {
  double tokens = 0;           ///< new ones, the target's own included
  double proposed = 0;         ///< draft tokens that the target verifies
  std::vector<double> calls;   ///< (n) of each drafter
  double cost = 0;             ///< in target calls over one node, by the cost curves
  double swi = 0;              ///< tokens / (1 + sum_d calls[d] c[d]), with the costs of calls over one node
  double speedup = 0;          ///< tokens / cost
  std::int32_t max_nodes = 1;  ///< largest tree, root included
};

namespace detail {

/// Makes repeated forecasts for the same rates in the same buffers. References are valid until the next
/// forecast.
///
/// A proposal's length and cost do not depend on the number of its tokens that the reviewer will accept, so
/// two distributions over lengths suffice: the probability of each length, and the probability of each length
/// with all draft tokens accepted so far.
class CascadeForecaster {
 public:
  static constexpr std::int32_t kMaxLimit = 1024;  // of an entry in a row of limits: keeps the buffers small

  explicit CascadeForecaster(CascadeRates rates) : rates_(std::move(rates)), n_(rates_.draft_costs.size()) {
    if (n_ == 0) throw std::invalid_argument("CascadeRates: no drafters");
    const auto fits = [&](const std::vector<std::vector<AcceptanceCurve>>& curves) {
      return curves.size() == n_ &&
             std::all_of(curves.begin(), curves.end(), [&](const auto& row) { return row.size() == n_; });
    };
    if (!fits(rates_.acceptance) || !(rates_.acceptance_after.empty() || fits(rates_.acceptance_after)))
      throw std::invalid_argument("CascadeRates: acceptance must be " + std::to_string(n_) + " rows of " +
                                  std::to_string(n_) + " for as many draft_costs");
    unit_ = rates_.target_cost(1);
    if (!(unit_ > 0)) refuse_value("CascadeRates", "target_cost(1)", unit_, "> 0");
    for (const AcceptanceCurve& curve : rates_.acceptance[0])
      longest_curve_ = std::max(longest_curve_, curve.size());
    steps_.resize(n_), bounds_.resize(n_), calls_.resize(n_), forecast_.calls.resize(n_);
  }

  std::size_t drafters() const { return n_; }

  const CascadeForecast& horizontal(std::span<const std::int32_t> counts) {
    if (counts.size() > n_)
      refuse_value("forecast_horizontal", "the number of counts", counts.size(),
                   "at most that of the drafters");
    std::int32_t length = 0;
    for (const std::int32_t count : counts) check_limit("forecast_horizontal", count), length += count;
    for (std::size_t d = 0; d < counts.size(); ++d)
      if (counts[d] > 0) add_draft_tokens(d, counts[d]);
    const auto first =
        std::find_if(counts.begin(), counts.end(), [](std::int32_t count) { return count > 0; });
    return rounds(first == counts.end() ? 0 : static_cast<std::size_t>(first - counts.begin()), length, [&] {
      std::int32_t at = 0;
      for (std::size_t d = 0; d < counts.size(); ++d) {
        if (counts[d] == 0) continue;
        if (at > 0) next_turn();
        append_step(0, d, at, at > 0);
        at += counts[d];
      }
    });
  }

  const CascadeForecast& vertical(std::int32_t reviews, std::int32_t length) {
    if (n_ < 2) refuse_value("forecast_vertical", "the number of drafters", n_, "at least 2");
    check_limit("forecast_vertical", reviews);
    check_limit("forecast_vertical", length);
    std::int32_t most = length;  // draft tokens per turn of a drafter
    if (length > 0) add_draft_tokens(n_ - 1, length);
    for (std::size_t d = n_ - 1; d-- > 0; ++most) {
      begin(most);
      if (most > 0) append_step(d + 1, d + 1, 0);
      review(d);
    }
    return rounds(0, reviews * most, [&] {
      for (std::int32_t i = 0; i < reviews; ++i)  // longest first: appended tokens are not revisited
        for (std::int32_t at = i * most; at >= 0; --at) append_step(0, 0, at);
    });
  }

  const CascadeForecast& cascade(const CascadeLimits& limits) {
    const std::int32_t nodes = max_nodes(limits);
    if (limits[n_ - 1][n_ - 1] > 0) add_draft_tokens(n_ - 1, limits[n_ - 1][n_ - 1]);
    for (std::size_t d = n_ - 1; d-- > 0;) {
      begin(static_cast<std::int32_t>(bounds_[d + 1]));
      fill(d + 1, limits);
      review(d);
    }
    std::size_t first = 0;
    while (first + 1 < n_ && limits[0][first] == 0) ++first;
    return rounds(first, nodes - 1, [&] { fill(0, limits); });
  }

  /// Maximum nodes of a proposal, root included. Throws std::invalid_argument for invalid `limits`.
  std::int32_t max_nodes(const CascadeLimits& limits) {
    check_limits(limits);
    cascade_bounds(limits, bounds_);
    return 1 + static_cast<std::int32_t>(bounds_[0]);
  }

 private:
  /// Distribution of the number of tokens that a drafter appends at a time, and the cost.
  struct Step {
    std::vector<double> prob, at_least;  // [s]: probability of s tokens, of at least s
    std::vector<double> calls;           // (n) expected calls, its own included
    double cost = 0;
  };

  static void check_limit(const char* function, std::int32_t value) {
    if (value < 0 || value > kMaxLimit) refuse_value(function, "a limit", value, "in [0, 1024]");
  }
  void check_limits(const CascadeLimits& limits) const {
    bool square = limits.size() == n_;
    for (const auto& row : limits) square = square && row.size() == n_;
    if (!square)
      throw std::invalid_argument("forecast_cascade: limits must be " + std::to_string(n_) + " rows of " +
                                  std::to_string(n_));
    for (std::size_t r = 0; r < n_; ++r)
      for (std::size_t i = 0; i < n_; ++i) {
        check_limit("forecast_cascade", limits[r][i]);
        if (i < r && limits[r][i] != 0)
          refuse_value("forecast_cascade", "a limit below the diagonal", limits[r][i], "0");
        if (i == n_ - 1 && limits[r][i] > 0 && limits[i][i] == 0)
          refuse_value("forecast_cascade", "the last limit", 0, ">= 1 where its column is used");
      }
  }

  /// An empty proposal that may grow to `bound`.
  void begin(std::int32_t bound) {
    const auto size = static_cast<std::size_t>(bound) + 1;
    lengths_.assign(size, 0.0), alive_.assign(size, 0.0), accepted_.assign(size, 0.0);
    since_.assign(size, 0.0);
    lengths_[0] = alive_[0] = 1;
    calls_.assign(n_, 0.0);
    cost_ = 0;
  }

  /// Drafter d appends `count` draft tokens of its own, one call per token.
  void add_draft_tokens(std::size_t d, std::int32_t count) {
    Step& step = steps_[d];
    const auto size = static_cast<std::size_t>(count) + 1;
    step.prob.assign(size, 0.0);
    step.prob.back() = 1;
    step.at_least.assign(size, 1.0);
    step.calls.assign(n_, 0.0);
    step.calls[d] = count;
    step.cost = count * rates_.draft_costs[d](1);
  }

  /// Drafter d reviews the proposal: accepted + 1 tokens of its own.
  void review(std::size_t d) {
    Step& step = steps_[d];
    settle();
    step.prob.assign(accepted_.size() + 1, 0.0);
    std::copy(accepted_.begin(), accepted_.end(), step.prob.begin() + 1);
    step.at_least.assign(step.prob.size(), 0.0);
    double sum = 0;
    for (std::size_t s = step.prob.size(); s-- > 0;) step.at_least[s] = sum += step.prob[s];
    step.calls = calls_;
    step.calls[d] += 1;
    step.cost = cost_ + expected_cost(rates_.draft_costs[d]);
  }

  /// The proposal of a row: each drafter in turn, until the length reaches the sum of the limits up to it.
  void fill(std::size_t row, const CascadeLimits& limits) {
    std::int32_t limit = 0;
    for (std::size_t d = row; d < n_; ++d) {
      const bool later = limit > 0;
      if (later) next_turn();
      limit += limits[row][d];
      for (std::int32_t at = 0; at < limit; ++at) append_step(row, d, at, later);
    }
  }

  /// Starts another drafter's turn.
  void next_turn() { std::fill(since_.begin(), since_.end(), 0.0); }
  /// Appends the step of drafter d to proposals of length `at`, which reviewer `row` will verify. `later`:
  /// other drafters had turns before.
  void append_step(std::size_t row, std::size_t d, std::int32_t at, bool later = false) {
    const auto from = static_cast<std::size_t>(at);
    const double mass = lengths_[from];
    if (mass == 0) return;
    double reach = alive_[from];
    lengths_[from] = alive_[from] = 0;
    const Step& step = steps_[d];
    for (std::size_t i = 0; i < n_; ++i) calls_[i] += mass * step.calls[i];
    cost_ += mass * step.cost;
    const bool after = later && !rates_.acceptance_after.empty();
    const AcceptanceCurve& curve = (after ? rates_.acceptance_after : rates_.acceptance)[row][d];
    const std::int32_t depth =
        after ? static_cast<std::int32_t>(since_[from] + 0.5) : at + (row == 0 ? run_ : 0);
    for (std::size_t s = 1; s < step.prob.size(); ++s) {
      const double rate = curve(depth + static_cast<std::int32_t>(s) - 1);
      accepted_[from + s - 1] += reach * step.at_least[s] * (1 - rate);
      reach *= rate;
      const double arrives = mass * step.prob[s], there = lengths_[from + s] + arrives;
      if (arrives > 0)
        since_[from + s] += arrives / there * (since_[from] + static_cast<double>(s) - since_[from + s]);
      lengths_[from + s] = there;
      alive_[from + s] += reach * step.prob[s];
    }
  }

  /// Counts proposals without a rejection as accepted in full.
  void settle() {
    for (std::size_t i = 0; i < alive_.size(); ++i) accepted_[i] += alive_[i];
  }
  double expected_cost(const CostCurve& curve) const {
    double cost = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i)
      if (lengths_[i] > 0) cost += lengths_[i] * curve(static_cast<std::int32_t>(i) + 1);
    return cost;
  }

  /// The forecast for proposals of at most `bound` draft tokens that `propose` makes and drafter `first`
  /// begins. The state of a round is its run: the number of draft tokens in a row that were right before it.
  /// From one round to the next a run grows or returns to 0, so one pass over ascending runs finds how often
  /// each occurs. Runs beyond the curves' ends count as one state.
  template <class Propose>
  const CascadeForecast& rounds(std::size_t first, std::int32_t bound, Propose propose) {
    constexpr double kRare = 1e-9;  // per rejection
    const std::size_t last = rates_.runs ? longest_curve_ - 1 : 0;
    const AcceptanceCurve& next = rates_.acceptance[0][first];
    runs_.assign(last + 1, 0.0);
    runs_[0] = 1;
    double tokens = 0, weight = 0;
    for (std::size_t run = 0; run <= last; ++run) {
      if (runs_[run] < kRare) continue;
      run_ = static_cast<std::int32_t>(run);
      begin(bound);
      propose();
      settle();
      double repeats = 0;  // probability that the next round starts from the same run
      for (std::size_t i = 0; last > 0 && i < alive_.size(); ++i) {
        const double goes_on = alive_[i] * next(static_cast<std::int32_t>(run + i));
        const std::size_t to = std::min(run + i + 1, last);
        (to == run ? repeats : runs_[to]) += to == run ? goes_on : runs_[run] * goes_on;
      }
      double often = runs_[run];
      if (repeats > 1 - kRare)
        tokens = weight = 0, often = 1;  // the run never ends
      else
        often /= 1 - repeats;
      for (std::size_t i = 0; i < accepted_.size(); ++i)
        tokens += often * (static_cast<double>(i) + 1) * accepted_[i];
      weight += often;
    }
    return finish(bound, tokens / weight);
  }

  const CascadeForecast& finish(std::int32_t bound, double tokens) {
    forecast_.tokens = tokens;
    forecast_.proposed = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i)
      forecast_.proposed += static_cast<double>(i) * lengths_[i];
    forecast_.calls = calls_;
    forecast_.cost = (cost_ + expected_cost(rates_.target_cost)) / unit_;
    double plain = 1;
    for (std::size_t d = 0; d < n_; ++d) plain += calls_[d] * rates_.draft_costs[d](1) / unit_;
    forecast_.swi = forecast_.tokens / plain;
    forecast_.speedup = forecast_.tokens / forecast_.cost;
    forecast_.max_nodes = 1 + bound;
    return forecast_;
  }

  CascadeRates rates_;
  std::size_t n_;
  double unit_ = 1;
  std::size_t longest_curve_ = 1;     // of the curves under the target
  std::int32_t run_ = 0;              // see rounds()
  std::vector<double> runs_;          // how often each run length occurs
  std::vector<Step> steps_;           // (n), per drafter
  std::vector<std::int64_t> bounds_;  // per row: maximum draft tokens
  std::vector<double> lengths_;       // probability of each length
  std::vector<double> since_;         // per length: mean number of its tokens that belong to this turn
  std::vector<double> alive_;         // probability of each length with all of it accepted so far
  std::vector<double> accepted_;      // [i]: probability of exactly i accepted, if already determined
  std::vector<double> calls_;         // (n) so far
  double cost_ = 0;                   // of the drafters so far
  CascadeForecast forecast_;
};

}  // namespace detail

/// A chain of `length` draft tokens of the first drafter: tokens and speedup are expected_tokens() and
/// speedup() if neither depth nor nodes matter. Throws std::invalid_argument if the rates' sizes do not fit
/// one another or the length is outside [0, 1024]. Cost: O(length).
inline CascadeForecast forecast_chain(const CascadeRates& rates, std::int32_t length) {
  return detail::CascadeForecaster(rates).horizontal({&length, 1});
}

/// A horizontal cascade: counts[d] draft tokens of drafter d, verified by the target only:
/// horizontal_ewif() if nodes do not matter. Throws std::invalid_argument. Cost: O(sum of counts). Chen et
/// al. 2024, section 3.2.
inline CascadeForecast forecast_horizontal(const CascadeRates& rates, std::span<const std::int32_t> counts) {
  return detail::CascadeForecaster(rates).horizontal(counts);
}

/// A vertical cascade by numbers of reviews: the first drafter reviews `reviews` proposals of the second,
/// which makes each with one review of the third's, and so on; the last drafts `length` tokens. With two
/// drafters equals vertical_ewif() if neither depth nor nodes matter. Throws std::invalid_argument, also for
/// a single drafter. Cost: O((reviews length)^2). Same paper, section 3.1.
inline CascadeForecast forecast_vertical(const CascadeRates& rates, std::int32_t reviews,
                                         std::int32_t length) {
  return detail::CascadeForecaster(rates).vertical(reviews, length);
}

/// The full cascade, by numbers of tokens: in row r drafter i >= r appends its reviews of row i + 1's
/// proposals (the last drafter its own draft tokens) until the row's limits up to i are reached; overshoot is
/// kept. The target verifies row 0's proposal. Drafters without a draft token (an n-gram without a match) are
/// not modelled. Throws std::invalid_argument unless limits are (n, n), upper triangular, in [0, 1024], and
/// the last one is at least 1 where its column is used. Cost: O(sum over rows of length times step), a few
/// microseconds for three drafters. Same paper, algorithm 1 with corrections.
inline CascadeForecast forecast_cascade(const CascadeRates& rates, const CascadeLimits& limits) {
  return detail::CascadeForecaster(rates).cascade(limits);
}

}  // namespace specula
