// SPDX-License-Identifier: MIT
// Closed forms for the expected tokens and speedup of speculative decoding at a constant acceptance rate.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula {

namespace detail {

template <class Number>
[[noreturn]] void refuse_value(const char* function, const char* name, Number value, const char* allowed) {
  throw std::invalid_argument(std::string(function)
                                  .append(": ")
                                  .append(name)
                                  .append(" is ")
                                  .append(std::to_string(value))
                                  .append(", must be ")
                                  .append(allowed));
}
inline void check_rate(const char* function, const char* name, double value) {
  if (!(value >= 0 && value <= 1)) refuse_value(function, name, value, "in [0, 1]");
}
inline void check_amount(const char* function, const char* name, double value) {
  if (!(value >= 0) || !std::isfinite(value)) refuse_value(function, name, value, "finite and >= 0");
}
inline void check_count(const char* function, const char* name, std::int32_t value) {
  if (value < 0) refuse_value(function, name, value, ">= 0");
}

/// 1 + r + ... + r^k for r >= 0, to a few units in the last place, also at and near r = 1.
inline double geometric_sum(double r, std::int32_t k) {
  const double rest = 1 - r;  // exact near 1
  return rest == 0 ? k + 1.0 : -std::expm1((k + 1.0) * std::log1p(-rest)) / rest;
}

}  // namespace detail

/// Expected new tokens of a round with `k` draft tokens of acceptance rate `alpha`, the target's own token
/// included: (1 - alpha^(k+1)) / (1 - alpha). Throws
/// std::invalid_argument unless alpha is in [0, 1] and k >= 0. Leviathan et al. 2023, equation 1.
inline double expected_tokens(double alpha, std::int32_t k) {
  detail::check_rate("expected_tokens", "alpha", alpha);
  detail::check_count("expected_tokens", "k", k);
  return detail::geometric_sum(alpha, k);
}

/// Expected speedup over plain decoding: expected_tokens(alpha, k) / (k c + 1). `c`: time of a draft call
/// over that of a target call, which is assumed to be the same for any number of draft tokens. Throws as
/// expected_tokens, and unless c >= 0. Leviathan et al. 2023, theorem 3.8; GLIDE, table 1.
inline double speedup(double alpha, std::int32_t k, double c) {
  detail::check_rate("speedup", "alpha", alpha);
  detail::check_count("speedup", "k", k);
  detail::check_amount("speedup", "c", c);
  return detail::geometric_sum(alpha, k) / (k * c + 1);
}

/// phi(x) = sum_i P(a round has i new tokens) x^i = 1 + (x - 1) (1 - (alpha x)^(k+1)) / (1 - alpha x), any
/// x >= 0. Its n-th power is the generating function of n rounds' tokens. Throws std::invalid_argument.
/// Chen et al. 2024 (Cascade Speculative Drafting), theorem 4.1; appendix equation 6 is misprinted.
inline double tokens_generating_function(double alpha, std::int32_t k, double x) {
  detail::check_rate("tokens_generating_function", "alpha", alpha);
  detail::check_count("tokens_generating_function", "k", k);
  detail::check_amount("tokens_generating_function", "x", x);
  return 1 + (x - 1) * detail::geometric_sum(alpha * x, k);
}

/// Expected speedup (the paper's EWIF) of a vertical cascade of two drafters: `n` times the second draft
/// tokens `k` tokens and the first reviews them, then the target reviews everything: (1 - alpha phi^n(alpha))
/// / ((1
/// - alpha) (1 + n c1 + n k c2)), phi that of (alpha_inner, k) and phi^n a power. `alpha`: of the first
/// drafter's tokens under the target; `alpha_inner`: of the second's under the first; `c1`, `c2`: a call of
/// each over one of the target. Throws std::invalid_argument. Same paper, theorem 4.3.
inline double vertical_ewif(double alpha, double alpha_inner, std::int32_t k, std::int32_t n, double c1,
                            double c2) {
  detail::check_rate("vertical_ewif", "alpha", alpha);
  detail::check_rate("vertical_ewif", "alpha_inner", alpha_inner);
  detail::check_count("vertical_ewif", "k", k);
  detail::check_count("vertical_ewif", "n", n);
  detail::check_amount("vertical_ewif", "c1", c1);
  detail::check_amount("vertical_ewif", "c2", c2);
  // With rest = 1 - alpha, phi(alpha) is 1 - rest * inner: no difference of nearly equal numbers is left.
  const double rest = 1 - alpha, inner = detail::geometric_sum(alpha_inner * alpha, k);
  const double cost = 1 + n * (c1 + k * c2);
  if (n == 0) return 1 / cost;
  if (rest == 0) return (1 + n * inner) / cost;
  return -std::expm1(std::log1p(-rest) + n * std::log1p(-rest * inner)) / rest / cost;
}

