// SPDX-License-Identifier: MIT
// specula-distance: how far a model's next-token distributions are from those of its float weights, by type
// of weights and by engine.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "asked_prompt.hpp"
#include "chat_options.hpp"
#include "json_file.hpp"
#include "llama_models.hpp"
#include "model_pack.hpp"
#include "options.hpp"
#include "prompts.hpp"
#include "tokenizer.hpp"

namespace {

using namespace specula_tools;
using specula::NodeId;
using specula::Token;

using Row = std::span<const float>;

struct Options {
  ModelOptions common;
  std::vector<std::string> prompts, own, llama;
  std::string json, rows;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--prompts", options.prompts, "File of prompts; the text is the answer to the first")
      ->required();
  app.add_option("--own", options.own, "A model in specula's own engine (may be given several times)");
  app.add_option("--llama", options.llama, "A GGUF file inside llama.cpp (may be given several times)");
  app.add_option("--json", options.json,
                 "Write the figures, the prompts and the text as tokens to this file");
  app.add_option("--rows", options.rows,
                 "Write the reference's logits to this file: floats, a row per token");
  app.add_option("--target", options.common.target, "The reference: a Hugging Face folder, or a GGUF file")
      ->required();
  add_decoding_options(app, options.common);
  add_arithmetic_options(app, options.common);
}

/// Calls `use` with the row of each pass over one token, from that of token `first` of `text` on, until it
/// returns false.
void for_rows(specula::AnyModel& model, const std::vector<Token>& text, std::size_t first,
              const std::function<bool(Row)>& use) {
  const NodeId none = specula::kNoParent, root = 0;
  model.truncate(0);
  model.append(specula::Tokens(text).first(first));
  for (std::size_t at = first; at < text.size(); ++at) {  // `use` may make the text longer
    const Token token = text[at];
    const bool more = use(model.extend({&token, 1}, {&none, 1}).row(0));
    model.commit({&root, 1});
    if (!more) return;
  }
}

Token likeliest(Row row) {
  return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::vector<double> softmax(Row row) {
  const double most = *std::max_element(row.begin(), row.end());
  std::vector<double> p(row.begin(), row.end());
  double sum = 0;
  for (double& x : p) sum += x = std::exp(x - most);
  for (double& x : p) x /= sum;
  return p;
}

double total_variation(Row a, Row b) {
  const auto p = softmax(a), q = softmax(b);
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) sum += std::abs(p[x] - q[x]);
  return sum / 2;
}

/// What was read in floats, and what others are compared with.
struct Reference {
  std::vector<Token> text;
  std::size_t first = 0;  // token of the first row
  std::vector<std::vector<float>> rows = {};

