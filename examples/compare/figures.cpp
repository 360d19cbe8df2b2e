#include "figures.hpp"

#include <algorithm>
#include <numeric>

#include "median.hpp"

namespace specula_examples {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0.0; }
double ratio(std::int64_t a, std::int64_t b) { return ratio(static_cast<double>(a), static_cast<double>(b)); }

struct Speed {
  double decoding = 0, with_prefill = 0;
};

Speed speed(const Outcome& outcome) {
  Speed sum;
  for (const PromptResult& p : outcome.prompts) {
    const auto tokens = static_cast<double>(p.first.tokens.size());
    sum.decoding += ratio(tokens, p.decode_seconds);
    sum.with_prefill += ratio(tokens, p.decode_seconds + p.prefill_seconds);
  }
  const auto n = static_cast<double>(outcome.prompts.size());
  return {ratio(sum.decoding, n), ratio(sum.with_prefill, n)};
}

std::vector<std::optional<double>> acceptance(const specula::Stats& stats) {
  std::vector<std::optional<double>> out(stats.offered.size());
  for (std::size_t d = 0; d < out.size(); ++d)
    if (stats.offered[d] > 0) out[d] = stats.acceptance(static_cast<std::int32_t>(d) + 1);
  while (!out.empty() && !out.back()) out.pop_back();
  return out;
}

void add_counts(const Outcome& outcome, const Outcome& baseline, Figures& out) {
  for (std::size_t p = 0; p < outcome.prompts.size(); ++p) {
    const Decoded& run = outcome.prompts[p].first;
    const auto tokens = static_cast<std::int64_t>(run.tokens.size());
    out.new_tokens += tokens;
    out.target_calls += run.stats.target.calls;
    for (const auto& draft : run.drafts) out.draft_calls += draft.usage.calls;
    out.tau += ratio(tokens, run.stats.target.calls);
    if (run.by_context.size() > out.by_context.size()) out.by_context.resize(run.by_context.size());
    for (std::size_t r = 0; r < run.by_context.size(); ++r) {
      out.by_context[r].rounds += run.by_context[r].rounds;
      out.by_context[r].new_tokens += run.by_context[r].new_tokens;
    }
    for (std::size_t r = 0; r < out.by_confidence.size(); ++r) {
      out.by_confidence[r].proposals += run.by_confidence[r].proposals;
      out.by_confidence[r].accepted += run.by_confidence[r].accepted;
    }
    out.identical_to_autoregressive += run.tokens == baseline.prompts[p].first.tokens;
  }
  out.tau = ratio(out.tau, static_cast<double>(out.prompts));
  out.mat = ratio(out.new_tokens, out.target_calls);
}

void add_costs(const Outcome& outcome, const Outcome& baseline, const CostCoefficients& costs, Figures& out) {
  const double target_call = seconds_per_call(baseline.pooled.target);
  double cost = static_cast<double>(out.target_calls);  // in calls of the target
  for (std::size_t d = 0; d < outcome.drafts.size(); ++d) {
    DraftCost draft{.model = outcome.drafts[d].model};
    for (const PromptResult& p : outcome.prompts) draft.calls += p.first.drafts[d].usage.calls;
    draft.milliseconds_per_call = 1e3 * seconds_per_call(outcome.drafts[d].usage);
    draft.layers_per_call =
        draft.calls > 0 ? outcome.drafts[d].usage.layers / static_cast<double>(outcome.drafts[d].usage.calls)
                        : 0;
    const auto known = costs.find(draft.model);
    draft.cost_coefficient =
        known != costs.end() ? known->second : ratio(seconds_per_call(outcome.drafts[d].usage), target_call);
    cost += static_cast<double>(draft.calls) * draft.cost_coefficient;
    out.drafts.push_back(draft);
  }
  out.swi = ratio(static_cast<double>(out.new_tokens), cost);
}

}  // namespace

CostCoefficients cost_coefficients(std::span<const Outcome> outcomes) {
  const std::string prefix = "autoregressive:";
  const auto call_seconds = [](const PromptResult& run) { return seconds_per_call(run.first.stats.target); };
  const Outcome& target = outcomes.front();
  CostCoefficients costs;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.name.starts_with(prefix)) continue;
    std::vector<double> ratios;
    for (std::size_t p = 0; p < target.prompts.size(); ++p)
      if (const double plain = call_seconds(target.prompts[p]); plain > 0)
        ratios.push_back(call_seconds(outcome.prompts[p]) / plain);
    if (!ratios.empty()) costs[outcome.name.substr(prefix.size())] = median(ratios);
  }
  return costs;
}

Figures figures(const Outcome& outcome, const Outcome& baseline, const CostCoefficients& costs) {
  Figures out;
  out.name = outcome.name;
  out.lossy = outcome.lossy;
  out.prompts = static_cast<std::int64_t>(outcome.prompts.size());
  add_counts(outcome, baseline, out);
  add_costs(outcome, baseline, costs, out);
  out.acceptance_by_depth = acceptance(outcome.pooled);
  const auto sum = [](const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  out.acceptance = ratio(sum(outcome.pooled.accepted), sum(outcome.pooled.offered));
  const Speed own = speed(outcome);
  out.tokens_per_second = own.decoding;
  out.tokens_per_second_with_prefill = own.with_prefill;
  out.speedup = ratio(own.decoding, speed(baseline).decoding);
  out.overhead_share = outcome.pooled.overhead_share();
  out.mean_proposed = ratio(outcome.pooled.proposed, outcome.pooled.rounds);
  std::int64_t nodes = 0;
  for (const PromptResult& p : outcome.prompts) nodes += p.first.stats.target.nodes;
  out.mat_per_verified_node = ratio(out.new_tokens, nodes);
  out.draft_milliseconds_per_round =
      1e3 * ratio(outcome.pooled.draft.seconds, static_cast<double>(outcome.pooled.rounds));
  out.target_milliseconds_per_call = 1e3 * seconds_per_call(outcome.pooled.target);
  return out;
}

}  // namespace specula_examples