/// Expected speedup (EWIF) of a horizontal cascade: sum_{i=0..k} prod_{j<=i} alpha_j / (1 + sum_j c_j) for k
/// draft tokens, each with the rate `alphas[j]` and the cost `costs[j]` of the drafter that makes it. Throws
/// std::invalid_argument on a rate outside [0, 1], a negative cost or sizes that differ. Same paper, theorem
/// 4.5.
inline double horizontal_ewif(std::span<const double> alphas, std::span<const double> costs) {
  if (alphas.size() != costs.size())
    detail::refuse_value("horizontal_ewif", "the number of costs", costs.size(), "that of the rates");
  double tokens = 1, reach = 1, cost = 1;
  for (std::size_t i = 0; i < alphas.size(); ++i) {
    detail::check_rate("horizontal_ewif", "a rate", alphas[i]);
    detail::check_amount("horizontal_ewif", "a cost", costs[i]);
    reach *= alphas[i];
    tokens += reach;
    cost += costs[i];
  }
  return tokens / cost;
}

/// d horizontal_ewif / d alphas[at], `at` from 0: the sensitivity to the drafter at that position. Throws as
/// horizontal_ewif, and unless `at` is a valid index. Same paper, corollary 4.6.
inline double horizontal_ewif_derivative(std::span<const double> alphas, std::span<const double> costs,
                                         std::int32_t at) {
  if (alphas.size() != costs.size())
    detail::refuse_value("horizontal_ewif_derivative", "the number of costs", costs.size(),
                         "that of the rates");
  if (at < 0 || static_cast<std::size_t>(at) >= alphas.size())
    detail::refuse_value("horizontal_ewif_derivative", "at", at, "in [0, number of rates)");
  double tokens = 0, reach = 1, cost = 1;
  for (std::size_t i = 0; i < alphas.size(); ++i) {
    detail::check_rate("horizontal_ewif_derivative", "a rate", alphas[i]);
    detail::check_amount("horizontal_ewif_derivative", "a cost", costs[i]);
    if (i != static_cast<std::size_t>(at)) reach *= alphas[i];
    if (i >= static_cast<std::size_t>(at)) tokens += reach;
    cost += costs[i];
  }
  return tokens / cost;
}

/// Standardised walltime improvement (SWI) of a run: new tokens over its calls, each drafter's weighted by
/// its cost in target calls: new_tokens / (target_calls + sum_i calls[i] costs[i]). Throws
/// std::invalid_argument on a negative number, sizes that differ, or if there are no calls. Same paper,
/// section 5.1 (whose sum runs to n by a slip; it is over the drafters).
inline double swi(double new_tokens, double target_calls, std::span<const double> calls,
                  std::span<const double> costs) {
  detail::check_amount("swi", "new_tokens", new_tokens);
  detail::check_amount("swi", "target_calls", target_calls);
  if (calls.size() != costs.size())
    detail::refuse_value("swi", "the number of costs", costs.size(), "that of the drafters' calls");
  double cost = target_calls;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    detail::check_amount("swi", "a number of calls", calls[i]);
    detail::check_amount("swi", "a cost", costs[i]);
    cost += calls[i] * costs[i];
  }
  if (!(cost > 0)) detail::refuse_value("swi", "the cost of all calls", cost, "> 0");
  return new_tokens / cost;
}

}  // namespace specula
