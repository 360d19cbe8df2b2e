// SPDX-License-Identifier: MIT
#include "run_options.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "json_file.hpp"
#include "model_options.hpp"
#include "options.hpp"

namespace specula_tools {
namespace {

/// Two prompts per style.
std::vector<Prompt> demo_prompts() {
  std::vector<Prompt> chosen;
  std::size_t questions = 0, codes = 0;
  for (const Prompt& prompt : load_prompts(SPECULA_EXAMPLE_PROMPTS))
    if ((prompt.kind == Style::question ? questions : codes)++ < 2) chosen.push_back(prompt);
  return chosen;
}

Prompt typed_prompt(const RunOptions& options) {
  std::string text = options.prompt;
  if (!options.has_prompt) {
    if (isatty(STDIN_FILENO)) std::cerr << "The prompt, ended by Ctrl-D:\n";
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  check_prompt(text);
  return {std::move(text), Style::raw};
}

void add_rule_options(CLI::App& app, RunOptions& options) {
  specula::Penalties& penalties = options.penalties;
  app.add_option(
         "--repeat-penalty", penalties.repetition,
         "Divide the logits above 0 of the last tokens' distinct ones by this, multiply the others; 1: off")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  app.add_option("--presence-penalty", penalties.presence,
                 "Lower the logits of the last tokens' distinct ones by this")
      ->check(CLI::Range(-100.0, 100.0))
      ->capture_default_str();
  app.add_option("--frequency-penalty", penalties.frequency, "The same for each time that one occurs")
      ->check(CLI::Range(-100.0, 100.0))
      ->capture_default_str();
  app.add_option("--repeat-last-n", penalties.last,
                 "How many tokens before the next these three look at, the prompt's included; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--logit-bias", options.biases,
                 "TOKEN=BIAS: add this to the logit of a token, by its number; -inf bans it (may be given "
                 "several times)")
      ->allow_extra_args(false);
  app.add_option(
         "--grammar", options.grammar,
         "With --engine llama.cpp: a file with a grammar in llama.cpp's notation (GBNF), to which the "
         "text behind the prompt keeps")
      ->check(CLI::ExistingFile);
  app.add_option("--json-schema", options.json_schema,
                 "Likewise: a file with a JSON schema, of which the text is an instance")
      ->check(CLI::ExistingFile)
      ->excludes("--grammar");
}

/// Of "TOKEN=BIAS".
specula::TokenBias bias_of(const std::string& text, std::int32_t vocab) {
  const std::size_t equals = text.find('=');
  specula::TokenBias out;
  double bias = 0;
  const bool reads = equals != text.npos &&
                     specula::detail::read_number(std::string_view(text).substr(0, equals), out.token) &&
                     out.token >= 0;
  const std::string value = reads ? text.substr(equals + 1) : "";
  if (value == "-inf")
    bias = -std::numeric_limits<double>::infinity();
  else if (!reads || !specula::detail::read_number(value, bias))
    throw UsageError("--logit-bias " + text + ": must be TOKEN=BIAS, a token's number and a number or -inf");
  if (out.token >= vocab)
    throw UsageError("--logit-bias " + text + ": the token must be in [0, " + std::to_string(vocab - 1) +
                     "]");
  out.bias = static_cast<float>(bias);
  return out;
}

void add_output_options(CLI::App& app, RunOptions& options) {
  app.add_flag(
      "--race", options.race,
      "Plain decoding first, then the pipeline, on the same prompts; without any, four of those "
      "that come with the sources. On a terminal of at least 96 columns both are recorded, then replayed "
      "side by side");
  app.add_option("--runs", options.runs, "Of --race: the last line has the median of so many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
      "--trace", options.trace,
      "Folder for trace.html, a page that steps through the rounds: the proposal with the draft's and the "
      "target's probabilities, the accepted path and the next token; and a picture of each round as Graphviz "
      "text and, if `dot` is installed, as .svg. With --race, of the pipeline's rounds. Those of an earlier "
      "run in it are replaced");
  app.add_option("--json", options.json,
                 "Write the texts, their tokens, which of these a draft proposed, why they ended and their "
                 "figures to this file");
  app.add_option("--logprobs", options.logprobs,
                 "Into --json also the logarithm of the target's probability of each token, before "
                 "temperature and filters, and those of the N likeliest tokens at its place")
      ->check(CLI::Range(0, 100))
      ->needs("--json");
  app.add_option("--color", options.color, "Accepted draft tokens in green: auto, always or never")
      ->capture_default_str();
}

}  // namespace

void add_options(CLI::App& app, RunOptions& options) {
  app.add_option("--pipeline", options.pipeline,
                 std::string("See below (default: ") + specula::kDefaultPipeline +
                     "; with --target, --draft or without that model, " + specula::kDefaultDraftPipeline +
                     " with the first --draft; where there is no draft of the target's vocabulary " +
                     specula::kDefaultCopyingPipeline + ")");
  app.add_option("--prompt", options.prompt, "The prompt");
  add_prompt_options(app, options.prompts,
                     "File of prompts: JSON Lines (prompt, question or turns), or plain text (may be given "
                     "several times)");
  app.get_option("--prompts")->excludes("--prompt");
  add_limit_option(app, options.prompts.limit, "Largest number of prompts per file; 0: all");
  app.add_option("-n,--samples", options.samples, "Texts of each prompt, each with draws of its own")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
         "--batch", options.batch,
         "So many texts at once, in merged passes; each is printed when it and those before it have ended")
      ->check(CLI::Range(1, 256));
  add_stop_option(app, options.stops);
  add_rule_options(app, options);
  add_output_options(app, options);
  options.models.threads = 0;
  add_model_options(app, options.models);
  app.footer(
      "Without --prompt and --prompts, the prompt is read from the standard input; on a terminal and with a "
      "chat template, that is a conversation.\n\nPipelines:\n" +
      specula::pipeline_help());
}

void check_options(const RunOptions& options) {
  check_options(options.models);
  check_stops(options.stops);
  for (const std::string& text : options.biases)  // tokens once the vocabulary is known
    bias_of(text, std::numeric_limits<std::int32_t>::max());
  if (options.race && !options.json.empty())
    throw UsageError("--json does not go with --race; specula compare writes figures of several pipelines");
  if (options.runs > 1 && !options.race) throw UsageError("--runs goes with --race");
  if (options.models.rounds == "device" && !options.trace.empty())
    throw UsageError("--trace shows proposals, which stay on the device: --rounds host");
  if (options.samples > 1 && options.race) throw UsageError("--samples does not go with --race");
  if (options.samples > 1 && options.models.sampling.temperature == 0)
    throw UsageError("--samples " + std::to_string(options.samples) +
                     " goes with --temperature above 0: without draws all texts of a prompt are the same");
  if (options.batch == 0) return;
  if (options.race || !options.trace.empty())
    throw UsageError("--batch does not go with --race and --trace, which show one text after the other");
  if (!options.gives_prompts() && isatty(STDIN_FILENO))
    throw UsageError("--batch goes with --prompts or --prompt, not with a conversation");
}

std::vector<Prompt> read_prompts(const RunOptions& options) {
  std::vector<Prompt> found;
  const auto add = [&](const std::vector<Prompt>& more) {
    const std::size_t most = options.prompts.limit ? options.prompts.limit : more.size();
    found.insert(found.end(), more.begin(),
                 more.begin() + static_cast<std::ptrdiff_t>(std::min(most, more.size())));
  };
  for (const std::string& file : options.prompts.files) add(load_prompts(file));
  if (!options.gives_prompts() && options.race) add(demo_prompts());
  if (found.empty()) found.push_back(typed_prompt(options));
  std::vector<Prompt> prompts;
  for (const Prompt& prompt : found)
    prompts.insert(prompts.end(), static_cast<std::size_t>(options.samples), prompt);
  return prompts;
}

std::optional<RowRules> row_rules(const RunOptions& options, std::int32_t vocab, MakeTextRule text) {
  const specula::Penalties& p = options.penalties;
  if (p.off() && options.biases.empty() && !text) return {};
  specula::Bias biases;
  for (const std::string& word : options.biases) biases.tokens.push_back(bias_of(word, vocab));
  return RowRules{p, std::move(biases), std::move(text)};
}

nlohmann::ordered_json settings_json(const RunOptions& options, const Engine& engine) {
  nlohmann::ordered_json out{{"pipeline", options.pipeline}};
  add_decoding_json(out, options.models);
  engine.add_settings(out);
  out["stop"] = options.stops;
  const specula::Penalties& p = options.penalties;
  if (!p.off())
    out["penalties"] = {
        {"repetition", p.repetition}, {"presence", p.presence}, {"frequency", p.frequency}, {"last", p.last}};
  if (!options.biases.empty()) out["logit_bias"] = options.biases;
  if (!options.grammar.empty()) out["grammar"] = leaf(options.grammar);
  if (!options.json_schema.empty()) out["json_schema"] = leaf(options.json_schema);
  return out;
}

}  // namespace specula_tools
