// SPDX-License-Identifier: MIT
// Builds pipelines when they are run, over models that are loaded once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "batches.hpp"
#include "comparison.hpp"
#include "decoding_options.hpp"
#include "figures.hpp"
#include "model_pack.hpp"

namespace specula_examples {

class Runner {
 public:
  /// References all arguments. `stop` ends texts.
  Runner(ModelPack& models, const CommonOptions& options, std::vector<Token> stop)
      : models_(models), options_(options), stop_(std::move(stop)) {}

  /// Shows a progress bar.
  std::vector<Outcome> run(const std::vector<std::string>& names, std::span<const std::vector<Token>> prompts,
                           std::int32_t repeat);
  /// The same with many texts at once: (numbers of texts, names). The models have slots for them.
  std::vector<std::vector<BatchRuns>> run_batches(const std::vector<std::string>& names,
                                                  std::span<const std::int32_t> texts,
                                                  std::span<const std::vector<Token>> prompts,
                                                  std::int32_t repeat);

 private:
  ModelPack& models_;
  const CommonOptions& options_;
  std::vector<Token> stop_;
};

/// `names`, then plain decoding by each of their draft models, which measures c. Without models whose costs
/// are `known`, and those that cannot decode without the target.
std::vector<std::string> with_plain(const ModelFolders& folders, std::vector<std::string> names,
                                    const CostCoefficients& known = {});

}  // namespace specula_examples
