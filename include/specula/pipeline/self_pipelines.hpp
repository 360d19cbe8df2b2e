// Named pipelines of self-speculation: drafts with early exits, and the target without some of its blocks;
// also adaptive chains.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "specula/draft/early_exit_drafter.hpp"
#include "specula/draft/layer_skip.hpp"
#include "specula/pipeline/assemble.hpp"
#include "specula/shape/adaptive_chain.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/cost_aware.hpp"

namespace specula::detail::pipelines {

/// Parsed rule for the length of a chain.
struct ParsedEnd {
  std::string kind;  // fixed, threshold, paper (the threshold unbounded), heuristic
  std::int32_t length = 0;
  float exit_below = 0;
  bool carry = true;
};
inline ParsedEnd parse_end(PipelineSpec& spec, const std::string& fallback, std::int32_t fixed_length) {
  ParsedEnd end;
  end.kind = spec.choice("end", fallback, {"fixed", "threshold", "paper", "heuristic"});
  const std::int32_t otherwise = end.kind == "fixed"       ? fixed_length
                                 : end.kind == "heuristic" ? HeuristicEnd{}.longest
                                                           : ThresholdEnd{}.longest;
  end.length = spec.size("length", otherwise, 1, 64);
  if (end.kind != "heuristic")
    end.exit_below = static_cast<float>(
        spec.option("exit", end.kind == "fixed" ? 0 : double{ThresholdEnd{}.threshold}, 0, 1));
  if (end.kind != "fixed") end.carry = spec.choice("carry", "yes", {"yes", "no"}) == "yes";
  return end;
}

/// A shape over the drafter that `make` returns.
template <class S, class Make>
PipelineFactory self_factory(PipelineSpec& spec, const std::string& drafter, S shape, Make make) {
  const ParsedRule rule = parse_rule(spec, shape.kind);
  PipelineFactory factory;
  factory.drafters = {drafter};
  factory.max_nodes = factory.draft_nodes = shape.nodes().most;
  factory.lossy = rule.lossy;
  factory.build = [=](PipelineModels& models, const SamplingParams& params) {
    return assemble(models.target(), rule, params, make(models), shape, {drafter});
  };
  return factory;
}

/// A chain with this end over that drafter, its draft tokens chosen or drawn (draw=).
template <class Make>
PipelineFactory self_chain(PipelineSpec& spec, const std::string& drafter, const ParsedEnd& end, Make make) {
  const auto ending = [&]<Draw mode>() {
    if (end.kind == "threshold" || end.kind == "paper")
      return self_factory(
          spec, drafter,
          AdaptiveChain<ThresholdEnd, mode>{
              .end = {.longest = end.length, .threshold = end.exit_below, .unbounded = end.kind == "paper"},
              .carry = end.carry},
          make);
    if (end.kind == "heuristic")
      return self_factory(spec, drafter,
                          AdaptiveChain<HeuristicEnd, mode>{
                              .end = {.longest = end.length, .now = std::min(end.length, HeuristicEnd{}.now)},
                              .carry = end.carry},
                          make);
    return self_factory(spec, drafter, Chain<mode>{.length = end.length, .exit_below = end.exit_below}, make);
  };
  return spec.choice("draw", "greedy", {"greedy", "sampled"}) == "sampled"
             ? ending.template operator()<Draw::sampled>()
             : ending.template operator()<Draw::greedy>();
}

/// Thresholds of a draft's exits from the first on, and the last exit that it must have; 0: any.
struct ParsedExits {
  std::vector<float> thresholds;
  std::int32_t last = 0;
};
/// With exits=, tokens stop at these exits only, and all remaining tokens at the last.
inline ParsedExits parse_exits(PipelineSpec& spec) {
  const auto exits = spec.sizes("exits", {}, 16, 1, 1024);
  if (exits.empty()) return {spec.numbers("thresholds", {0.5f, 0}, 15, 0, 2)};
  for (std::size_t i = 1; i < exits.size(); ++i)
    if (exits[i] <= exits[i - 1]) spec.fail("exits must ascend");
  const std::size_t early = exits.size() - 1;
  auto given = spec.numbers("thresholds", std::vector<float>(early, 0.5f), 16, 0, 2);
  if (given.size() == exits.size() && given.back() == 0) given.pop_back();
  if (given.size() != early)
    spec.fail("thresholds are " + std::to_string(given.size()) + " numbers, must be " +
              std::to_string(early) + ": one for each of exits but the last, where all tokens leave");
  constexpr float kNever = 2;
  ParsedExits out{std::vector<float>(static_cast<std::size_t>(exits.back() - 1), kNever), exits.back()};
  for (std::size_t i = 0; i < early; ++i) out.thresholds[static_cast<std::size_t>(exits[i] - 1)] = given[i];
  return out;
}
/// A draft with exits: the exits used, and the confidence at which a token stops.
inline auto parse_s2d(PipelineSpec& spec, const std::string& draft) {
  const ParsedExits exits = parse_exits(spec);
  const auto by = spec.choice("leave", "confidence", {"confidence", "sample"}) == "sample"
                      ? ExitBy::sample
                      : ExitBy::confidence;
  return [=](PipelineModels& models) {
    if (exits.last > 0)
      if (const std::int32_t all = models.draft(draft).exits(); all > 0 && exits.last > all)
        throw PipelineError("the draft '" + draft + "' has no exit " + std::to_string(exits.last) +
                            ", its exits are 1 to " + std::to_string(all));
    return models.early_exit(draft, exits.thresholds, by);
  };
}
/// The target without some of its blocks: given ones, or chosen by rules, which sets `measures`.
inline std::function<AnyDrafter(PipelineModels&)> parse_layer_skip(PipelineSpec& spec, bool& measures) {
  constexpr std::int32_t kMaxLayers = 1024;
  const BlockLists blocks{.attention = spec.sizes("attention", {}, kMaxLayers, 1, kMaxLayers),
                          .mlp = spec.sizes("mlp", {}, kMaxLayers, 1, kMaxLayers)};
  measures = blocks.attention.empty() && blocks.mlp.empty();
  if (!measures) return [=](PipelineModels& models) { return models.layer_skip(blocks); };
  SkipRules rules;
  rules.alike = spec.option("alike", rules.alike, -1, 2);
  rules.every = spec.count("every", rules.every, 0, 1024);
  rules.keep_last = spec.count("last", rules.keep_last, 0, 1024);
  return [=](PipelineModels& models) { return models.layer_skip(rules); };
}

inline PipelineFactory prepare_adaptive_chain(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  const ParsedEnd end = parse_end(spec, "threshold", kDefaultChainLength);
  PipelineFactory factory =
      self_chain(spec, draft, end, [=](PipelineModels& models) { return models.drafter(draft); });
  factory.drafts = {draft};
  return factory;
}

inline PipelineFactory prepare_s2d(PipelineSpec& spec) {
  const std::string draft = spec.word(kEarlyExitDraft);
  const ParsedEnd end = parse_end(spec, "fixed", kDefaultChainLength);
  PipelineFactory factory = self_chain(spec, draft, end, parse_s2d(spec, draft));
  factory.exits = {draft};
  return factory;
}
inline PipelineFactory prepare_layer_skip(PipelineSpec& spec) {
  const ParsedEnd end = parse_end(spec, "paper", kDefaultChainLength);
  bool measures = false;
  const auto drafter = parse_layer_skip(spec, measures);
  PipelineFactory factory = self_chain(spec, kTheTarget, end, drafter);
  factory.measures = measures;
  return factory;
}
/// Either draft, with a chain of cost-aware length.
inline PipelineFactory prepare_cost_aware_s2d(PipelineSpec& spec) {
  const std::string draft = spec.word(kEarlyExitDraft);
  const CostAware shape(Chain<>{.length = spec.size("length", 8, 1, 64)});
  PipelineFactory factory = self_factory(spec, draft, shape, parse_s2d(spec, draft));
  factory.exits = {draft};
  return factory;
}
inline PipelineFactory prepare_cost_aware_layer_skip(PipelineSpec& spec) {
  const CostAware shape(Chain<>{.length = spec.size("length", 8, 1, 64)});
  bool measures = false;
  const auto drafter = parse_layer_skip(spec, measures);
  PipelineFactory factory = self_factory(spec, kTheTarget, shape, drafter);
  factory.measures = measures;
  return factory;
}

}  // namespace specula::detail::pipelines
