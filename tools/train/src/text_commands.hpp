// SPDX-License-Identifier: MIT
// The commands of specula-train-text that prepare and check a target's own text.
#pragma once

#include <CLI/CLI.hpp>

namespace specula_train {

void add_prompts_command(CLI::App& app);
void add_heldout_command(CLI::App& app);
void add_unlike_command(CLI::App& app);

}  // namespace specula_train
