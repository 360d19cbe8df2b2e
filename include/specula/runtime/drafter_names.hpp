// SPDX-License-Identifier: MIT
// Names of drafters and of papers' methods where a shape belongs, each with a pipeline that runs it.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

struct DrafterName {
  std::string_view name;  // in small letters, without what joins its parts
  std::string_view pipeline;
};
inline constexpr std::array kDrafterNames{
    DrafterName{"eagle", "dynamic-tree@eagle"},
    DrafterName{"eagle1", "dynamic-tree@eagle"},
    DrafterName{"eagle2", "dynamic-tree@eagle"},
    DrafterName{"eagle3", "dynamic-tree@eagle"},
    DrafterName{"hass", "dynamic-tree@hass"},
    DrafterName{"glide", "chain@glide"},
    DrafterName{"s2d", "chain:4:exits=0.5-0@s2d"},
    DrafterName{"asd", "adaptive-chain@layer-skip"},
    DrafterName{"layerskip", "adaptive-chain@layer-skip"},
    DrafterName{"selfspeculative", "adaptive-chain@layer-skip"},
    DrafterName{"maxgram", "chain:10@max-gram"},
    DrafterName{"ngram", "chain:10@max-gram"},
    DrafterName{"copies", "chain:10@max-gram"},
    DrafterName{"promptlookup", "chain:10@prompt-lookup"},
    DrafterName{"pld", "chain:10@prompt-lookup"},
    DrafterName{"lookup", "chain:10@prompt-lookup"},
    DrafterName{"small", "chain@small"},
    DrafterName{"base", "chain@base"},
    DrafterName{"plain", "chain@plain"},
};

/// A pipeline of the drafter or method that `word` names: "EAGLE" and "layer_skip", too. Empty: it names
/// none.
inline std::string_view pipeline_of_drafter(std::string_view word) {
  std::string name;
  for (const char c : word.substr(0, 64))
    if (c != '-' && c != '_' && c != ' ') name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto found = std::find_if(kDrafterNames.begin(), kDrafterNames.end(),
                                  [&](const DrafterName& drafter) { return drafter.name == name; });
  return found == kDrafterNames.end() ? std::string_view() : found->pipeline;
}

}  // namespace specula::detail
