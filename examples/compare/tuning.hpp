// From measured acceptance and costs to pipelines with the limits that theory likes best.
#pragma once

#include <map>
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

/// Pipelines whose runs tell how often the guesses of each of `drafters` (best first) stay: under the target,
/// and under each drafter before it.
std::vector<std::string> probe_names(const std::vector<std::string>& drafters);

/// What the probes told.
struct Measured {
  std::map<std::string, specula::AcceptanceCurve> by_target;                           // drafter
  std::map<std::pair<std::string, std::string>, specula::AcceptanceCurve> by_drafter;  // reviewer, drafter
  std::map<std::string, specula::CostCurve> draft_costs;  // of a call by its nodes; any unit
  specula::CostCurve target_cost{{1.0}};                  // in the same

  /// Of a cascade of these.
  specula::CascadeRates rates(const std::vector<std::string>& drafters) const;
};

/// Acceptance from the outcomes of the probes, which are found by their names.
Measured acceptance_of(const std::vector<std::string>& drafters, std::span<const Outcome> probes);

struct TunedPipeline {
  std::string name;
  specula::CascadeForecast forecast;
  std::vector<std::string> drafters;  // of forecast.calls
};

/// The best chain of each drafter, the best cascade of each model with the last drafter if that is Max-Gram,
/// and the best cascade of all.
std::vector<TunedPipeline> tune(const std::vector<std::string>& drafters, const Measured& measured,
                                specula::TunerObjective objective);

/// Predicted beside measured, for those of `figures` that were tuned.
std::string forecast_table(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);
nlohmann::ordered_json forecast_json(std::span<const TunedPipeline> tuned, std::span<const Figures> figures);

}  // namespace specula_examples
