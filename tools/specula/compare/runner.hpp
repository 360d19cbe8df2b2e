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
#include "engine.hpp"
#include "figures.hpp"

namespace specula_tools {

class Runner {
 public:
  /// References the first two arguments. `stop` ends texts.
  Runner(Engine& engine, const DecodingOptions& options, std::vector<Token> stop)
      : engine_(engine), options_(options), stop_(std::move(stop)) {}

  /// Shows a progress bar.
  std::vector<Outcome> run(const std::vector<std::string>& names, std::span<const std::vector<Token>> prompts,
                           std::int32_t repeat);
  /// The same at each of these delays (Engine::set_delay()), in one comparison: (delays, names). Without any,
  /// once.
  std::vector<std::vector<Outcome>> run_at(std::span<const double> delays,
                                           const std::vector<std::string>& names,
                                           std::span<const std::vector<Token>> prompts, std::int32_t repeat);
  /// The same with many texts at once: (numbers of texts, names). The models have slots for them.
  std::vector<std::vector<BatchRuns>> run_batches(const std::vector<std::string>& names,
                                                  std::span<const std::int32_t> texts,
                                                  std::span<const std::vector<Token>> prompts,
                                                  std::int32_t repeat);

 private:
  Engine& engine_;
  const DecodingOptions& options_;
  std::vector<Token> stop_;
};

/// `names`, then plain decoding by each of their draft models, which measures c. Without models whose costs
/// are `known`, and those that cannot decode without the target.
std::vector<std::string> with_plain(const Engine& engine, std::vector<std::string> names,
                                    const CostCoefficients& known = {});

}  // namespace specula_tools
