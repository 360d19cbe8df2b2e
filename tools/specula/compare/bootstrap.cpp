// SPDX-License-Identifier: MIT
#include "bootstrap.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace specula_tools {
namespace {

double quotient(double a, double b) { return b > 0 ? a / b : 0.0; }

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

void expect_in(const char* what, std::size_t value, std::size_t low, std::size_t high) {
  if (value < low || value > high)
    throw std::invalid_argument("Bootstrap: " + std::string(what) + " is " + std::to_string(value) +
                                ", must be " + std::to_string(low) + " to " + std::to_string(high));
}

/// The central 95% of them.
Interval interval(double value, std::vector<double> resampled) {
  const std::size_t tail = resampled.size() / 40;  // 2.5%
  const auto low = resampled.begin() + static_cast<std::ptrdiff_t>(tail),
             high = resampled.end() - 1 - static_cast<std::ptrdiff_t>(tail);
  std::nth_element(resampled.begin(), low, resampled.end());
  std::nth_element(low + 1, high, resampled.end());
  return {value, *low, *high};
}

}  // namespace

double Terms::ratio() const { return quotient(sum(over), sum(under)); }

Bootstrap::Bootstrap(std::size_t prompts, std::size_t resamples, std::uint64_t seed) : prompts_(prompts) {
  expect_in("prompts", prompts, 2, std::numeric_limits<std::uint16_t>::max());
  expect_in("resamples", resamples, 40, std::size_t{1} << 24);
  counts_.resize(prompts * resamples);
  std::mt19937_64 bits(seed);  // the standard specifies its numbers, but not those of its distributions
  for (std::size_t r = 0; r < resamples; ++r)
    for (std::size_t p = 0; p < prompts; ++p) ++counts_[r * prompts + bits() % prompts];
}

std::vector<double> Bootstrap::ratios(const Terms& terms) const {
  if (terms.over.size() != prompts_ || terms.under.size() != prompts_)
    throw std::invalid_argument("Bootstrap: terms of " + std::to_string(terms.over.size()) + " and " +
                                std::to_string(terms.under.size()) + " prompts, must be of " +
                                std::to_string(prompts_));
  std::vector<double> out;
  out.reserve(counts_.size() / prompts_);
  for (auto drawn = counts_.begin(); drawn != counts_.end(); drawn += static_cast<std::ptrdiff_t>(prompts_))
    out.push_back(quotient(std::inner_product(terms.over.begin(), terms.over.end(), drawn, 0.0),
                           std::inner_product(terms.under.begin(), terms.under.end(), drawn, 0.0)));
  return out;
}

Interval Bootstrap::of(const Terms& a) const { return interval(a.ratio(), ratios(a)); }

Interval Bootstrap::of(const Terms& a, const Terms& b) const {
  std::vector<double> resampled = ratios(a);
  const std::vector<double> other = ratios(b);
  std::transform(resampled.begin(), resampled.end(), other.begin(), resampled.begin(), quotient);
  return interval(quotient(a.ratio(), b.ratio()), std::move(resampled));
}

}  // namespace specula_tools
