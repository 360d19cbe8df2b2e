// Hugging Face directories: config.json, model.safetensors (BF16), tokenizer.model, MODEL_CARD.md.
#pragma once

#include <filesystem>
#include <string>

#include "llama.hpp"
#include "training_loop.hpp"

namespace specula_train {

struct ModelCard {
  std::string name;    // "target"
  std::string recipe;  // one line: optimizer, batch, context
  Progress progress;
};

/// Writes the directory. Files are replaced one by one, each as a whole.
void export_model(const Llama& model, const std::filesystem::path& tokenizer_file, const ModelCard& card,
                  const std::filesystem::path& directory);

}  // namespace specula_train
