// SPDX-License-Identifier: MIT
#include "tuning.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <specula/pipeline.hpp>
#include "text_table.hpp"

namespace specula_tools {
namespace {

constexpr std::int32_t kProbeLength = 16, kReviewedLength = 10, kLongest = 30;
constexpr std::int64_t kFew = 20;  // fewer draft tokens of a depth are too few for a rate

bool is_gram(const std::string& drafter) { return drafter == specula::kMaxGram; }

std::string chain_name(const std::string& drafter, std::int32_t length) {
  return "chain:" + std::to_string(length) + "@" + drafter;
}
std::string review_name(const std::string& reviewer, const std::string& drafter) {
  return "vertical:1:" + std::to_string(kReviewedLength) + "@" + reviewer + "," + drafter;
}

std::size_t place_of(const std::string& drafter, const std::vector<std::string>& stack) {
  return static_cast<std::size_t>(std::find(stack.begin(), stack.end(), drafter) - stack.begin());
}

template <class Counts>
specula::AcceptanceCurve curve(const Counts& offered, const Counts& accepted) {
  std::vector<double> rates;
  for (std::size_t d = 0; d < offered.size() && (d == 0 || offered[d] >= kFew); ++d)
    rates.push_back(offered[d] ? static_cast<double>(accepted[d]) / static_cast<double>(offered[d]) : 0.0);
  if (rates.empty()) rates.push_back(0);
  return specula::AcceptanceCurve(rates);
}

const Outcome& outcome_of(std::span<const Outcome> all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Outcome& o) { return o.name == name; });
  if (found == all.end()) throw std::invalid_argument("tuning: no outcome of the probe " + name);
  return *found;
}

TunedPipeline tuned_chain(const std::string& drafter, const Measured& measured,
                          specula::TunerObjective objective) {
  const specula::CascadeRates rates = measured.rates({drafter});
  const auto best = specula::best_horizontal(rates, {.objective = objective, .max_length = {kLongest}});
  const std::int32_t length = std::max(1, best.counts.front());
  return {chain_name(drafter, length), specula::forecast_chain(rates, length), {drafter}};
}

/// The best cascade of `stack` in which only `active` run.
TunedPipeline tuned_cascade(const std::vector<std::string>& stack, const std::vector<std::string>& active,
                            const Measured& measured, specula::TunerObjective objective,
                            std::int32_t least_first) {
  specula::TunerOptions options;
  options.objective = objective;
  options.last_column = {0, 1, 2, 3, 4, 6, 8, 10, 16, 24};
  options.max_nodes = kMaxTunedNodes;
  options.least_first = least_first;
  std::vector<std::string> members = active;
  if (active.back() !=
      stack.back()) {  // the last drafter, which alone drafts several tokens at a time, is always a member
    members.push_back(stack.back());
    options.last_column = {0};
  }
  specula::CascadeRates rates = measured.rates(members);
  rates.target_cost = measured.target_cost(active);
  const auto best = specula::best_cascade(rates, options);
  const specula::CascadeLimits limits = embedded(best.limits, members, stack);
  TunedPipeline tuned{"cascade", best.forecast, stack};
  tuned.forecast.calls.assign(stack.size(), 0.0);
  for (std::size_t m = 0; m < members.size(); ++m)
    tuned.forecast.calls[place_of(members[m], stack)] = best.forecast.calls[m];
  for (std::size_t row = 0; row < stack.size(); ++row)
    for (std::size_t i = row; i < stack.size(); ++i)
      tuned.name.append(row + i == 0 ? ":limits=" : "-").append(std::to_string(limits[row][i]));
  for (const std::string& drafter : stack)
    tuned.name.append(drafter == stack.front() ? "@" : ",").append(drafter);
  return tuned;
}

/// The best over all its subsets.
TunedPipeline tuned_stack(const std::vector<std::string>& stack, const Measured& measured,
                          specula::TunerObjective objective, std::int32_t least_first) {
  TunedPipeline best = tuned_cascade(stack, stack, measured, objective, least_first);
  if (objective == specula::TunerObjective::swi) return best;
  for (const auto& active : subsets(stack)) {
    if (active.empty() || active == stack || (least_first > 0 && active.front() != stack.front())) continue;
    TunedPipeline other = tuned_cascade(stack, active, measured, objective, least_first);
    if (other.forecast.speedup > best.forecast.speedup) best = std::move(other);
  }
  return best;
}

