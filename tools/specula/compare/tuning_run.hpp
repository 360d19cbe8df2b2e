// SPDX-License-Identifier: MIT
// Runs the tuning: probes, costs, limits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runner.hpp"
#include "tuning.hpp"

namespace specula_tools {

struct Tuning {
  std::vector<TunedPipeline> pipelines;
  CostCoefficients costs;  // c of the drafters
};

/// `drafters` are best first, `prompts` (at least one) are development prompts.
Tuning measure_and_tune(const std::vector<std::string>& drafters, specula::TunerObjective objective,
                        Engine& engine, Runner& runner, std::span<const std::vector<Token>> prompts);

}  // namespace specula_tools
