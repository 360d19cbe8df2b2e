// SPDX-License-Identifier: MIT
// Searches draft lengths and cascade limits for the best predicted speedup.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/study/cascade_model.hpp"

namespace specula {

/// What a search maximises.
enum class TunerObjective : std::uint8_t {
  speedup,  ///< with the cost curves
  swi       ///< standardised walltime improvement: calls cost the same over any number of nodes
};

/// Limits of a search.
struct TunerOptions {
  TunerObjective objective = TunerObjective::speedup;  ///< what is maximised
  /// (n or 1, the last repeats) maximum count or limit per drafter: of its draft tokens, its reviews in a
  /// vertical cascade, its entries in every row of a cascade.
  std::vector<std::int32_t> max_length = {16};
  /// Minimum of the first limit of a cascade: 1 finds the best cascade that uses its first drafter.
  std::int32_t least_first = 0;
  /// Largest proposal, root included.
  std::int32_t max_nodes = std::numeric_limits<std::int32_t>::max();
  /// Allowed values of the last column of a cascade's limits, in place of 0..max_length: the paper always
  /// uses 10. Empty: 0..max_length.
  std::vector<std::int32_t> last_column = {10};
  /// A search is exhaustive for at most this number of candidates; for more it is a hill climb from several
  /// starts.
  std::int32_t exhaustive = 20000;
};

/// The best chain found, and its forecast.
struct TunedChain {
  std::int32_t length = 0;   ///< Chain::length
  CascadeForecast forecast;  ///< per round
};
/// The best horizontal cascade found, and its forecast.
struct TunedHorizontal {
  std::vector<std::int32_t> counts;  ///< (n)
  CascadeForecast forecast;          ///< per round
};
/// The best vertical cascade found, and its forecast.
struct TunedVertical {
  std::int32_t reviews = 0,  ///< Vertical::reviews
      length = 0;            ///< Vertical::length
  CascadeForecast forecast;  ///< per round
};
/// The best cascade found, and its forecast.
struct TunedCascade {
  CascadeLimits limits;      ///< of a Cascade
  CascadeForecast forecast;  ///< per round
};

namespace detail {

/// Maximises over a grid: variable v takes `values[v]`, `score` returns minus infinity for points that are
/// not allowed. Deterministic; an exhaustive search returns the first of equal points in lexicographic order.
class GridSearch {
 public:
  template <class Score>
  GridSearch(const std::vector<std::vector<std::int32_t>>& values, std::int32_t exhaustive, Score score) {
    double candidates = 1;
    for (const auto& v : values) candidates *= static_cast<double>(v.size());
    best_.assign(values.size(), 0);
    if (candidates <= exhaustive)
      try_all(values, score);
    else
      climb_from_several(values, score);
  }
  bool found() const { return best_score_ > kNone; }
  /// The best value per variable.
  const std::vector<std::int32_t>& best() const { return best_; }

  static constexpr double kNone = -std::numeric_limits<double>::infinity();

 private:
  using Values = std::vector<std::vector<std::int32_t>>;
  using Point = std::vector<std::size_t>;  // indices into values

  template <class Score>
  double score_at(const Values& values, const Point& at, Score& score) {
    now_.resize(at.size());
    for (std::size_t v = 0; v < at.size(); ++v) now_[v] = values[v][at[v]];
    return score(std::as_const(now_));
  }
  /// Better by more than rounding.
  static bool better(double a, double b) { return a > b + 1e-12 * std::max(1.0, b); }
  bool keep(double score) {
    if (!(best_score_ == kNone ? score > kNone : better(score, best_score_))) return false;
    best_score_ = score, best_ = now_;
    return true;
  }

  template <class Score>
  void try_all(const Values& values, Score& score) {
    Point at(values.size(), 0);
    for (;;) {
      keep(score_at(values, at, score));
      std::size_t v = values.size();
      while (v > 0 && ++at[v - 1] == values[v - 1].size()) at[--v] = 0;
      if (v == 0) return;
    }
  }

  /// Each start has every variable at the same share of its range.
  template <class Score>
  void climb_from_several(const Values& values, Score& score) {
    constexpr std::size_t kShares = 4;
    for (std::size_t share = 0; share <= kShares; ++share) {
      Point at(values.size());
      for (std::size_t v = 0; v < at.size(); ++v) at[v] = (values[v].size() - 1) * share / kShares;
      climb(values, at, score);
    }
  }

  /// Hill climb: moves each variable in turn to its best value, and pairs by one step each, until neither
  /// improves the score.
  template <class Score>
  void climb(const Values& values, Point at, Score& score) {
    double here = score_at(values, at, score);
    keep(here);
    const auto move = [&](const Point& there) {
      const double s = score_at(values, there, score);
      if (!(here == kNone ? s > kNone : better(s, here))) return false;
      here = s, at = there;
      keep(s);
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t v = 0; v < at.size(); ++v) {
        Point there = at;
        for (there[v] = 0; there[v] < values[v].size(); ++there[v]) moved |= move(there);
      }
      if (moved) continue;
      for (std::size_t v = 0; v < at.size(); ++v)
        for (std::size_t w = v + 1; w < at.size(); ++w)
          for (const int dv : {-1, 1})
            for (const int dw : {-1, 1}) {
              Point there = at;
              if (shift(there[v], dv, values[v].size()) && shift(there[w], dw, values[w].size()))
                moved |= move(there);
            }
    }
  }
  static bool shift(std::size_t& index, int by, std::size_t size) {
    if (by < 0 ? index == 0 : index + 1 == size) return false;
    index = by < 0 ? index - 1 : index + 1;
    return true;
  }

