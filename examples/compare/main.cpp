// specula-compare: pipelines side by side on the same prompts.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "comparison.hpp"
#include "figures.hpp"
#include "json_file.hpp"
#include "model_configs.hpp"
#include "model_pack.hpp"
#include "options.hpp"
#include "pass_costs.hpp"
#include "progress_bar.hpp"
#include "prompts.hpp"
#include "report.hpp"
#include "tokenizer.hpp"
#include "tuning.hpp"

namespace {

using namespace specula_examples;

struct Options {
  CommonOptions common;
  std::string pipelines = "autoregressive,chain,cost-aware:chain";
  std::vector<std::string> prompt_files;
  std::size_t limit = 0;
  std::string style = "auto", json;
  std::int32_t repeat = 1;
  std::string tune, drafters = "base,small,max-gram";
  std::size_t tune_limit = 20;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--pipelines", options.pipelines,
                 "Names separated by commas; autoregressive is always among them")
      ->capture_default_str();
  app.add_option("--prompts", options.prompt_files,
                 "File of prompts (may be given several times; default: those that come with the sources)");
  add_limit_option(app, options.limit, "Prompts of each file, at most; 0: all");
  app.add_option("--style", options.style, "How prompts are put: auto, question, code or raw")
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "Runs of each prompt; the times are their medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
         "--tune", options.tune,
         "Measure the acceptance rate and what calls cost, find the chain lengths and the limits of "
         "cascades that theory likes best, and run those too: for `swi` (every call of a model costs the "
         "same) or `time`")
      ->check(CLI::IsMember({"swi", "time"}));
  app.add_option("--drafters", options.drafters, "Of the tuned pipelines: models, best first, and max-gram")
      ->capture_default_str();
  app.add_option("--tune-limit", options.tune_limit, "Prompts to measure on, at most; 0: all")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the figures to this file");
  add_common_options(app, options.common);
  app.footer("Pipelines:\n" + describe_pipelines());
}

std::vector<std::string> pipeline_names(const Options& options) {
  auto names = split_list(options.pipelines);
  std::erase(names, "autoregressive");
  names.insert(names.begin(), "autoregressive");
  return names;
}

std::vector<std::vector<Token>> load_all(const Options& options, const Tokenizer& tokenizer) {
  auto files = options.prompt_files;
  if (files.empty()) files.emplace_back(SPECULA_EXAMPLE_PROMPTS);
  std::vector<std::vector<Token>> prompts;
  for (const auto& text : put_prompts(files, options.limit, parse_style(options.style)))
    prompts.push_back(tokenizer.encode(text));
  return prompts;
}

nlohmann::ordered_json settings_json(const Options& options, std::size_t prompts) {
  const auto leaf = [](const std::string& path, const char* absent) {
    return path.empty() ? absent : (std::filesystem::path(path) / "").parent_path().filename().string();
  };
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& file : options.prompt_files) files.push_back(leaf(file, ""));
  if (files.empty()) files.push_back(leaf(SPECULA_EXAMPLE_PROMPTS, ""));
  const CommonOptions& c = options.common;
  nlohmann::ordered_json out{{"prompt_files", files}, {"prompts", prompts}, {"style", options.style}};
  add_decoding_json(out, c);
  out["threads"] = thread_count(c.threads);
  out["inputs"] = inputs_of(c.inputs) == specula::eigen::Inputs::bf16 ? "bf16" : "full";
  out["repeat"] = options.repeat;
  out["target"] = leaf(c.target, "target");
  out["default_draft"] = leaf(c.draft, kDefaultDraft);
  return out;
}

/// Pipelines that are built when they are run, over models that are loaded once.
class Runner {
 public:
  Runner(ModelPack& models, const Options& options, Token stop)
      : models_(models), options_(options), stop_(stop) {}

  std::vector<Outcome> run(const std::vector<std::string>& names, std::span<const std::vector<Token>> prompts,
                           std::int32_t repeat) {
    std::vector<std::unique_ptr<Pipeline>> pipelines;
    std::vector<Contender> contenders;
    for (const auto& name : names) {
      const auto recipe = prepare_pipeline(name);
      pipelines.push_back(recipe.build(models_, options_.common.sampling));
      contenders.push_back({name, pipelines.back().get(), recipe.lossy});
    }
    return compare(contenders, prompts,
                   {options_.common.max_new_tokens, {stop_}, options_.common.seed, repeat}, ProgressBar());
  }

