// What every entry of the registry needs: a pipeline of given parts, and its rule.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "judge.hpp"
#include "pipelines.hpp"

namespace specula_examples {

template <class D, class S>
std::unique_ptr<Pipeline> assemble(AnyModel& target, Judge judge, const specula::SamplingParams& params,
                                   D drafter, S shape, std::vector<std::string> drafters) {
  using V = specula::TreeVerifier<AnyModel, Judge>;
  return std::make_unique<PipelineOf<V, D, S>>(V{target, judge, params}, std::move(drafter), std::move(shape),
                                               std::move(drafters));
}

/// Takes the options rule= and lenient=. Throws UsageError for a rule that does not keep the target's law.
inline std::pair<Judge, bool> take_rule(PipelineSpec& spec, specula::DraftLaw law) {
  using Rule = Judge::Rule;
  static const std::vector<std::pair<std::string, Rule>> kNames{
      {"sampling", Rule::sampling},   {"token", Rule::token},    {"block", Rule::block},
      {"traversal", Rule::traversal}, {"match", Rule::match},    {"k-seq", Rule::k_seq},
      {"noise", Rule::noise},         {"typical", Rule::typical}};
  const bool shared = law == specula::DraftLaw::shared;
  std::vector<std::string> allowed{"typical"};
  for (const auto& [name, rule] : kNames)
    if (Judge::exact(rule, law)) allowed.push_back(name);
  const std::string word = spec.choice("rule", shared ? "noise" : "sampling", allowed);
  const double lenience = spec.option("lenient", 1, 1, 1000);
  if (lenience > 1) {
    if (shared) spec.fail("lenient is a rule of its own: it does not go with shared noise");
    if (word != "sampling") spec.fail("lenient is a rule of its own: it does not go with rule=" + word);
    return {Judge(Rule::lenient, lenience), true};
  }
  const auto found =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == word; });
  return {Judge(found->second), found->second == Rule::typical};
}

}  // namespace specula_examples
