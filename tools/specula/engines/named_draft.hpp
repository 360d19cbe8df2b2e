// SPDX-License-Identifier: MIT
// --draft [NAME=]PATH[,layers=...][,norm_output=...].
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <specula/pipeline.hpp>

#include "errors.hpp"
#include "head_reading.hpp"

namespace specula_tools {

/// A draft that was given.
struct NamedDraft {
  std::string name, path;
  AskedReading reading = {};
};

/// In their order; `name_of(path)` names one that is given without a name. Throws UsageError for one without
/// a name or a path, for two of a name, and as split_reading().
inline std::vector<NamedDraft> named_drafts(const std::vector<std::string>& given,
                                            std::string (*name_of)(const std::string&) = nullptr) {
  std::vector<NamedDraft> drafts;
  for (const std::string& whole : given) {
    auto [draft, reading] = split_reading(whole);
    const auto equals = draft.find('=');
    const bool named = equals != std::string::npos;
    if (equals == 0 || (named && equals + 1 == draft.size()) || draft.empty())
      throw UsageError("--draft " + draft + ": must be NAME=PATH, or a path");
    const std::string name = named     ? draft.substr(0, equals)
                             : name_of ? name_of(draft)
                                       : std::string(specula::kDefaultDraft);
    if (std::any_of(drafts.begin(), drafts.end(), [&](const auto& one) { return one.name == name; }))
      throw UsageError("--draft " + draft + ": there are two of the name " + name);
    drafts.push_back({name, named ? draft.substr(equals + 1) : draft, std::move(reading)});
  }
  return drafts;
}

/// The pipeline of a draft that was given.
inline std::string pipeline_with(const std::string& draft) {
  return std::string(specula::kDefaultDraftPipeline) + "@" + draft;
}

}  // namespace specula_tools
