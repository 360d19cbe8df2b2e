// What every entry of the registry needs: a pipeline of given parts, and its rule.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "any_rule.hpp"
#include "pipelines.hpp"

namespace specula_examples {

template <class D, class S>
std::unique_ptr<Pipeline> assemble(AnyModel& target, AnyRule rule, const specula::SamplingParams& params,
                                   D drafter, S shape, std::vector<std::string> drafters) {
  using V = specula::TreeVerifier<AnyModel, AnyRule>;
  return std::make_unique<PipelineOf<V, D, S>>(V{target, rule, params}, std::move(drafter), std::move(shape),
                                               std::move(drafters));
}

/// Takes the options rule= and lenient=. Throws UsageError for a rule that does not keep the target's
/// distribution.
inline std::pair<AnyRule, bool> parse_rule(PipelineSpec& spec, specula::ProposalKind kind) {
  using Rule = AnyRule::Rule;
  static const std::vector<std::pair<std::string, Rule>> kNames{
      {"sampling", Rule::sampling},   {"token", Rule::token},    {"block", Rule::block},
      {"traversal", Rule::traversal}, {"match", Rule::match},    {"k-seq", Rule::k_seq},
      {"gumbel", Rule::gumbel},       {"typical", Rule::typical}};
  const bool shared = kind == specula::ProposalKind::shared;
  std::vector<std::string> allowed{"typical"};
  for (const auto& [name, rule] : kNames)
    if (AnyRule::exact(rule, kind)) allowed.push_back(name);
  const std::string word = spec.choice("rule", shared ? "gumbel" : "sampling", allowed);
  const double lenience = spec.option("lenient", 1, 1, 1000);
  if (lenience > 1) {
    if (shared) spec.fail("lenient is a rule of its own: it does not go with shared noise");
    if (word != "sampling") spec.fail("lenient is a rule of its own: it does not go with rule=" + word);
    return {AnyRule(Rule::lenient, lenience), true};
  }
  const auto found =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == word; });
  return {AnyRule(found->second), found->second == Rule::typical};
}

}  // namespace specula_examples
