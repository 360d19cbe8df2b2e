// SPDX-License-Identifier: MIT
// --draft [NAME=]PATH.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <specula/pipeline.hpp>

#include "errors.hpp"

namespace specula_tools {

/// Names and paths, in their order; `name_of(path)` names one that is given without a name. Throws UsageError
/// for one without a name or a path, and for two of a name.
inline std::vector<std::pair<std::string, std::string>> named_drafts(
    const std::vector<std::string>& given, std::string (*name_of)(const std::string&) = nullptr) {
  std::vector<std::pair<std::string, std::string>> drafts;
  for (const std::string& draft : given) {
    const auto equals = draft.find('=');
    const bool named = equals != std::string::npos;
    if (equals == 0 || (named && equals + 1 == draft.size()) || draft.empty())
      throw UsageError("--draft " + draft + ": must be NAME=PATH, or a path");
    const std::string name = named     ? draft.substr(0, equals)
                             : name_of ? name_of(draft)
                                       : std::string(specula::kDefaultDraft);
    if (std::any_of(drafts.begin(), drafts.end(), [&](const auto& one) { return one.first == name; }))
      throw UsageError("--draft " + draft + ": there are two of the name " + name);
    drafts.emplace_back(name, named ? draft.substr(equals + 1) : draft);
  }
  return drafts;
}

/// The pipeline of a draft that was given.
inline std::string pipeline_with(const std::string& draft) {
  return std::string(specula::kDefaultDraftPipeline) + "@" + draft;
}

}  // namespace specula_tools
