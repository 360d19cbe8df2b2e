// Figures for programs (JSON) and for people (a table).
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "figures.hpp"

namespace specula_examples {

/// {"pipelines": [...]} and the settings after it, in the order in which they stand in `settings`.
nlohmann::ordered_json to_json(std::span<const Figures> all, const nlohmann::ordered_json& settings);

std::string to_table(std::span<const Figures> all);

}  // namespace specula_examples
