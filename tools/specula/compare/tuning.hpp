// SPDX-License-Identifier: MIT
// Tuning: pipelines with the best predicted lengths and limits, from measured acceptance and costs.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <specula/study/tuner.hpp>

#include "comparison.hpp"
#include "figures.hpp"

namespace specula_tools {

inline constexpr std::int32_t kMaxTunedNodes = 128;  // of a proposal, root included

/// Pipelines that measure the acceptance rate of each of `drafters` (best first): under the target, and under
/// each drafter before it.
std::vector<std::string> probe_names(const std::vector<std::string>& drafters);

/// Results of the probes.
struct Measured {
  std::map<std::string, specula::AcceptanceCurve> by_target;                           // drafter
  std::map<std::pair<std::string, std::string>, specula::AcceptanceCurve> by_drafter;  // reviewer, drafter
  std::map<std::string, specula::CostCurve> draft_costs;  // of a call by its nodes; any unit
  /// The target's cost in the same unit, by the set of draft models in its rounds, which evict it from the
  /// CPU caches. The empty set is always present, and used for missing sets. Speedups are relative to the
  /// cost at one node.
  std::map<std::set<std::string>, specula::CostCurve> target_costs{{{}, specula::CostCurve({1.0})}};

  /// The cost with this set.
  const specula::CostCurve& target_cost(const std::vector<std::string>& drafters) const;
  /// The rates of a cascade of these.
  specula::CascadeRates rates(const std::vector<std::string>& drafters) const;
};

/// Acceptance rates from the outcomes of the probes, found by name.
Measured acceptance_of(const std::vector<std::string>& drafters, std::span<const Outcome> probes);

/// All of them, all but the last, ... none.
std::vector<std::vector<std::string>> subsets(const std::vector<std::string>& names);

/// Limits of a cascade of all of `stack` in which only `members`, a subset with the same last drafter, have
/// turns, under `limits`.
specula::CascadeLimits embedded(const specula::CascadeLimits& limits, const std::vector<std::string>& members,
                                const std::vector<std::string>& stack);

struct TunedPipeline {
  std::string name;
  specula::CascadeForecast forecast;
  std::vector<std::string> drafters;  // of forecast.calls
};

/// The best chain of each drafter, the best cascade of each model with the last drafter if that is Max-Gram,
/// and the best cascade of all. For time, the target's cost depends on the models that run.
std::vector<TunedPipeline> tune(const std::vector<std::string>& drafters, const Measured& measured,
                                specula::TunerObjective objective);

/// A table of predicted and measured values, for those of `figures` that were tuned.
std::string forecast_table(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);
/// A line that names the fastest of the tuned pipelines in `figures`.
std::string recommendation(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);
nlohmann::ordered_json forecast_json(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);

}  // namespace specula_tools