  std::vector<std::int32_t> now_, best_;
  double best_score_ = kNone;
};

inline double score_of(const CascadeForecast& forecast, const TunerOptions& options) {
  if (forecast.max_nodes > options.max_nodes) return GridSearch::kNone;
  return options.objective == TunerObjective::swi ? forecast.swi : forecast.speedup;
}

inline std::vector<std::int32_t> up_to(std::int32_t most) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i <= most; ++i) out.push_back(i);
  return out;
}

/// Allowed values per drafter: 0 to its maximum.
inline std::vector<std::vector<std::int32_t>> tuner_ranges(const TunerOptions& options, std::size_t n) {
  if (options.max_length.size() != 1 && options.max_length.size() != n)
    throw std::invalid_argument("TunerOptions: " + std::to_string(options.max_length.size()) +
                                " max_length, must be 1 or " + std::to_string(n));
  if (options.max_nodes < 1) refuse_value("TunerOptions", "max_nodes", options.max_nodes, ">= 1");
  std::vector<std::vector<std::int32_t>> out;
  for (std::size_t d = 0; d < n; ++d) {
    const std::int32_t most = options.max_length[std::min(d, options.max_length.size() - 1)];
    if (most < 0 || most > CascadeForecaster::kMaxLimit)
      refuse_value("TunerOptions", "max_length", most, "in [0, 1024]");
    out.push_back(up_to(most));
  }
  return out;
}

}  // namespace detail

/// The best length of a chain (best_horizontal() finds that of rates with `runs`), of all lengths up to
/// `k_max` (in [0, 1024]): 0 if no draft token pays. Throws std::invalid_argument. Cost: O(k_max^2).
inline TunedChain best_chain_length(const AcceptanceCurve& acceptance, const CostCurve& draft_cost,
                                    std::int32_t k_max, const CostCurve& target_cost = CostCurve({1.0}),
                                    TunerObjective objective = TunerObjective::speedup) {
  TunerOptions options;
  options.objective = objective;
  options.max_length = {k_max};
  detail::CascadeForecaster model({{{acceptance}}, {draft_cost}, target_cost});
  const auto ranges = detail::tuner_ranges(options, 1);
  const detail::GridSearch search(ranges, k_max + 1, [&](const std::vector<std::int32_t>& length) {
    return detail::score_of(model.horizontal(length), options);
  });
  return {search.best()[0], model.horizontal(search.best())};
}

/// The best counts of a horizontal cascade of all drafters, in their order; a count may be 0. Throws
/// std::invalid_argument. Cost: one forecast per candidate: prod (max_length + 1), or those of a climb.
inline TunedHorizontal best_horizontal(const CascadeRates& rates, const TunerOptions& options = {}) {
  detail::CascadeForecaster model(rates);
  const auto ranges = detail::tuner_ranges(options, model.drafters());
  const detail::GridSearch search(ranges, options.exhaustive, [&](const std::vector<std::int32_t>& counts) {
    return detail::score_of(model.horizontal(counts), options);
  });
  return {search.best(), model.horizontal(search.best())};
}

/// The best number of reviews, up to max_length of the first drafter, and of the last one's draft tokens
/// before each, up to its own max_length. Throws std::invalid_argument. Cost: as best_horizontal.
inline TunedVertical best_vertical(const CascadeRates& rates, const TunerOptions& options = {}) {
  detail::CascadeForecaster model(rates);
  const auto ranges = detail::tuner_ranges(options, model.drafters());
  const detail::GridSearch search({ranges.front(), ranges.back()}, options.exhaustive,
                                  [&](const std::vector<std::int32_t>& at) {
                                    return detail::score_of(model.vertical(at[0], at[1]), options);
                                  });
  return {search.best()[0], search.best()[1], model.vertical(search.best()[0], search.best()[1])};
}

/// The best limits of a full cascade. Throws std::invalid_argument, also if max_nodes has no room for any
/// candidate. Cost: one forecast per candidate. One variable per entry on or above the diagonal: with three
/// drafters and a fixed last column, three. A climb may end at a local maximum.
inline TunedCascade best_cascade(const CascadeRates& rates, const TunerOptions& options = {}) {
  detail::CascadeForecaster model(rates);
  const std::size_t n = model.drafters();
  auto ranges = detail::tuner_ranges(options, n);
  if (!options.last_column.empty()) {
    for (const std::int32_t v : options.last_column)
      if (v < 0 || v > detail::CascadeForecaster::kMaxLimit)
        detail::refuse_value("TunerOptions", "a value of last_column", v, "in [0, 1024]");
    ranges.back() = options.last_column;
    std::sort(ranges.back().begin(), ranges.back().end());
  }
  std::vector<std::vector<std::int32_t>> values;
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = r; i < n; ++i) values.push_back(ranges[i]);
  std::erase_if(values.front(), [&](std::int32_t limit) { return limit < options.least_first; });
  if (values.front().empty())
    detail::refuse_value("TunerOptions", "least_first", options.least_first,
                         "at most the largest first limit");

  CascadeLimits limits(n, std::vector<std::int32_t>(n, 0));
  const auto fill = [&](const std::vector<std::int32_t>& at) {
    std::size_t v = 0;
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t i = r; i < n; ++i) limits[r][i] = at[v++];
  };
  const detail::GridSearch search(values, options.exhaustive, [&](const std::vector<std::int32_t>& at) {
    fill(at);
    if (limits[n - 1][n - 1] == 0)
      for (const auto& row : limits)
        if (row[n - 1] > 0) return detail::GridSearch::kNone;
    if (model.max_nodes(limits) > options.max_nodes) return detail::GridSearch::kNone;
    return detail::score_of(model.cascade(limits), options);
  });
  if (!search.found())
    detail::refuse_value("best_cascade", "max_nodes", options.max_nodes, "enough for some candidate");
  fill(search.best());
  return {limits, model.cascade(limits)};
}

}  // namespace specula
