// SPDX-License-Identifier: MIT
#include "report.hpp"

#include <algorithm>
#include <stdexcept>

#include "text_table.hpp"

namespace specula_tools {
namespace {

nlohmann::ordered_json ends(const Interval& interval) { return {interval.low, interval.high}; }
nlohmann::ordered_json all_of(const Interval& interval) {
  return {interval.value, interval.low, interval.high};
}

/// {"mat": [low, high], ...}
nlohmann::ordered_json intervals_json(const Figures& f) {
  const FigureIntervals& i = *f.intervals;
  return {{"speedup", ends(i.speedup)},
          {"mat", ends(i.mat)},
          {"tau", ends(i.tau)},
          {"acceptance", ends(i.acceptance)},
          {"swi", ends(i.swi)}};
}

/// {SET: {"value": 3.2, "interval": [3.1, 3.3]}, ...}; null if a set does not name all drafters.
nlohmann::ordered_json given_json(const Figures& f) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (std::size_t s = 0; s < f.given_swi.size(); ++s) {
    const GivenSwi& swi = f.given_swi[s];
    auto& own = out[swi.costs];
    if (!swi.terms) continue;
    own["value"] = swi.terms->ratio();
    if (f.intervals) own["interval"] = ends(*f.intervals->given_swi[s]);
  }
  return out;
}

nlohmann::ordered_json to_json(const Figures& f) {
  nlohmann::ordered_json depths = nlohmann::ordered_json::array(), drafts = nlohmann::ordered_json::array(),
                         contexts = nlohmann::ordered_json::array(),
                         confidences = nlohmann::ordered_json::array(),
                         prompts = nlohmann::ordered_json::array();
  for (std::size_t p = 0; p < f.terms.speed.over.size(); ++p)
    prompts.push_back({static_cast<std::int64_t>(f.terms.speed.over[p]), f.terms.speed.under[p],
                       static_cast<std::int64_t>(f.terms.mat.under[p])});
  for (const auto& share : f.acceptance_by_depth)
    depths.push_back(share ? nlohmann::ordered_json(*share) : nlohmann::ordered_json());
  for (std::size_t r = 0; r < f.by_context.size(); ++r)
    if (const auto& range = f.by_context[r]; range.rounds > 0)
      contexts.push_back(
          {{"from", r * kContextStep},
           {"rounds", range.rounds},
           {"mat", static_cast<double>(range.new_tokens) / static_cast<double>(range.rounds)}});
  for (std::size_t r = 0; r < f.by_confidence.size(); ++r)
    if (const auto& range = f.by_confidence[r]; range.proposals > 0)
      confidences.push_back({{"from", static_cast<double>(r) / 10},
                             {"proposals", range.proposals},
                             {"accepted", range.accepted}});
  for (const auto& d : f.drafts)
    drafts.push_back({{"model", d.model},
                      {"calls", d.calls},
                      {"milliseconds_per_call", d.milliseconds_per_call},
                      {"layers_per_call", d.layers_per_call},
                      {"cost_coefficient", d.cost_coefficient}});
  nlohmann::ordered_json out{{"name", f.name},
                             {"prompts", f.prompts},
                             {"new_tokens", f.new_tokens},
                             {"target_calls", f.target_calls},
                             {"draft_calls", f.draft_calls},
                             {"mat", f.mat},
                             {"tau", f.tau},
                             {"acceptance", f.acceptance},
                             {"acceptance_by_depth", depths},
                             {"acceptance_by_confidence", confidences},
                             {"mat_by_context", contexts},
                             {"swi", f.swi},
                             {"tokens_per_second", f.tokens_per_second},
                             {"tokens_per_second_with_prefill", f.tokens_per_second_with_prefill},
                             {"tokens_per_second_over_plain", f.tokens_per_second_over_plain},
                             {"speedup", f.speedup},
                             {"overhead_share", f.overhead_share},
                             {"identical_to_autoregressive", f.identical_to_autoregressive},
                             {"lossy", f.lossy},
                             {"mean_proposed", f.mean_proposed},
                             {"mat_per_verified_node", f.mat_per_verified_node},
                             {"draft_milliseconds_per_round", f.draft_milliseconds_per_round},
                             {"target_milliseconds_per_call", f.target_milliseconds_per_call},
                             {"drafts", drafts},
                             {"by_prompt", prompts}};
  if (!f.given_swi.empty()) out["swi_by_costs"] = given_json(f);
  if (f.intervals) out["intervals"] = intervals_json(f);
  return out;
}

/// The first few depths, to limit the width of the table.
std::string depths_text(const Figures& f) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t d = 0; d < std::min(kShown, f.acceptance_by_depth.size()); ++d) {
    const auto& share = f.acceptance_by_depth[d];
    text.append(d ? " " : "").append(share ? fixed(*share, 2) : "-");
  }
  return f.acceptance_by_depth.size() > kShown ? text + " .." : text;
}

std::string costs_text(const Figures& f) {
  std::string text;
  for (const auto& d : f.drafts) text.append(text.empty() ? "" : " ").append(fixed(d.cost_coefficient, 3));
  return text;
}

}  // namespace

nlohmann::ordered_json to_json(std::span<const Figures> all, const nlohmann::ordered_json& settings) {
  nlohmann::ordered_json out{{"pipelines", nlohmann::ordered_json::array()}};
  for (const Figures& f : all) out["pipelines"].push_back(to_json(f));
  for (const auto& [key, value] : settings.items()) out[key] = value;
  return out;
}

