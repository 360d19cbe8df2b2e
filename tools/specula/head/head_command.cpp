// SPDX-License-Identifier: MIT
// specula head: what a published EAGLE-3 head reads, and whether it is read as it was trained.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <specula/base/stopwatch.hpp>
#include <specula/cpu/check_head.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/cpu/read_model_config.hpp>
#include <specula/specula.hpp>

#include "command.hpp"
#include "decoding_options.hpp"
#include "errors.hpp"
#include "files.hpp"
#include "ggml_expand.hpp"
#include "head_check.hpp"
#include "head_reading.hpp"
#include "json_file.hpp"
#include "options.hpp"
#include "text_table.hpp"
#include "tokenizer.hpp"

namespace specula_tools {
namespace {

using specula::Token;
using specula::Tokens;
using specula::cpu::Decoder;
using specula::cpu::HeadReading;
using specula::cpu::HeadRows;
namespace fs = std::filesystem;
using Weights = std::shared_ptr<const specula::cpu::DecoderWeights<float>>;
using Texts = std::vector<std::vector<Token>>;

constexpr std::int32_t kLength = 256;  // tokens of a text

struct HeadOptions {
  std::string target, head, text, json;
  std::int32_t tokens = 4000, threads = 0;
};

void add_options(CLI::App& app, HeadOptions& options) {
  app.add_option("TARGET", options.target, "The target: a Hugging Face folder, or a GGUF file")->required();
  app.add_option("HEAD", options.head, "The head: a Hugging Face folder, as --draft takes it")->required();
  app.add_option("--tokens", options.tokens, "Tokens of text that the target writes at temperature 1")
      ->check(CLI::Range(2, 1000000))
      ->capture_default_str();
  app.add_option("--text", options.text, "File of a text to take instead")->excludes("--tokens");
  app.add_option("--json", options.json,
                 "Write each text's tokens, and the rows as the file says, to this file");
  app.add_option("--threads", options.threads, "Threads; 0: as many as there are cores")
      ->capture_default_str();
  app.footer(
      "Says what the head reads, and runs it over the text, each token after the text's own: how often its "
      "first choice is the target's, as its file is read and under the readings that its format leaves open. "
      "Chains of three show what it hands on from draft token to draft token (norm_output).\n\nExample:\n"
      "  specula head MODEL HEAD --tokens 1000");
}

std::string list(const std::vector<std::int32_t>& numbers, const char* between = ", ") {
  std::string text;
  for (const std::int32_t number : numbers) text += (text.empty() ? "" : between) + std::to_string(number);
  return text;
}

/// What the file says.
void print_head(const specula::cpu::DecoderWeights<float>& weights) {
  const auto& config = weights.config;
  const auto& head = *config.eagle3;
  const std::string qwen = config.query_key_norms ? " of Qwen3" : "";
  std::cout << "layers          " << config.layers << qwen << ", hidden size " << config.hidden_size << "\n"
            << "states          " << (head.mixes_states() ? list(head.states) : "one") << " ("
            << to_string(head.states_from) << ")\n"
            << "rope_theta      " << specula::detail::number(config.rope_theta) << "\n"
            << "norms           norm_before_residual " << head.norm_before_residual << ", norm_before_fc "
            << head.norm_before_fc << ", fc_norm " << head.fc_norm << ", norm_output " << head.norm_output
            << "\n"
            << "predicts        " << config.head_rows() << " of " << config.vocab_size << " tokens\n"
            << "embedding       " << (head.own_embedding ? "the file's" : "the target's") << "\n"
            << "LM head         "
            << (weights.separate_head.rows() > 0 ? "the file's"
                : config.tied_head               ? "the embedding"
                                                 : "the target's")
            << "\n";
}

/// Texts of `tokens` tokens together that the target draws.
Texts drawn(Decoder<float>& target, std::int32_t tokens, Token begin) {
  Texts texts;
  specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}},
                          specula::NoDrafter{target.vocab_size()}, specula::Chain<>{}};
  const std::vector<Token> prompt{begin};
  const double begin_s = specula::detail::monotonic_seconds();
  std::int32_t written = 0;
  while (written < tokens) {
    const std::int32_t length = std::min(kLength, std::max(2, tokens - written));
    specula::PhiloxRandom rng{1, static_cast<std::uint32_t>(texts.size())};
    run.start(prompt);
    while (run.text().size() < static_cast<std::size_t>(length)) run.step(rng);
    texts.emplace_back(run.text().begin(), run.text().begin() + length);
    if (texts.size() == 1 && tokens > length)
      std::cerr << "the target writes " << tokens << " tokens, in some "
                << std::lround((specula::detail::monotonic_seconds() - begin_s) * tokens / length) + 1
                << " s\n";
    written += length;
  }
  return texts;
}

