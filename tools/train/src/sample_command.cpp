// SPDX-License-Identifier: MIT
// `specula-train sample`: the target's own text, for its drafts to learn from.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <specula/files/json_fields.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "chat_frame.hpp"
#include "commands.hpp"
#include "files.hpp"
#include "machine.hpp"
#include "safetensors.hpp"
#include "sampler.hpp"
#include "tokens.hpp"
#include "training_loop.hpp"

namespace specula_train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kAsked = "asked";  // the style of texts in which the model asks itself

struct SampleOptions {
  fs::path target, prompts, output;
  std::string precision = "auto";
  SamplerOptions sampler;
  double minutes = 0, asks = 0.5, save_minutes = 5;
  std::int64_t tokens = 0, turns = 1;
  std::size_t heldout_every = 50;
  bool resume = false;
};

/// A style of prompts, and how far its texts are.
struct Prompts {
  std::vector<Document> begins;  // empty: the model asks itself
  double share = 0;
  std::size_t next = 0;  // of the prompts, and the number of texts begun
};

/// The texts so far, as the folder of tokens that they are written to, and what a later run needs to go on.
class Sampled {
 public:
  Sampled(const SampleOptions& options, const TokenizedCorpus& prompts, const ChatFrame& frame)
      : options_(options), frame_(frame) {
    const double asks = frame.before_question.empty() ? 0 : options.asks;
    if (asks > 0) add({.name = kAsked, .train = {}, .heldout = {}, .info = kAskedInfo}, {}, asks);
    const double left = 1 - asks;
    for (const auto& style : prompts.styles)
      if (left > 0)
        add({.name = style.name, .train = {}, .heldout = {}, .info = style.info}, style.train,
            left / static_cast<double>(prompts.styles.size()));
    corpus_.vocab_size = prompts.vocab_size;
    corpus_.vocabulary = prompts.vocabulary;
    corpus_.begin = prompts.begin;
    corpus_.end = prompts.end;
    if (prompts_.empty())
      throw std::invalid_argument(options.prompts.string() +
                                  ": holds no prompts, and its chat.json no chat template");
    if (options.resume && fs::exists(state_file())) restore();
  }

  /// The next text of the style that is furthest behind its share.
  std::optional<TextPlan> next() {
    Prompts* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      auto& style = prompts_[i];
      if (!style.begins.empty() && style.next >= style.begins.size()) continue;
      if (best == nullptr ||
          static_cast<double>(style.next) * best->share < static_cast<double>(best->next) * style.share)
        best = &style, at = i;
    }
    if (best == nullptr) return {};
    TextPlan plan{.number = number_++, .begin = {}};
    styles_of_.push_back(at);
    if (best->begins.empty()) {
      plan.begin = frame_.before_question;
      plan.asks = true;
      plan.then = {frame_.before_answer};
      for (std::int64_t turn = 1; turn < options_.turns; ++turn) {
        plan.then.push_back(frame_.before_next_question);
        plan.then.push_back(frame_.before_answer);
      }
    } else {
      plan.begin = best->begins[best->next];
    }
    ++best->next;
    return plan;
  }

  void add_text(const TextPlan& plan, Document text) {
    auto& style = corpus_.styles[styles_of_[plan.number - first_number_]];
    tokens_ += text.size() - plan.begin.size();
    ++texts_;
    // The tenth is the first one, so that few texts have some held out, too.
    const auto of = style.train.size() + style.heldout.size();
    if (of % options_.heldout_every == std::min<std::size_t>(9, options_.heldout_every - 1)) {
      style.heldout.push_back(std::move(text));
    } else {
      style.train.push_back(std::move(text));
      style.given.push_back(static_cast<std::int32_t>(plan.begin.size()));
    }
  }

  std::size_t texts() const { return texts_; }
  /// That the model wrote, with the words of the template between turns.
  std::size_t tokens() const { return tokens_; }

  /// A style without texts is left out.
  void save() const {
    auto written = corpus_;
    std::erase_if(written.styles, [](const TokenizedStyle& style) { return style.train.empty(); });
    write_tokens(written, options_.output);
    copy_tokenizer(options_.prompts, options_.output);
    nlohmann::ordered_json state{{"number", number_},
                                 {"texts", texts_},
                                 {"tokens", tokens_},
                                 {"begun", nlohmann::ordered_json::object()}};
    for (std::size_t i = 0; i < prompts_.size(); ++i)
      state["begun"][corpus_.styles[i].name] = prompts_[i].next;
    specula_tools::write_file(state_file(), state.dump(2) + "\n");
  }

 private:
  static inline const StyleInfo kAskedInfo{
      .description =
          "questions that the target asks itself, given its chat template's beginning alone, and its answers",
      .licence = {}};

  fs::path state_file() const { return options_.output / "sampled.json"; }

  void add(TokenizedStyle style, std::vector<Document> begins, double share) {
    corpus_.styles.push_back(std::move(style));
    prompts_.push_back({.begins = std::move(begins), .share = share});
  }

  void restore() {
    const auto json =
        specula::files::parse_json(specula_tools::read_file(state_file()), state_file().string());
    const specula::files::JsonFields state(json, state_file().string());
    number_ = first_number_ = static_cast<std::uint32_t>(state.integer("number"));
    texts_ = static_cast<std::size_t>(state.integer("texts"));
    tokens_ = static_cast<std::size_t>(state.integer("tokens"));
    for (auto& read : read_tokens(options_.output).styles)
      for (std::size_t i = 0; i < prompts_.size(); ++i)
        if (corpus_.styles[i].name == read.name) corpus_.styles[i] = std::move(read);
    for (std::size_t i = 0; i < prompts_.size(); ++i)
      prompts_[i].next = json.at("begun").value(corpus_.styles[i].name, std::size_t{0});
  }

  const SampleOptions& options_;
  const ChatFrame& frame_;
  TokenizedCorpus corpus_;
  std::vector<Prompts> prompts_;        // of each style of corpus_
  std::vector<std::size_t> styles_of_;  // of the texts that this run began
  std::uint32_t number_ = 0, first_number_ = 0;
  std::size_t texts_ = 0, tokens_ = 0;
};

