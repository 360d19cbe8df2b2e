// SPDX-License-Identifier: MIT
// The commands of the program: each adds its options, and says what it does with them.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace specula_tools {

/// What a command does once its options are parsed; returns the exit status.
using Body = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;
  /// Adds the options to `app`, which is named after the command.
  Body (*add)(CLI::App& app);
};

Body add_run(CLI::App& app);
Body add_compare(CLI::App& app);
Body add_passes(CLI::App& app);
Body add_head(CLI::App& app);
Body add_convert(CLI::App& app);
Body add_quantize(CLI::App& app);
Body add_bigram(CLI::App& app);

inline constexpr Command kCommands[] = {
    {"run", "write texts, one after the other or many at once", &add_run},
    {"compare", "compare pipelines on the same prompts: speed, acceptance, texts", &add_compare},
    {"passes", "measure passes over 1, 2, ... tokens, and what drafts can gain by them", &add_passes},
    {"head", "say what a published EAGLE-3 head reads, and check it", &add_head},
    {"convert", "convert a Hugging Face folder to a GGUF file, and back", &add_convert},
    {"quantize", "store a Hugging Face folder's matrices at 8 bits", &add_quantize},
    {"bigram", "count pairs of tokens, for drafts that copy", &add_bigram},
};

}  // namespace specula_tools
