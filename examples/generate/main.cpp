// SPDX-License-Identifier: MIT
// specula-generate: text from a prompt, by a pipeline of your choice.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <specula/cpu/read_model_config.hpp>

#include "answers.hpp"
#include "asked_prompt.hpp"
#include "batch.hpp"
#include "chat.hpp"
#include "chat_options.hpp"
#include "conversation.hpp"
#include "ctrl_c.hpp"
#include "cuda_models.hpp"
#include "draft_note.hpp"
#include "json_file.hpp"
#include "model_configs.hpp"
#include "model_pack.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
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
  ChatOptions chat;
  std::string pipeline;  // empty: default_pipeline()
  std::string prompt, prompts, style = "auto", color = "auto", trace, json, device = "cpu";
  std::vector<std::string> stops;
  std::size_t limit = 0;
  std::int32_t batch = 0;  // texts at once; 0: one after the other, as they come
  bool race = false, has_prompt = false;
  std::int32_t runs = 1;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--pipeline", options.pipeline,
                 std::string("See below (default: ") + specula::kDefaultPipeline +
                     "; with --target or --draft, or without that "
                     "model, " +
                     specula::kDefaultDraftPipeline + "; with a target of another vocabulary " +
                     specula::kDefaultCopyingPipeline + ")");
  auto* prompt = app.add_option("--prompt", options.prompt, "The prompt");
  app.add_option("--prompts", options.prompts,
                 "File of prompts: JSON Lines (prompt, question or turns), or plain text")
      ->excludes(prompt);
  add_limit_option(app, options.limit, "Largest number of prompts of the file; 0: all");
  app.add_option(
         "--batch", options.batch,
         "So many texts at once, in merged passes; each is printed when it and those before it have ended")
      ->check(CLI::Range(1, 256));
  add_stop_option(app, options.stops);
  add_style_option(app, options.style);
  add_chat_options(app, options.chat);
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
  app.add_option("--json", options.json, "Write the texts, why they ended and their figures to this file");
  app.add_option("--color", options.color, "Accepted draft tokens in green: auto, always or never")
      ->capture_default_str();
  add_common_options(app, options.common);
  app.add_option("--device", options.device,
                 "cpu or cuda: where the models run; on a GPU one text at a time, and heads and drafts that "
                 "read their target's state do not yet")
      ->capture_default_str();
  app.footer(
      "Without --prompt and --prompts, the prompt is read from the standard input; on a terminal and with a "
      "chat "
      "template, that is a conversation.\n\nPipelines:\n" +
      specula::pipeline_help());
}

/// With the draft that comes with the sources where it is of the target's vocabulary.
std::string default_pipeline(const ModelFolders& folders) {
  std::error_code ignored;
  const auto draft = folders.root / specula::kDefaultDraft;
  const bool is_there = std::filesystem::exists(draft / "config.json", ignored);
  if (folders.target.empty() || !folders.draft.empty())
    return is_there && folders.draft.empty() ? specula::kDefaultPipeline : specula::kDefaultDraftPipeline;
  const bool fits = is_there && specula::cpu::read_model_config(draft).vocab_size ==
                                    specula::cpu::read_model_config(folders.target).vocab_size;
  return fits ? specula::kDefaultDraftPipeline : specula::kDefaultCopyingPipeline;
}

/// Two prompts per style.
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
  }
  if (options.prompts.empty() && !options.race) check_prompt(prompts[0].text);
  if (options.limit && prompts.size() > options.limit) prompts.resize(options.limit);
  return prompts;
}

/// How the answers of a program are decoded and shown.
struct Show {
  const Racer& racer;
  const DecodeSettings& settings;
  const std::vector<std::string>& stops;
  const Tokenizer& tokenizer;
  const Paint& paint;
};

