// SPDX-License-Identifier: MIT
#include "braces.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <specula/base/read_number.hpp>

#include "errors.hpp"

namespace specula_tools {
namespace {

constexpr std::size_t kMax = 10000;

[[noreturn]] void fail(std::string_view text, const char* what) {
  throw UsageError("'" + std::string(text) + "': " + what);
}

/// Splits at the commas outside of braces. Throws UsageError, naming `whole`, where braces do not match.
std::vector<std::string_view> split_outside(std::string_view text, std::string_view whole) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0, depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && depth-- == 0) fail(whole, "a } without its {");
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  if (depth > 0) fail(whole, "a { without its }");
  parts.push_back(text.substr(begin));
  return parts;
}

std::optional<std::int32_t> number(std::string_view text) {
  std::int32_t value = 0;
  if (!specula::detail::read_number(text, value)) return std::nullopt;
  return value;
}

/// The first and last number of `2..6`.
std::optional<std::pair<std::int32_t, std::int32_t>> range_of(std::string_view inside) {
  const auto dots = inside.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto first = number(inside.substr(0, dots)), last = number(inside.substr(dots + 2));
  if (!first || !last) return std::nullopt;
  return std::pair(*first, *last);
}

std::vector<std::string> expand(std::string_view text, std::string_view whole);

std::vector<std::string> alternatives(std::string_view inside, std::string_view whole) {
  std::vector<std::string> all;
  if (const auto range = range_of(inside)) {
    const auto [first, last] = *range;
    if (static_cast<std::size_t>(std::abs(std::int64_t{last} - first)) >= kMax)
      fail(whole, "stands for more than 10000 names");
    const std::int32_t step = first <= last ? 1 : -1;
    for (std::int32_t n = first; n != last; n += step) all.push_back(std::to_string(n));
    all.push_back(std::to_string(last));
    return all;
  }
  for (const std::string_view part : split_outside(inside, whole))
    for (std::string& one : expand(part, whole)) all.push_back(std::move(one));
  return all;
}

std::vector<std::string> expand(std::string_view text, std::string_view whole) {
  const std::size_t open = text.find('{');
  if (open == std::string_view::npos) return {std::string(text)};
  std::size_t close = open, depth = 0;
  do {
    depth += text[close] == '{' ? 1 : 0;
    depth -= text[close] == '}' ? 1 : 0;
  } while (depth > 0 && ++close < text.size());
  const auto middles = alternatives(text.substr(open + 1, close - open - 1), whole);
  const auto ends = expand(text.substr(close + 1), whole);
  if (middles.size() * ends.size() > kMax) fail(whole, "stands for more than 10000 names");
  std::vector<std::string> all;
  for (const std::string& middle : middles)
    for (const std::string& end : ends)
      all.push_back(std::string(text.substr(0, open)).append(middle).append(end));
  return all;
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view text) {
  split_outside(text, text);  // that every brace has its partner
  return expand(text, text);
}

std::vector<std::string> expand_list(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \t\n", begin), text.size());
    if (end > begin)
      for (std::string& one : expand_braces(text.substr(begin, end - begin))) {
        if (one.empty()) fail(text, "an empty name");
        all.push_back(std::move(one));
      }
    begin = end + 1;
  }
  if (all.empty()) fail(text, "no name");
  return all;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  for (std::string_view rest = text;;) {
    const auto end = std::min(rest.find(','), rest.size());
    if (end == 0) fail(text, "an empty name between commas");
    parts.emplace_back(rest.substr(0, end));
    if (end == rest.size()) return parts;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace specula_tools
