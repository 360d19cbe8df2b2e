// SPDX-License-Identifier: MIT
#include "figures.hpp"

#include <algorithm>
#include <numeric>

#include "median.hpp"

namespace specula_tools {
namespace {

constexpr auto ratio = RatioTerms::quotient;
double ratio_of(std::int64_t a, std::int64_t b) {
  return ratio(static_cast<double>(a), static_cast<double>(b));
}

/// A mean over prompts of tokens per second.
RatioTerms rate(const Outcome& outcome, bool with_prefill) {
  RatioTerms terms;
  for (const PromptResult& p : outcome.prompts)
    terms.add(ratio(static_cast<double>(p.first.tokens.size()),
                    p.decode_seconds + (with_prefill ? p.prefill_seconds : 0.0)),
              1);
  return terms;
}

/// New tokens over the seconds of their rounds, so that a prompt counts by the time that it takes.
RatioTerms speed(const Outcome& outcome) {
  RatioTerms terms;
  for (const PromptResult& p : outcome.prompts)
    terms.add(static_cast<double>(p.first.tokens.size()), p.decode_seconds);
  return terms;
}

std::vector<std::optional<double>> acceptance(const specula::Stats& stats) {
  std::vector<std::optional<double>> out(stats.offered.size());
  for (std::size_t d = 0; d < out.size(); ++d)
    if (stats.offered[d] > 0) out[d] = stats.acceptance(static_cast<std::int32_t>(d) + 1);
  while (!out.empty() && !out.back()) out.pop_back();
  return out;
}

double sum(const std::vector<std::int64_t>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

void add_counts(const Outcome& outcome, const Outcome& baseline, Figures& out) {
  for (std::size_t p = 0; p < outcome.prompts.size(); ++p) {
    const Decoded& run = outcome.prompts[p].first;
    const auto tokens = static_cast<std::int64_t>(run.tokens.size());
    out.new_tokens += tokens;
    out.target_calls += run.stats.target.calls;
    for (const auto& draft : run.drafts) out.draft_calls += draft.usage.calls;
    out.terms.mat.add(static_cast<double>(tokens), static_cast<double>(run.stats.target.calls));
    out.terms.tau.add(ratio_of(tokens, run.stats.target.calls), 1);
    out.terms.acceptance.add(sum(run.stats.accepted), sum(run.stats.offered));
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
  out.terms.speed = speed(outcome);
  out.mat = out.terms.mat.ratio();
  out.tau = out.terms.tau.ratio();
  out.acceptance = out.terms.acceptance.ratio();
}

/// The ratio of SWI, with `c[d]` calls of the target per call of drafter d.
RatioTerms swi_terms(const Outcome& outcome, const std::vector<double>& c) {
  RatioTerms terms;
  for (const PromptResult& p : outcome.prompts) {
    auto cost = static_cast<double>(p.first.stats.target.calls);
    for (std::size_t d = 0; d < c.size(); ++d)
      cost += static_cast<double>(p.first.drafts[d].usage.calls) * c[d];
    terms.add(static_cast<double>(p.first.tokens.size()), cost);
  }
  return terms;
}

void add_costs(const Outcome& outcome, const Outcome& baseline, const CostCoefficients& costs, Figures& out) {
  const double target_call = seconds_per_call(baseline.pooled.target);
  std::vector<double> c;
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
    c.push_back(draft.cost_coefficient);
    out.drafts.push_back(draft);
  }
  out.terms.swi = swi_terms(outcome, c);
  out.swi = out.terms.swi.ratio();
}

void add_given(const Outcome& outcome, std::span<const GivenCosts> given, Figures& out) {
  for (const GivenCosts& set : given) {
    GivenSwi swi{.costs = set.name, .terms = std::nullopt};
    std::vector<double> c;
    for (const specula::DraftUsage& draft : outcome.drafts)
      if (const auto cost = set.costs.find(draft.model); cost != set.costs.end()) c.push_back(cost->second);
    if (c.size() == outcome.drafts.size()) swi.terms = swi_terms(outcome, c);
    out.given_swi.push_back(std::move(swi));
  }
}

FigureIntervals intervals_of(const Figures& f, const RatioTerms& baseline, const Bootstrap& bootstrap) {
  FigureIntervals out{.mat = bootstrap.of(f.terms.mat),
                      .tau = bootstrap.of(f.terms.tau),
                      .acceptance = bootstrap.of(f.terms.acceptance),
                      .swi = bootstrap.of(f.terms.swi),
                      .speedup = bootstrap.of(f.terms.speed, baseline),
                      .given_swi = {}};
  for (const GivenSwi& swi : f.given_swi)
    out.given_swi.push_back(swi.terms ? std::optional(bootstrap.of(*swi.terms)) : std::nullopt);
  return out;
}

}  // namespace

CostCoefficients cost_coefficients(std::span<const Outcome> outcomes) {
  const std::string prefix = "autoregressive@";
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

Figures figures(const Outcome& outcome, const Outcome& baseline, const CostCoefficients& costs,
                std::span<const GivenCosts> given, const Bootstrap* bootstrap) {
  Figures out;
  out.name = outcome.name;
  out.lossy = outcome.lossy;
  out.prompts = static_cast<std::int64_t>(outcome.prompts.size());
  add_counts(outcome, baseline, out);
  add_costs(outcome, baseline, costs, out);
  add_given(outcome, given, out);
  out.acceptance_by_depth = acceptance(outcome.pooled);
  out.tokens_per_second = rate(outcome, false).ratio();
  out.tokens_per_second_with_prefill = rate(outcome, true).ratio();
  out.tokens_per_second_over_plain = ratio(out.tokens_per_second, rate(baseline, false).ratio());
  const RatioTerms plain = speed(baseline);
  out.speedup = ratio(out.terms.speed.ratio(), plain.ratio());
  out.overhead_share = outcome.pooled.overhead_share();
  out.mean_proposed = ratio_of(outcome.pooled.proposed, outcome.pooled.rounds);
  std::int64_t nodes = 0;
  for (const PromptResult& p : outcome.prompts) nodes += p.first.stats.target.nodes;
  out.mat_per_verified_node = ratio_of(out.new_tokens, nodes);
  out.draft_milliseconds_per_round =
      1e3 * ratio(outcome.pooled.draft.seconds, static_cast<double>(outcome.pooled.rounds));
  out.target_milliseconds_per_call = 1e3 * seconds_per_call(outcome.pooled.target);
  if (bootstrap) out.intervals = intervals_of(out, plain, *bootstrap);
  return out;
}

Gain gain(const Figures& of, const Figures& over, const Bootstrap& bootstrap) {
  return {.speed = bootstrap.of(of.terms.speed, over.terms.speed),
          .mat = bootstrap.of(of.terms.mat, over.terms.mat),
          .tau = bootstrap.of(of.terms.tau, over.terms.tau),
          .swi = bootstrap.of(of.terms.swi, over.terms.swi)};
}

}  // namespace specula_tools
