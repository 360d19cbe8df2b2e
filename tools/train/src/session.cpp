// SPDX-License-Identifier: MIT
#include "session.hpp"

#include <csignal>
#include <cstdio>
#include <limits>
#include <specula/cpu/tensor_files.hpp>
#include <stdexcept>

#include "data_loader.hpp"
#include "files.hpp"
#include "llama.hpp"
#include "machine.hpp"
#include "optimizer.hpp"
#include "safetensors.hpp"

namespace specula_train {

Session::Session(const TrainingOptions& options)
    : options_(options),
      device_(best_device()),
      dtype_(choose_dtype(options.precision, device_)),
      corpus_(read_tokens(options.data)),
      shares_(parse_shares(corpus_.styles, options.shares)),
      tokenizer_(options.tokenizer.empty() ? options.data : options.tokenizer) {
  if (std::filesystem::is_directory(tokenizer_) ? !std::filesystem::exists(tokenizer_ / "tokenizer.model") &&
                                                      !std::filesystem::exists(tokenizer_ / "tokenizer.json")
                                                : !std::filesystem::exists(tokenizer_)) {
    throw std::invalid_argument(tokenizer_.string() + ": expected tokenizer.model or tokenizer.json");
  }
  std::printf("%s, BLAS: %s\n", describe_machine(device_, dtype_).c_str(), blas_name().c_str());
  if (const auto warning = blas_warning(); !warning.empty()) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  for (std::size_t i = 0; i < corpus_.styles.size(); ++i) {
    const auto& style = corpus_.styles[i];
    std::printf("%s: %zu tokens, %.1f%% of the rows\n", style.name.c_str(), count_tokens(style.train),
                100 * shares_[i]);
    if (heldout_rows(style, options_.loop.context, 1).size(0) == 0) {
      std::fprintf(stderr, "warning: %s: the held-out text fills no row of %lld tokens; it has no figures\n",
                   style.name.c_str(), static_cast<long long>(options_.loop.context + 1));
    }
  }
  has_given_ = mark_prompts(corpus_.styles, options.learned_prompts);
  torch::manual_seed(options.seed);
}

void Session::set_vocabulary(DecoderConfig& config) const {
  config.vocab_size = corpus_.vocab_size;
  config.begin = corpus_.begin;
  config.end = corpus_.end;
}

void Session::check_vocabulary(const DecoderConfig& config, const std::filesystem::path& directory) const {
  if (config.vocab_size == corpus_.vocab_size) {
    // SentencePiece cannot be linked here, so files are compared, not tokens.
    for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
      const auto own = directory / name, of_data = options_.data / name;
      if (std::filesystem::exists(own) && std::filesystem::exists(of_data) &&
          specula_tools::read_file(own) != specula_tools::read_file(of_data)) {
        std::fprintf(stderr, "warning: %s is not that of the data: are the tokens the same?\n", own.c_str());
      }
    }
    return;
  }
  throw std::invalid_argument(
      directory.string() + ": a vocabulary of " + std::to_string(config.vocab_size) + ", the data's is " +
      std::to_string(corpus_.vocab_size) +
      "; encode the text with the model's own tokenizer (specula-train-text tokenizer --tokenizer)");
}

DraftVocabulary Session::draft_vocabulary(std::span<const Token> ends) const {
  auto vocabulary = count_draft_vocabulary(corpus_, shares_, options_.draft_vocabulary, ends);
  if (!vocabulary.tokens.empty()) std::printf("%s\n", describe(vocabulary).c_str());
  return vocabulary;
}

DraftVocabulary Session::draft_vocabulary_of(const std::filesystem::path& directory) const {
  const auto size = read_inference_config(directory).draft_vocab_size;
  if (size == 0) return {};
  auto vocabulary = measure_draft_vocabulary(
      corpus_, shares_, specula::cpu::TensorFiles(directory).integers(kDraftTokens, size));
  std::printf("%s\n", describe(vocabulary).c_str());
  return vocabulary;
}

torch::Tensor Session::first_rows() const {
  return BatchLoader(corpus_.styles, options_.seed, shares_)
      .next(options_.loop.batch, options_.loop.context)
      .to(device_);
}

std::int64_t Session::epoch_tokens() const {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < corpus_.styles.size(); ++i)
    if (shares_[i] > 0) tokens += static_cast<std::int64_t>(count_tokens(corpus_.styles[i].train));
  return tokens;
}

ModelCard Session::card(const std::string& name, const std::string& loss, const Progress& progress) const {
  ModelCard card{.name = name,
                 .recipe = options_.recipe(loss),
                 .device = describe_machine(device_, dtype_),
                 .answers = has_given_,
                 .learned_prompts = options_.learned_prompts,
                 .styles = {},
                 .progress = progress};
  for (std::size_t i = 0; i < corpus_.styles.size(); ++i) {
    const auto& style = corpus_.styles[i];
    card.styles.push_back({.name = style.name,
                           .share = shares_[i],
                           .documents = style.train.size(),
                           .tokens = count_tokens(style.train),
                           .heldout = count_tokens(style.heldout),
                           .info = style.info});
  }
  return card;
}

void Session::place(const std::string& name, torch::nn::Module& model) const {
  model.to(device_);
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  std::printf("%s: %lld parameters\n", name.c_str(), static_cast<long long>(count));
  std::fflush(stdout);
}

void Session::for_heldout(
    const std::function<void(const std::string& style, const torch::Tensor& rows)>& f) const {
  constexpr std::int64_t kMost = 96, kPart = 8, kParts = kMost / kPart;
  constexpr double kShare = 0.05;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto start = Clock::now();
  const double allowed = training_since_ ? kShare * seconds_since(*training_since_) - heldout_seconds_
                                         : std::numeric_limits<double>::infinity();
  std::vector<torch::Tensor> rows;
  for (const auto& style : corpus_.styles) rows.push_back(heldout_rows(style, options_.loop.context, kMost));
  for (std::int64_t part = 0; part < kParts && (part == 0 || seconds_since(start) < allowed); ++part) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].size(0) <= part) continue;
      f(corpus_.styles[i].name,
        rows[i].slice(0, part, c10::nullopt, kParts).to(device_));  // spread as the whole is
    }
  }
  heldout_seconds_ += seconds_since(start);
}

void Session::train(torch::nn::Module& model, const LoopCallbacks& callbacks) const {
  if (!options_.init.empty())
    load_weights(options_.init, model, options_.init_is_larger ? Surplus::ignored : Surplus::refused,
                 options_.init_may_lack);
  BatchLoader loader(corpus_.styles, options_.seed, shares_);
  auto optimizer_options = options_.optimizer;
  optimizer_options.products = dtype_;
  Optimizer optimizer(model, optimizer_options);
  auto loop = options_.loop;
  loop.checkpoint_file = options_.checkpoint_file();
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int) { request_stop(); });
  }
  training_since_ = Clock::now();
  heldout_seconds_ = 0;
  specula_train::train(model, loader, optimizer, device_, loop, callbacks);
}

void Figures::add(const std::string& name, double mean, double count) {
  auto& sum = sums_[name];
  sum.sum += mean * count;
  sum.count += count;
}

void Figures::add(const std::string& name, const torch::Tensor& values, const torch::Tensor& chosen) {
  const auto count = chosen.sum().item<double>();
  if (count > 0) add(name, (values * chosen).sum().item<double>() / count, count);
}

Losses Figures::means() const {
  Losses means;
  for (const auto& [name, sum] : sums_) means[name] = sum.count > 0 ? sum.sum / sum.count : 0;
  return means;
}

}  // namespace specula_train
