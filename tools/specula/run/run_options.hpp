// SPDX-License-Identifier: MIT
// The options of `specula run`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "decoding_options.hpp"
#include "processed_models.hpp"
#include "prompt_options.hpp"

namespace specula_tools {

struct RunOptions {
  ModelOptions models;
  PromptOptions prompts;
  std::string pipeline;  // empty: Engine::default_pipeline()
  std::string prompt, color = "auto", trace, json, grammar, json_schema;
  std::vector<std::string> stops, biases;
  specula::Penalties penalties{.last = 64};
  std::int32_t batch = 0;  // texts at once; 0: one after the other, as they come
  std::int32_t samples = 1, runs = 1;
  std::int32_t logprobs = -1;  // likeliest tokens besides the emitted one; -1: none are reported
  bool race = false, has_prompt = false;

  /// Whether the texts are answers to a file or a prompt, not to what is read from the standard input.
  bool gives_prompts() const { return has_prompt || !prompts.files.empty(); }
};

void add_options(CLI::App& app, RunOptions& options);

/// Throws UsageError for invalid combinations.
void check_options(const RunOptions& options);

/// The prompts that the options name, each as often as it has samples.
std::vector<Prompt> read_prompts(const RunOptions& options);

/// What the options ask of rows over `vocab` tokens, with this rule of texts, if any; nothing if they ask
/// nothing. Throws UsageError for a bias that is none, or of a token that is none.
std::optional<RowRules> row_rules(const RunOptions& options, std::int32_t vocab, MakeTextRule text);

/// For the JSON.
nlohmann::ordered_json settings_json(const RunOptions& options, const Engine& engine);

}  // namespace specula_tools
