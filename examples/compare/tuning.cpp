#include "tuning.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "pipelines.hpp"
#include "text_table.hpp"

namespace specula_examples {
namespace {

constexpr std::int32_t kProbeLength = 16, kReviewedLength = 10, kLongest = 30;
constexpr std::int64_t kFew = 20;         // guesses of a depth that tell too little of it

bool is_gram(const std::string& drafter) { return drafter == kMaxGram; }

std::string chain_name(const std::string& drafter, std::int32_t length) {
  return (is_gram(drafter) ? drafter : "chain:" + drafter) + ":" + std::to_string(length);
}
std::string review_name(const std::string& reviewer, const std::string& drafter) {
  return "vertical:" + reviewer + ":" + drafter + ":1:" + std::to_string(kReviewedLength);
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
  const auto best =
      specula::best_chain_length(measured.by_target.at(drafter), measured.draft_costs.at(drafter), kLongest,
                                 measured.target_cost, objective);
  const std::int32_t length = std::max(1, best.length);
  const specula::CascadeRates rates = measured.rates({drafter});
  return {chain_name(drafter, length), specula::forecast_chain(rates, length), {drafter}};
}

TunedPipeline tuned_cascade(const std::vector<std::string>& drafters, const Measured& measured,
                            specula::TunerObjective objective, std::int32_t least_first) {
  specula::TunerOptions options;
  options.objective = objective;
  options.last_column = {0, 1, 2, 3, 4, 6, 8, 10, 16, 24};
  options.max_nodes = kMostTunedNodes;
  options.least_first = least_first;
  const auto best = specula::best_cascade(measured.rates(drafters), options);
  TunedPipeline tuned{"cascade", best.forecast, drafters};
  for (const std::string& drafter : drafters) tuned.name.append(":").append(drafter);
  for (std::size_t row = 0; row < drafters.size(); ++row)
    for (std::size_t i = row; i < drafters.size(); ++i)
      tuned.name.append(row + i == 0 ? ":limits=" : "-").append(std::to_string(best.limits[row][i]));
  return tuned;
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
  rates.acceptance_after = rates.acceptance;  // a drafter's first guesses are its first wherever its turn comes
  rates.target_cost = target_cost;
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

std::vector<TunedPipeline> tune(const std::vector<std::string>& drafters, const Measured& measured,
                                specula::TunerObjective objective) {
  std::vector<TunedPipeline> tuned;
  for (const std::string& drafter : drafters) tuned.push_back(tuned_chain(drafter, measured, objective));
  const auto add = [&](const std::vector<std::string>& stack) {
    for (const std::int32_t least_first : {0, 1}) {
      const TunedPipeline best = tuned_cascade(stack, measured, objective, least_first);
      if (tuned.back().name != best.name) tuned.push_back(best);
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

}  // namespace specula_examples
