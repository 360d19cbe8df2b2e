// SPDX-License-Identifier: MIT
// specula compare: pipelines side by side on the same prompts.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "batches.hpp"
#include "braces.hpp"
#include "command.hpp"
#include "compare_options.hpp"
#include "figures.hpp"
#include "files.hpp"
#include "found_blocks.hpp"
#include "html_page.hpp"
#include "json_file.hpp"
#include "page.hpp"
#include "report.hpp"
#include "runner.hpp"
#include "text_table.hpp"
#include "tuning_run.hpp"

namespace specula_tools {
namespace {

/// Prompts as tokens, each with its category.
struct PromptSet {
  std::vector<std::vector<Token>> tokens;
  std::vector<std::string> categories;
  std::size_t left_out = 0;

  /// Without prompts longer than `most`.
  PromptSet(const std::vector<Prompt>& prompts, const PromptSetting& setting, std::size_t most) {
    for (const Prompt& prompt : prompts) {
      auto own = setting.ask(prompt, 0, false).tokens;
      if (own.size() > most) {
        ++left_out;
        continue;
      }
      tokens.push_back(std::move(own));
      categories.push_back(prompt.category);
    }
    if (tokens.empty() && left_out > 0) throw UsageError("--leave-out-long leaves no prompts");
  }
};

void append_new(std::vector<std::string>& names, const std::vector<std::string>& more) {
  for (const auto& name : more)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

/// All pipelines that may run, to determine models and room.
std::vector<specula::PipelineFactory> factories_of(const CompareWork& work) {
  std::vector<specula::PipelineFactory> factories;
  const auto add = [&](const std::vector<std::string>& names) {
    for (const auto& name : names) factories.push_back(prepare_named(name));
  };
  add(work.pipelines);
  for (const Search& search : work.searches) add(search.candidates);
  if (work.finds_blocks) {
    add({"chain:4@layer-skip"});
    factories.push_back(room_of(specula::FindSkipped{}.piece));
  }
  if (!work.tuned_drafters.empty()) {
    add(probe_names(work.tuned_drafters));
    factories.push_back(room_of(kMaxTunedNodes));
  }
  return factories;
}

void print_plan(const CompareWork& work, std::size_t dev, std::size_t test) {
  std::cout << test << " prompts to report on, " << dev << " to develop on\n";
  for (const auto& name : work.pipelines) std::cout << "pipeline " << name << '\n';
  for (const Search& search : work.searches) {
    std::cout << "search " << search.text << ": " << search.candidates.size() << " candidates\n";
    for (const auto& name : search.candidates) std::cout << "  " << name << '\n';
  }
  for (const std::int32_t texts : work.texts) std::cout << "texts at once: " << texts << '\n';
}

std::vector<Figures> all_figures(std::span<const Outcome> outcomes, const CostCoefficients& costs,
                                 std::span<const GivenCosts> given) {
  std::optional<Bootstrap> bootstrap;
  if (outcomes.front().prompts.size() > 1) bootstrap.emplace(outcomes.front().prompts.size());
  std::vector<Figures> all;
  for (const auto& outcome : outcomes)
    all.push_back(figures(outcome, outcomes.front(), costs, given, bootstrap ? &*bootstrap : nullptr));
  return all;
}

std::vector<Group> groups_of(std::span<const Outcome> outcomes, const std::vector<std::string>& categories,
                             const CostCoefficients& costs, std::span<const GivenCosts> given) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::size_t>> members;
  for (std::size_t p = 0; p < categories.size(); ++p) {
    if (!members.contains(categories[p])) order.push_back(categories[p]);
    members[categories[p]].push_back(p);
  }
  std::vector<Group> groups;
  for (const auto& name : order) {
    std::vector<Outcome> own;
    for (const Outcome& outcome : outcomes) own.push_back(only(outcome, members.at(name)));
    groups.push_back({name, all_figures(own, costs, given)});
  }
  return groups;
}

/// Of this process so far, in MiB; 0 where the system does not say. (getrusage() also counts what ran before
/// exec, such as a script.)
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0; word == "VmHWM:" && status >> kib) return kib / 1024;
  return 0;
}

/// What the outcomes of a delay came to: figures, and for each pipeline the speedup of each prompt, in their
/// order, since a pipeline may learn.
nlohmann::ordered_json delay_json(double milliseconds, std::span<const Figures> all,
                                  std::span<const Outcome> outcomes) {
  nlohmann::ordered_json out = to_json(all, {{"one_way_milliseconds", milliseconds}});
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& speedups = out["pipelines"][i]["speedup_by_prompt"] = nlohmann::ordered_json::array();
    for (std::size_t p = 0; p < outcomes[i].prompts.size(); ++p) {
      const auto rate = [&](const PromptResult& result) {
        return static_cast<double>(result.first.tokens.size()) / std::max(1e-9, result.decode_seconds);
      };
      speedups.push_back(rate(outcomes[i].prompts[p]) / rate(outcomes.front().prompts[p]));
    }
  }
  return out;
}

