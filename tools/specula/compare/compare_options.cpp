// SPDX-License-Identifier: MIT
#include "compare_options.hpp"

#include <algorithm>

#include <specula/pipeline.hpp>
#include <specula/study/bootstrap.hpp>
#include "batches.hpp"
#include "braces.hpp"
#include "json_file.hpp"
#include "model_options.hpp"
#include "options.hpp"
#include "settings_json.hpp"
#include "tuning.hpp"

namespace specula_tools {
namespace {

/// Removes empty names and duplicates.
std::vector<std::string> with_baseline(std::vector<std::string> names) {
  std::vector<std::string> out{"autoregressive"};
  for (std::string& name : names)
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(std::move(name));
  return out;
}

/// Which prompts are for what.
void add_split_options(CLI::App& app, CompareOptions& options) {
  app.add_option("--skip", options.skip, "Leave out so many prompts at the beginning of each file")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option(
         "--dev", options.dev,
         "Number of further prompts per file for searches and tuning, which are not reported on (default: "
         "10 with --search, --tune or --find-blocks, else 0)")
      ->check(whole_number());
  add_limit_option(app, options.prompts.limit,
                   "Largest number of prompts per file to report on, after these; 0: all");
  app.add_flag(
      "--by-category", options.by_category,
      "Also report each category of prompts (the field `category`, else the file); --skip, --dev and "
      "--limit then count each category of each file");
  app.add_option("--categories", options.categories, "Only prompts of these categories, separated by commas");
  app.add_flag(
      "--leave-out-long", options.leave_out_long,
      "Leave out prompts that with the new tokens are more positions than the target was trained for");
}

/// What is chosen on the development prompts, and what is compared with what.
void add_choosing_options(CLI::App& app, CompareOptions& options) {
  app.add_option(
         "--search", options.searches,
         "Pipelines in braces, as in chain:{2..6}@small: the best of them on the development prompts is "
         "reported on the others (may be given several times)")
      ->allow_extra_args(false);
  app.add_option("--search-for", options.search_for,
                 "Objective: time (speedup), mat, tau, swi, or the name of a set of --costs")
      ->capture_default_str();
  app.add_option("--against", options.against,
                 "Compare every pipeline with this one, prompt by prompt; a --search stands for its best "
                 "candidate (may be given several times)")
      ->allow_extra_args(false);
  app.add_option(
         "--costs", options.cost_sets,
         "Also give SWI with these costs of calls, in calls of the target: [NAME:]DRAFTER=C,DRAFTER=C,... "
         "(may be given several times)")
      ->allow_extra_args(false);
  app.add_option(
         "--tune", options.tune,
         "Measure acceptance rates and costs of calls on the development prompts, find the chain lengths "
         "and limits of cascades with the best predicted speed, and run those, too: for `swi` (every call "
         "of a model costs the same) or `time`")
      ->check(CLI::IsMember({"swi", "time"}));
  app.add_option("--drafters", options.drafters, "Of the tuned pipelines: models, best first, and max-gram")
      ->capture_default_str();
  app.add_flag("--find-blocks", options.find_blocks,
               "Find blocks of the target that it can draft without, on its texts for the development "
               "prompts, and run chains of that layer-skip, too");
}

}  // namespace

void add_options(CLI::App& app, CompareOptions& options) {
  app.add_option(
      "--pipelines", options.pipelines,
      std::string("Names separated by blanks; braces are expanded (chain:{2..4}@small); autoregressive is "
                  "always among them (default: ") +
          kComparedPipelines + "; with --search or --tune none)");
  add_prompt_options(
      app, options.prompts,
      "File of prompts (may be given several times; default: those that come with the sources)");
  add_split_options(app, options);
  app.add_option("--repeat", options.repeat, "Runs of each prompt; the times are their medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_choosing_options(app, options);
  app.add_option(
      "--batch", options.batch,
      "Also write so many texts at once, as in 1,2,4,8: throughput and time per token, batches being "
      "always full and prompts not timed");
  app.add_flag(
      "--dry-run", options.dry_run,
      "Print which pipelines would be run on how many prompts, having checked them and the models, and end");
  app.add_option("--json", options.json, "Write the figures to this file");
  app.add_option("--html", options.html,
                 "Write the figures to this file as a page with tables and plots, which holds the JSON too "
                 "and needs no other file");
  add_model_options(app, options.models);
  app.add_option(
         "--rpc-delays", options.models.rpc_delays,
         "MS,...: compare at each of these delays of one way to the servers of --rpc, made by a proxy in "
         "this program")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 10000.0))
      ->needs("--rpc")
      ->group("With --engine llama.cpp");
  app.footer("Pipelines:\n" + specula::pipeline_help());
}