 private:
  ModelPack& models_;
  const Options& options_;
  Token stop_;
};

/// Plain decoding by each model that the pipelines draft with, but for those whose costs are `known` and
/// those that do nothing without the target: what its calls cost.
std::vector<std::string> plain_names(const ModelFolders& folders, const std::vector<std::string>& names,
                                     const CostCoefficients& known = {}) {
  std::vector<std::string> plain;
  for (const auto& name : names)
    for (const auto& draft : prepare_pipeline(name).drafts) {
      const std::string own = "autoregressive:" + draft;
      if (!known.contains(draft) && folders.looks_at(draft) == specula::eigen::LooksAt::nothing &&
          std::find(names.begin(), names.end(), own) == names.end() &&
          std::find(plain.begin(), plain.end(), own) == plain.end())
        plain.push_back(own);
    }
  return plain;
}

constexpr std::int32_t kCurveNodes = 33;  // beyond it costs go on in a straight line
constexpr int kVisits = 16;               // far apart: another program may be busy for a while

/// What passes take, so scaled that it is `first` over one node.
std::vector<double> scaled(std::vector<double> costs, double first) {
  const double scale = first / costs.front();
  for (double& c : costs) c *= scale;
  return costs;
}

/// A given curve of passes over 1, 2, ... nodes.
specula::CostCurve cost_curve(std::vector<double> costs) {
  // A curve goes on with its last step: make that the mean one, not one that a block of nodes begins with.
  const std::size_t last = costs.size() - 1, half = last / 2;
  costs.push_back(costs[last] + std::max(0.0, costs[last] - costs[half]) /
                                    static_cast<double>(std::max<std::size_t>(1, last - half)));
  return specula::CostCurve(std::move(costs));
}

/// What calls cost in calls of the target over one node: passes of each model one after the other, so scaled
/// that over one node they cost what they do in plain decoding. `by_turns`: and what a round takes longer
/// because its models take turns, added to the target's curve for each set of drafts.
void measure_passes(ModelPack& models, const CostCoefficients& plain, bool by_turns, specula::Tokens prompt,
                    Measured& measured) {
  std::vector<std::string> drafts;
  for (const auto& [name, cost] : plain) drafts.push_back(name);
  std::vector<double> target(kCurveNodes, 0.0);
  std::map<std::string, std::vector<double>> draft_sums;
  std::map<std::set<std::string>, double> turns;
  const auto add = [&](std::vector<double>& sum, AnyModel& model) {
    const auto seconds = pass_seconds(model, prompt, kCurveNodes);
    sum.resize(seconds.size());
    for (std::size_t n = 0; n < seconds.size(); ++n) sum[n] += seconds[n];
  };
  for (int visit = 0; visit < kVisits; ++visit) {
    add(target, models.target());
    for (const auto& name : drafts) add(draft_sums[name], models.draft(name));
    if (!by_turns) continue;
    for (const auto& set : subsets(drafts)) {
      if (set.empty()) continue;
      std::vector<AnyModel*> together{&models.target()};
      for (const auto& name : set) together.push_back(&models.draft(name));
      turns[{set.begin(), set.end()}] += turn_seconds(together, prompt);
    }
  }
  for (const auto& [name, sum] : draft_sums)
    measured.draft_costs.emplace(name, cost_curve(scaled(sum, plain.at(name))));
  const double scale = 1 / target.front();
  target = scaled(target, 1);
  measured.target_costs.at({}) = cost_curve(target);
  for (const auto& [set, sum] : turns) {
    auto costs = target;
    for (std::size_t n = 1; n < costs.size(); ++n)  // over one node the target is alone: no draft has run
      costs[n] += std::max(0.0, sum * scale);
    measured.target_costs.emplace(set, cost_curve(costs));
  }
}

struct Tuning {
  std::vector<TunedPipeline> pipelines;
  CostCoefficients costs;
};

