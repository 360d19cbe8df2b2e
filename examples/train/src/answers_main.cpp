// specula-train-answers: the target's own text, for drafts to learn from.
//
// A draft is asked to guess what the target writes, not what people wrote. So the target answers the training
// questions and continues pieces of the training sources, greedily or at a temperature, and the drafts are
// trained on that (sequence-level distillation). It writes with speculation: what Max-Gram copies from the
// text so far is judged by the target, which leaves the text as it is and makes it sooner. Prompts come from
// the training part of the corpus only; what is held out is copied unchanged.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/eigen/llama.hpp>
#include <specula/specula.hpp>

#include "corpus.hpp"
#include "token_store.hpp"
#include "tokenizer.hpp"

namespace {

using namespace specula_train;
namespace fs = std::filesystem;

constexpr std::int32_t kLongestPrompt = 320, kNewTokens = 160;

/// What of a document is given: the question, or about 100 characters to 600 from the start of a line.
std::vector<std::string> prompts_of(const std::string& text, std::mt19937_64& random) {
  constexpr std::string_view kAnswer = "\nAnswer:";
  if (const auto at = text.find(kAnswer); at != text.npos && text.starts_with("Question:"))
    return {text.substr(0, at + kAnswer.size())};
  std::vector<std::string> pieces;
  for (std::size_t from = 0; from + 700 < text.size();) {
    const auto end = text.find('\n', from + 100 + random() % 500);
    if (end == text.npos) break;
    pieces.push_back(text.substr(from, end + 1 - from));
    const auto next = text.find('\n', from + 900);  // about what a prompt and its continuation take
    if (next == text.npos) break;
    from = next + 1;
  }
  return pieces;
}

/// The prompt with another digit for every digit: a question of the same kind, which need not make sense. So
/// a draft sees more of the target's text than there are questions.
std::string with_other_numbers(std::string prompt, std::mt19937_64& random) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (!is_digit(prompt[i])) continue;
    const bool leads = i == 0 || !is_digit(prompt[i - 1]);
    prompt[i] = (leads ? "123456789" : "0123456789")[random() % (leads ? 9 : 10)];
  }
  return prompt;
}

/// All prompts of a style in random order: first each as it is, then `variants` rounds with other numbers.
std::vector<std::string> make_prompts(const Style& style, int variants, std::mt19937_64& random) {
  std::vector<std::string> once, all;
  for (const auto& text : style.train)
    for (auto& prompt : prompts_of(text, random)) once.push_back(std::move(prompt));
  for (int round = 0; round <= variants; ++round) {
    for (std::size_t i = once.size(); i > 1; --i) std::swap(once[i - 1], once[random() % i]);
    for (const auto& prompt : once) all.push_back(round == 0 ? prompt : with_other_numbers(prompt, random));
  }
  return all;
}

struct Settings {
  std::string data, tokens, output;
  std::size_t limit = 0;
  double minutes = 0;
  int variants = 0;
  std::uint64_t seed = 0;
};

template <class Run>
void write_answers(const Settings& settings, Run& run) {
  const Tokenizer tokenizer(fs::path(settings.tokens) / "tokenizer.model");
  TokenizedCorpus corpus = read_tokens(settings.tokens);
  const std::vector<Style> styles = read_corpus(settings.data);
  std::mt19937_64 random(1);
  std::uint32_t sequence = 0;
  for (auto& tokenized : corpus.styles) {
    const auto style =
        std::find_if(styles.begin(), styles.end(), [&](const Style& s) { return s.name == tokenized.name; });
    if (style == styles.end())
      throw std::runtime_error(settings.data + ": holds no style '" + tokenized.name + "'");
    std::vector<std::string> prompts = make_prompts(*style, settings.variants, random);
    if (settings.limit && prompts.size() > settings.limit) prompts.resize(settings.limit);
    tokenized.train.clear();
    std::size_t written = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    for (std::size_t i = 0;
         i < prompts.size() && !(settings.minutes > 0 && seconds() > 60 * settings.minutes); ++i) {
      Document document = tokenizer.encode(prompts[i]);
      document.insert(document.begin(), kBegin);
      if (document.size() > static_cast<std::size_t>(kLongestPrompt)) continue;
      tokenized.given.push_back(static_cast<std::int32_t>(document.size()));
      specula::PhiloxChance chance(settings.seed, sequence++);
      const specula::Generated generated = run.generate(
          document, {.max_new_tokens = kNewTokens, .stop = {&kEnd, 1}}, chance,
          [&](specula::Tokens fresh) { document.insert(document.end(), fresh.begin(), fresh.end()); });
      written += static_cast<std::size_t>(generated.tokens);
      if (document.back() != kEnd) document.push_back(kEnd);
      tokenized.train.push_back(std::move(document));
      if (i % 100 == 99)
        std::fprintf(stderr, "\r%s: %zu of %zu prompts, %zu new tokens, %.0f tokens/s ",
                     tokenized.name.c_str(), i + 1, prompts.size(), written,
                     static_cast<double>(written) / seconds());
    }
    std::fprintf(stderr, "\n%s: %zu documents, %zu new tokens\n", tokenized.name.c_str(),
                 tokenized.train.size(), written);
  }
  write_tokens(corpus, settings.output);
  fs::copy_file(fs::path(settings.tokens) / "tokenizer.model", fs::path(settings.output) / "tokenizer.model",
                fs::copy_options::overwrite_existing);
}

int run(int argc, char** argv) {
  CLI::App app{"Lets a target write the text that its drafts are trained on.", "specula-train-answers"};
  Settings settings;
  std::string target_folder;
  app.add_option("--data", settings.data, "Folder written by `specula-train-text corpus`")->required();
  app.add_option("--tokens", settings.tokens, "Folder written by `specula-train-text tokenizer`")->required();
  app.add_option("--target", target_folder, "Folder of the target: config.json, model.safetensors")
      ->required();
  app.add_option("--output", settings.output, "Folder for the tokens")->required();
  app.add_option("--variants", settings.variants, "Ask everything so many times more, with other numbers");
  specula::SamplingParams params{.temperature = 0};
  app.add_option("--temperature", params.temperature, "0: greedily")->capture_default_str();
  app.add_option("--seed", settings.seed, "Of the text at a temperature")->capture_default_str();
  app.add_option("--limit", settings.limit, "Prompts of a style, at most; 0: all");
  app.add_option("--minutes", settings.minutes, "Time for a style, at most; 0: no limit");
  CLI11_PARSE(app, argc, argv);

  specula::eigen::LlamaOptions options;
  const specula::CostAware shape(specula::Chain<>{.length = 10});
  options.capacity = kLongestPrompt + kNewTokens + 2 * shape.max_nodes();
  options.inputs =
      specula::eigen::has_bf16_products() ? specula::eigen::Inputs::bf16 : specula::eigen::Inputs::full;
  specula::eigen::Llama<float> target(target_folder, options);
  specula::Speculator run{
      specula::TreeVerifier{target, specula::Sampling{}, params},
      specula::MaxGram(specula::Bigram::online(target.vocab_size()), {.min_match = 2, .past_end = true}),
      shape};
  write_answers(settings, run);
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
