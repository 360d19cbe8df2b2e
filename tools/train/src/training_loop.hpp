// SPDX-License-Identifier: MIT
// The training loop, independent of the model: it is given a loss function, an evaluation and an export, so
// that decoders, drafts and heads share it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "data_loader.hpp"
#include "optimizer.hpp"
#include "schedule.hpp"

namespace specula_train {

struct LoopOptions {
  Budget budget;
  double peak_learning_rate = 2e-3;
  std::int64_t batch = 16, context = 256;
  // The last part of the budget uses rows twice as long and half as many, so that the model is trained at the
  // positions that generation reaches.
  double long_rows_from = 0.9;
  double checkpoint_minutes = 4;
  bool resume = false;
  std::filesystem::path checkpoint_file;
};

/// Held-out figures by name; for a decoder, the loss of each style in nats per token.
using Losses = std::map<std::string, double>;

struct Progress {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  bool finished = false;
  Losses heldout;
};

struct LoopCallbacks {
  /// rows (B, T + 1) int64, on the model's device -> the mean loss of the rows, a scalar with a gradient.
  /// On a CPU, several threads call it at once with parts of a batch.
  std::function<torch::Tensor(const torch::Tensor& rows)> loss;
  /// Runs without gradients.
  std::function<Losses()> evaluate;
  /// Called after every checkpoint and at the end.
  std::function<void(const Progress&)> save;
};

/// Trains until the budget is used up, or until request_stop(); both end with a checkpoint. Prints loss,
/// tokens per second and time left.
Progress train(torch::nn::Module& model, BatchLoader& loader, Optimizer& optimizer, torch::Device device,
               const LoopOptions& options, const LoopCallbacks& callbacks);

/// Ends train() and `sample` after the step in progress. May be called from a signal handler.
void request_stop();
bool stop_was_requested();

}  // namespace specula_train
