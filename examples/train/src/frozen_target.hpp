// The trained model that a drafter learns to draft for.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include "llama.hpp"
#include "safetensors.hpp"
#include "session.hpp"

namespace specula_train {

/// Loads a Hugging Face directory onto the session's device. Its parameters take no gradients.
inline Llama load_target(const std::filesystem::path& directory, const Session& session) {
  const auto config = read_config(directory);
  if (config.vocab_size != session.vocab_size()) {
    throw std::invalid_argument(directory.string() + ": a vocabulary of " +
                                std::to_string(config.vocab_size) + ", the data's is " +
                                std::to_string(session.vocab_size()));
  }
  Llama target(config);
  load_safetensors(directory / "model.safetensors", *target);
  session.place("target", *target);
  for (auto& parameter : target->parameters()) parameter.requires_grad_(false);
  return target;
}

/// How often two sets of logits (..., V) have the same likeliest token: (...) of 0 and 1.
inline torch::Tensor agreement(const torch::Tensor& draft, const torch::Tensor& target) {
  return (draft.argmax(-1) == target.argmax(-1)).to(torch::kFloat32);
}

}  // namespace specula_train
