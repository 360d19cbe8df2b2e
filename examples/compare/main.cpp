// specula-compare: pipelines side by side on the same prompts.
#include <algorithm>
#include <fstream>
#include <iostream>

#include "comparison.hpp"
#include "figures.hpp"
#include "model_pack.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "prompts.hpp"
#include "report.hpp"
#include "tokenizer.hpp"

namespace {

using namespace specula_examples;

struct Options {
  CommonOptions common;
  std::string pipelines = "autoregressive,chain,cost-aware:chain";
  std::vector<std::string> prompt_files;
  std::size_t limit = 0;
  std::string style = "auto", json;
  std::int32_t repeat = 1;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--pipelines", options.pipelines,
                 "Names separated by commas; autoregressive is always among them")
      ->capture_default_str();
  app.add_option("--prompts", options.prompt_files,
                 "File of prompts (may be given several times; default: those that come with the sources)");
  app.add_option("--limit", options.limit, "Prompts of each file, at most; 0: all")->capture_default_str();
  app.add_option("--style", options.style, "How prompts are put: auto, question, code or raw")
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "Runs of each prompt; the times are their medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the figures to this file");
  add_common_options(app, options.common);
  app.footer("Pipelines:\n" + describe_pipelines<Model>());
}

std::vector<std::string> pipeline_names(const Options& options) {
  auto names = split_list(options.pipelines);
  std::erase(names, "autoregressive");
  names.insert(names.begin(), "autoregressive");
  return names;
}

std::vector<std::vector<Token>> load_all(const Options& options, const Tokenizer& tokenizer) {
  const Style style = parse_style(options.style);
  auto files = options.prompt_files;
  if (files.empty()) files.emplace_back(SPECULA_EXAMPLE_PROMPTS);
  std::vector<std::vector<Token>> prompts;
  for (const auto& file : files) {
    std::size_t taken = 0;
    for (const Prompt& prompt : load_prompts(file)) {
      if (options.limit && taken++ == options.limit) break;
      prompts.push_back(tokenizer.encode(prompt.put(style)));
    }
  }
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
  return {{"prompt_files", files},
          {"prompts", prompts},
          {"style", options.style},
          {"max_new_tokens", c.max_new_tokens},
          {"temperature", c.sampling.temperature},
          {"top_k", c.sampling.top_k},
          {"top_p", c.sampling.top_p},
          {"min_p", c.sampling.min_p},
          {"seed", c.seed},
          {"threads", thread_count(c.threads)},
          {"inputs", inputs_of(c.inputs) == specula::eigen::Inputs::bf16 ? "bf16" : "full"},
          {"repeat", options.repeat},
          {"target", leaf(c.target, "target")},
          {"default_draft", leaf(c.draft, kDefaultDraft)}};
}

int run(int argc, char** argv) {
  CLI::App app{"Runs pipelines side by side on the same prompts and says what each one gains.",
               "specula-compare"};
  Options options;
  add_options(app, options);
  if (parse_command_line(app, argc, argv)) return 0;
  check_common_options(options.common);

  const ModelFolders folders{models_root(options.common.models), options.common.target, options.common.draft};
  const auto names = pipeline_names(options);
  std::vector<Recipe<Model>> recipes;
  for (const auto& name : names) recipes.push_back(prepare_pipeline<Model>(name));
  folders.check();
  for (const auto& recipe : recipes)
    for (const auto& draft : recipe.drafts) folders.draft_folder(draft);

  const Tokenizer tokenizer(folders.target_folder() / "tokenizer.model");
  const auto prompts = load_all(options, tokenizer);
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());

  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);  // before the work, so that a wrong path does not cost it
    if (!json) throw std::runtime_error(options.json + ": cannot be opened for writing");
  }
  ModelPack models(folders, sizes_for(recipes, longest, options.common.max_new_tokens, options.common.threads,
                                      inputs_of(options.common.inputs)));
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    pipelines.push_back(recipes[i].build(models, options.common.sampling));
    contenders.push_back({names[i], pipelines.back().get(), recipes[i].lossy});
  }

  const CompareSettings settings{options.common.max_new_tokens, tokenizer.end(), options.common.seed,
                                 options.repeat};
  const auto outcomes = compare(contenders, prompts, settings, ProgressBar());
  std::vector<Figures> all;
  for (const auto& outcome : outcomes) all.push_back(figures(outcome, outcomes.front()));
  std::cout << to_table(all);
  if (json.is_open() && !(json << to_json(all, settings_json(options, prompts.size())).dump(2) << '\n'
                               << std::flush))
    throw std::runtime_error(options.json + ": cannot be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-compare", [&] { return run(argc, argv); });
}