/// A comparison: its prompts, what is found on the development ones, and what is reported.
class Comparison {
 public:
  /// `engine` is open.
  Comparison(CompareOptions& options, const CompareWork& work, Engine& engine,
             std::span<const specula::PipelineFactory> factories)
      : options_(options),
        work_(work),
        engine_(engine),
        factories_(factories),
        setting_(engine, options.prompts),
        split_(split_prompts(work.prompt_files, sizes_of(options, work))),
        dev_(split_.dev, setting_, most_tokens()),
        test_(split_.test, setting_, most_tokens()),
        runner_(engine, options.models, engine.ends()) {
    options.prompts.style = setting_.name(options.prompts);  // in the JSON
  }

  int operator()() {
    check_outputs();
    prepare();
    if (options_.dry_run) {
      print_plan(work_, dev_.tokens.size(), test_.tokens.size());
      return 0;
    }
    load();
    if (!engine_.delays().empty()) {
      compare_delays();
      return 0;
    }
    names_ = work_.pipelines;
    develop();
    const auto outcomes =
        runner_.run(with_plain(engine_, names_, tuning_.costs), test_.tokens, options_.repeat);
    report(outcomes);
    return 0;
  }

 private:
  static SplitSizes sizes_of(const CompareOptions& options, const CompareWork& work) {
    SplitSizes parts{.skip = options.skip,
                     .dev = work.dev,
                     .limit = options.prompts.limit,
                     .by_category = options.by_category};
    if (!options.categories.empty()) parts.categories = split_list(options.categories);
    return parts;
  }

  std::size_t most_tokens() const {
    return options_.leave_out_long ? engine_.longest_prompt(options_.models.max_new_tokens)
                                   : std::numeric_limits<std::size_t>::max();
  }

  /// Before the run, so that a wrong path does not waste it.
  void check_outputs() const {
    for (const auto& [option, output] :
         {std::pair("--json", options_.json), std::pair("--html", options_.html)}) {
      if (output.empty()) continue;
      for (const auto& file : options_.prompts.files) check_distinct(option, output, "--prompts", file);
      check_writable(output);
    }
    if (options_.html.empty() || options_.json.empty()) return;
    if (options_.html == options_.json) throw UsageError("--html and --json are the same file");
    check_distinct("--html", options_.html, "--json", options_.json);
  }

  void prepare() {
    auto both = test_.tokens;
    both.insert(both.end(), dev_.tokens.begin(), dev_.tokens.end());
    engine_.prepare(
        {factories_, both, options_.models.max_new_tokens, work_.texts.empty() ? 1 : work_.texts.back()});
    for (const auto& prompt : both)
      if (engine_.tell_drafts(prompt.size(), options_.models.max_new_tokens, std::cerr)) break;
  }

  void load() {
    const auto start = std::chrono::steady_clock::now();
    engine_.models().target();
    const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
    settings_ = settings_json(options_, work_, engine_, test_.tokens.size(), dev_.left_out + test_.left_out);
    std::size_t prompt_tokens = 0;
    for (const auto& prompt : test_.tokens) prompt_tokens += prompt.size();
    settings_["prompt_tokens"] = prompt_tokens;
    settings_["load_seconds"] = loading.count();
    settings_["memory_mib"]["target_loaded"] = peak_memory();
    engine_.add_loaded(settings_);
  }

  /// What the development prompts are for.
  void develop() {
    if (!work_.tuned_drafters.empty()) {
      using specula::TunerObjective;
      tuning_ = measure_and_tune(work_.tuned_drafters,
                                 options_.tune == "swi" ? TunerObjective::swi : TunerObjective::speedup,
                                 engine_, runner_, dev_.tokens);
      for (const auto& tuned : tuning_.pipelines) append_new(names_, {tuned.name});
    }
    if (!work_.searches.empty()) run_searches();
    for (const Found& found : found_) append_new(names_, {found.picked()});
    if (!options_.find_blocks) return;
    const auto begin = std::chrono::steady_clock::now();
    find_blocks();
    const std::chrono::duration<double> searching = std::chrono::steady_clock::now() - begin;
    settings_["found_blocks_seconds"] = searching.count();
    append_new(names_, block_pipelines(*blocks_));
  }

  /// The best pipeline of each search. All candidates run in one comparison.
  void run_searches() {
    std::vector<std::string> names{"autoregressive"};
    for (const Search& search : work_.searches) append_new(names, search.candidates);
    const auto outcomes = runner_.run(with_plain(engine_, names), dev_.tokens, 1);
    const auto developed =
        all_figures(std::span(outcomes).first(names.size()), cost_coefficients(outcomes), work_.costs);
    for (const Search& search : work_.searches)
      found_.push_back(choose(search, developed, options_.search_for));
  }

