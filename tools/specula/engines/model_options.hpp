// SPDX-License-Identifier: MIT
// The options of models: one table for all commands and engines.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "decoding_options.hpp"

namespace specula_tools {

/// Adds all of them. Those that only some engines have stand in groups "With --engine ...".
void add_model_options(CLI::App& app, ModelOptions& options);

/// Throws UsageError for an option that neither the engine of the run nor `also` has.
void check_engine_options(const CLI::App& app, const std::string& engine, const std::string& also);

}  // namespace specula_tools