  nlohmann::ordered_json distance(specula::AnyModel& model) const {
    double sum = 0, most = 0;
    std::size_t same = 0, at = 0;
    for_rows(model, text, first, [&](Row row) {
      const double apart = total_variation(row, rows[at]);
      sum += apart;
      most = std::max(most, apart);
      same += likeliest(row) == likeliest(rows[at]);
      return ++at < rows.size();
    });
    return {{"mean", sum / static_cast<double>(rows.size())},
            {"largest", most},
            {"same_likeliest", same},
            {"rows", rows.size()}};
  }
};

ModelPack loaded(const Options& options, const std::string& file, const std::string& weights,
                 const std::string& cache, std::int32_t capacity) {
  const specula::Isa isa = isa_of(options.common.isa);
  const bool floats = weights == "full";
  return {{models_root(""), file, {}},
          {.capacity = capacity,
           .threads = thread_count(options.common.threads),
           .isa = isa,
           .inputs = floats ? specula::cpu::Inputs::full : inputs_of(options.common.inputs, isa),
           .stored = stored_of(weights),
           .cache = cache_of(cache)}};
}

/// A prompt as a text with the names of control tokens, which `llama` must encode alike.
std::string text_of(const Tokenizer& tokenizer, specula::Tokens tokens) {
  std::string text;
  for (const Token token : tokens) {
    const std::string bytes = tokenizer.bytes(token);
    text += bytes.empty() ? tokenizer.pieces()[static_cast<std::size_t>(token)] : bytes;
  }
  return text;
}

/// The prompts as both engines must read them.
struct PromptTexts {
  std::vector<std::vector<Token>> tokens;
  std::vector<std::string> texts;
};

PromptTexts read_prompts(const Options& options, const std::string& target, const Tokenizer& tokenizer) {
  std::optional<ChatSetting> chats;
  if (auto how = chosen_template({}, "auto", template_of(target, tokenizer), target))
    chats.emplace(ChatSetting{std::move(*how), chat_vocabulary(tokenizer), ""});
  PromptTexts prompts;
  for (const Prompt& prompt : split_prompts(options.prompts, {}).test) {
    prompts.tokens.push_back(asked_prompt(
                                 prompt, chats ? &*chats : nullptr, Style::automatic,
                                 [&](const std::string& text) { return tokenizer.encode(text); }, 0, false)
                                 .tokens);
    prompts.texts.push_back(text_of(tokenizer, prompts.tokens.back()));
  }
  return prompts;
}

/// What --target writes in floats, at most --max-new-tokens.
Reference written(const Options& options, const std::string& target, const std::vector<Token>& prompt,
                  const Tokenizer& tokenizer, std::int32_t capacity) {
  Reference reference{prompt, prompt.size() - 1};
  ModelPack pack = loaded(options, target, "full", "full", capacity);
  for_rows(pack.target(), reference.text, reference.first, [&](Row row) {
    reference.rows.emplace_back(row.begin(), row.end());
    reference.text.push_back(likeliest(row));
    const bool ended = std::ranges::count(tokenizer.ends(), reference.text.back()) > 0;
    return !ended && std::ssize(reference.rows) < options.common.max_new_tokens;
  });
  return reference;
}

void write_rows(const std::string& name, const std::vector<std::vector<float>>& rows) {
  std::ofstream file(name, std::ios::binary);
  for (const auto& row : rows)
    file.write(reinterpret_cast<const char*>(row.data()),
               static_cast<std::streamsize>(row.size() * sizeof(float)));
  if (!file.flush()) throw std::runtime_error(name + ": cannot be written");
}

/// The distances of all models that the options name, each printed as it is found.
nlohmann::ordered_json distances(const Options& options, const Reference& reference,
                                 const PromptTexts& prompts, std::int32_t capacity) {
  auto all = nlohmann::ordered_json::array();
  const auto add = [&](const char* engine, const std::string& file, specula::AnyModel& model) {
    nlohmann::ordered_json found{{"engine", engine},
                                 {"model", std::filesystem::path(file).filename().string()}};
    found.update(reference.distance(model));
    std::cout << engine << ' ' << found["model"].get<std::string>() << ": total variation " << found["mean"]
              << " on average, " << found["largest"] << " at most\n"
              << std::flush;
    all.push_back(std::move(found));
  };
  for (const std::string& file : options.own) {
    ModelPack pack = loaded(options, file, options.common.weights, options.common.cache, capacity);
    add("specula", file, pack.target());
  }
  for (const std::string& file : options.llama) {
    GgufFiles files;
    files.target = file;
    GgufModels models(files);
    const GgufTokenizer its(models.target_file());
    for (std::size_t p = 0; p < prompts.texts.size(); ++p)
      if (its.encode(prompts.texts[p], true) != prompts.tokens[p])
        throw std::runtime_error(file + ": llama.cpp reads other tokens in prompt " + std::to_string(p + 1));
    const std::int32_t threads = thread_count(options.common.threads);
    models.prepare({}, {capacity, 1}, {threads, threads});
    add("llama.cpp", file, models.target());
  }
  return all;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Total variation between a model's next-token distributions and those of --target in floats, along the "
      "text that this writes.",
      "specula-distance"};
  Options options;
  add_options(app, options);
  if (parse_command_line(app, {argv + 1, argv + argc})) return 0;
  check_options(options.common);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::cerr << text;
      },
      nullptr);
  const ModelFolders folders{models_root(""), options.common.target, {}};
  folders.check();
  if (only_parses()) return 0;
  const std::string target = folders.target_folder().string();
  const Tokenizer tokenizer(target);
  const PromptTexts prompts = read_prompts(options, target, tokenizer);
  const std::int32_t capacity =
      static_cast<std::int32_t>(prompts.tokens.front().size()) + options.common.max_new_tokens + 1;
  const Reference reference = written(options, target, prompts.tokens.front(), tokenizer, capacity);
  if (!options.rows.empty()) write_rows(options.rows, reference.rows);
  nlohmann::ordered_json out{{"prompts", nlohmann::ordered_json::array()}};
  for (std::size_t p = 0; p < prompts.texts.size(); ++p)
    out["prompts"].push_back({{"text", prompts.texts[p]}, {"tokens", prompts.tokens[p]}});
  out["text"] = reference.text;
  out["first"] = reference.first;
  out["distances"] = distances(options, reference, prompts, capacity);
  if (!options.json.empty()) write_json(options.json, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("specula-distance", [&] { return run(argc, argv); });
}
