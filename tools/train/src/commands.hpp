// SPDX-License-Identifier: MIT
// The commands of specula-train. Each adds itself to the program and runs when it is called.
#pragma once

#include <CLI/CLI.hpp>

namespace specula_train {

void add_model_commands(CLI::App& app);  // model, export
void add_glide_command(CLI::App& app);
void add_draft_command(CLI::App& app);
void add_head_command(CLI::App& app);
void add_sample_command(CLI::App& app);

}  // namespace specula_train
