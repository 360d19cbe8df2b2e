// SPDX-License-Identifier: MIT
// Searches: the best of many pipelines, chosen on development prompts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "figures.hpp"

namespace specula_tools {

/// One `--search`: the pipelines from expanding its braces.
struct Search {
  std::string text;
  std::vector<std::string> candidates;
};

/// Expands the braces. Throws UsageError as expand_braces() does, and for a name that is no pipeline.
Search parse_search(const std::string& text);

/// Checks a search's objective: the largest speedup (`time`), MAT, tau or SWI with measured costs (`mat`,
/// `tau`, `swi`), or SWI by a set of `--costs` (its name). Throws UsageError if `objective` is none of these.
void check_objective(const std::string& objective, std::span<const GivenCosts> given);

struct Found {
  Search search;
  std::vector<Figures> candidates;  // on the development prompts, best first
  double score(std::size_t candidate, const std::string& objective) const;
  const std::string& picked() const { return candidates.front().name; }
};

/// The candidates of a search, best first; ties in the order of the search. `developed` has the figures of
/// all of them. Throws UsageError if the objective has no value for one of them (a set of costs that does not
/// name its drafters).
Found choose(const Search& search, std::span<const Figures> developed, const std::string& objective);

/// A line for each search: the best, the number of candidates, and the second best.
std::string search_text(std::span<const Found> found, const std::string& objective);
nlohmann::ordered_json search_json(std::span<const Found> found, const std::string& objective);

}  // namespace specula_tools
