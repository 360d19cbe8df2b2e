// SPDX-License-Identifier: MIT
// specula passes: what a pass over 1, 2, ... nodes costs.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braces.hpp"
#include "command.hpp"
#include "cpu_engine.hpp"
#include "engine.hpp"
#include "files.hpp"
#include "json_file.hpp"
#include "model_options.hpp"
#include "options.hpp"
#include "passes.hpp"
#include "prompt_options.hpp"
#include "settings_json.hpp"
#include "vocabulary.hpp"

namespace specula_tools {
namespace {

using specula::Token;
using specula::Tokens;

struct PassesOptions {
  ModelOptions models;
  PromptOptions prompts;
  std::string prompt, pipelines, beside, json;
  std::int32_t nodes = 8, repeat = 1;
  bool has_prompt = false;
};

void add_options(CLI::App& app, PassesOptions& options) {
  app.add_option("--nodes", options.nodes, "Passes over 1, 2, ..., N nodes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "Turns of each model; the times are their medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--pipelines", options.pipelines,
                 "Names separated by blanks: their drafts are measured, too");
  app.add_option("--prompt", options.prompt, "The prompt that the passes come after");
  add_prompt_options(app, options.prompts,
                     "File of prompts, of which the first is taken (default: that which comes with the "
                     "sources)");
  app.get_option("--prompts")->excludes("--prompt");
  app.add_option("--beside", options.beside,
                 "The same model, a Hugging Face folder or the GGUF file itself: the same passes of "
                 "specula's own decoder on the CPU, in turn with the target's. Where matrices are bfloat16 "
                 "and the machine multiplies it, with inputs of float and of bfloat16");
  app.add_option("--json", options.json, "Write the figures to this file");
  add_model_options(app, options.models);
  for (const char* name : {"--inputs", "--weights", "--cache", "--isa"})
    app.get_option(name)->group("With --engine cpu or --beside");
  app.footer(
      "A pass over n nodes verifies n - 1 draft tokens: what it costs beside a pass over one is what drafts "
      "have to earn.");
}

/// specula's own decoder, in turn with another engine.
class Beside {
 public:
  Beside(const PassesOptions& options, const Engine& engine, const EngineRoom& room, Tokens prompt)
      : options_(options), room_(room), prompt_(prompt) {
    const auto asked = inputs_of(options.models.inputs, isa_of(options.models.isa));
    CpuEngine& own = add("specula", options.models.inputs);
    expect_same_vocabulary(engine, own);
    const bool rounds =
        isa_of(options.models.isa) == specula::Isa::avx512 && specula::cpu::has_bf16_products();
    if (!rounds || !own.keeps_bf16()) return;
    const bool bf16 = asked == specula::cpu::Inputs::bf16;
    add(bf16 ? "float inputs" : "bf16 inputs", bf16 ? "full" : "bf16");
  }

  const std::vector<NamedModel>& models() const { return models_; }

 private:
  CpuEngine& add(const std::string& name, const std::string& inputs) {
    ModelOptions models = options_.models;
    models.engine = "cpu";
    models.target = options_.beside;
    models.drafts.clear();
    models.inputs = inputs;
    auto& own = *engines_.emplace_back(std::make_unique<CpuEngine>(models));
    own.check({});
    own.open({});
    own.prepare(room_);
    models_.push_back(own.measured({}, prompt_).front());
    models_.back().name = name;
    return own;
  }

  void expect_same_vocabulary(const Engine& engine, const CpuEngine& own) const {
    const auto difference =
        vocabulary_difference(engine.pieces(), "the target", own.pieces(), options_.beside);
    if (difference)
      throw UsageError("--beside " + options_.beside + ": not the target's vocabulary: " + *difference);
  }

  const PassesOptions& options_;
  EngineRoom room_;
  Tokens prompt_;
  std::vector<std::unique_ptr<CpuEngine>> engines_;
  std::vector<NamedModel> models_;
};

std::vector<specula::PipelineFactory> factories_of(const PassesOptions& options) {
  std::vector<specula::PipelineFactory> factories{room_of(options.nodes)};
  if (!options.pipelines.empty())
    for (const auto& name : expand_list(options.pipelines))
      factories.push_back(specula::prepare_pipeline(name));
  return factories;
}

Prompt first_prompt(const PassesOptions& options) {
  if (!options.has_prompt) return load_prompts(options.prompts.files.front()).front();
  check_prompt(options.prompt);
  return {options.prompt, Style::raw};
}

void write_figures(PassesOptions& options, const Engine& engine, const std::string& style,
                   std::span<const Passes> all, std::size_t prompt_tokens) {
  options.prompts.style = style;
  auto out = about_prompts(options.prompts, options.prompts.files, 1);
  engine.add_settings(out);
  out["passes"] = passes_json(all);
  if (!options.beside.empty()) {
    out["beside"] = (std::filesystem::path(options.beside) / "").parent_path().filename().string();
    add_arithmetic_json(out, options.models);
  }
  out["prompt_tokens"] = prompt_tokens;
  out["repeat"] = out["turns"] = options.repeat;
  add_program_json(out, "specula passes");
  write_json(options.json, out);
}

int measure(const CLI::App& app, PassesOptions& options) {
  options.has_prompt = app.count("--prompt") > 0;
  if (!options.has_prompt && options.prompts.files.empty())
    options.prompts.files.emplace_back(SPECULA_EXAMPLE_PROMPTS);
  check_options(options.models);
  const auto factories = factories_of(options);
  const auto engine = make_engine(app, options.models, options.beside.empty() ? "" : "--beside");
  engine->check(factories);
  if (!options.beside.empty()) ModelFolders{models_root(""), options.beside, {}}.check();
  if (only_parses()) return 0;
  if (!options.json.empty()) {
    for (const auto& file : options.prompts.files) check_distinct("--json", options.json, "--prompts", file);
    check_writable(options.json);
  }
  engine->open(factories);
  const PromptSetting setting(*engine, options.prompts);
  const std::vector<std::vector<Token>> before{setting.ask(first_prompt(options), 0, false).tokens};
  const Tokens prompt = before.front();
  if (app.count("--threads") == 0) std::cerr << threads_line(options.models.threads);
  const EngineRoom room{factories, before, options.nodes};
  engine->prepare(room);
  auto measured = engine->measured(specula::draft_names(factories), prompt);
  std::optional<Beside> beside;
  if (!options.beside.empty()) {
    const auto own_room = std::span(factories).first(1);
    beside.emplace(options, *engine, EngineRoom{own_room, before, options.nodes}, prompt);
    measured.insert(measured.end(), beside->models().begin(), beside->models().end());
  }
  const auto all = passes_in_turn(measured, prompt, options.nodes, options.repeat);
  std::cout << passes_table(all);
  flush_output();
  if (!options.json.empty())
    write_figures(options, *engine, setting.name(options.prompts), all, prompt.size());
  return 0;
}

}  // namespace

Body add_passes(CLI::App& app) {
  const auto options = std::make_shared<PassesOptions>();
  add_options(app, *options);
  return [&app, options] { return measure(app, *options); };
}

}  // namespace specula_tools
