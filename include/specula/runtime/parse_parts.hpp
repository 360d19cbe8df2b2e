// SPDX-License-Identifier: MIT
// Reads a pipeline's rule, and the shapes that also have rounds on a device, from its text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "specula/run/detail/explain.hpp"
#include "specula/runtime/any_rule.hpp"
#include "specula/runtime/spec.hpp"
#include "specula/shape/cape.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/dynamic_tree.hpp"

namespace specula::detail::pipelines {

/// The rule of a text.
struct ParsedRule {
  RuleName name = RuleName::sampling;
  double lenience = 1;
  bool lossy = false;  // not lossless for the shape's proposals, which the text allows
};

/// The values rule=, lenient= and lossy=.
inline std::span<const PipelineField> rule_fields() {
  static const std::string names = [] {
    std::string all;
    for (const NamedRule& rule : kRules)
      if (rule.name != std::string_view("lenient")) all.append(all.empty() ? "" : "|").append(rule.name);
    return all;
  }();
  static const std::array fields{
      PipelineField{"rule", PipelineField::Kind::word, names.c_str()},
      PipelineField{"lenient", PipelineField::Kind::number, "1", 1, 1000},
      PipelineField{"lossy", PipelineField::Kind::word, "no|yes"},
  };
  return fields;
}

/// Reads them. Throws PipelineError for a rule that is not lossless for proposals of this kind, unless the
/// text has lossy=yes.
inline ParsedRule parse_rule(PipelineSpec& spec, ProposalKind kind) {
  spec.know(rule_fields());
  const bool shared = kind == ProposalKind::shared;
  const std::string word = spec.given("rule") ? spec.word("rule") : shared ? "gumbel" : "sampling";
  const double lenience = spec.number("lenient");
  if (lenience > 1 && shared) spec.fail("lenient is a rule of its own: it does not go with shared noise");
  if (lenience > 1 && word != "sampling")
    spec.fail("lenient is a rule of its own: it does not go with rule=" + word);
  RuleName rule = RuleName::lenient;
  std::string lossless;
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    const auto other = static_cast<RuleName>(i);
    if (lenience <= 1 && word == name_of(other)) rule = other;
    if (is_lossless(other, kind)) lossless.append(lossless.empty() ? "" : ", ").append(name_of(other));
  }
  const bool lossy = !is_lossless(rule, kind);
  if (!spec.is("lossy", "yes") && lossy)
    spec.fail((lenience > 1 ? "lenient" : "rule=" + word) + ": " SPECULA_NOT_LOSSLESS " Lossless are " +
              lossless + "; add lossy=yes if a text of another distribution is what you want.");
  return {rule, lenience, lossy};
}

template <Draw mode>
Chain<mode> parse_chain(PipelineSpec& spec) {
  const bool sized = spec.given("length") || spec.cost_aware();  // these do not need an exit
  return {.length = spec.whole("length"),
          .exit_below = spec.given("exit") || !sized ? static_cast<float>(spec.number("exit")) : 0};
}

/// Numbers of runners-up by confidence: counts= in the bins between thresholds=, or fixed= everywhere.
inline CapeExtras parse_extras(PipelineSpec& spec) {
  CapeExtras extras;
  const bool bins = spec.given("counts") || spec.given("thresholds");
  if (spec.given("fixed") && bins)
    spec.fail("fixed is one number for every confidence: it does not go with counts or thresholds");
  if (spec.given("fixed") || (spec.cost_aware() && !bins)) return CapeExtras::fixed(spec.whole("fixed"));
  const auto counts = spec.wholes("counts");
  const auto thresholds = spec.numbers("thresholds");
  if (counts.size() != extras.counts.size())
    spec.fail("counts are " + std::to_string(extras.counts.size()) +
              " numbers, one for each bin of confidence");
  if (thresholds.size() != extras.thresholds.size())
    spec.fail("thresholds are " + std::to_string(extras.thresholds.size()) +
              " numbers, the ends of all bins of confidence but the last");
  if (!std::is_sorted(thresholds.begin(), thresholds.end())) spec.fail("thresholds must ascend");
  std::copy(counts.begin(), counts.end(), extras.counts.begin());
  std::copy(thresholds.begin(), thresholds.end(), extras.thresholds.begin());
  return extras;
}
inline Cape parse_cape(PipelineSpec& spec) {
  Cape shape;
  shape.length = spec.whole("length");
  shape.budget = spec.whole("budget");
  shape.extras = parse_extras(spec);
  return shape;
}

inline DynamicTree parse_dynamic_tree(PipelineSpec& spec) {
  return {.top_k = spec.whole("top-k"), .expansions = spec.whole("expansions"), .total = spec.whole("total")};
}

}  // namespace specula::detail::pipelines
