// SPDX-License-Identifier: MIT
// A training session: machine, data, and the steps common to all kinds of models.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command_options.hpp"
#include "draft_vocabulary.hpp"
#include "export.hpp"
#include "tokens.hpp"
#include "training_loop.hpp"

namespace specula_train {

class Session {
 public:
  /// Reads the data and prints a summary. Throws if tokens or tokenizer are missing.
  explicit Session(const TrainingOptions& options);

  torch::Device device() const { return device_; }
  torch::ScalarType dtype() const { return dtype_; }
  std::int32_t vocab_size() const { return corpus_.vocab_size; }
  /// File or folder.
  const std::filesystem::path& tokenizer() const { return tokenizer_; }

  /// Gives a new model the vocabulary of the data, and the ids of its <s> and </s>.
  void set_vocabulary(DecoderConfig& config) const;
  /// Throws std::invalid_argument if the model in `directory` has another vocabulary than the data.
  void check_vocabulary(const DecoderConfig& config, const std::filesystem::path& directory) const;

  /// The draft vocabulary of --draft-vocabulary tokens, with a target's `ends` in it; prints its coverage.
  DraftVocabulary draft_vocabulary(std::span<const Token> ends) const;
  /// That of the draft in `directory`, empty if it predicts all tokens; prints its coverage.
  DraftVocabulary draft_vocabulary_of(const std::filesystem::path& directory) const;

  /// The rows of the first step, (rows, context + 1).
  torch::Tensor first_rows() const;
  /// Tokens of all rows of an epoch.
  std::int64_t epoch_tokens() const;

  /// The model card's text about this training; `loss` describes the loss.
  ModelCard card(const std::string& name, const std::string& loss, const Progress& progress) const;

  /// Moves a new model to the device and prints its size.
  void place(const std::string& name, torch::nn::Module& model) const;

  /// Calls f(style, rows (8 or fewer, T + 1)) on the device for held-out rows of each style, evenly spread
  /// over it: as many of each as a twentieth of the training's time so far allows for all calls, 8 to 96; 96
  /// without a training. A style whose held-out text does not fill a row is skipped.
  void for_heldout(const std::function<void(const std::string& style, const torch::Tensor& rows)>& f) const;

  /// Trains until the budget is used up or the process is told to end.
  void train(torch::nn::Module& model, const LoopCallbacks& callbacks) const;

 private:
  TrainingOptions options_;
  torch::Device device_;
  torch::ScalarType dtype_;
  TokenizedCorpus corpus_;
  std::vector<double> shares_;
  std::filesystem::path tokenizer_;
  using Clock = std::chrono::steady_clock;
  mutable std::optional<Clock::time_point> training_since_;
  mutable double heldout_seconds_ = 0;  // since then
  bool has_given_ = false;  // parts of the text are prompts, the rest is the target's continuation
};

/// Means of figures, each weighted by what it is a mean of.
class Figures {
 public:
  void add(const std::string& name, double mean, double count);
  /// Of `values` where `chosen`, of the same shape, is true.
  void add(const std::string& name, const torch::Tensor& values, const torch::Tensor& chosen);
  Losses means() const;

 private:
  struct Sum {
    double sum = 0, count = 0;
  };
  std::map<std::string, Sum> sums_;
};

}  // namespace specula_train
