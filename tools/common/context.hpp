// SPDX-License-Identifier: MIT
// Whether prompts and new tokens fit what a model was trained for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <specula/base/rows.hpp>

#include "errors.hpp"

namespace specula_tools {

/// Throws UsageError if a prompt has no tokens, and if one and `max_new_tokens` are more than `trained_for`
/// positions, unless `beyond` or `trained_for` is 0 (unknown). `model` is what the message calls it.
inline void check_context(std::span<const std::vector<specula::Token>> prompts, std::int32_t max_new_tokens,
                          std::int32_t trained_for, const std::string& model, bool beyond) {
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const std::string which = prompts.size() > 1 ? "prompt " + std::to_string(p + 1) : "the prompt";
    if (prompts[p].empty()) throw UsageError(which + " has no tokens, and the model's texts begin with none");
    const auto tokens = static_cast<std::int64_t>(prompts[p].size());
    if (beyond || trained_for <= 0 || tokens + max_new_tokens <= trained_for) continue;
    throw UsageError(which + " has " + std::to_string(tokens) + " tokens; with --max-new-tokens " +
                     std::to_string(max_new_tokens) + " that is " + std::to_string(tokens + max_new_tokens) +
                     " positions, and " + model + " was trained for " + std::to_string(trained_for) +
                     ": shorten them, or give --beyond-context");
  }
}

}  // namespace specula_tools
