// SPDX-License-Identifier: MIT
// Command line options shared by the commands of specula-train.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "llama.hpp"
#include "optimizer.hpp"
#include "training_loop.hpp"

namespace specula_train {

/// Data, output and parameters of a training.
struct TrainingOptions {
  std::string precision = "auto";
  std::filesystem::path data, tokenizer, output, init;
  std::vector<std::string> shares;           // NAME=0.4
  std::vector<std::string> learned_prompts;  // of these styles prompts are learned, too
  bool init_is_larger = false;               // then other tensors are ignored
  std::set<std::string> init_may_lack = {};  // tensors whose names begin so
  OptimizerOptions optimizer;
  LoopOptions loop;
  std::uint64_t seed = 1;
  std::int64_t draft_vocabulary = 16384;  // of a draft; 0: all

  void add_to(CLI::App& command);
  /// Additional options of commands that train.
  void add_budget_to(CLI::App& command);

  /// --draft-vocabulary, of commands that train a draft.
  void add_draft_vocabulary_to(CLI::App& command);

  std::filesystem::path checkpoint_file() const { return output / "checkpoint.pt"; }

  /// For the model card, after what the loss is: "Muon (matrices) ...".
  std::string recipe(const std::string& loss) const;
};

/// Sizes that replace those of `config` where they are given.
struct SizeOptions {
  DecoderConfig explicit_sizes{.hidden = 0, .layers = 0, .heads = 0, .kv_heads = 0, .intermediate = 0};
  bool untied = false;

  /// Adds --layers and so on, and --untied; their help says what they default to.
  void add_to(CLI::App& command, const std::string& otherwise);
  /// The same for a model whose layers and width are not free.
  void add_inner_to(CLI::App& command, const std::string& otherwise);

  bool any() const;
  DecoderConfig apply_to(DecoderConfig config) const;
};

}  // namespace specula_train
