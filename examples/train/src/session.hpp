// A training at work: machine, data, and what every kind of model does with them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "command_options.hpp"
#include "token_store.hpp"
#include "training_loop.hpp"

namespace specula_train {

class Session {
 public:
  /// Reads the data and says what there is. Throws if tokens or tokenizer are missing.
  explicit Session(const TrainingOptions& options);

  torch::Device device() const { return device_; }
  torch::ScalarType dtype() const { return dtype_; }
  std::int32_t vocab_size() const { return corpus_.vocab_size; }
  const std::filesystem::path& tokenizer_file() const { return tokenizer_file_; }
  /// Whether parts of the text are only read: then it is what a target wrote in answer to them.
  bool has_given() const { return has_given_; }

  /// Moves a new model to the device and says how large it is.
  void place(const std::string& name, torch::nn::Module& model) const;

  /// Calls f(style, rows (16 or fewer, T + 1)) on the device for the first 96 held-out rows of each style.
  void for_heldout(const std::function<void(const std::string& style, const torch::Tensor& rows)>& f) const;

  /// Trains until the budget is used up or the process is told to end.
  void train(torch::nn::Module& model, const LoopCallbacks& callbacks) const;

 private:
  TrainingOptions options_;
  torch::Device device_;
  torch::ScalarType dtype_;
  TokenizedCorpus corpus_;
  std::filesystem::path tokenizer_file_;
  bool has_given_ = false;
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
