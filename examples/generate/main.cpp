// specula-generate: text from a prompt, by a pipeline of your choice.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <optional>

#include "model_pack.hpp"
#include "options.hpp"
#include "prompts.hpp"
#include "race.hpp"
#include "terminal.hpp"
#include "text_table.hpp"
#include "tokenizer.hpp"
#include "trace.hpp"

namespace {

using namespace specula_examples;

struct Options {
  CommonOptions common;
  std::string pipeline = "cost-aware:chain";
  std::string prompt, prompts, style = "auto", color = "auto", trace;
  std::size_t limit = 0;
  bool race = false, has_prompt = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--pipeline", options.pipeline, "See below")->capture_default_str();
  auto* prompt = app.add_option("--prompt", options.prompt, "The prompt");
  app.add_option("--prompts", options.prompts,
                 "File of prompts: JSON Lines (prompt, question or turns), or plain text")
      ->excludes(prompt);
  app.add_option("--limit", options.limit, "Prompts of the file, at most; 0: all")->capture_default_str();
  app.add_option("--style", options.style, "How prompts are put: auto, question, code or raw")
      ->capture_default_str();
  app.add_flag("--race", options.race,
               "Plain decoding first, then the pipeline, on the same prompts; without any, four of those "
               "that come with the sources");
  app.add_option(
      "--trace", options.trace,
      "Folder for a picture of each round: the proposal, the path that was accepted and the next token, as "
      "Graphviz text and, if `dot` is installed, as .svg; with --race, of the pipeline's rounds");
  app.add_option("--color", options.color, "Accepted guesses in green: auto, always or never")
      ->capture_default_str();
  add_common_options(app, options.common);
  app.footer("Without --prompt and --prompts, the prompt is read from the standard input.\n\nPipelines:\n" +
             describe_pipelines());
}

/// Two prompts of each style.
std::vector<Prompt> demo_prompts() {
  std::vector<Prompt> chosen;
  std::size_t questions = 0, codes = 0;
  for (const Prompt& prompt : load_prompts(SPECULA_EXAMPLE_PROMPTS))
    if ((prompt.kind == Style::question ? questions : codes)++ < 2) chosen.push_back(prompt);
  return chosen;
}

std::vector<Prompt> read_prompts(const Options& options) {
  std::vector<Prompt> prompts;
  if (!options.prompts.empty()) {
    prompts = load_prompts(options.prompts);
  } else if (options.has_prompt) {
    prompts = {{options.prompt, Style::raw}};
  } else if (options.race) {
    prompts = demo_prompts();
  } else {
    if (isatty(STDIN_FILENO)) std::cerr << "The prompt, ended by Ctrl-D:\n";
    prompts = {{std::string(std::istreambuf_iterator<char>(std::cin), {}), Style::raw}};
    if (prompts[0].text.empty())
      throw UsageError("no prompt: give --prompt, --prompts or one on the standard input");
  }
  if (options.limit && prompts.size() > options.limit) prompts.resize(options.limit);
  return prompts;
}

void generate(const Racer& racer, std::span<const RacePrompt> prompts, const DecodeSettings& settings,
              const Tokenizer& tokenizer, const Paint& paint) {
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    if (prompts.size() > 1)
      std::cout << (p ? "\n" : "") << paint.bold(std::string("=== prompt ").append(std::to_string(p + 1)))
                << '\n';
    std::cout << paint.dim(prompts[p].text) << std::flush;
    DecodeSettings own = settings;
    own.sequence = static_cast<std::uint32_t>(p);
    TokenPrinter printer(tokenizer, paint, std::cout);
    const Decoded run =
        decode(*racer.pipeline, prompts[p].tokens, own, [&](Tokens fresh, std::size_t guesses) {
          printer(fresh, guesses);
          if (racer.watch) racer.watch(p);
        });
    printer.finish();
    const auto tokens = static_cast<double>(run.tokens.size());
    std::cerr << paint.dim(racer.name + ": " + std::to_string(run.tokens.size()) + " tokens, " +
                           std::to_string(run.stats.target.calls) + " calls of the target, " +
                           fixed(run.decode_seconds > 0 ? tokens / run.decode_seconds : 0.0, 1) +
                           " tokens/s (" +
                           fixed(tokens / std::max(1e-9, run.decode_seconds + run.prefill_seconds), 1) +
                           " with the prompt)")
              << '\n';
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Generates text by speculative decoding.", "specula-generate"};
  Options options;
  add_options(app, options);
  if (parse_command_line(app, argc, argv)) return 0;
  options.has_prompt = app.count("--prompt") > 0;
  check_options(options.common);
  const Style style = parse_style(options.style);
  const Paint paint(wants_color(options.color, STDOUT_FILENO));

  std::vector<Recipe> recipes{prepare_pipeline(options.pipeline)};
  if (options.race) recipes.push_back(prepare_pipeline("autoregressive"));
  const ModelFolders folders{models_root(options.common.models), options.common.target, options.common.draft};
  folders.check();
  for (const auto& draft : recipes[0].drafts) folders.draft_folder(draft);

  const Tokenizer tokenizer(folders.target_folder() / "tokenizer.model");
  std::vector<RacePrompt> prompts;
  std::size_t longest = 0;
  for (const Prompt& prompt : read_prompts(options)) {
    const std::string text = prompt.put(style);
    prompts.push_back({text, tokenizer.encode(text)});
    longest = std::max(longest, prompts.back().tokens.size());
  }

  ModelPack models(folders, sizes_for(recipes, longest, options.common.max_new_tokens, options.common.threads,
                                      inputs_of(options.common.inputs)));
  const auto pipeline = recipes[0].build(models, options.common.sampling);
  Racer guessing{options.pipeline, pipeline.get(), recipes[0].lossy, options.common.sampling.temperature > 0};
  std::optional<Trace> trace;
  if (!options.trace.empty()) {
    trace.emplace(options.trace, prompts.size(), [&](Token token) {
      return token == tokenizer.end() ? std::string("</s>") : tokenizer.bytes(token);
    });
    guessing.watch = [&](std::size_t prompt) { trace->add(*pipeline, prompt); };
  }
  const DecodeSettings settings{.max_new_tokens = options.common.max_new_tokens,
                                .stop = {tokenizer.end()},
                                .seed = options.common.seed};
  if (!options.race) {
    generate(guessing, prompts, settings, tokenizer, paint);
  } else {
    const auto plain = recipes[1].build(models, options.common.sampling);
    race({"autoregressive", plain.get()}, guessing, prompts, settings, tokenizer, paint, std::cout);
  }
  if (trace) std::cerr << trace->draw() << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-generate", [&] { return run(argc, argv); });
}