/// Decodes what follows a prompt, which is the `number`th; prints `echo`, then the text as it comes. A text
/// that fails is an answer, too.
Answer show_text(const Show& show, const RacePrompt& prompt, std::size_t number, bool keeps_prefix,
                 const std::string& echo) {
  DecodeSettings own = show.settings;
  own.sequence = static_cast<std::uint32_t>(number);
  own.keeps_prefix = keeps_prefix;
  own.goes_on_plainly = true;
  const CtrlC ctrl_c;
  own.interrupted = [&] { return ctrl_c.pressed(); };
  if (!own.prefill) {
    std::cout << show.paint.dim(echo) << std::flush;
  } else {  // the bar has its own line, so the prompt comes after it
    own.prefill = [&](std::size_t done, std::size_t total) {
      show.settings.prefill(done, total);
      if (done == total) std::cout << show.paint.dim(echo) << std::flush;
    };
  }
  TokenPrinter printer(show.tokenizer, show.stops, show.paint, std::cout);
  const std::string& name = show.racer.name;
  Answer answer;
  answer.asked = prompt.text;
  try {
    answer.run = decode_printed(show.racer, prompt, number, own, printer);
    const auto tokens = static_cast<double>(answer.run.tokens.size());
    std::cerr << show.paint.dim(
                     name + ": " + (answer.run.interrupted ? "interrupted after " : "") +
                     std::to_string(answer.run.tokens.size()) + " tokens, " +
                     std::to_string(answer.run.stats.target.calls) + " calls of the target, " +
                     fixed(answer.run.decode_seconds > 0 ? tokens / answer.run.decode_seconds : 0.0, 1) +
                     " tokens/s (" +
                     fixed(tokens / std::max(1e-9, answer.run.decode_seconds + answer.run.prefill_seconds),
                           1) +
                     " with the prompt)")
              << '\n';
  } catch (const std::exception& error) {
    if (!std::cout) throw;  // so would all others
    printer.finish();
    if (printer.text().empty() && !echo.ends_with('\n')) std::cout << std::endl;
    answer.failure = error.what();
    answer.run.draft_error = show.racer.pipeline->draft_error();
  }
  answer.text = printer.text();
  return answer;
}

/// Shows the answers to all prompts. Returns false if Ctrl-C ended one, which is the last.
bool generate(const Show& show, std::span<AskedPrompt> prompts, Answers& all) {
  const std::vector<std::size_t> numbers = first_numbers(prompts);
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    if (prompts.size() > 1)
      std::cout << (p ? "\n" : "")
                << show.paint.bold(std::string("=== prompt ").append(std::to_string(p + 1))) << '\n';
    AskedPrompt& asked = prompts[p];
    std::vector<Answer> answers;
    do {
      const std::size_t turn = answers.size();
      answers.push_back(
          show_text(show, {asked.text, asked.tokens}, numbers[p] + turn, turn > 0, asked.shown()));
      answers.back().prompt = p, answers.back().turn = turn;
    } while (answers.back().failure.empty() && !answers.back().run.interrupted && next_turn(asked, answers));
    for (const Answer& answer : answers) all.add(answer);
    if (answers.back().run.interrupted) return false;
  }
  return true;
}

/// A conversation on the terminal, of at most `room` tokens up to an answer. `tell(tokens)` is called before
/// each answer.
void talk(const Show& show, Chat chat, std::size_t room, const std::function<void(std::size_t)>& tell) {
  std::size_t turn = 0;
  DraftNote drafts;
  converse(chat, std::cin, std::cerr, [&](const std::vector<Token>& tokens) -> std::optional<ChatAnswer> {
    if (tokens.size() > room) return {};
    tell(tokens.size());
    const bool first = turn == 0;
    const Answer answer = show_text(show, {"", tokens}, turn++, !first, "");
    if (!answer.failure.empty()) throw std::runtime_error(answer.failure);
    drafts.add(answer.run.draft_error);
    const Tokens said = answer_of(answer.run);
    return ChatAnswer{{said.begin(), said.end()}, answer.text};
  });
  std::cerr << drafts.line();
}

