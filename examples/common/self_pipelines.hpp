// Pipelines of drafts that are a part of a model: with exits, or the target without some of its blocks; and
// chains that learn where to end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "assemble.hpp"
#include "pipelines.hpp"

namespace specula_examples {

/// How long a chain of guesses gets.
struct TakenEnd {
  std::string kind;  // fixed, threshold, heuristic
  std::int32_t length = 0;
  float exit_below = 0;
  bool carry = true;
};
inline TakenEnd take_end(PipelineSpec& spec, const std::string& absent, std::int32_t fixed_length) {
  TakenEnd end;
  end.kind = spec.choice("end", absent, {"fixed", "threshold", "heuristic"});
  const std::int32_t otherwise = end.kind == "fixed"       ? fixed_length
                                 : end.kind == "threshold" ? specula::ThresholdEnd{}.longest
                                                           : specula::HeuristicEnd{}.longest;
  end.length = spec.size("length", otherwise, 1, 64);
  if (end.kind != "heuristic")
    end.exit_below = static_cast<float>(
        spec.option("exit", end.kind == "fixed" ? 0 : double{specula::ThresholdEnd{}.threshold}, 0, 1));
  if (end.kind != "fixed") end.carry = spec.choice("carry", "yes", {"yes", "no"}) == "yes";
  return end;
}

/// A chain of such an end, its guesses chosen or drawn (draw=), of whatever drafter `make` gives.
template <class M, class Make>
Recipe<M> self_recipe(PipelineSpec& spec, const std::string& drafter, const TakenEnd& end, Make make) {
  const bool drawn = spec.choice("draw", "greedy", {"greedy", "sampled"}) == "sampled";
  const auto recipe_of = [&](auto shape) {
    const auto [judge, lossy] = take_rule(spec, shape.law);
    Recipe<M> recipe;
    recipe.drafters = {drafter};
    recipe.max_nodes = recipe.draft_nodes = shape.max_nodes();
    recipe.lossy = lossy;
    recipe.build = [=, rule = judge](ModelSource<M>& models, const specula::SamplingParams& params) {
      return assemble(models.target(), rule, params, make(models), shape, {drafter});
    };
    return recipe;
  };
  const auto ending = [&]<specula::Draw mode>() {
    using specula::AdaptiveChain, specula::HeuristicEnd, specula::ThresholdEnd;
    if (end.kind == "threshold")
      return recipe_of(AdaptiveChain<ThresholdEnd, mode>{
          .end = {.longest = end.length, .threshold = end.exit_below}, .carry = end.carry});
    if (end.kind == "heuristic")
      return recipe_of(AdaptiveChain<HeuristicEnd, mode>{
          .end = {.longest = end.length, .now = std::min(end.length, HeuristicEnd{}.now)},
          .carry = end.carry});
    return recipe_of(specula::Chain<mode>{.length = end.length, .exit_below = end.exit_below});
  };
  return drawn ? ending.template operator()<specula::Draw::sampled>()
               : ending.template operator()<specula::Draw::greedy>();
}

template <class M>
Recipe<M> prepare_adaptive_chain(PipelineSpec& spec) {
  const std::string draft = spec.word(kDefaultDraft);
  const TakenEnd end = take_end(spec, "threshold", kDefaultChainLength);
  Recipe<M> recipe =
      self_recipe<M>(spec, draft, end, [=](ModelSource<M>& models) { return models.drafter(draft); });
  recipe.drafts = {draft};
  return recipe;
}

template <class M>
Recipe<M> prepare_sorted(PipelineSpec& spec) {
  const std::string draft = spec.word(kSorted);
  const std::vector<float> thresholds = spec.numbers("thresholds", {0.5f, 0.5f}, 15, 0, 2);
  const auto by = spec.choice("leave", "top", {"top", "drawn"}) == "drawn" ? specula::ExitBy::drawn
                                                                           : specula::ExitBy::top;
  const TakenEnd end = take_end(spec, "fixed", kDefaultChainLength);
  return self_recipe<M>(spec, draft, end,
                        [=](ModelSource<M>& models) { return models.sorted(draft, thresholds, by); });
}

template <class M>
Recipe<M> prepare_layer_skip(PipelineSpec& spec) {
  specula::SkipRules rules;
  rules.alike = spec.option("alike", rules.alike, -1, 2);
  rules.every = spec.count("every", rules.every, 0, 1024);
  rules.keep_last = spec.count("last", rules.keep_last, 0, 1024);
  const TakenEnd end = take_end(spec, "threshold", kDefaultChainLength);
  return self_recipe<M>(spec, "the target", end,
                        [=](ModelSource<M>& models) { return models.layer_skip(rules); });
}

}  // namespace specula_examples