Tuning tuned_pipelines(const Options& options, const ModelFolders& folders, ModelPack& models, Runner& runner,
                       std::span<const std::vector<Token>> prompts) {
  const auto drafters = split_list(options.drafters);
  auto names = probe_names(drafters);
  names.insert(names.begin(), "autoregressive");
  for (const auto& name : plain_names(folders, names)) names.push_back(name);
  const std::size_t count =
      options.tune_limit ? std::min(options.tune_limit, prompts.size()) : prompts.size();
  const auto outcomes = runner.run(names, prompts.first(count), 1);
  Measured measured = acceptance_of(drafters, outcomes);
  CostCoefficients costs = cost_coefficients(outcomes);
  measure_passes(models, costs, options.tune == "time", prompts.front(), measured);
  for (const auto& drafter : drafters) {
    if (costs.contains(drafter)) continue;
    const auto own = std::find_if(outcomes.begin(), outcomes.end(), [&](const Outcome& o) {
      return o.drafts.size() == 1 && o.drafts.front().model == drafter;
    });
    costs[drafter] =
        seconds_per_call(own->drafts.front().usage) / seconds_per_call(outcomes.front().pooled.target);
    measured.draft_costs.emplace(drafter, specula::CostCurve({costs[drafter]}));
  }
  return {tune(drafters, measured,
               options.tune == "swi" ? specula::TunerObjective::swi : specula::TunerObjective::speedup),
          costs};
}

int run(int argc, char** argv) {
  CLI::App app{"Runs pipelines side by side on the same prompts and says what each one gains.",
               "specula-compare"};
  Options options;
  add_options(app, options);
  if (parse_command_line(app, argc, argv)) return 0;
  check_options(options.common);

  const ModelFolders folders{models_root(options.common.models), options.common.target, options.common.draft};
  const bool tunes = !options.tune.empty();
  auto names = tunes && app.count("--pipelines") == 0 ? std::vector<std::string>{"autoregressive"}
                                                      : pipeline_names(options);
  std::vector<Recipe> recipes;
  for (const auto& name : names) recipes.push_back(prepare_pipeline(name));
  if (tunes) {
    const auto drafters = split_list(options.drafters);
    std::string all = "cascade";
    for (const auto& drafter : drafters) all.append(":").append(drafter);
    if (drafters.size() > 1) prepare_pipeline(all);  // complains before the work
    for (const auto& name : probe_names(drafters)) recipes.push_back(prepare_pipeline(name));
    recipes.push_back({.drafts = {},
                       .exits = {},
                       .drafters = {},
                       .max_nodes = kMostTunedNodes,
                       .draft_nodes = kMostTunedNodes,
                       .build = {}});
  }
  folders.check();
  const ModelConfigs configs(folders, draft_names(recipes));

  const Tokenizer tokenizer(folders.target_folder());
  const auto prompts = load_all(options, tokenizer);
  if (!options.json.empty()) {
    for (const auto& file : options.prompt_files) check_distinct("--json", options.json, "--prompts", file);
    check_writable(options.json);  // before the work, so that a wrong path does not cost it
  }
  ModelPack models(folders, checked_sizes(configs, recipes, prompts, tokenizer.vocab_size(), options.common));
  Runner runner(models, options, tokenizer.end());
  Tuning tuning;
  if (tunes) tuning = tuned_pipelines(options, folders, models, runner, prompts);
  const auto& tuned = tuning.pipelines;
  for (const auto& t : tuned)
    if (std::find(names.begin(), names.end(), t.name) == names.end()) names.push_back(t.name);

  const std::size_t shown = names.size();
  for (const auto& name : plain_names(folders, names, tuning.costs)) names.push_back(name);
  const auto outcomes = runner.run(names, prompts, options.repeat);
  CostCoefficients costs = tuning.costs;  // predicted and measured SWI with the same
  costs.merge(cost_coefficients(outcomes));
  std::vector<Figures> all;
  for (const auto& outcome : std::span(outcomes).first(shown))
    all.push_back(figures(outcome, outcomes.front(), costs));
  std::cout << to_table(all);
  auto settings = settings_json(options, prompts.size());
  if (tunes) {
    std::cout << '\n' << forecast_table(tuned, all) << '\n' << recommendation(tuned, all) << '\n';
    settings["tuned_for"] = options.tune;
    settings["forecasts"] = forecast_json(tuned, all);
  }
  flush_output();
  if (!options.json.empty()) write_json(options.json, to_json(all, settings));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-compare", [&] { return run(argc, argv); });
}
