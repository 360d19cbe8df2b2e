// SPDX-License-Identifier: MIT
// What the JSON of measurements says of prompts, program and machine.
#pragma once

#include <cstddef>
#include <ctime>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "json_file.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "prompt_options.hpp"

namespace specula_tools {

inline nlohmann::ordered_json about_prompts(const PromptOptions& options,
                                            const std::vector<std::string>& files, std::size_t prompts) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const auto& file : files) names.push_back(leaf(file));
  nlohmann::ordered_json out{{"prompt_files", names}, {"prompts", prompts}, {"style", options.style}};
  if (!options.chat.system.empty()) out["system"] = options.chat.system;
  return out;
}

/// Adds "program", "date" ("2026-01-31 12:34 UTC") and "machine".
inline void add_program_json(nlohmann::ordered_json& out, const char* program) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  out["program"] = program + (" " + version_text());
  out["date"] = text;
  out["machine"] = machine_json();
}

}  // namespace specula_tools
