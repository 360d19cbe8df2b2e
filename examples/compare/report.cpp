#include "report.hpp"

#include <algorithm>

#include "text_table.hpp"

namespace specula_examples {
namespace {

nlohmann::ordered_json to_json(const Figures& f) {
  nlohmann::ordered_json depths = nlohmann::ordered_json::array(), drafts = nlohmann::ordered_json::array(),
                         contexts = nlohmann::ordered_json::array(),
                         confidences = nlohmann::ordered_json::array();
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
  return {{"name", f.name},
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
          {"speedup", f.speedup},
          {"overhead_share", f.overhead_share},
          {"identical_to_autoregressive", f.identical_to_autoregressive},
          {"lossy", f.lossy},
          {"mean_proposed", f.mean_proposed},
          {"mat_per_verified_node", f.mat_per_verified_node},
          {"draft_milliseconds_per_round", f.draft_milliseconds_per_round},
          {"target_milliseconds_per_call", f.target_milliseconds_per_call},
          {"drafts", drafts}};
}

/// The first few depths; the table would not fit otherwise.
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

std::string to_table(std::span<const Figures> all) {
  std::vector<std::vector<std::string>> rows{{"pipeline", "speedup", "tokens/s", "MAT", "tau", "alpha", "SWI",
                                              "same text", "with prefill", "nodes", "MAT/node", "draft ms",
                                              "c", "own share", "acceptance by depth"}};
  for (const Figures& f : all)
    rows.push_back({f.name + (f.lossy ? " (lossy)" : ""), fixed(f.speedup, 2) + "x",
                    fixed(f.tokens_per_second, 1), fixed(f.mat, 2), fixed(f.tau, 2), fixed(f.acceptance, 3),
                    fixed(f.swi, 2),
                    std::to_string(f.identical_to_autoregressive) + "/" + std::to_string(f.prompts),
                    fixed(f.tokens_per_second_with_prefill, 1), fixed(f.mean_proposed, 1),
                    fixed(f.mat_per_verified_node, 2), fixed(f.draft_milliseconds_per_round, 3),
                    costs_text(f), fixed(100 * f.overhead_share, 2) + "%", depths_text(f)});
  return text_table(rows);
}

}  // namespace specula_examples