CompareWork work_of(const CompareOptions& options) {
  CompareWork work;
  const bool tunes = !options.tune.empty(),
             chooses = tunes || !options.searches.empty() || options.find_blocks;
  std::vector<std::string> names;
  if (!options.pipelines.empty()) {
    names = expand_list(options.pipelines);
  } else if (!chooses) {
    names = expand_list(kComparedPipelines);
  }
  work.pipelines = with_baseline(std::move(names));
  if (options.models.rounds == "device")  // beside each that runs on the host
    for (std::size_t n = 0, count = work.pipelines.size(); n < count; ++n)
      work.pipelines.push_back(std::string(kOnDevice) + work.pipelines[n]);
  std::vector<std::vector<std::string>> drafters;
  for (const auto& name : work.pipelines) drafters.push_back(prepare_named(name).drafters);
  for (const auto& text : options.searches) {
    work.searches.push_back(parse_search(text));
    for (const auto& name : work.searches.back().candidates) drafters.push_back(prepare_named(name).drafters);
  }
  for (const auto& text : options.cost_sets) work.costs.push_back(parse_costs(text));
  check_costs(work.costs, drafters);
  check_objective(options.search_for, work.costs);
  for (const auto& name : options.against) {
    const auto is_search =
        std::find(options.searches.begin(), options.searches.end(), name) != options.searches.end();
    if (!is_search && std::find(work.pipelines.begin(), work.pipelines.end(), name) == work.pipelines.end())
      throw UsageError("--against '" + name + "' is neither among --pipelines nor a --search");
  }
  work.prompt_files = options.prompts.files;
  if (work.prompt_files.empty()) work.prompt_files.emplace_back(SPECULA_EXAMPLE_PROMPTS);
  work.dev = options.dev ? options.dev : chooses ? kDevPrompts : 0;
  if (!chooses && options.dev)
    throw UsageError("--dev is for --search, --tune and --find-blocks; --skip leaves prompts out");
  work.finds_blocks = options.find_blocks;
  if (!options.batch.empty()) {
    work.texts = parse_batches(options.batch);
    if (options.find_blocks)
      throw UsageError("--batch does not go with --find-blocks: skipped layers are run text by text");
    for (const auto& name : work.pipelines) batched_factory(name);
    for (const Search& search : work.searches)
      for (const auto& name : search.candidates) batched_factory(name);
  }
  if (!options.models.rpc_delays.empty() && (chooses || options.by_category || !work.texts.empty() ||
                                             !options.against.empty() || !options.html.empty()))
    throw UsageError("--rpc-delays goes with --pipelines and --json alone");
  if (!tunes) return work;
  work.tuned_drafters = split_list(options.drafters);
  if (work.tuned_drafters.size() > 1)
    specula::prepare_pipeline("cascade@" + options.drafters);  // reports errors before the run
  for (const auto& name : probe_names(work.tuned_drafters)) specula::prepare_pipeline(name);
  return work;
}

nlohmann::ordered_json settings_json(const CompareOptions& options, const CompareWork& work,
                                     const Engine& engine, std::size_t prompts, std::size_t left_out) {
  auto out = about_prompts(options.prompts, work.prompt_files, prompts);
  out["skip"] = options.skip;
  out["dev"] = work.dev;
  out["limit"] = options.prompts.limit;
  out["by_category"] = options.by_category;
  out["left_out"] = left_out;
  add_decoding_json(out, options.models);
  engine.add_settings(out);
  out["repeat"] = options.repeat;
  if (prompts > 1) out["intervals"] = {{"confidence", 0.95}, {"resamples", specula::Bootstrap::kResamples}};
  add_program_json(out, "specula compare");
  for (const GivenCosts& set : work.costs)
    for (const auto& [drafter, cost] : set.costs) out["costs"][set.name][drafter] = cost;
  return out;
}

}  // namespace specula_tools