std::string interval_text(double value, const Interval* interval, const char* unit) {
  std::string text = fixed(value, 2) + unit;
  if (interval) text += " [" + fixed(interval->low, 2) + ", " + fixed(interval->high, 2) + "]";
  return text;
}

std::string to_table(std::span<const Figures> all) {
  std::vector<std::vector<std::string>> rows{{"pipeline", "speedup", "tokens/s", "MAT", "tau", "alpha", "SWI",
                                              "same text", "with prefill", "nodes", "MAT/node", "draft ms",
                                              "call cost", "own share", "acceptance by depth"}};
  if (!all.empty())
    for (const GivenSwi& swi : all.front().given_swi) rows[0].push_back("SWI by " + swi.costs);
  for (const Figures& f : all) {
    const FigureIntervals* i = f.intervals ? &*f.intervals : nullptr;
    rows.push_back({f.name + (f.lossy ? " (lossy)" : ""),
                    interval_text(f.speedup, i ? &i->speedup : nullptr, "x"), fixed(f.tokens_per_second, 1),
                    interval_text(f.mat, i ? &i->mat : nullptr), fixed(f.tau, 2), fixed(f.acceptance, 3),
                    interval_text(f.swi, i ? &i->swi : nullptr),
                    std::to_string(f.identical_to_autoregressive) + "/" + std::to_string(f.prompts),
                    fixed(f.tokens_per_second_with_prefill, 1), fixed(f.mean_proposed, 1),
                    fixed(f.mat_per_verified_node, 2), fixed(f.draft_milliseconds_per_round, 3),
                    costs_text(f), fixed(100 * f.overhead_share, 2) + "%", depths_text(f)});
    for (std::size_t s = 0; s < f.given_swi.size(); ++s)
      rows.back().push_back(
          f.given_swi[s].terms ? interval_text(f.given_swi[s].terms->ratio(), i ? &*i->given_swi[s] : nullptr)
                               : "-");
  }
  return text_table(rows);
}

Against against(const std::string& name, std::span<const Figures> all, const Bootstrap& bootstrap) {
  const auto other = std::find_if(all.begin(), all.end(), [&](const Figures& f) { return f.name == name; });
  if (other == all.end()) throw std::invalid_argument("'" + name + "' was not run");
  Against out{.name = name, .others = {}, .gains = {}};
  for (const Figures& f : all) {
    if (f.name == name) continue;
    out.others.push_back(f.name);
    out.gains.push_back(gain(f, *other, bootstrap));
  }
  return out;
}

std::string against_table(const Against& against) {
  std::vector<std::vector<std::string>> rows{{"against " + against.name, "speed", "", "MAT", "tau", "SWI"}};
  for (std::size_t o = 0; o < against.others.size(); ++o) {
    const Gain& g = against.gains[o];
    rows.push_back({against.others[o], interval_text(g.speed.value, &g.speed, "x"),
                    g.within_noise() ? "within the noise" : "", interval_text(g.mat.value, &g.mat, "x"),
                    interval_text(g.tau.value, &g.tau, "x"), interval_text(g.swi.value, &g.swi, "x")});
  }
  return text_table(rows);
}

nlohmann::ordered_json against_json(const Against& against) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (std::size_t o = 0; o < against.others.size(); ++o) {
    const Gain& g = against.gains[o];
    out[against.others[o]] = {{"speed", all_of(g.speed)},
                              {"within_noise", g.within_noise()},
                              {"mat", all_of(g.mat)},
                              {"tau", all_of(g.tau)},
                              {"swi", all_of(g.swi)}};
  }
  return out;
}

std::string group_table(std::span<const Group> groups) {
  std::vector<std::vector<std::string>> rows{{"speedup"}};
  for (const Group& group : groups) {
    rows[0].push_back(group.name + " (" + std::to_string(group.figures.front().prompts) + ")");
    for (std::size_t f = 0; f < group.figures.size(); ++f) {
      const Figures& own = group.figures[f];
      if (rows.size() < f + 2) rows.push_back({own.name});
      rows[f + 1].push_back(
          interval_text(own.speedup, own.intervals ? &own.intervals->speedup : nullptr, "x"));
    }
  }
  return text_table(rows);
}

nlohmann::ordered_json group_json(std::span<const Group> groups) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Group& group : groups) {
    nlohmann::ordered_json pipelines = nlohmann::ordered_json::array();
    for (const Figures& f : group.figures) {
      pipelines.push_back({{"name", f.name},
                           {"new_tokens", f.new_tokens},
                           {"target_calls", f.target_calls},
                           {"mat", f.mat},
                           {"tau", f.tau},
                           {"acceptance", f.acceptance},
                           {"tokens_per_second", f.tokens_per_second},
                           {"tokens_per_second_over_plain", f.tokens_per_second_over_plain},
                           {"speedup", f.speedup},
                           {"identical_to_autoregressive", f.identical_to_autoregressive}});
      if (f.intervals) pipelines.back()["intervals"] = intervals_json(f);
    }
    out.push_back({{"name", group.name},
                   {"prompts", group.figures.front().prompts},
                   {"pipelines", std::move(pipelines)}});
  }
  return out;
}

}  // namespace specula_tools