Texts cut(const std::vector<Token>& tokens) {
  Texts texts;
  for (std::size_t at = 0; at + 1 < tokens.size(); at += kLength)
    texts.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                       tokens.begin() + static_cast<std::ptrdiff_t>(std::min(tokens.size(), at + kLength)));
  return texts;
}

using SeeEnd = HeadRows (*)(const Weights&, Decoder<float>&, Tokens, std::int32_t);

/// The rows of all texts, of each reading.
std::vector<HeadRows> rows_of(const Weights& head, std::span<const HeadReading> readings,
                              Decoder<float>& target, const Texts& texts, SeeEnd see) {
  std::vector<Weights> heads;
  for (const HeadReading& reading : readings) heads.push_back(with_reading(*head, reading.eagle3));
  std::vector<HeadRows> all(heads.size());
  for (const auto& text : texts) {
    target.truncate(0);
    target.append(text);
    for (std::size_t i = 0; i < heads.size(); ++i) all[i].add(see(heads[i], target, text, kLength));
  }
  return all;
}

/// Of the reading that is asked for: by text its tokens and, after each but the first, both first choices and
/// the loss (null where the head cannot draft the target's).
nlohmann::ordered_json json_of(const Texts& texts, const HeadRows& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  std::size_t at = 0;
  for (const auto& text : texts) {
    const auto part = [&](const auto& of) {
      const auto first = of.begin() + static_cast<std::ptrdiff_t>(at);
      return std::vector(first, first + static_cast<std::ptrdiff_t>(text.size()) - 1);
    };
    if (text.size() > 1)
      out.push_back({{"tokens", text},
                     {"target", part(rows.targets)},
                     {"head", part(rows.choices)},
                     {"losses", part(rows.losses)}});
    at += std::max<std::size_t>(text.size(), 1) - 1;
  }
  return {{"texts", out}};
}

std::string states_of(const HeadReading& reading) {
  return reading.eagle3.mixes_states() ? list(reading.eagle3.states) : "one";
}

/// A row for each reading; the first is the file's.
std::string table_of(std::span<const HeadReading> readings, std::span<const HeadRows> all, const char* of,
                     std::string (*value)(const HeadReading&)) {
  std::vector<std::vector<std::string>> table{{"reading", of, "agreement", "loss", "worse by", "95%", "z"}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double worse = all[i].loss() - all[0].loss(), z = specula::cpu::paired_z(all[0], all[i]);
    const double half = z == 0 ? 0 : 1.96 * std::abs(worse / z);
    table.push_back({readings[i].what, value(readings[i]), fixed(all[i].agreement(), 3),
                     fixed(all[i].loss(), 3), i ? fixed(worse, 3) : "", i ? "+-" + fixed(half, 3) : "",
                     i ? fixed(z, 1) : ""});
  }
  return text_table(table);
}