const Figures* figures_of(std::span<const Figures> all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Figures& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> probe_names(const std::vector<std::string>& drafters) {
  std::vector<std::string> names;
  for (std::size_t d = 0; d < drafters.size(); ++d) {
    names.push_back(chain_name(drafters[d], kProbeLength));
    for (std::size_t r = 0; r < d; ++r) {
      names.push_back(review_name(drafters[r], drafters[d]));
    }
  }
  return names;
}

const specula::CostCurve& Measured::target_cost(const std::vector<std::string>& drafters) const {
  std::set<std::string> models(drafters.begin(), drafters.end());
  models.erase(specula::kMaxGram);
  const auto found = target_costs.find(models);
  return found != target_costs.end() ? found->second : target_costs.at({});
}

specula::CascadeRates Measured::rates(const std::vector<std::string>& drafters) const {
  const std::size_t n = drafters.size();
  specula::CascadeRates rates;
  rates.acceptance.resize(n, std::vector<specula::AcceptanceCurve>(n));
  for (std::size_t d = 0; d < n; ++d) {
    rates.acceptance[0][d] = by_target.at(drafters[d]);
    for (std::size_t r = 0; r < d; ++r)
      rates.acceptance[r + 1][d] = by_drafter.at({drafters[r], drafters[d]});
    rates.draft_costs.push_back(draft_costs.at(drafters[d]));
  }
  rates.acceptance_after = rates.acceptance;  // depth counts from the beginning of a drafter's turn
  rates.runs = true;                          // the probes' curves are for consecutive draft tokens
  rates.target_cost = target_cost(drafters);
  return rates;
}

Measured acceptance_of(const std::vector<std::string>& drafters, std::span<const Outcome> probes) {
  Measured measured;
  for (std::size_t d = 0; d < drafters.size(); ++d) {
    const specula::Stats& stats = outcome_of(probes, chain_name(drafters[d], kProbeLength)).pooled;
    measured.by_target.emplace(drafters[d], curve(stats.offered, stats.accepted));
    for (std::size_t r = 0; r < d; ++r) {
      const specula::Reviews& reviews =
          outcome_of(probes, review_name(drafters[r], drafters[d])).reviews.front();
      measured.by_drafter.emplace(std::pair(drafters[r], drafters[d]),
                                  curve(reviews.offered, reviews.accepted));
    }
  }
  return measured;
}

std::vector<std::vector<std::string>> subsets(const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> all{{}};
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    auto with = all;
    for (auto& subset : with) subset.insert(subset.begin(), *name);
    all.insert(all.begin(), with.begin(), with.end());
  }
  return all;
}

specula::CascadeLimits embedded(const specula::CascadeLimits& limits, const std::vector<std::string>& members,
                                const std::vector<std::string>& stack) {
  specula::CascadeLimits all(stack.size(), std::vector<std::int32_t>(stack.size(), 0));
  std::size_t row = 0;  // the row of the proposals that the next member's reviewer verifies
  for (std::size_t m = 0; m < members.size(); ++m) {
    for (std::size_t i = m; i < members.size(); ++i) all[row][place_of(members[i], stack)] = limits[m][i];
    row = place_of(members[m], stack) + 1;
  }
  all.back().back() = limits.back().back();  // the number of tokens that it drafts at a time
  return all;
}

std::vector<TunedPipeline> tune(const std::vector<std::string>& drafters, const Measured& measured,
                                specula::TunerObjective objective) {
  std::vector<TunedPipeline> tuned;
  for (const std::string& drafter : drafters) tuned.push_back(tuned_chain(drafter, measured, objective));
  const auto add = [&](const std::vector<std::string>& stack) {
    for (const std::int32_t least_first : {0, 1}) {
      const TunedPipeline best = tuned_stack(stack, measured, objective, least_first);
      if (std::none_of(tuned.begin(), tuned.end(),
                       [&](const TunedPipeline& t) { return t.name == best.name; }))
        tuned.push_back(best);
    }
  };
  if (is_gram(drafters.back()))
    for (std::size_t d = 0; d + 1 < drafters.size(); ++d) add({drafters[d], drafters.back()});
  if (drafters.size() > 2 || (drafters.size() == 2 && !is_gram(drafters.back()))) add(drafters);
  return tuned;
}

std::string forecast_table(std::span<const TunedPipeline> tuned, std::span<const Figures> all) {
  std::vector<std::vector<std::string>> rows{{"tuned pipeline", "MAT predicted", "measured", "SWI predicted",
                                              "measured", "off by", "speedup predicted", "measured"}};
  for (const TunedPipeline& t : tuned)
    if (const Figures* f = figures_of(all, t.name))
      rows.push_back({t.name, fixed(t.forecast.tokens, 2), fixed(f->mat, 2), fixed(t.forecast.swi, 2),
                      fixed(f->swi, 2), fixed(100 * std::abs(t.forecast.swi / f->swi - 1), 1) + "%",
                      fixed(t.forecast.speedup, 2) + "x", fixed(f->speedup, 2) + "x"});
  return text_table(rows);
}

std::string recommendation(std::span<const TunedPipeline> tuned, std::span<const Figures> all) {
  const Figures* best = nullptr;
  for (const TunedPipeline& t : tuned)
    if (const Figures* f = figures_of(all, t.name); f && (!best || f->speedup > best->speedup)) best = f;
  if (!best) return "no tuned pipeline was run";
  const std::string gain = fixed(best->speedup, 2) + "x plain decoding, measured";
  if (best->speedup <= 1)
    return "recommended: autoregressive; the best tuned one, " + best->name + ", has " + gain;
  return "recommended: " + best->name + " (" + gain + ")";
}

nlohmann::ordered_json forecast_json(std::span<const TunedPipeline> tuned, std::span<const Figures> all) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const TunedPipeline& t : tuned)
    if (const Figures* f = figures_of(all, t.name)) {
      nlohmann::ordered_json calls = nlohmann::ordered_json::object();
      for (std::size_t d = 0; d < t.drafters.size(); ++d) calls[t.drafters[d]] = t.forecast.calls[d];
      out.push_back({{"name", t.name},
                     {"predicted",
                      {{"mat", t.forecast.tokens},
                       {"swi", t.forecast.swi},
                       {"speedup", t.forecast.speedup},
                       {"draft_calls_per_round", calls}}},
                     {"measured", {{"mat", f->mat}, {"swi", f->swi}, {"speedup", f->speedup}}}});
    }
  return out;
}

}  // namespace specula_tools