  /// On what the target writes after the prompts.
  void find_blocks() {
    const auto plain = runner_.run({"autoregressive"}, dev_.tokens, 1);
    std::vector<std::vector<Token>> texts;
    for (std::size_t i = 0; i < dev_.tokens.size(); ++i) {
      auto& text = texts.emplace_back(dev_.tokens[i]);
      const auto& written = plain.front().prompts[i].first.tokens;
      text.insert(text.end(), written.begin(), written.end());
      if (text.size() > kSearchedTokens)
        text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(kSearchedTokens));
    }
    blocks_ = engine_.models().target().find_skipped(texts);
  }

  void report(std::span<const Outcome> outcomes) {
    CostCoefficients costs = tuning_.costs;  // predicted and measured SWI use the same c
    costs.merge(cost_coefficients(outcomes));
    const auto shown = outcomes.first(names_.size());
    const auto all = all_figures(shown, costs, work_.costs);
    std::cout << to_table(all) << "columns: docs/measuring.md";
    if (test_.tokens.size() < 20) std::cout << "; intervals of fewer than 20 prompts are too narrow";
    std::cout << '\n';
    if (!work_.texts.empty()) report_batches(outcomes.front());
    report_against(all);
    if (options_.by_category) {
      const auto groups = groups_of(shown, test_.categories, costs, work_.costs);
      std::cout << '\n' << group_table(groups);
      settings_["categories"] = group_json(groups);
    }
    report_development(all);
    settings_["memory_mib"]["at_most"] = peak_memory();
    flush_output();
    const auto json = to_json(all, settings_);
    if (!options_.json.empty()) write_json(options_.json, json);
    if (!options_.html.empty()) write_file(options_.html, html_page(kComparePage, json));
  }

  void report_batches(const Outcome& plain) {
    const auto runs = runner_.run_batches(names_, work_.texts, test_.tokens, options_.repeat);
    const auto batches = batch_figures(names_, work_.texts, runs, plain);
    std::cout << '\n' << batch_table(batches);
    settings_["batches"] = batch_json(batches);
  }

  void report_against(std::span<const Figures> all) {
    for (const auto& name : options_.against) {
      if (test_.tokens.size() < 2) throw UsageError("--against needs at least two prompts");
      const auto search =
          std::find_if(found_.begin(), found_.end(), [&](const Found& f) { return f.search.text == name; });
      const Against beside =
          against(search == found_.end() ? name : search->picked(), all, Bootstrap(test_.tokens.size()));
      std::cout << '\n' << against_table(beside);
      settings_["against"][beside.name] = against_json(beside);
    }
  }

  void report_development(std::span<const Figures> all) {
    if (!found_.empty()) {
      std::cout << '\n' << search_text(found_, options_.search_for);
      settings_["searches"] = search_json(found_, options_.search_for);
    }
    if (blocks_) {
      std::cout << '\n' << block_table(*blocks_);
      settings_["found_blocks"] = block_pipelines(*blocks_);
    }
    if (work_.tuned_drafters.empty()) return;
    const auto& tuned = tuning_.pipelines;
    std::cout << '\n' << forecast_table(tuned, all) << '\n' << recommendation(tuned, all) << '\n';
    settings_["tuned_for"] = options_.tune;
    settings_["forecasts"] = forecast_json(tuned, all);
  }

  /// A table for each delay of the servers.
  void compare_delays() {
    const auto delays = engine_.delays();
    const auto outcomes =
        runner_.run_at(delays, with_plain(engine_, work_.pipelines), test_.tokens, options_.repeat);
    auto by_delay = nlohmann::ordered_json::array();
    for (std::size_t d = 0; d < delays.size(); ++d) {
      const auto shown = std::span(outcomes[d]).first(work_.pipelines.size());
      const auto all = all_figures(shown, cost_coefficients(outcomes[d]), {});
      std::cout << (d > 0 ? "\n" : "") << fixed(delays[d], 1) << " ms one way\n" << to_table(all);
      by_delay.push_back(delay_json(delays[d], all, outcomes[d]));
    }
    flush_output();
    if (options_.json.empty()) return;
    nlohmann::ordered_json out{{"delays", by_delay}};
    out.update(settings_);
    write_json(options_.json, out);
  }

  const CompareOptions& options_;
  const CompareWork& work_;
  Engine& engine_;
  std::span<const specula::PipelineFactory> factories_;
  PromptSetting setting_;
  PromptSplit split_;
  PromptSet dev_, test_;
  Runner runner_;
  nlohmann::ordered_json settings_;
  std::vector<std::string> names_;  // of what is reported
  Tuning tuning_;
  std::vector<Found> found_;
  std::optional<specula::FoundBlocks> blocks_;
};

int compare_pipelines(const CLI::App& app, CompareOptions& options) {
  check_options(options.models);
  const CompareWork work = work_of(options);
  const auto engine = make_engine(app, options.models);
  const auto factories = factories_of(work);
  engine->check(factories);
  if (only_parses()) {
    for (const std::string& file : work.prompt_files) load_prompts(file);
    return 0;
  }
  engine->open(factories);
  if (app.count("--threads") == 0 && !options.dry_run) std::cerr << threads_line(options.models.threads);
  return Comparison(options, work, *engine, factories)();
}

}  // namespace

Body add_compare(CLI::App& app) {
  const auto options = std::make_shared<CompareOptions>();
  add_options(app, *options);
  return [&app, options] { return compare_pipelines(app, *options); };
}

}  // namespace specula_tools
