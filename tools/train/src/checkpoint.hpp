// SPDX-License-Identifier: MIT
// Checkpoints: the state of a training in one file, to resume after an interruption.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace specula_train {

struct Checkpoint {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  double seconds = 0;     // of training, interruptions left out
  bool finished = false;  // the budget is used up
  torch::Tensor data_position;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> optimizer;
};

/// Writes under another name and renames: a crash leaves the old checkpoint intact.
void save_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file);

/// Throws std::runtime_error naming the file if it is not a checkpoint.
Checkpoint load_checkpoint(const std::filesystem::path& file);

/// Copies saved parameters into a model. Throws std::runtime_error if their shapes differ.
void copy_parameters(const std::vector<torch::Tensor>& saved, torch::nn::Module& model);

}  // namespace specula_train
