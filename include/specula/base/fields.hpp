// Range checks of parameters, with messages that hold name, value and allowed range.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Most nodes of a proposal, root included: one less than 2^24.
inline constexpr std::int32_t kMostNodes = (1 << 24) - 1;
/// Most tokens that a shape may propose beside the root.
inline constexpr std::int32_t kMaxDraftTokens = kMostNodes - 1;
/// Lenience above this overflows the floats that it is multiplied with.
inline constexpr double kMostLenience = 1e30;

/// A number of nodes that does not overflow; trees refuse what it is cut to.
constexpr std::int32_t node_count(std::int64_t nodes) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(nodes, 0, kMostNodes + 1));
}

/// The shortest text that reads back as `value`: "-1", "1e-30", "0.1", "nan".
template <class T>
std::string number(T value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// Throws std::invalid_argument unless `value`, of the field `name`, is in [least, most]; NaN never is.
template <class T>
void expect_in(const char* name, T value, T least, T most) {
  if (!(value >= least && value <= most))
    throw std::invalid_argument(std::string(name) + " is " + number(value) + ", must be in [" +
                                number(least) + ", " + number(most) + "]");
}
/// The same for the entries of an array; the message has the index of the first that is not.
template <class T, std::size_t n>
void expect_all_in(const char* name, const std::array<T, n>& values, T least, T most) {
  for (std::size_t i = 0; i < n; ++i)
    if (!(values[i] >= least && values[i] <= most))
      expect_in((std::string(name) + '[' + number(i) + ']').c_str(), values[i], least, most);
}

/// The same for what a shape's fields come to. One that is within range needs no more to be looked at.
template <class Shape>
void expect_nodes(const char* name, const Shape& shape) {
  expect_in((std::string(name) + ": max_nodes()").c_str(), shape.max_nodes(), 1, kMostNodes);
}

/// Throws what the policy's own validate() throws, if it has one.
template <class Policy>
void expect_valid(const Policy& policy) {
  if constexpr (requires { policy.validate(); }) policy.validate();
}
/// The same in front of a move.
template <class Policy>
Policy&& validated(Policy&& policy) {
  expect_valid(policy);
  return std::forward<Policy>(policy);
}

}  // namespace specula::detail
