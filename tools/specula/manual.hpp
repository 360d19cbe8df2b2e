// SPDX-License-Identifier: MIT
// The manual page and the completion for bash, made from the tables of options.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace specula_tools {

/// "run, compare, ..."
std::string command_names(const CLI::App& app);

/// In the language of man(7).
std::string manual_page(const CLI::App& app);

/// To be sourced.
std::string bash_completion(const CLI::App& app);

}  // namespace specula_tools
