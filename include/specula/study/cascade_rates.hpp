// SPDX-License-Identifier: MIT
// Inputs of the cascade model: acceptance rates, call costs, limits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "specula/cost/cost_curve.hpp"
#include "specula/study/speedup.hpp"

namespace specula {

/// The acceptance rate of a draft token by depth, the number of accepted draft tokens before it; the last
/// entry repeats. One entry is the papers' assumption of a constant rate.
class AcceptanceCurve {
 public:
  /// Throws std::invalid_argument unless the rate is in [0, 1].
  AcceptanceCurve(double rate = 0) : AcceptanceCurve(std::vector<double>{rate}) {}
  /// Throws std::invalid_argument unless there is at least one rate and all are in [0, 1].
  explicit AcceptanceCurve(std::vector<double> rates) : rates_(std::move(rates)) {
    if (rates_.empty()) throw std::invalid_argument("AcceptanceCurve: no rates");
    for (const double rate : rates_) detail::check_rate("AcceptanceCurve", "a rate", rate);
  }

  /// The rate after `accepted` accepted draft tokens.
  double operator()(std::int32_t accepted) const {
    return rates_[std::min(static_cast<std::size_t>(accepted), rates_.size() - 1)];
  }

  /// Number of rates of different depths.
  std::size_t size() const { return rates_.size(); }

 private:
  std::vector<double> rates_;
};

/// Acceptance rates and call costs of n drafters, largest first, and a target.
struct CascadeRates {
  /// (n, n): [r][d] for tokens of drafter d >= r under reviewer r: the target for r = 0, else drafter r - 1.
  /// Tokens that a drafter reviewed count as its own. Depth counts from the root for the target, and from the
  /// start of the review for a drafter. Entries with d < r are not read.
  std::vector<std::vector<AcceptanceCurve>> acceptance;
  /// (n) cost of a drafter's call by its nodes, and of the target's, in any one unit: forecasts are in target
  /// calls over one node. A drafter drafts with calls over one node and reviews m draft tokens with a call
  /// over m + 1.
  std::vector<CostCurve> draft_costs;
  CostCurve target_cost = CostCurve({1.0});  ///< of a call by its nodes
  /// (n, n) `acceptance` for a drafter whose turn comes after another's in a proposal; depth counts from the
  /// start of its turn (the mean start, if turns of proposals of one length started at different lengths).
  /// Empty: as `acceptance`, from the root.
  std::vector<std::vector<AcceptanceCurve>> acceptance_after = {};
  /// If set, depth under the target does not restart every round: it is the number of draft tokens in a row
  /// that were right, or would have been. After a rejection that is 0. If all of a proposal is accepted and
  /// the first drafter would have drafted the target's own token too, the next round's first draft token is
  /// as likely to be accepted as if the proposal had continued. Matters for rising curves and short
  /// proposals, since their rounds often start within a run of easy tokens. Cost: a forecast then sums over
  /// the proposal at most once per depth of the longest curve.
  bool runs = false;
};

/// (n, n), upper triangular: row r limits the proposals to reviewer r. Drafter i >= r continues until the
/// length is at least limits[r][r] + ... + limits[r][i]; the last drafter appends limits[n - 1][n - 1] draft
/// tokens at a time. The paper's rows for a base, a small model and Max-Gram are k1, k2, 10 | 0, 1, 10 | 0,
/// 0, 10.
using CascadeLimits = std::vector<std::vector<std::int32_t>>;

/// The limits of a cascade shape as rows.
template <std::size_t n>
CascadeLimits limits_vector(const std::array<std::array<std::int32_t, n>, n>& limits) {
  CascadeLimits out;
  for (const auto& row : limits) out.emplace_back(row.begin(), row.end());
  return out;
}
/// Limits of a cascade shape, from rows. Throws std::invalid_argument unless there are n rows of n.
template <std::size_t n>
std::array<std::array<std::int32_t, n>, n> limits_array(const CascadeLimits& limits) {
  std::array<std::array<std::int32_t, n>, n> out{};
  if (limits.size() != n)
    detail::refuse_value("limits_array", "the number of rows", limits.size(), "that of the array");
  for (std::size_t r = 0; r < n; ++r) {
    if (limits[r].size() != n)
      detail::refuse_value("limits_array", "the length of a row", limits[r].size(), "that of the array");
    std::copy(limits[r].begin(), limits[r].end(), out[r].begin());
  }
  return out;
}

}  // namespace specula
