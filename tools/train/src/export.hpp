// SPDX-License-Identifier: MIT
// Hugging Face directories: config.json, model.safetensors (BF16), the tokenizer, MODEL_CARD.md.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "feature_head.hpp"
#include "glide.hpp"
#include "llama.hpp"
#include "tokens.hpp"
#include "training_loop.hpp"

namespace specula_train {

/// A style of text that a model was trained on.
struct CardStyle {
  std::string name = {};
  double share = 0;           // of the rows
  std::size_t documents = 0;  // to train on
  std::size_t tokens = 0;     // in them
  std::size_t heldout = 0;    // tokens held out
  StyleInfo info = {};
};

struct ModelCard {
  std::string name = {};                          // "target"
  std::string recipe = {};                        // loss, optimizer, batch, context
  std::string device = {};                        // that the last part of it ran on
  bool answers = false;                           // trained on what a target wrote, not on people's text
  std::vector<std::string> learned_prompts = {};  // names of styles
  std::vector<CardStyle> styles = {};
  Progress progress = {};
};

/// Each writes the directory. Files are replaced one by one, each as a whole. `tokenizer`: a file or a
/// folder, as copy_tokenizer() takes it.
void export_model(const Llama& model, const std::filesystem::path& tokenizer, const ModelCard& card,
                  const std::filesystem::path& directory);
void export_glide(const Glide& draft, const std::filesystem::path& tokenizer, const ModelCard& card,
                  const std::filesystem::path& directory);
void export_feature_head(const FeatureHead& head, const std::filesystem::path& tokenizer,
                         const ModelCard& card, const std::filesystem::path& directory);

}  // namespace specula_train
