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
#include <vector>

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

constexpr std::int32_t kLength = 256;    // tokens of a text
constexpr double kBeyondDoubt = 4;       // standard errors
constexpr double kWeakAgreement = 0.15;  // below this a head is hardly worth its time

struct HeadOptions {
  std::string target, head, text;
  std::int32_t tokens = 4000, threads = 0;
};

void add_options(CLI::App& app, HeadOptions& options) {
  app.add_option("TARGET", options.target, "The target: a Hugging Face folder, or a GGUF file")->required();
  app.add_option("HEAD", options.head, "The head: a Hugging Face folder")->required();
  app.add_option("--tokens", options.tokens, "Tokens of text that the target writes at temperature 1")
      ->check(CLI::Range(2, 1000000))
      ->capture_default_str();
  app.add_option("--text", options.text, "File of a text to take instead")->excludes("--tokens");
  app.add_option("--threads", options.threads, "Threads; 0: as many as there are cores")
      ->capture_default_str();
  app.footer(
      "Says what the head reads, and runs it over the text, each token after the text's own: how often its "
      "first "
      "choice is the target's, as its file is read and under the readings that its format leaves open. What "
      "a "
      "head hands on from draft token to draft token (norm_output) is not looked at.\n\nExample:\n"
      "  specula head MODEL HEAD --tokens 1000");
}

std::string list(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (const std::int32_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
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

/// The rows of all texts.
HeadRows rows_of(const Weights& head, Decoder<float>& target, const Texts& texts) {
  Decoder<float> model(head, {.capacity = kLength + 16, .max_nodes = 16, .team = target.team()});
  HeadRows all;
  for (const auto& text : texts) {
    const HeadRows own = specula::cpu::head_rows(model, target, text, kLength);
    all.losses.insert(all.losses.end(), own.losses.begin(), own.losses.end());
    all.right += own.right;
  }
  return all;
}

/// Mean of the finite ones.
double mean_loss(const HeadRows& rows) {
  double sum = 0, count = 0;
  for (const double loss : rows.losses)
    if (std::isfinite(loss)) sum += loss, ++count;
  return count > 0 ? sum / count : 0;
}

int check(const HeadOptions& options) {
  const fs::path folder = options.head;
  if (!fs::exists(folder / "config.json"))
    throw UsageError(folder.string() + " has no config.json: HEAD is a folder of an EAGLE-3 head");
  const Weights target_weights = std::make_shared<const specula::cpu::DecoderWeights<float>>(
      specula::cpu::load_decoder_weights<float>(options.target, nullptr, {{}, ggml_expand()}));
  const Weights own = std::make_shared<const specula::cpu::DecoderWeights<float>>(
      specula::cpu::load_decoder_weights<float>(folder, target_weights, {{}, ggml_expand()}));
  if (!own->config.eagle3)
    throw UsageError(folder.string() + " is no EAGLE-3 head (docs/heads.md has the formats)");
  print_head(*own);

  const auto readings = specula::cpu::head_readings(*own->config.eagle3, target_weights->config.layers);
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

  std::vector<HeadRows> all;
  for (const HeadReading& reading : readings)
    all.push_back(rows_of(with_reading(*own, reading.eagle3), target, texts));
  const HeadRows& rule = all.front();
  std::vector<std::vector<std::string>> table{
      {"reading", "states", "agreement", "loss", "worse by", "95%", "z"}};
  std::size_t better = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double worse = mean_loss(all[i]) - mean_loss(rule), z = specula::cpu::paired_z(rule, all[i]);
    const double half = z == 0 ? 0 : 1.96 * std::abs(worse / z);
    table.push_back({readings[i].what,
                     readings[i].eagle3.mixes_states() ? list(readings[i].eagle3.states) : "one",
                     fixed(all[i].agreement(), 3), fixed(mean_loss(all[i]), 3), i ? fixed(worse, 3) : "",
                     i ? "+-" + fixed(half, 3) : "", i ? fixed(z, 1) : ""});
    if (z < -kBeyondDoubt && mean_loss(all[i]) < mean_loss(all[better])) better = i;
  }
  std::cout << "\n"
            << rule.count() << " tokens; losses in nats of the target's first choice\n"
            << text_table(table);
  if (better > 0)
    std::cout << "another reading is better beyond doubt: \"eagle_aux_hidden_state_layer_ids\": ["
              << list(readings[better].eagle3.states) << "] at the top level of config.json\n";
  if (rule.right == 0)
    std::cout
        << "the head is never right: it is of another target, or reads other states than it was trained on\n";
  else if (all[better].agreement() < kWeakAgreement)
    std::cout << "the head is right less than once in seven: it is hardly worth its time\n";
  return rule.right == 0 ? 1 : 0;
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
