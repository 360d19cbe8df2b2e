// SPDX-License-Identifier: MIT
// Range checks of parameters: messages with name, value and allowed range.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "specula/base/compiler_options.hpp"
#include "specula/base/sampling_params.hpp"

namespace specula {

/// A policy that checks its fields: `void validate() const`, which throws std::invalid_argument if one is out
/// of range. Speculator's constructor calls a shape's before anything else.
template <class P>
concept ValidatesFields = requires(const P& p) {
  p.validate();
};

}  // namespace specula

namespace specula::detail {

/// Maximum nodes of a proposal, root included: 2^24 - 1.
inline constexpr std::int32_t kMaxNodes = (1 << 24) - 1;
/// Maximum draft tokens of a proposal.
inline constexpr std::int32_t kMaxDraftTokens = kMaxNodes - 1;
/// Larger lenience would overflow the floats that it multiplies.
inline constexpr double kMaxLenience = 1e30;

/// Clamps a number of nodes so that it does not overflow; trees reject the largest result.
constexpr std::int32_t node_count(std::int64_t nodes) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(nodes, 0, kMaxNodes + 1));
}

/// The shortest text that reads back as `value`: "-1", "1e-30", "0.1", "nan".
template <class T>
std::string number(T value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// `value` with `digits` (at most 80) after the point, in every locale; blanks before it up to `width`
/// columns.
inline std::string fixed(double value, int digits, std::size_t width = 0) {
  std::array<char, 400> text;  // 309 digits before the point at most
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  const auto size = static_cast<std::size_t>(end - text.data());
  return std::string(width > size ? width - size : 0, ' ').append(text.data(), size);
}

/// Throws std::invalid_argument unless `value`, of the field `name`, is in [least, most]; NaN never is.
template <class T>
void expect_in(const char* name, T value, T least, T most) {
  if (!(value >= least && value <= most))
    throw std::invalid_argument(std::string(name) + " is " + number(value) + ", must be in [" +
                                number(least) + ", " + number(most) + "]");
}
/// The same for each entry of an array; the message names the first bad index.
template <class T, std::size_t n>
void expect_all_in(const char* name, const std::array<T, n>& values, T least, T most) {
  for (std::size_t i = 0; i < n; ++i)
    if (!(values[i] >= least && values[i] <= most))
      expect_in((std::string(name) + '[' + number(i) + ']').c_str(), values[i], least, most);
}

/// The same for the largest proposal of a shape. A shape that passes needs no further checks of its size.
template <class Shape>
void expect_nodes(const char* name, const Shape& shape) {
  expect_in((std::string(name) + ": nodes().most").c_str(), shape.nodes().most, 1, kMaxNodes);
}

/// Throws what the policy's own validate() throws, if it has one.
template <class Policy>
void expect_valid(const Policy& policy) {
  if constexpr (ValidatesFields<Policy>) policy.validate();
}
/// The same, then forwards the policy.
template <class Policy>
Policy&& validated(Policy&& policy) {
  expect_valid(policy);
  return std::forward<Policy>(policy);
}

}  // namespace specula::detail

namespace specula {

/// Throws std::invalid_argument naming the field, its value and the allowed range. NaN is never allowed.
/// Cost: a few comparisons.
inline void validate(const SamplingParams& params) {
  const auto expect = [](bool ok, const char* what, auto value, const char* range) {
    if (!ok)
      throw std::invalid_argument(std::string("SamplingParams::") + what + " is " + detail::number(value) +
                                  ", must be " + range);
  };
  expect(std::isfinite(params.temperature) && params.temperature >= 0.0f, "temperature", params.temperature,
         "finite and >= 0");
  expect(params.temperature == 0.0f || params.temperature >= 1e-4f, "temperature", params.temperature,
         "0 (greedy) or at least 1e-4");
  expect(params.top_k >= 0, "top_k", params.top_k, ">= 0 (0 is off)");
  expect(params.top_p > 0.0f && params.top_p <= 1.0f, "top_p", params.top_p, "in (0, 1]");
  expect(params.min_p >= 0.0f && params.min_p <= 1.0f, "min_p", params.min_p, "in [0, 1]");
}

}  // namespace specula