void sample(SampleOptions options) {
  const auto device = best_device();
  const auto dtype = choose_dtype(options.precision, device);
  const auto prompts = read_tokens(options.prompts);
  const auto config = read_config(options.target);
  if (config.vocab_size < prompts.vocab_size)
    throw std::invalid_argument(options.prompts.string() + ": tokens of a vocabulary of " +
                                std::to_string(prompts.vocab_size) + ", the target's is " +
                                std::to_string(config.vocab_size));
  const auto frame = read_chat_frame(options.prompts, prompts.vocab_size);
  options.sampler.ends = frame.ends;
  options.sampler.longest = std::min({options.sampler.longest, config.max_positions, kMaxPositions});
  Sampled sampled(options, prompts, frame);
  Llama model(config);
  load_weights(options.target, *model);
  model->to(device);
  model->freeze(dtype);
  std::printf("%s; keys and values of %lld texts: %.2f GB\n", describe_machine(device, dtype).c_str(),
              static_cast<long long>(options.sampler.texts),
              static_cast<double>(2 * options.sampler.texts * options.sampler.longest * config.layers *
                                  config.kv_heads * config.head_dim() * (dtype == torch::kFloat32 ? 4 : 2)) /
                  1e9);
  std::fflush(stdout);
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { request_stop(); });

  const auto start = Clock::now();
  auto reported = start, saved = start;
  const auto before = sampled.tokens();
  std::int64_t done = 0;  // passes
  const auto seconds = [&](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const auto report = [&](std::int64_t passes) {
    std::printf("%zu texts, %zu new tokens; %.0f new tokens and %.1f passes a second\n", sampled.texts(),
                sampled.tokens(), static_cast<double>(sampled.tokens() - before) / seconds(start),
                static_cast<double>(passes) / seconds(start));
    std::fflush(stdout);
    reported = Clock::now();
  };
  sample_texts(
      model, dtype, options.sampler, [&] { return sampled.next(); },
      [&](const TextPlan& plan, Document text) { sampled.add_text(plan, std::move(text)); },
      [&](std::int64_t passes) {
        done = passes;
        if (seconds(reported) > 15) report(passes);
        if (seconds(saved) > 60 * options.save_minutes) {
          sampled.save();
          saved = Clock::now();
        }
        return stop_was_requested() || (options.minutes > 0 && seconds(start) >= 60 * options.minutes) ||
               (options.tokens > 0 && static_cast<std::int64_t>(sampled.tokens()) >= options.tokens);
      });
  sampled.save();
  report(done);
}

}  // namespace

void add_sample_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "sample",
      "Let a target write, many texts at once: what follows its prompts, and questions that it asks itself");
  const auto options = std::make_shared<SampleOptions>();
  auto& sampler = options->sampler;
  command->add_option("--target", options->target, "The target's Hugging Face directory")->required();
  command->add_option("--prompts", options->prompts, "Folder written by `specula-train-text prompts`")
      ->required();
  command->add_option("--output", options->output, "Folder for the texts, as tokens")->required();
  command
      ->add_option("--ask-itself", options->asks,
                   "Share of the texts that begin with the chat template's beginning alone")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--turns", options->turns, "Questions that it asks itself in one of these texts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--temperatures", sampler.temperatures, "Of the texts, in turn; 0: greedily")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Ends when it has written so many; 0: no limit");
  command->add_option("--minutes", options->minutes, "Ends after this time; 0: no limit");
  command->add_option("--texts", sampler.texts, "Texts at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--longest", sampler.longest, "Tokens of a text with its prompt, at most")
      ->capture_default_str();
  command->add_option("--new-tokens", sampler.part, "Tokens of an answer, at most")->capture_default_str();
  command->add_option("--heldout-every", options->heldout_every, "Every n-th text of a style is held out")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", sampler.seed, "Of the draws")->capture_default_str();
  command->add_option("--precision", options->precision, "auto, f32 or bf16")->capture_default_str();
  command->add_option("--save-minutes", options->save_minutes, "Time between writes of the folder")
      ->capture_default_str();
  command->add_flag("--resume", options->resume, "Go on from the texts in the output folder, if any");
  command->callback([options] { sample(*options); });
}

}  // namespace specula_train