/// The weights of the target and of its head, read as asked.
std::pair<Weights, Weights> read_both(const fs::path& target, const fs::path& head,
                                      const AskedReading& asked) {
  if (!fs::exists(head / "config.json"))
    throw UsageError(head.string() + " has no config.json: HEAD is a folder of an EAGLE-3 head");
  const Weights target_weights = std::make_shared<const specula::cpu::DecoderWeights<float>>(
      specula::cpu::load_decoder_weights<float>(target, nullptr, {{}, ggml_expand()}));
  const Weights own =
      std::make_shared<const specula::cpu::DecoderWeights<float>>(specula::cpu::load_decoder_weights<float>(
          head, target_weights, {{}, ggml_expand(), [&](auto& config) { set_reading(config, asked); }}));
  if (!own->config.eagle3)
    throw UsageError(head.string() + " is no EAGLE-3 head (docs/heads.md has the formats)");
  return {target_weights, own};
}

int check(const HeadOptions& options) {
  const auto [folder, asked] = split_reading(options.head);
  const auto [target_weights, own] = read_both(options.target, folder, asked);
  print_head(*own);

  auto readings = specula::cpu::head_readings(*own->config.eagle3, target_weights->config.layers);
  if (asked.asks()) readings.front().what = "as asked";
  std::set<std::int32_t> states;
  for (const HeadReading& reading : readings)
    states.insert(reading.eagle3.states.begin(), reading.eagle3.states.end());
  Decoder<float> target(target_weights, {.capacity = kLength + 16,
                                         .max_nodes = 16,
                                         .threads = thread_count(options.threads),
                                         .feature_layers = {states.begin(), states.end()}});
  const Tokenizer tokenizer(options.target);
  const Token begin = tokenizer.begin() == specula::kNoToken ? 0 : tokenizer.begin();
  const Texts texts = options.text.empty() ? drawn(target, options.tokens, begin)
                                           : cut(tokenizer.encode(read_file(options.text)));

  const auto all = rows_of(own, readings, target, texts, specula::cpu::head_rows_at_end);
  const HeadRows& rule = all.front();
  if (rule.count() == 0)
    throw UsageError("the text has fewer than two tokens, so there is nothing to look at");
  if (!options.json.empty()) write_json(options.json, json_of(texts, rule));
  const std::size_t better = specula::cpu::best_reading(all);
  std::cout << "\n"
            << rule.count() << " tokens; losses in nats of the target's first choice\n"
            << table_of(readings, all, "states", states_of);
  std::vector<HeadReading> outputs{readings[better], readings[better]};
  outputs[0].what = readings[0].what, outputs[1].what = "the other way";
  outputs[1].eagle3.norm_output = !outputs[0].eagle3.norm_output;
  const auto chains = rows_of(own, outputs, target, texts, specula::cpu::chain_rows_at_end);
  const auto norm = [](const HeadReading& reading) {
    return std::string(reading.eagle3.norm_output ? "true" : "false");
  };
  std::cout << "\nsecond and third draft tokens, " << chains.front().count() << " rows\n"
            << table_of(outputs, chains, "norm_output", norm);
  const std::size_t other = specula::cpu::best_reading(chains);
  if (better > 0 || other > 0) {  // beside what was asked and is right
    std::cout << "another reading is better beyond doubt; this selects it: --draft " << folder;
    if (better > 0 || !asked.layers.empty())
      std::cout << ",layers=" << list(outputs[other].eagle3.states, "-");
    if (other > 0 || asked.norm_output) std::cout << ",norm_output=" << norm(outputs[other]);
    std::cout << "\n";
  }
  const bool never = rule.right == 0 && rule.count() >= kFewest;
  if (never)
    std::cout
        << "the head is never right: it is of another target, or reads other states than it was trained on\n";
  else if (all[better].agreement() < kWeakAgreement)
    std::cout << "the head is right at " << fixed(100 * all[better].agreement(), 1)
              << "% of the tokens: it is hardly worth its time\n";
  return never ? 1 : 0;
}

}  // namespace

Body add_head(CLI::App& app) {
  const auto options = std::make_shared<HeadOptions>();
  add_options(app, *options);
  return [options] {
    if (only_parses()) return 0;
    return check(*options);
  };
}

}  // namespace specula_tools
