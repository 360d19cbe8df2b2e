// SPDX-License-Identifier: MIT
// specula-train-answers: the target's own text, for drafts to learn from.
// A draft must predict the target's text, not text written by people. So the target answers the
// training questions and continues pieces of the training text, greedily or at a temperature, and the drafts
// are trained on that (sequence-level distillation). It generates with speculation: Max-Gram drafts and the
// target verifies, which is faster and keeps the text's distribution. Prompts come from the training part of
// the corpus only; the held-out part is copied unchanged.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/cpu/compile_decoder.hpp>
#include <specula/specula.hpp>

#include "corpus.hpp"
#include "prompts.hpp"
#include "token_files.hpp"
#include "tokens.hpp"
#include "train_tokenizer.hpp"
#include "vocabulary.hpp"

namespace {

using namespace specula_train;
namespace fs = std::filesystem;

using Weights = std::shared_ptr<const specula::cpu::DecoderWeights<float>>;

struct Settings {
  std::string data, tokens, output;
  std::vector<std::string> styles;  // none: all
  PromptSizes sizes;
  std::size_t limit = 0;
  double minutes = 0;
  int variants = 0, threads = 1;
  std::uint64_t seed = 0;
  specula::SamplingParams params{.temperature = 0};
};

/// For each token, whether a line ends with it.
std::vector<bool> ends_line(const Tokenizer& tokenizer) {
  std::vector<bool> ends;
  for (Token token = 0; token < tokenizer.vocab_size(); ++token)
    ends.push_back(tokenizer.bytes(token).find('\n') != std::string::npos);
  return ends;
}

/// All prompts of a style, each with <s> unless the model's texts begin without, in random order: first each
/// unchanged, then `variants` rounds of questions with other numbers and of text cut at other places.
std::vector<Document> make_prompts(const Style& style, const Tokenizer& tokenizer, const Settings& settings,
                                   std::mt19937_64& random) {
  const auto ends = ends_line(tokenizer);
  std::vector<Document> all;
  for (int round = 0; round <= settings.variants; ++round) {
    std::vector<Document> prompts;
    for (const auto& text : style.train) {
      if (const auto question = question_of(text)) {
        auto prompt = tokenizer.encode(round == 0 ? *question : with_other_numbers(*question, random));
        if (prompt.size() <= settings.sizes.longest + 1) prompts.push_back(std::move(prompt));
        continue;
      }
      const auto tokens = tokenizer.encode(text);
      const std::size_t begin = tokenizer.adds_begin() ? 1 : 0;
      std::vector<bool> starts;
      for (std::size_t i = begin; i < tokens.size(); ++i)
        starts.push_back(i == begin || ends[static_cast<std::size_t>(tokens[i - 1])]);
      for (const auto piece : cut_prompts(starts, settings.sizes, /*begins_anywhere=*/round > 0, random)) {
        const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
        Document prompt(tokens.begin(), first);
        prompt.insert(prompt.end(), first + static_cast<std::ptrdiff_t>(piece.begin),
                      first + static_cast<std::ptrdiff_t>(piece.end));
        prompts.push_back(std::move(prompt));
      }
    }
    for (std::size_t i = prompts.size(); i > 1; --i) std::swap(prompts[i - 1], prompts[random() % i]);
    for (auto& prompt : prompts) all.push_back(std::move(prompt));
    if (settings.limit && all.size() >= settings.limit) break;
  }
  if (settings.limit && all.size() > settings.limit) all.resize(settings.limit);
  return all;
}

/// Shared by the generators of a style: prompts that become documents, the next of them, and the clock.
struct Work {
  const std::string& style;
  std::vector<Document> documents;
  std::vector<bool> written = std::vector<bool>(documents.size());
  std::atomic<std::size_t> next{0};
  std::size_t tokens = 0, done = 0;
  std::mutex guard{};  // of the two above, `written` and the standard error
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

/// The tokens that end documents and texts.
struct Ends {
  Token document = 0;
  std::vector<Token> text = {};  // `document` among them
};

/// One generator: its own KV cache and drafter over shared weights.
void generate(const Weights& weights, const Settings& settings, const Ends& ends,
              std::uint32_t first_sequence, Work& work) {
  const specula::CostAware shape(specula::Chain<>{.length = 10});
  specula::cpu::DecoderOptions options;
  options.capacity = static_cast<std::int32_t>(settings.sizes.longest + settings.sizes.continuation) + 1 +
                     2 * shape.nodes().most;
  options.inputs =
      specula::cpu::bf16_products_pay() ? specula::cpu::Inputs::bf16 : specula::cpu::Inputs::full;
  specula::cpu::Decoder<float> target(weights, options);
  specula::Speculator run{
      specula::TreeVerifier{target, specula::Sampling{}, settings.params},
      specula::MaxGram(specula::Bigram::online(target.vocab_size()), {.min_match = 2, .past_end = true}),
      shape};
  while (settings.minutes <= 0 || work.seconds() <= 60 * settings.minutes) {
    const auto i = work.next++;
    if (i >= work.documents.size()) break;
    Document document = work.documents[i];
    specula::PhiloxRandom rng(settings.seed, first_sequence + static_cast<std::uint32_t>(i));
    const specula::Generated generated = run.generate(
        document,
        {.max_new_tokens = static_cast<std::int32_t>(settings.sizes.continuation), .stop = ends.text}, rng,
        [&](specula::Tokens fresh) { document.insert(document.end(), fresh.begin(), fresh.end()); });
    if (document.back() != ends.document) document.push_back(ends.document);
    const std::lock_guard lock(work.guard);
    work.documents[i] = std::move(document);
    work.written[i] = true;
    work.tokens += static_cast<std::size_t>(generated.tokens);
    if (++work.done % 100 == 0) {
      std::fprintf(stderr, "\r%s: %zu of %zu prompts, %zu new tokens, %.0f tokens/s ", work.style.c_str(),
                   work.done, work.documents.size(), work.tokens,
                   static_cast<double>(work.tokens) / work.seconds());
    }
  }
}

/// Generates the target's continuations of a style's prompts.
void answer(TokenizedStyle& style, std::vector<Document> prompts, const Weights& weights,
            const Settings& settings, const Ends& ends, std::uint32_t first_sequence) {
  std::vector<std::int32_t> given;
  for (const auto& prompt : prompts) given.push_back(static_cast<std::int32_t>(prompt.size()));
  Work work{style.name, std::move(prompts)};
  std::vector<std::future<void>> running;
  for (int i = 0; i < settings.threads; ++i) {
    running.push_back(std::async(std::launch::async, generate, std::cref(weights), std::cref(settings),
                                 std::cref(ends), first_sequence, std::ref(work)));
  }
  for (auto& generator : running) generator.wait();  // before any exception: they share `work`
  for (auto& generator : running) generator.get();
  style.train.clear();
  style.given.clear();
  for (std::size_t i = 0; i < work.documents.size(); ++i) {
    if (!work.written[i]) continue;
    style.train.push_back(std::move(work.documents[i]));
    style.given.push_back(given[i]);
  }
  std::fprintf(stderr, "\n%s: %zu documents, %zu new tokens\n", style.name.c_str(), style.train.size(),
               work.tokens);
}

/// Keeps the requested styles. Throws std::invalid_argument if one is unknown.
void choose_styles(TokenizedCorpus& corpus, const std::vector<std::string>& chosen) {
  const auto named = [](const std::string& name) {
    return [&name](const TokenizedStyle& style) { return style.name == name; };
  };
  for (const auto& name : chosen) {
    if (std::none_of(corpus.styles.begin(), corpus.styles.end(), named(name))) {
      std::string known;
      for (const auto& style : corpus.styles) known += (known.empty() ? "" : ", ") + style.name;
      throw std::invalid_argument("--style " + name + ": no style of this name; there are " + known);
    }
  }
  if (!chosen.empty()) {
    std::erase_if(corpus.styles, [&](const TokenizedStyle& style) {
      return std::find(chosen.begin(), chosen.end(), style.name) == chosen.end();
    });
  }
}

/// Those of the tokens' folder, and those that the target's own files name.
Ends ends_of(const TokenizedCorpus& corpus, const Tokenizer& tokenizer, const fs::path& target) {
  Ends ends{.document = corpus.end, .text = tokenizer.ends()};
  const auto own = specula_tools::has_tokenizer(target) ? Tokenizer(target).ends()
                                                        : specula_tools::read_stop_tokens(target);
  ends.text.insert(ends.text.end(), own.begin(), own.end());
  ends.text.push_back(corpus.end);
  std::erase_if(ends.text, [&](Token token) { return token >= corpus.vocab_size; });  // padding
  return ends;
}

void write_answers(const Settings& settings, const Weights& weights, const fs::path& target) {
  settings.sizes.check();
  const Tokenizer tokenizer{fs::path(settings.tokens)};
  TokenizedCorpus corpus = read_tokens(settings.tokens);
  if (weights->config.vocab_size != corpus.vocab_size) {
    throw std::invalid_argument("the target has a vocabulary of " +
                                std::to_string(weights->config.vocab_size) + ", the tokens of " +
                                std::to_string(corpus.vocab_size));
  }
  if (const auto difference =
          specula_tools::has_tokenizer(target)
              ? specula_tools::vocabulary_difference(tokenizer.pieces(), settings.tokens,
                                                     Tokenizer(target).pieces(), target.string())
              : std::nullopt)
    throw std::invalid_argument("the tokens are not the target's: " + *difference);
  const Ends ends = ends_of(corpus, tokenizer, target);
  choose_styles(corpus, settings.styles);
  const std::vector<Style> styles = read_corpus(settings.data);
  std::mt19937_64 random(1);
  std::uint32_t sequence = 0;
  for (auto& tokenized : corpus.styles) {
    const auto style =
        std::find_if(styles.begin(), styles.end(), [&](const Style& s) { return s.name == tokenized.name; });
    if (style == styles.end())
      throw std::runtime_error(settings.data + ": holds no style '" + tokenized.name + "'");
    auto prompts = make_prompts(*style, tokenizer, settings, random);
    if (prompts.empty()) {
      throw std::runtime_error("style '" + tokenized.name + "': no document is long enough for a prompt of " +
                               std::to_string(settings.sizes.shortest) +
                               " tokens, half a document at most; lower --shortest-prompt");
    }
    const auto count = static_cast<std::uint32_t>(prompts.size());
    answer(tokenized, std::move(prompts), weights, settings, ends, sequence);
    sequence += count;
  }
  write_tokens(corpus, settings.output);
  copy_tokenizer(settings.tokens, settings.output);
}

int run(int argc, char** argv) {
  CLI::App app{"Generates text of a target for the training of its drafts.", "specula-train-answers"};
  Settings settings;
  std::string target_folder;
  app.add_option("--data", settings.data, "Folder written by `specula-train-text corpus`")->required();
  app.add_option("--tokens", settings.tokens, "Folder written by `specula-train-text tokenizer`")->required();
  app.add_option("--target", target_folder, "Folder of the target: config.json and safetensors")->required();
  app.add_option("--output", settings.output, "Folder for the tokens")->required();
  app.add_option("--style", settings.styles, "Only this style; may be repeated");
  app.add_option("--shortest-prompt", settings.sizes.shortest, "Smallest number of tokens of a piece of text")
      ->capture_default_str();
  app.add_option("--longest-prompt", settings.sizes.longest,
                 "Largest number of tokens of a piece of text; longer questions are left out")
      ->capture_default_str();
  app.add_option("--new-tokens", settings.sizes.continuation,
                 "Largest number of tokens that the target generates after a prompt")
      ->capture_default_str();
  app.add_option("--variants", settings.variants,
                 "N times more prompts: questions with other numbers, text cut at other places")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", settings.params.temperature, "0: greedily")->capture_default_str();
  app.add_option("--seed", settings.seed, "Seed of the text above temperature 0")->capture_default_str();
  app.add_option("--limit", settings.limit, "Largest number of prompts per style; 0: all");
  app.add_option("--minutes", settings.minutes, "Largest time per style in minutes; 0: no limit");
  app.add_option("--threads", settings.threads, "Prompts that are answered at once, a thread each")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  write_answers(settings,
                std::make_shared<const specula::cpu::DecoderWeights<float>>(
                    specula::cpu::load_decoder_weights<float>(target_folder)),
                target_folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "specula-train-answers: %s\n", error.what());
    return 1;
  }
}
