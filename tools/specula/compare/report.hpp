// SPDX-License-Identifier: MIT
// Reports of figures as JSON and as tables.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "figures.hpp"

namespace specula_tools {

/// {"pipelines": [...]}, then the settings in the order of `settings`.
nlohmann::ordered_json to_json(std::span<const Figures> all, const nlohmann::ordered_json& settings);

std::string to_table(std::span<const Figures> all);

/// `value` and, if there is one, its interval: 1.99x [1.93, 2.05].
std::string interval_text(double value, const Interval* interval, const char* unit = "");

/// Comparisons of pipelines with one of them.
struct Against {
  std::string name;
  std::vector<std::string> others;
  std::vector<Gain> gains;  // (others)
};
/// Compares all others of `all` with `name`. Throws std::invalid_argument if `name` is none of them.
Against against(const std::string& name, std::span<const Figures> all, const Bootstrap& bootstrap);
/// Differences in speed whose interval contains 1 are reported as within the noise.
std::string against_table(const Against& against);
/// {NAME: {"speed": [value, low, high], ...}}
nlohmann::ordered_json against_json(const Against& against);

/// The same pipelines on a group of prompts.
struct Group {
  std::string name;
  std::vector<Figures> figures;
};
/// Speedups: a row for each pipeline, a column for each group. All groups have the same pipelines.
std::string group_table(std::span<const Group> groups);
nlohmann::ordered_json group_json(std::span<const Group> groups);

}  // namespace specula_tools
