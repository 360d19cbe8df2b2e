// SPDX-License-Identifier: MIT
// specula-compare: pipelines side by side on the same prompts.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <specula/cpu/decoder.hpp>

#include "asked_prompt.hpp"
#include "batches.hpp"
#include "bootstrap.hpp"
#include "braces.hpp"
#include "chat_options.hpp"
#include "compare_options.hpp"
#include "figures.hpp"
#include "found_blocks.hpp"
#include "html_page.hpp"
#include "json_file.hpp"
#include "model_configs.hpp"
#include "model_pack.hpp"
#include "options.hpp"
#include "page.hpp"
#include "passes.hpp"
#include "prompts.hpp"
#include "report.hpp"
#include "runner.hpp"
#include "tokenizer.hpp"
#include "tuning_run.hpp"

namespace {

using namespace specula_examples;

/// Prompts as tokens, each with its category.
struct PromptSet {
  std::vector<std::vector<Token>> tokens;
  std::vector<std::string> categories;
  std::size_t left_out = 0;

  /// Removes prompts longer than `most`. `chats`: as for asked_prompt().
  PromptSet(const std::vector<Prompt>& prompts, const ChatSetting* chats, Style style,
            const Tokenizer& tokenizer, std::size_t most) {
    for (const Prompt& prompt : prompts) {
      auto own = asked_prompt(
                     prompt, chats, style, [&](const auto& text) { return tokenizer.encode(text); }, 0, false)
                     .tokens;
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
std::vector<specula::PipelineFactory> factories_of(const CompareWork& work, std::int32_t passes) {
  std::vector<specula::PipelineFactory> factories;
  const auto add = [&](const std::vector<std::string>& names) {
    for (const auto& name : names) factories.push_back(specula::prepare_pipeline(name));
  };
  add(work.pipelines);
  for (const Search& search : work.searches) add(search.candidates);
  const auto make_room = [&](std::int32_t nodes) {
    factories.push_back(
        {.drafts = {}, .exits = {}, .drafters = {}, .max_nodes = nodes, .draft_nodes = nodes, .build = {}});
  };
  if (passes > 0) make_room(passes);
  if (work.finds_blocks) {
    add({"chain:4@layer-skip"});
    make_room(specula::FindSkipped{}.piece);
  }
  if (!work.tuned_drafters.empty()) {
    add(probe_names(work.tuned_drafters));
    make_room(kMaxTunedNodes);
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

/// The best pipeline of each search on the development prompts. All candidates run in one comparison.
std::vector<Found> run_searches(const CompareWork& work, const std::string& objective,
                                const ModelFolders& folders, Runner& runner,
                                std::span<const std::vector<Token>> prompts) {
  std::vector<std::string> names{"autoregressive"};
  for (const Search& search : work.searches) append_new(names, search.candidates);
  const auto outcomes = runner.run(with_plain(folders, names), prompts, 1);
  const auto developed =
      all_figures(std::span(outcomes).first(names.size()), cost_coefficients(outcomes), work.costs);
  std::vector<Found> found;
  for (const Search& search : work.searches) found.push_back(choose(search, developed, objective));
  return found;
}

/// On what the target writes after the prompts.
specula::FoundBlocks find_blocks(ModelPack& models, Runner& runner,
                                 std::span<const std::vector<Token>> prompts) {
  const auto plain = runner.run({"autoregressive"}, prompts, 1);
  std::vector<std::vector<Token>> texts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    auto& text = texts.emplace_back(prompts[i]);
    const auto& written = plain.front().prompts[i].first.tokens;
    text.insert(text.end(), written.begin(), written.end());
    if (text.size() > kSearchedTokens)
      text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(kSearchedTokens));
  }
  return models.target().find_skipped(texts);
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

/// --passes: a table. Of the target and its drafts in turn.
std::vector<Passes> measure_passes(ModelPack& models, const std::vector<std::string>& drafts, Tokens prompt,
                                   const CompareOptions& options) {
  specula::cpu::Decoder<float>& target = models.target_model();
  const auto products = [](specula::cpu::Decoder<float>& model) {
    return [&model](std::int32_t nodes) { return model.product_seconds(nodes, model.exits() - 1); };
  };
  std::vector<NamedModel> measured{
      {.name = "target", .model = &models.target(), .products = products(target)}};
  for (const std::string& name : drafts) {  // pipelines may share one
    if (std::any_of(measured.begin(), measured.end(), [&](const auto& m) { return m.name == name; }))
      continue;
    specula::cpu::Decoder<float>& draft = *models.draft_models(std::span(&name, 1)).front();
    const auto before = [&target, &draft, prompt] {
      if (draft.conditioned_on() == specula::Conditioning::nothing) return;
      target.truncate(0);
      target.append(prompt);
      if (draft.conditioned_on() == specula::Conditioning::features)
        draft.set_target_state(target.features());
      else
        draft.set_target_state(target.key_values());
    };
    measured.push_back({name, &models.draft(name), products(draft), true, before});
  }
  auto all = passes_in_turn(measured, prompt, options.passes, options.repeat);
  std::cout << passes_table(all);
  flush_output();
  return all;
}

/// Of this process so far, in MiB; 0 where the system does not say. (getrusage() also counts what ran before
/// exec, such as a script.)
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0; word == "VmHWM:" && status >> kib) return kib / 1024;
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app{"Compares pipelines on the same prompts.", "specula-compare"};
  CompareOptions options;
  add_options(app, options);
  if (parse_command_line(app, argc, argv)) return 0;
  check_options(options.common);
  const CompareWork work = work_of(options);
  const Style style = parse_style(options.style);

  const ModelFolders folders{models_root(options.common.models), options.common.target, options.common.draft};
  const auto factories = factories_of(work, options.passes);
  folders.check();
  const auto drafts = specula::draft_names(factories);
  if (only_parses()) {
    for (const std::string& name : drafts) folders.draft_folder(name);
    for (const std::string& file : work.prompt_files) load_prompts(file);
    return 0;
  }
  const ModelConfigs configs(folders, drafts);

  const Tokenizer tokenizer(folders.target_folder());
  SplitSizes parts{
      .skip = options.skip, .dev = work.dev, .limit = options.limit, .by_category = options.by_category};
  if (!options.categories.empty()) parts.categories = split_list(options.categories);
  const PromptSplit split = split_prompts(work.prompt_files, parts);
  const std::size_t most = options.leave_out_long ? configs.longest_prompt(options.common.max_new_tokens)
                                                  : std::numeric_limits<std::size_t>::max();
  const auto chats = chosen_chats(options.chat, options.style, folders.target_folder(), tokenizer);
  const ChatSetting* const put = chats ? &*chats : nullptr;
  if (chats) options.style = "chat";  // in the JSON
  const PromptSet dev(split.dev, put, style, tokenizer, most), test(split.test, put, style, tokenizer, most);
  for (const auto& [option, output] :
       {std::pair("--json", options.json), std::pair("--html", options.html)}) {
    if (output.empty()) continue;
    for (const auto& file : options.prompt_files) check_distinct(option, output, "--prompts", file);
    check_writable(output);  // before the run, so that a wrong path does not waste it
  }
  if (!options.html.empty() && !options.json.empty()) {
    if (options.html == options.json) throw UsageError("--html and --json are the same file");
    check_distinct("--html", options.html, "--json", options.json);
  }
  auto both = test.tokens;
  both.insert(both.end(), dev.tokens.begin(), dev.tokens.end());
  ModelSizes sizes = checked_sizes(configs, factories, both, tokenizer, options.common);
  configs.check_memory(sizes.capacity, sizes.cache);
  for (const auto& prompt : both)
    if (configs.tell_drafts(prompt.size(), options.common.max_new_tokens, std::cerr)) break;
  if (!work.texts.empty()) sizes.slots = work.texts.back();
  if (options.dry_run) {
    print_plan(work, dev.tokens.size(), test.tokens.size());
    return 0;
  }
  if (app.count("--threads") == 0) std::cerr << threads_line(options.common.threads);
  ModelPack models(folders, sizes);
  const auto start = std::chrono::steady_clock::now();
  models.target();
  const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
  const double loaded = peak_memory();
  if (options.passes > 0) {
    if (test.tokens.empty()) throw UsageError("--passes needs a prompt");
    const auto passes = measure_passes(models, drafts, test.tokens.front(), options);
    auto settings = settings_json(options, work, 1, 0);
    settings["passes"] = passes_json(passes);
    settings["prompt_tokens"] = test.tokens.front().size();
    if (!options.json.empty()) write_json(options.json, settings);
    return 0;
  }
  Runner runner(models, options.common, tokenizer.ends());

  auto names = work.pipelines;
  Tuning tuning;
  if (!work.tuned_drafters.empty()) {
    tuning = measure_and_tune(
        work.tuned_drafters,
        options.tune == "swi" ? specula::TunerObjective::swi : specula::TunerObjective::speedup, folders,
        models, runner, dev.tokens);
    for (const auto& t : tuning.pipelines) append_new(names, {t.name});
  }
  std::vector<Found> found;
  if (!work.searches.empty()) found = run_searches(work, options.search_for, folders, runner, dev.tokens);
  for (const Found& f : found) append_new(names, {f.picked()});

  std::optional<specula::FoundBlocks> blocks;
  std::chrono::duration<double> searching{};
  if (options.find_blocks) {
    const auto begin = std::chrono::steady_clock::now();
    blocks = find_blocks(models, runner, dev.tokens);
    searching = std::chrono::steady_clock::now() - begin;
    append_new(names, block_pipelines(*blocks));
  }

  const auto outcomes = runner.run(with_plain(folders, names, tuning.costs), test.tokens, options.repeat);
  CostCoefficients costs = tuning.costs;  // predicted and measured SWI use the same c
  costs.merge(cost_coefficients(outcomes));
  const auto shown = std::span(outcomes).first(names.size());
  const auto all = all_figures(shown, costs, work.costs);
  std::cout << to_table(all) << "columns: docs/measuring.md";
  if (test.tokens.size() < 20) std::cout << "; intervals of fewer than 20 prompts are too narrow";
  std::cout << '\n';
  auto settings = settings_json(options, work, test.tokens.size(), dev.left_out + test.left_out);
  std::size_t prompt_tokens = 0;
  for (const auto& prompt : test.tokens) prompt_tokens += prompt.size();
  settings["prompt_tokens"] = prompt_tokens;
  settings["load_seconds"] = loading.count();
  settings["kept_as"] = word_of(models.target_weights());
  settings["memory_mib"] = {{"target_loaded", loaded}, {"at_most", peak_memory()}};
  if (!work.texts.empty()) {
    const auto batches =
        batch_figures(names, work.texts, runner.run_batches(names, work.texts, test.tokens, options.repeat),
                      outcomes.front());
    std::cout << '\n' << batch_table(batches);
    settings["batches"] = batch_json(batches);
  }
  for (const auto& name : options.against) {
    if (test.tokens.size() < 2) throw UsageError("--against needs at least two prompts");
    const auto search =
        std::find_if(found.begin(), found.end(), [&](const Found& f) { return f.search.text == name; });
    const Against beside =
        against(search == found.end() ? name : search->picked(), all, Bootstrap(test.tokens.size()));
    std::cout << '\n' << against_table(beside);
    settings["against"][beside.name] = against_json(beside);
  }
  if (options.by_category) {
    const auto groups = groups_of(shown, test.categories, costs, work.costs);
    std::cout << '\n' << group_table(groups);
    settings["categories"] = group_json(groups);
  }
  if (!found.empty()) {
    std::cout << '\n' << search_text(found, options.search_for);
    settings["searches"] = search_json(found, options.search_for);
  }
  if (blocks) {
    std::cout << '\n' << block_table(*blocks);
    settings["found_blocks"] = block_pipelines(*blocks);
    settings["found_blocks_seconds"] = searching.count();
  }
  if (!work.tuned_drafters.empty()) {
    const auto& tuned = tuning.pipelines;
    std::cout << '\n' << forecast_table(tuned, all) << '\n' << recommendation(tuned, all) << '\n';
    settings["tuned_for"] = options.tune;
    settings["forecasts"] = forecast_json(tuned, all);
  }
  flush_output();
  const auto json = to_json(all, settings);
  if (!options.json.empty()) write_json(options.json, json);
  if (!options.html.empty()) write_file(options.html, html_page(kComparePage, json));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-compare", [&] { return run(argc, argv); });
}