nlohmann::ordered_json with_settings(const Options& options, nlohmann::ordered_json prompts) {
  nlohmann::ordered_json out{{"pipeline", options.pipeline}, {"prompts", std::move(prompts)}};
  add_decoding_json(out, options.common);
  out["device"] = options.device;
  out["threads"] = thread_count(options.common.threads);
  out["stop"] = options.stops;
  return out;
}

/// Shows the answers to all prompts, written several at once.
void answer_in_batches(ModelPack& models, const Options& options, std::span<AskedPrompt> prompts,
                       const Tokenizer& tokenizer, const Paint& paint, Answers& all) {
  const BatchRun how{options.pipeline, options.common.sampling, options.batch, options.stops};
  DecodeSettings settings{
      .max_new_tokens = options.common.max_new_tokens, .stop = tokenizer.ends(), .seed = options.common.seed};
  const std::int32_t vocab = models.target().vocab_size();  // the tokenizer may have more tokens
  std::erase_if(settings.stop, [&](Token token) { return token < 0 || token >= vocab; });
  const auto batch = make_text_batch(models, how.pipeline, how.params, how.texts);
  const auto bytes_of = [&](Token token) { return tokenizer.bytes(token); };
  std::size_t shown = 0;
  answer_batch(*batch, prompts, how, settings, bytes_of, std::cerr, [&](const Answer& answer) {
    std::cout << (shown > 0 ? "\n" : "")
              << paint.bold(std::string("=== text ").append(std::to_string(shown + 1))) << '\n'
              << paint.dim(answer.asked) << answer.text << std::endl;
    ++shown;
    all.add(answer);
  });
}

