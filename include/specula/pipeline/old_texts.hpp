// SPDX-License-Identifier: MIT
// The texts of earlier versions, to name in an error the text that took their place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "specula/pipeline/spec.hpp"

namespace specula::detail {

/// A name of earlier texts, NAME[:DRAFTER]*[:SIZE]*[:KEY=VALUE]*, and what a text has in its place.
struct OldPipeline {
  const char* name;
  const char* shape;
  const char* size;      // where the old text has none
  const char* option;    // added
  const char* drafters;  // where the old text has none
};
inline constexpr std::array kOldPipelines{
    OldPipeline{"autoregressive", "autoregressive", "", "", ""},
    OldPipeline{"chain", "chain", "", "", ""},
    OldPipeline{"sampled-chain", "chain", "2", "draw=sampled", ""},
    OldPipeline{"shared-chain", "chain", "2", "draw=shared", ""},
    OldPipeline{"cape", "cape", "", "", ""},
    OldPipeline{"beam", "beam", "", "", ""},
    OldPipeline{"dynamic-tree", "dynamic-tree", "", "", ""},
    OldPipeline{"static-tree", "static-tree", "", "", ""},
    OldPipeline{"sampled-tree", "sampled-tree", "", "", ""},
    OldPipeline{"iid-tree", "sampled-tree", "", "draw=iid", ""},
    OldPipeline{"max-gram", "chain", "10", "", "max-gram"},
    OldPipeline{"prompt-lookup", "chain", "10", "", "prompt-lookup"},
    OldPipeline{"horizontal", "horizontal", "", "", ""},
    OldPipeline{"sampled-horizontal", "horizontal", "", "draw=sampled", ""},
    OldPipeline{"vertical", "vertical", "", "", ""},
    OldPipeline{"sampled-vertical", "vertical", "", "draw=sampled", ""},
    OldPipeline{"cascade", "cascade", "", "", ""},
    OldPipeline{"sampled-cascade", "cascade", "", "draw=sampled", ""},
    OldPipeline{"glide", "chain", "", "", "glide"},
    OldPipeline{"glide+cape", "cape", "", "", "glide"},
    OldPipeline{"glide+beam4", "beam", "", "", "glide"},
    OldPipeline{"glide+max-gram", "horizontal", "", "", "glide,max-gram"},
    OldPipeline{"eagle2", "dynamic-tree", "", "", "eagle"},
    OldPipeline{"hass", "dynamic-tree", "", "", "hass"},
    OldPipeline{"adaptive-chain", "adaptive-chain", "", "", ""},
    OldPipeline{"s2d", "chain", "4", "exits=0.5-0", "s2d"},
    OldPipeline{"asd", "adaptive-chain", "", "end=paper", "layer-skip"},
};

inline const OldPipeline* old_pipeline(std::string_view name) {
  const auto found = std::find_if(kOldPipelines.begin(), kOldPipelines.end(),
                                  [&](const auto& old) { return old.name == name; });
  return found == kOldPipelines.end() ? nullptr : &*found;
}

/// Thresholds from the first exit on, for exits=1-3:thresholds=0.5 of earlier texts of s2d: which exits, and
/// a threshold for each but the last.
inline std::string exits_of(std::string_view exits, std::string_view thresholds) {
  const auto numbers = split(exits, '-'), given = split(thresholds, '-');
  std::string text;
  for (std::size_t i = 0, exit = 1; i < numbers.size(); ++i, ++exit) {
    std::size_t number = 0;
    if (!read_number(numbers[i], number) || number > 1024) return "...";
    for (; exit < number; ++exit) text += "2-";  // never
    if (i + 1 < numbers.size())
      text.append(i < given.size() && !thresholds.empty() ? given[i] : "0.5").append("-");
  }
  return text.empty() ? "0" : text.substr(0, text.size() - 1);
}

/// What a text of an earlier version is written as now; empty if `text` is none, or has not changed.
inline std::string renamed_pipeline(std::string_view text) {
  if (text.size() > PipelineSpec::kMaxLength || text.find('@') != text.npos) return {};
  auto parts = split(text, ':');
  const bool cost_aware = parts[0] == "cost-aware";
  auto named = parts.begin();
  if (cost_aware)  // the shape was any of the parts, or cape
    named = std::find_if(parts.begin() + 1, parts.end(), [](const auto& part) { return old_pipeline(part); });
  const OldPipeline* const old = old_pipeline(named == parts.end() ? "cape" : *named);
  if (!old) return {};
  bool changed = cost_aware && (named == parts.end() || named != parts.begin() + 1);
  if (named != parts.end()) parts.erase(named);
  if (cost_aware) parts.erase(parts.begin());

  const std::string_view name = old->name;
  const bool exits = name == "s2d", skips = name == "asd";
  std::string shape = cost_aware && skips ? "chain" : old->shape, sizes, option = old->option, options,
              drafters;
  std::string thresholds, used;
  if (cost_aware && skips) option.clear();
  for (const std::string& part : parts) {
    if (exits && part.starts_with("thresholds=")) {
      thresholds = part.substr(11), option = "exits=" + thresholds;
    } else if (exits && part.starts_with("exits=")) {
      used = part.substr(6);
    } else if ((exits || skips) && part.starts_with("end=")) {
      shape = part == "end=fixed" ? "chain" : "adaptive-chain";
      if (skips) option.clear();
      if (part != "end=fixed") options += ":" + part;
    } else if (part.find('=') != part.npos) {
      options += ":" + part;
    } else if (is_size(part)) {
      sizes += ":" + part;
    } else if (part.empty() || part[0] == '-') {
      return {};
    } else {
      drafters += (drafters.empty() ? "" : ",") + part;
    }
  }
  if (!used.empty()) option = "exits=" + exits_of(used, thresholds);
  changed = changed || shape != name || !drafters.empty();
  if (!changed) return {};
  const bool sized = shape == "chain" && (!cost_aware || name == "max-gram");
  if (sizes.empty() && sized) sizes = skips ? ":4" : *old->size ? std::string(":") + old->size : "";
  if (drafters.empty()) drafters = old->drafters;
  return (cost_aware ? "cost-aware:" : "") + shape + sizes + (option.empty() ? "" : ":" + option) + options +
         (drafters.empty() ? "" : "@" + drafters);
}

}  // namespace specula::detail
