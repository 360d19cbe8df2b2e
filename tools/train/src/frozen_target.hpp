// The target of a draft's training.
#pragma once

#include <filesystem>

#include "llama.hpp"
#include "safetensors.hpp"
#include "session.hpp"

namespace specula_train {

/// Loads a Hugging Face directory, sharded or not, onto the session's device. Its parameters take no
/// gradients.
inline Llama load_target(const std::filesystem::path& directory, const Session& session) {
  const auto config = read_config(directory);
  session.check_vocabulary(config, directory);
  Llama target(config);
  load_weights(directory, *target);
  session.place("target", *target);
  for (auto& parameter : target->parameters()) parameter.requires_grad_(false);
  return target;
}

/// Whether two sets of logits (..., V) have the same likeliest token: (...) of 0 and 1.
inline torch::Tensor agreement(const torch::Tensor& draft, const torch::Tensor& target) {
  return (draft.argmax(-1) == target.argmax(-1)).to(torch::kFloat32);
}

}  // namespace specula_train