int run(int argc, char** argv) {
  CLI::App app{"Generates text by speculative decoding.", "specula-generate"};
  Options options;
  options.common.threads = 0;
  add_options(app, options);
  if (parse_command_line(app, argc, argv)) return 0;
  options.has_prompt = app.count("--prompt") > 0;
  check_options(options.common);
  check_stops(options.stops);
  if (options.race && !options.json.empty())
    throw UsageError("--json does not go with --race; specula-compare writes figures of several pipelines");
  if (options.runs > 1 && !options.race) throw UsageError("--runs goes with --race");
  if (options.batch > 0 && (options.race || !options.trace.empty()))
    throw UsageError("--batch does not go with --race and --trace, which show one text after the other");
  if (options.batch > 0 && !options.has_prompt && options.prompts.empty() && isatty(STDIN_FILENO))
    throw UsageError("--batch goes with --prompts or --prompt, not with a conversation");
  if (options.batch > 0 && options.device != "cpu") throw UsageError("--batch is for --device cpu");
  const Style style = parse_style(options.style);
  const Paint paint(wants_color(options.color, STDOUT_FILENO));

  const ModelFolders folders{models_root(options.common.models), options.common.target, options.common.draft};
  folders.check();
  if (options.pipeline.empty()) options.pipeline = default_pipeline(folders);
  std::vector<specula::PipelineFactory> factories{specula::prepare_pipeline(options.pipeline)};
  if (options.race) factories.push_back(specula::prepare_pipeline("autoregressive"));
  const auto drafts = specula::draft_names(factories);
  if (only_parses()) {
    for (const std::string& name : drafts) folders.draft_folder(name);
    if (!options.prompts.empty()) read_prompts(options);
    return 0;
  }
  check_device(options.device, options.common);
  const ModelConfigs configs(folders, drafts);

  const Tokenizer tokenizer(folders.target_folder());
  const auto chats = chosen_chats(options.chat, options.style, folders.target_folder(), tokenizer);
  const bool talks =
      chats && !options.has_prompt && options.prompts.empty() && !options.race && isatty(STDIN_FILENO);
  if (talks && !(options.json.empty() && options.trace.empty()))
    throw UsageError("--json and --trace go with a prompt, not with a conversation");
  std::vector<AskedPrompt> asked;
  if (!talks)
    for (Prompt& prompt : read_prompts(options))
      asked.push_back(asked_prompt(
          std::move(prompt), chats ? &*chats : nullptr, style,
          [&](const std::string& text) { return tokenizer.encode(text); }, options.common.max_new_tokens,
          !options.race));
  std::vector<std::vector<Token>> tokens;  // as many as may precede an answer
  for (const AskedPrompt& prompt : asked) tokens.emplace_back(prompt.longest);
  if (talks)
    tokens.emplace_back(std::min(configs.longest_prompt(options.common.max_new_tokens), kTalkTokens));
  if (!options.json.empty()) {
    check_distinct("--json", options.json, "--prompts", options.prompts);
    check_writable(options.json);  // before the run, so that a wrong path does not waste it
  }
  ModelSizes sizes = checked_sizes(configs, factories, tokens, tokenizer, options.common);
  const bool on_cpu = options.device == "cpu";
  if (on_cpu) configs.check_memory(sizes.capacity, sizes.cache);
  if (!talks)
    for (const auto& prompt : tokens)
      if (configs.tell_drafts(prompt.size(), options.common.max_new_tokens, std::cerr)) break;
  if (on_cpu && options.common.threads == 0) std::cerr << threads_line(0);
  sizes.slots = std::max(1, options.batch);
  const auto gpu = on_cpu ? nullptr : cuda_models(folders, sizes, std::cerr);
  ModelPack pack(folders, std::move(sizes));
  specula::PipelineModels& models = on_cpu ? pack : *gpu;
  Answers all("specula-generate", std::cerr);
  const auto finished = [&] {
    all.finish();
    if (!options.json.empty()) write_json(options.json, with_settings(options, all.json()));
    return all.status();
  };
  if (options.batch > 0) {
    answer_in_batches(pack, options, asked, tokenizer, paint, all);
    return finished();
  }
  const auto pipeline = factories[0].build(models, options.common.sampling);
  Racer speculating{options.pipeline, pipeline.get(), factories[0].lossy,
                    options.common.sampling.temperature > 0};
  std::optional<Trace> trace;
  if (!options.trace.empty()) {
    std::size_t answers = 0;
    for (const AskedPrompt& prompt : asked) answers += 1 + prompt.later.size();
    trace.emplace(options.trace, answers, [&](Token token) {
      return token == tokenizer.end() ? std::string("</s>") : tokenizer.bytes(token);
    });
    speculating.watch = [&](std::size_t prompt, std::size_t emitted) {
      trace->add(*pipeline, prompt, emitted);
    };
  }
  DecodeSettings settings{
      .max_new_tokens = options.common.max_new_tokens, .stop = tokenizer.ends(), .seed = options.common.seed};
  if (isatty(STDERR_FILENO)) settings.prefill = show_prefill;
  bool interrupted = false;
  const Show show{speculating, settings, options.stops, tokenizer, paint};
  if (talks) {
    bool told = false;
    talk(show, chats->start(), tokens.front().size(), [&](std::size_t length) {
      told = told || configs.tell_drafts(length, options.common.max_new_tokens, std::cerr);
    });
  } else if (!options.race) {
    interrupted = !generate(show, asked, all);
  } else {
    std::vector<RacePrompt> prompts;
    for (AskedPrompt& prompt : asked) prompts.push_back({prompt.text, std::move(prompt.tokens)});
    const auto plain = factories[1].build(models, options.common.sampling);
    race({"autoregressive", plain.get()}, speculating, prompts, settings, options.stops, tokenizer, paint,
         size_for_panes(STDOUT_FILENO), options.runs, std::cout, std::cerr);
  }
  if (trace) std::cerr << trace->draw(options.pipeline, &models.target()) << '\n';
  if (options.race || talks) return 0;
  const int status = finished();
  return interrupted ? 128 + SIGINT : status;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-generate", [&] { return run(argc, argv); });
}
