// SPDX-License-Identifier: MIT
// The target of a draft's training.
#pragma once

#include <filesystem>
#include <stdexcept>

#include "llama.hpp"
#include "safetensors.hpp"
#include "session.hpp"

namespace specula_train {

/// Loads a Hugging Face directory, sharded or not, onto the session's device. Its parameters take no
/// gradients, and are of the type that products run in.
inline Llama load_target(const std::filesystem::path& directory, const Session& session) {
  const auto config = read_config(directory);
  if (config.target_hidden_size != 0)
    throw std::invalid_argument(directory.string() + ": a draft over another model's embedding is no target");
  session.check_vocabulary(config, directory);
  Llama target(config);
  load_weights(directory, *target);
  session.place("target", *target);
  for (auto& parameter : target->parameters()) parameter.requires_grad_(false);
  target->freeze(session.dtype());
  return target;
}

/// Where two sets of tokens are the same: (...) of 0 and 1.
inline torch::Tensor agreement(const torch::Tensor& draft, const torch::Tensor& target) {
  return (draft == target).to(torch::kFloat32);
}

}  // namespace specula_train
