// Hugging Face directories: config.json, model.safetensors (BF16), tokenizer.model, MODEL_CARD.md.
#pragma once

#include <filesystem>
#include <string>

#include "feature_head.hpp"
#include "glide.hpp"
#include "llama.hpp"
#include "training_loop.hpp"

namespace specula_train {

struct ModelCard {
  std::string name;      // "target"
  std::string recipe;    // loss, optimizer, batch, context
  bool answers = false;  // trained on what a target wrote, not on people's text
  Progress progress;
};

/// Each writes the directory. Files are replaced one by one, each as a whole.
void export_model(const Llama& model, const std::filesystem::path& tokenizer_file, const ModelCard& card,
                  const std::filesystem::path& directory);
void export_glide(const Glide& draft, const std::filesystem::path& tokenizer_file, const ModelCard& card,
                  const std::filesystem::path& directory);
void export_feature_head(const FeatureHead& head, const std::filesystem::path& tokenizer_file,
                         const ModelCard& card, const std::filesystem::path& directory);

}  // namespace specula_train
