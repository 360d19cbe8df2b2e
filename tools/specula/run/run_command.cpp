// SPDX-License-Identifier: MIT
// specula run: texts from prompts, by a pipeline of your choice.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "batch.hpp"
#include "command.hpp"
#include "conversation.hpp"
#include "ctrl_c.hpp"
#include "draft_note.hpp"
#include "files.hpp"
#include "head_check.hpp"
#include "json_file.hpp"
#include "json_schema.hpp"
#include "progress_bar.hpp"
#include "race.hpp"
#include "run_options.hpp"
#include "terminal.hpp"
#include "text_table.hpp"
#include "trace.hpp"

namespace specula_tools {
namespace {

/// Of a file with a JSON schema. Throws UsageError.
std::string grammar_of(const std::string& file) {
  try {
    return grammar_of_schema(read_file(file), file);
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

/// How the texts of a run are decoded and shown.
class Run {
 public:
  /// `engine` is open. `factories`: the pipeline, and for a race plain decoding.
  Run(const RunOptions& options, Engine& engine, std::span<const specula::PipelineFactory> factories)
      : options_(options),
        engine_(engine),
        factories_(factories),
        setting_(engine, options.prompts),
        paint_(wants_color(options.color, STDOUT_FILENO)),
        answers_("specula run", options.samples, std::cerr) {
    settings_.max_new_tokens = options.models.max_new_tokens;
    settings_.stop = engine.ends();
    settings_.seed = options.models.seed;
    if (options.logprobs >= 0) settings_.logprobs = {.top = options.logprobs};
    settings_.begin = [this](std::size_t prompt_tokens) { engine_.begin_text(0, prompt_tokens); };
    settings_.read = [this](Tokens prompt) { engine_.check_heads(factories_[0].drafts, prompt, std::cerr); };
    if (isatty(STDERR_FILENO)) settings_.prefill = show_prefill;
  }

  /// Returns the exit status.
  int operator()() {
    ask_prompts();
    prepare();
    if (options_.batch > 0) {
      answer_in_batches();
      return finish();
    }
    pipeline_ = engine_.build(options_.pipeline, options_.models.sampling);
    racer_ = {options_.pipeline, pipeline_.get(), factories_[0].lossy,
              options_.models.sampling.temperature > 0};
    begin_trace();
    bool interrupted = false;
    if (talks_)
      talk();
    else if (options_.race)
      run_race();
    else
      interrupted = !answer_prompts();
    if (trace_) std::cerr << trace_->draw(options_.pipeline, &engine_.models().target()) << '\n';
    if (options_.race || talks_) return 0;
    const int status = finish();
    return interrupted ? 128 + SIGINT : status;
  }

 private:
  void ask_prompts() {
    talks_ = setting_.chats() && !options_.gives_prompts() && !options_.race && isatty(STDIN_FILENO);
    if (talks_ && !(options_.json.empty() && options_.trace.empty()))
      throw UsageError("--json and --trace go with a prompt, not with a conversation");
    if (talks_) return;
    for (Prompt& prompt : read_prompts(options_))
      asked_.push_back(setting_.ask(std::move(prompt), settings_.max_new_tokens, !options_.race));
  }

  /// Checks what can be refused before the weights are read.
  void prepare() {
    MakeTextRule grammar;
    if (!options_.grammar.empty()) grammar = engine_.grammar(read_file(options_.grammar), false);
    if (const auto& file = options_.json_schema; !file.empty())
      grammar = engine_.grammar(grammar_of(file), true);
    std::vector<std::vector<Token>> before;
    for (const AskedPrompt& prompt : asked_) before.emplace_back(prompt.longest);
    room_ = std::min(engine_.longest_prompt(settings_.max_new_tokens), kTalkTokens);
    if (talks_) before.emplace_back(room_);
    if (!options_.json.empty()) {
      for (const auto& file : options_.prompts.files)
        check_distinct("--json", options_.json, "--prompts", file);
      check_writable(options_.json);  // before the run, so that a wrong path does not waste it
    }
    engine_.prepare({factories_, before, settings_.max_new_tokens, std::max(1, options_.batch)});
    if (auto rules = row_rules(options_, engine_.models().target().vocab_size(), std::move(grammar)))
      engine_.set_rules(std::move(*rules));
    if (!talks_)
      for (const auto& text : before)
        if (engine_.tell_drafts(text.size(), settings_.max_new_tokens, std::cerr)) break;
    if (options_.models.threads == 0 && options_.models.engine != "cuda") std::cerr << threads_line(0);
  }

  void begin_trace() {
    if (options_.trace.empty()) return;
    std::size_t answers = 0;
    for (const AskedPrompt& prompt : asked_) answers += 1 + prompt.later.size();
    trace_.emplace(options_.trace, answers, [this](Token token) {
      const std::string bytes = engine_.bytes(token);
      const bool ends = bytes.empty() && std::ranges::count(settings_.stop, token) > 0;
      return ends ? std::string("</s>") : bytes;
    });
    racer_.watch = [this](std::size_t prompt, std::size_t emitted) {
      trace_->add(*pipeline_, prompt, emitted);
    };
  }

  TextStream::BytesOf bytes_of() const {
    return [this](Token token) { return engine_.bytes(token); };
  }

  /// Decodes what follows a prompt, which is the `number`th; prints `echo`, then the text as it comes. A text
  /// that fails is an answer, too.
  Answer answer(const RacePrompt& prompt, std::size_t number, bool keeps_prefix, const std::string& echo) {
    DecodeSettings own = settings_;
    own.sequence = static_cast<std::uint32_t>(number);
    own.keeps_prefix = keeps_prefix;
    own.goes_on_plainly = true;
    const CtrlC ctrl_c;
    own.interrupted = [&] { return ctrl_c.pressed(); };
    if (!own.prefill) {
      std::cout << paint_.dim(echo) << std::flush;
    } else {  // the bar has its own line, so the prompt comes after it
      own.prefill = [&](std::size_t done, std::size_t total) {
        settings_.prefill(done, total);
        if (done == total) std::cout << paint_.dim(echo) << std::flush;
      };
    }
    TokenPrinter printer(bytes_of(), options_.stops, paint_, std::cout);
    Answer out;
    out.asked = prompt.text;
    try {
      out.run = decode_printed(racer_, prompt, number, own, printer);
      std::cerr << paint_.dim(figures(out.run)) << '\n';
    } catch (const std::exception& error) {
      const bool refused = number == 0 && dynamic_cast<const HeadRefused*>(&error);
      if (refused) std::cout << std::endl;
      if (refused || !std::cout) throw;  // so would all others
      printer.finish();
      if (printer.text().empty() && !echo.ends_with('\n')) std::cout << std::endl;
      out.failure = error.what();
      out.run.draft_error = pipeline_->draft_error();
    }
    out.text = printer.text();
    return out;
  }

  std::string figures(const Decoded& run) const {
    const auto tokens = static_cast<double>(run.tokens.size());
    const auto rate = [&](double seconds) { return fixed(seconds > 0 ? tokens / seconds : 0.0, 1); };
    return options_.pipeline + ": " + (run.interrupted ? "interrupted after " : "") +
           std::to_string(run.tokens.size()) + " tokens, " + std::to_string(run.stats.target.calls) +
           " calls of the target, " + rate(run.decode_seconds) + " tokens/s (" +
           rate(run.decode_seconds + run.prefill_seconds) + " with the prompt)";
  }

  std::string heading(std::size_t prompt) const {
    const auto samples = static_cast<std::size_t>(options_.samples);
    std::string text = "=== prompt ";
    text.append(std::to_string(prompt / samples + 1));
    if (samples > 1) text.append(", sample ").append(std::to_string(prompt % samples + 1));
    return text;
  }

  /// Returns false if Ctrl-C ended one, which is the last.
  bool answer_prompts() {
    const std::vector<std::size_t> numbers = first_numbers(asked_);
    for (std::size_t p = 0; p < asked_.size(); ++p) {
      if (asked_.size() > 1) std::cout << (p ? "\n" : "") << paint_.bold(heading(p)) << '\n';
      AskedPrompt& asked = asked_[p];
      std::vector<Answer> turns;
      do {
        const std::size_t turn = turns.size();
        turns.push_back(answer({asked.text, asked.tokens}, numbers[p] + turn, turn > 0, asked.shown()));
        turns.back().prompt = p;
        turns.back().turn = turn;
      } while (turns.back().failure.empty() && !turns.back().run.interrupted && next_turn(asked, turns));
      for (const Answer& turn : turns) answers_.add(turn);
      if (turns.back().run.interrupted) return false;
    }
    return true;
  }

  /// A conversation on the terminal, of at most `room_` tokens up to an answer.
  void talk() {
    std::size_t turn = 0;
    bool told = false;
    DraftNote drafts;
    Chat chat = setting_.chats()->start();
    converse(chat, std::cin, std::cerr, [&](const std::vector<Token>& tokens) -> std::optional<ChatAnswer> {
      if (tokens.size() > room_) return {};
      told = told || engine_.tell_drafts(tokens.size(), settings_.max_new_tokens, std::cerr);
      const bool first = turn == 0;
      const Answer said = answer({"", tokens}, turn++, !first, "");
      if (!said.failure.empty()) throw std::runtime_error(said.failure);
      drafts.add(said.run.draft_error);
      const Tokens kept = answer_of(said.run);
      return ChatAnswer{{kept.begin(), kept.end()}, said.text};
    });
    std::cerr << drafts.line();
  }

  void run_race() {
    std::vector<RacePrompt> prompts;
    for (AskedPrompt& prompt : asked_) prompts.push_back({prompt.text, std::move(prompt.tokens)});
    const auto plain = engine_.build("autoregressive", options_.models.sampling);
    race({"autoregressive", plain.get()}, racer_, prompts, settings_, options_.stops, bytes_of(), paint_,
         size_for_panes(STDOUT_FILENO), options_.runs, std::cout, std::cerr);
  }

  /// The answers to all prompts, written several at once.
  void answer_in_batches() {
    const BatchRun how{options_.pipeline, options_.models.sampling, options_.batch, options_.stops,
                       [this](std::int32_t slot, std::size_t prompt) { engine_.begin_text(slot, prompt); }};
    const auto batch = engine_.batch(how.pipeline, how.params, how.texts);
    DecodeSettings settings = settings_;
    const std::int32_t vocab = engine_.models().target().vocab_size();  // the tokenizer may have more tokens
    std::erase_if(settings.stop, [&](Token token) { return token < 0 || token >= vocab; });
    std::size_t shown = 0;
    answer_batch(*batch, asked_, how, settings, bytes_of(), std::cerr, [&](const Answer& text) {
      std::cout << (shown > 0 ? "\n" : "")
                << paint_.bold(std::string("=== text ").append(std::to_string(shown + 1))) << '\n'
                << paint_.dim(text.asked) << text.text << std::endl;
      ++shown;
      answers_.add(text);
    });
  }

  int finish() {
    answers_.finish();
    if (!options_.json.empty()) {
      auto json = settings_json(options_, engine_);
      json["prompts"] = answers_.json();
      write_json(options_.json, json);
    }
    return answers_.status();
  }

  const RunOptions& options_;
  Engine& engine_;
  std::span<const specula::PipelineFactory> factories_;
  PromptSetting setting_;
  Paint paint_;
  Answers answers_;
  DecodeSettings settings_;
  bool talks_ = false;
  std::size_t room_ = 0;
  std::vector<AskedPrompt> asked_;
  std::unique_ptr<specula::Pipeline> pipeline_;
  Racer racer_;
  std::optional<Trace> trace_;
};

int run(const CLI::App& app, RunOptions& options) {
  options.has_prompt = app.count("--prompt") > 0;
  check_options(options);
  const auto engine = make_engine(app, options.models);
  if (options.pipeline.empty()) options.pipeline = engine->default_pipeline();
  if (options.models.rounds == "device") options.pipeline.insert(0, kOnDevice);
  std::vector<specula::PipelineFactory> factories{prepare_named(options.pipeline)};
  if (options.race) factories.push_back(specula::prepare_pipeline("autoregressive"));
  engine->check(factories);
  if (only_parses()) {
    for (const auto& file : options.prompts.files) load_prompts(file);
    return 0;
  }
  engine->open(factories);
  return Run(options, *engine, factories)();
}

}  // namespace

Body add_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  add_options(app, *options);
  return [&app, options] { return run(app, *options); };
}

}  // namespace specula_tools
