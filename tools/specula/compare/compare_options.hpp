// SPDX-License-Identifier: MIT
// The options of `specula compare`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "decoding_options.hpp"
#include "given_costs.hpp"
#include "prompt_options.hpp"
#include "search.hpp"

namespace specula_tools {

struct CompareOptions {
  ModelOptions models;
  PromptOptions prompts;
  std::string pipelines;  // empty: kComparedPipelines, or, with searches or tuning, plain decoding alone
  std::size_t skip = 0, dev = 0;
  std::string categories;
  bool by_category = false, leave_out_long = false;
  std::string json, html;
  std::int32_t repeat = 1;
  std::vector<std::string> searches, against, cost_sets;
  std::string search_for = "time";
  std::string batch;  // numbers of texts
  std::string tune, drafters = "base,small,max-gram";
  bool dry_run = false, find_blocks = false;
};

inline constexpr char kComparedPipelines[] = "autoregressive chain cost-aware:chain";
inline constexpr std::size_t kDevPrompts = 10;  // per file, with searches and without --dev

void add_options(CLI::App& app, CompareOptions& options);

/// The pipelines that the options request, before models are loaded.
struct CompareWork {
  std::vector<std::string> pipelines;  // to be reported; autoregressive is the first
  std::vector<Search> searches;
  std::vector<GivenCosts> costs;
  std::vector<std::string> prompt_files;
  std::size_t dev = 0;
  std::vector<std::string> tuned_drafters;  // empty: there is no tuning
  bool finds_blocks = false;
  std::vector<std::int32_t> texts;  // at once, ascending; empty: no batches
};

/// Throws UsageError for invalid combinations.
CompareWork work_of(const CompareOptions& options);

/// For the JSON file and the page.
nlohmann::ordered_json settings_json(const CompareOptions& options, const CompareWork& work,
                                     const Engine& engine, std::size_t prompts, std::size_t left_out);

}  // namespace specula_tools
