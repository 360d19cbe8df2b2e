// SPDX-License-Identifier: MIT
#include "search.hpp"

#include <algorithm>
#include <stdexcept>

#include <specula/pipeline.hpp>
#include "braces.hpp"
#include "errors.hpp"
#include "text_table.hpp"

namespace specula_tools {
namespace {

double score_of(const Figures& f, const std::string& objective) {
  if (objective == "time") return f.speedup;
  if (objective == "mat") return f.mat;
  if (objective == "tau") return f.tau;
  if (objective == "swi") return f.swi;
  for (const GivenSwi& swi : f.given_swi)
    if (swi.costs == objective) {
      if (!swi.terms)
        throw UsageError("--search-for " + objective + ": its costs do not name all drafters of '" + f.name +
                         "'");
      return swi.terms->ratio();
    }
  throw std::invalid_argument("no objective is called '" + objective + "'");
}

std::string score_text(double score, const std::string& objective) {
  return fixed(score, 2) + (objective == "time" ? "x" : "");
}

}  // namespace

Search parse_search(const std::string& text) {
  Search search{text, {}};
  for (const std::string& name : expand_list(text)) {
    specula::prepare_pipeline(name);
    if (std::find(search.candidates.begin(), search.candidates.end(), name) == search.candidates.end())
      search.candidates.push_back(name);
  }
  return search;
}

void check_objective(const std::string& objective, std::span<const GivenCosts> given) {
  std::string known = "time, mat, tau, swi";
  for (const char* name : {"time", "mat", "tau", "swi"})
    if (objective == name) return;
  for (const GivenCosts& set : given) {
    if (objective == set.name) return;
    known += ", " + set.name;
  }
  throw UsageError("--search-for is '" + objective + "', must be one of " + known);
}

double Found::score(std::size_t candidate, const std::string& objective) const {
  return score_of(candidates.at(candidate), objective);
}

Found choose(const Search& search, std::span<const Figures> developed, const std::string& objective) {
  Found found{search, {}};
  for (const std::string& name : search.candidates) {
    const auto own =
        std::find_if(developed.begin(), developed.end(), [&](const Figures& f) { return f.name == name; });
    if (own == developed.end()) throw std::invalid_argument("search: no figures of '" + name + "'");
    const auto worse = std::upper_bound(
        found.candidates.begin(), found.candidates.end(), score_of(*own, objective),
        [&](double score, const Figures& other) { return score > score_of(other, objective); });
    found.candidates.insert(worse, *own);
  }
  return found;
}

std::string search_text(std::span<const Found> found, const std::string& objective) {
  std::string text;
  for (const Found& f : found) {
    text += "search " + f.search.text + "\n  picked " + f.picked() + " of " +
            std::to_string(f.candidates.size()) + ": " + score_text(f.score(0, objective), objective) +
            " on " + std::to_string(f.candidates.front().prompts) + " development prompts";
    if (f.candidates.size() > 1)
      text += "; next " + f.candidates[1].name + " with " + score_text(f.score(1, objective), objective);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json search_json(std::span<const Found> found, const std::string& objective) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Found& f : found) {
    nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
    for (std::size_t c = 0; c < f.candidates.size(); ++c) {
      const Figures& own = f.candidates[c];
      candidates.push_back({{"name", own.name},
                            {"score", f.score(c, objective)},
                            {"speedup", own.speedup},
                            {"mat", own.mat},
                            {"swi", own.swi}});
    }
    out.push_back({{"search", f.search.text},
                   {"for", objective},
                   {"development_prompts", f.candidates.front().prompts},
                   {"picked", f.picked()},
                   {"candidates", candidates}});
  }
  return out;
}

}  // namespace specula_tools
