// From measured acceptance and costs to pipelines with the limits that theory likes best.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <specula/theory/tuner.hpp>

#include "comparison.hpp"
#include "figures.hpp"

namespace specula_examples {

inline constexpr std::int32_t kMostTunedNodes = 128;  // of a proposal, root included

/// Pipelines whose runs tell how often the draft tokens of each of `drafters` (best first) stay: under the
/// target, and under each drafter before it.
std::vector<std::string> probe_names(const std::vector<std::string>& drafters);

/// What the probes told.
struct Measured {
  std::map<std::string, specula::AcceptanceCurve> by_target;                           // drafter
  std::map<std::pair<std::string, std::string>, specula::AcceptanceCurve> by_drafter;  // reviewer, drafter
  std::map<std::string, specula::CostCurve> draft_costs;  // of a call by its nodes; any unit
  /// The target's in the same, by the draft models that run in its rounds: what they evict costs time. The
  /// empty set is always there, and stands for sets that are not. Speedups are over the cost at one node.
  std::map<std::set<std::string>, specula::CostCurve> target_costs{{{}, specula::CostCurve({1.0})}};

  /// Where these run.
  const specula::CostCurve& target_cost(const std::vector<std::string>& drafters) const;
  /// Of a cascade of these.
  specula::CascadeRates rates(const std::vector<std::string>& drafters) const;
};

/// Acceptance from the outcomes of the probes, which are found by their names.
Measured acceptance_of(const std::vector<std::string>& drafters, std::span<const Outcome> probes);

/// All of them, all but the last, ... none.
std::vector<std::vector<std::string>> subsets(const std::vector<std::string>& names);

/// Limits of a cascade of all of `stack` in which only `members`, a part of it with the same last drafter,
/// have turns: under `limits`.
specula::CascadeLimits embedded(const specula::CascadeLimits& limits, const std::vector<std::string>& members,
                                const std::vector<std::string>& stack);

struct TunedPipeline {
  std::string name;
  specula::CascadeForecast forecast;
  std::vector<std::string> drafters;  // of forecast.calls
};

/// The best chain of each drafter, the best cascade of each model with the last drafter if that is Max-Gram,
/// and the best cascade of all. For time the target costs what it does beside the models that run.
std::vector<TunedPipeline> tune(const std::vector<std::string>& drafters, const Measured& measured,
                                specula::TunerObjective objective);

/// Predicted beside measured, for those of `figures` that were tuned.
std::string forecast_table(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);
/// Which of the tuned pipelines was the fastest of those in `figures`, in a line.
std::string recommendation(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);
nlohmann::ordered_json forecast_json(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);

}  // namespace specula_examples
