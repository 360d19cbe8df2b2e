// SPDX-License-Identifier: MIT
#include "given_costs.hpp"

#include <algorithm>

#include <specula/base/read_number.hpp>
#include <specula/runtime/spec.hpp>
#include "braces.hpp"
#include "errors.hpp"

namespace specula_tools {
namespace {

/// `part` of `text` is wrong.
[[noreturn]] void fail(std::string_view text, std::string_view part, const char* what) {
  std::string message("--costs '");
  message.append(text).append("': '").append(part).append("' ").append(what);
  throw UsageError(message);
}

}  // namespace

GivenCosts parse_costs(std::string_view text) {
  GivenCosts out{.name = "given", .costs = {}};
  std::string_view rest = text;
  if (const auto colon = rest.find(':'); colon != std::string_view::npos) {
    if (colon == 0) fail(text, rest, "begins with the colon that follows a name");
    out.name = rest.substr(0, colon);
    rest.remove_prefix(colon + 1);
  }
  for (const std::string& part : split_list(rest)) {
    const auto equals = part.find('=');
    if (equals == 0 || equals == std::string::npos) fail(text, part, "is not DRAFTER=C");
    double cost = 0;
    if (!specula::detail::read_number(std::string_view(part).substr(equals + 1), cost) || cost < 0)
      fail(text, part, "must have a number of at least 0 after the =");
    if (!out.costs.emplace(part.substr(0, equals), cost).second)
      fail(text, part, "is the second c of that drafter");
  }
  return out;
}

void check_costs(std::span<const GivenCosts> sets, std::span<const std::vector<std::string>> drafters) {
  for (std::size_t s = 0; s < sets.size(); ++s) {
    for (std::size_t before = 0; before < s; ++before)
      if (sets[before].name == sets[s].name)
        throw UsageError("--costs: two sets are called '" + sets[s].name + "'");
    const auto knows = [&](const std::vector<std::string>& of) {
      return !of.empty() && std::all_of(of.begin(), of.end(), [&](const std::string& drafter) {
        return sets[s].costs.contains(drafter);
      });
    };
    if (std::none_of(drafters.begin(), drafters.end(), knows))
      throw UsageError("--costs: the set '" + sets[s].name +
                       "' names all drafters of no pipeline (max-gram is a drafter, too: max-gram=0)");
  }
}

}  // namespace specula_tools
