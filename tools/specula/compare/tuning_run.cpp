// SPDX-License-Identifier: MIT
#include "tuning_run.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pass_costs.hpp"

namespace specula_tools {
namespace {

constexpr std::int32_t kCurveNodes = 33;  // costs are extrapolated linearly beyond it
constexpr std::size_t kVisits =
    16;  // several visits, since another program may be busy for a while; fewer for few prompts

/// Costs of passes, scaled to `first` over one node.
std::vector<double> scaled(std::vector<double> costs, double first) {
  const double scale = first / costs.front();
  for (double& c : costs) c *= scale;
  return costs;
}

/// A given curve of passes over 1, 2, ... nodes.
specula::CostCurve cost_curve(std::vector<double> costs) {
  // A curve is extrapolated with its last step: use the mean step, not one at the beginning of a block of
  // nodes.
  const std::size_t last = costs.size() - 1, half = last / 2;
  costs.push_back(costs[last] + std::max(0.0, costs[last] - costs[half]) /
                                    static_cast<double>(std::max<std::size_t>(1, last - half)));
  return specula::CostCurve(std::move(costs));
}

/// Costs of calls in calls of the target over one node: consecutive passes of each model, scaled such that
/// over one node they cost as much as in plain decoding. `by_turns`: also the additional time of rounds in
/// which models run in turn, added to the target's curve for each set of drafts. Measured `visits` times, far
/// apart.
void measure_passes(specula::PipelineModels& models, const CostCoefficients& plain, bool by_turns,
                    specula::Tokens prompt, std::size_t visits, Measured& measured) {
  std::vector<std::string> drafts;
  for (const auto& [name, cost] : plain) drafts.push_back(name);
  std::vector<double> target(kCurveNodes, 0.0);
  std::map<std::string, std::vector<double>> draft_sums;
  std::map<std::set<std::string>, double> turns;
  const auto add = [&](std::vector<double>& sum, specula::AnyModel& model) {
    const auto seconds = pass_seconds(model, prompt, kCurveNodes);
    sum.resize(seconds.size());
    for (std::size_t n = 0; n < seconds.size(); ++n) sum[n] += seconds[n];
  };
  for (std::size_t visit = 0; visit < visits; ++visit) {
    add(target, models.target());
    for (const auto& name : drafts) add(draft_sums[name], models.draft(name));
    if (!by_turns) continue;
    for (const auto& set : subsets(drafts)) {
      if (set.empty()) continue;
      std::vector<specula::AnyModel*> together{&models.target()};
      for (const auto& name : set) together.push_back(&models.draft(name));
      turns[{set.begin(), set.end()}] += turn_seconds(together, prompt);
    }
  }
  for (const auto& [name, sum] : draft_sums)
    measured.draft_costs.emplace(name, cost_curve(scaled(sum, plain.at(name))));
  const double scale = 1 / target.front();
  target = scaled(target, 1);
  measured.target_costs.at({}) = cost_curve(target);
  for (const auto& [set, sum] : turns) {
    auto costs = target;
    for (std::size_t n = 1; n < costs.size(); ++n)  // over one node no draft has run
      costs[n] += std::max(0.0, sum * scale);
    measured.target_costs.emplace(set, cost_curve(costs));
  }
}

}  // namespace

Tuning measure_and_tune(const std::vector<std::string>& drafters, specula::TunerObjective objective,
                        Engine& engine, Runner& runner, std::span<const std::vector<Token>> prompts) {
  auto names = probe_names(drafters);
  names.insert(names.begin(), "autoregressive");
  const auto outcomes = runner.run(with_plain(engine, names), prompts, 1);
  Measured measured = acceptance_of(drafters, outcomes);
  CostCoefficients costs = cost_coefficients(outcomes);
  measure_passes(engine.models(), costs, objective == specula::TunerObjective::speedup, prompts.front(),
                 std::min(kVisits, 2 * prompts.size()), measured);
  for (const auto& drafter : drafters) {
    if (costs.contains(drafter)) continue;
    const auto own = std::find_if(outcomes.begin(), outcomes.end(), [&](const Outcome& o) {
      return o.drafts.size() == 1 && o.drafts.front().model == drafter;
    });
    costs[drafter] =
        seconds_per_call(own->drafts.front().usage) / seconds_per_call(outcomes.front().pooled.target);
    measured.draft_costs.emplace(drafter, specula::CostCurve({costs[drafter]}));
  }
  return {tune(drafters, measured, objective), costs};
}

}  // namespace specula_tools
