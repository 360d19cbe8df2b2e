// SPDX-License-Identifier: MIT
#include "checkpoint.hpp"

#include <stdexcept>
#include <string>

namespace specula_train {
namespace {

constexpr std::int64_t kFormat = 1;

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file) {
  const auto parameters = static_cast<std::int64_t>(checkpoint.parameters.size());
  std::vector<torch::Tensor> tensors{
      torch::tensor({kFormat, checkpoint.steps, checkpoint.tokens, parameters}, torch::kInt64),
      torch::tensor({checkpoint.seconds, checkpoint.finished ? 1.0 : 0.0}, torch::kFloat64),
      checkpoint.data_position};
  for (const auto& tensor : checkpoint.parameters) tensors.push_back(tensor.detach().cpu());
  for (const auto& tensor : checkpoint.optimizer) tensors.push_back(tensor.detach().cpu());

  std::filesystem::create_directories(file.parent_path());
  const auto temporary = file.string() + ".part";
  torch::save(tensors, temporary);
  std::filesystem::rename(temporary, file);
}

Checkpoint load_checkpoint(const std::filesystem::path& file) {
  std::vector<torch::Tensor> tensors;
  try {
    torch::load(tensors, file.string());
  } catch (const c10::Error& error) {
    throw std::runtime_error(file.string() + ": no checkpoint: " + error.what_without_backtrace());
  }
  if (tensors.size() < 3 || tensors[0].numel() != 4 || tensors[0][0].item<std::int64_t>() != kFormat) {
    throw std::runtime_error(file.string() + ": expected a checkpoint of specula-train, format " +
                             std::to_string(kFormat));
  }
  Checkpoint checkpoint{.steps = tensors[0][1].item<std::int64_t>(),
                        .tokens = tensors[0][2].item<std::int64_t>(),
                        .seconds = tensors[1].view(-1)[0].item<double>(),
                        .finished = tensors[1].numel() > 1 && tensors[1][1].item<double>() != 0,
                        .data_position = tensors[2],
                        .parameters = {},
                        .optimizer = {}};
  const auto first = tensors.begin() + 3;
  const auto parameters = tensors[0][3].item<std::int64_t>();
  if (parameters < 0 || parameters > tensors.end() - first) {
    throw std::runtime_error(file.string() + ": the checkpoint is cut short");
  }
  checkpoint.parameters.assign(first, first + parameters);
  checkpoint.optimizer.assign(first + parameters, tensors.end());
  return checkpoint;
}

void copy_parameters(const std::vector<torch::Tensor>& saved, torch::nn::Module& model) {
  torch::NoGradGuard no_grad;
  auto own = model.parameters();
  if (own.size() != saved.size()) {
    throw std::runtime_error("checkpoint: holds " + std::to_string(saved.size()) +
                             " parameters, the model has " + std::to_string(own.size()) +
                             "; was it saved from a model of another size?");
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].sizes() != saved[i].sizes()) {
      throw std::runtime_error("checkpoint: parameter " + std::to_string(i) +
                               " has another shape than the model's");
    }
    own[i].copy_(saved[i]);
  }
}

}  // namespace specula_train
