#include "tuning_run.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pass_costs.hpp"

namespace specula_examples {
namespace {

constexpr std::int32_t kCurveNodes = 33;  // beyond it costs go on in a straight line
constexpr std::size_t kVisits = 16;       // another program may be busy for a while; fewer for few prompts

/// What passes take, so scaled that it is `first` over one node.
std::vector<double> scaled(std::vector<double> costs, double first) {
  const double scale = first / costs.front();
  for (double& c : costs) c *= scale;
  return costs;
}

/// A given curve of passes over 1, 2, ... nodes.
specula::CostCurve cost_curve(std::vector<double> costs) {
  // A curve goes on with its last step: make that the mean one, not one that a block of nodes begins with.
  const std::size_t last = costs.size() - 1, half = last / 2;
  costs.push_back(costs[last] + std::max(0.0, costs[last] - costs[half]) /
                                    static_cast<double>(std::max<std::size_t>(1, last - half)));
  return specula::CostCurve(std::move(costs));
}

/// What calls cost in calls of the target over one node: passes of each model one after the other, so scaled
/// that over one node they cost what they do in plain decoding. `by_turns`: and what a round takes longer
/// because its models take turns, added to the target's curve for each set of drafts. `visits` times, far
/// apart.
void measure_passes(ModelPack& models, const CostCoefficients& plain, bool by_turns, specula::Tokens prompt,
                    std::size_t visits, Measured& measured) {
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
    for (std::size_t n = 1; n < costs.size(); ++n)  // over one node the target is alone: no draft has run
      costs[n] += std::max(0.0, sum * scale);
    measured.target_costs.emplace(set, cost_curve(costs));
  }
}

}  // namespace

Tuning measure_and_tune(const std::vector<std::string>& drafters, specula::TunerObjective objective,
                        const ModelFolders& folders, ModelPack& models, Runner& runner,
                        std::span<const std::vector<Token>> prompts) {
  auto names = probe_names(drafters);
  names.insert(names.begin(), "autoregressive");
  const auto outcomes = runner.run(with_plain(folders, names), prompts, 1);
  Measured measured = acceptance_of(drafters, outcomes);
  CostCoefficients costs = cost_coefficients(outcomes);
  measure_passes(models, costs, objective == specula::TunerObjective::speedup, prompts.front(),
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

}  // namespace specula_examples
