// SPDX-License-Identifier: MIT
// What a pipeline's text says of its rule, and of the shapes that also have rounds on a device.
#include <specula/runtime/parse_parts.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>

#include <specula/runtime/factory.hpp>

using namespace specula;
namespace pipelines = specula::detail::pipelines;

namespace {

pipelines::ParsedRule rule_of(const char* text, ProposalKind kind) {
  PipelineSpec spec(text);
  const auto rule = pipelines::parse_rule(spec, kind);
  spec.done("x");
  return rule;
}

std::string refusal(const char* text, ProposalKind kind) {
  try {
    rule_of(text, kind);
  } catch (const PipelineError& error) {
    return error.what();
  }
  return "";
}

/// parse(spec) of the text, with the fields of its pipeline.
template <class Parse>
auto shape_of(const char* text, Parse parse) {
  PipelineSpec spec(text);
  for (const PipelineEntry& entry : pipeline_entries())
    if (spec.shape() == entry.name) spec.know(entry.fields);
  return parse(spec);
}
using Counts = std::array<std::int32_t, 4>;

}  // namespace

TEST_CASE("a text without a rule has the one that suits its proposals") {
  CHECK(rule_of("x", ProposalKind::sampled).name == RuleName::sampling);
  CHECK(rule_of("x", ProposalKind::shared).name == RuleName::gumbel);
  CHECK_FALSE(rule_of("x", ProposalKind::shared).lossy);
}

TEST_CASE("a rule by name; lenient= is one of its own, of its own lenience") {
  CHECK(rule_of("x:rule=block", ProposalKind::sampled).name == RuleName::block);
  const auto lenient = rule_of("x:lenient=2.5:lossy=yes", ProposalKind::sampled);
  CHECK(lenient.name == RuleName::lenient);
  CHECK(lenient.lenience == 2.5);
  CHECK(lenient.lossy);
  CHECK(refusal("x:lenient=2:rule=block:lossy=yes", ProposalKind::sampled).find("rule=block") !=
        std::string::npos);
  CHECK(refusal("x:lenient=2:lossy=yes", ProposalKind::shared).find("shared noise") != std::string::npos);
  CHECK(refusal("x:lenient=0.5", ProposalKind::sampled).find("must be 1 to 1000") != std::string::npos);
  CHECK(refusal("x:rule=lenient", ProposalKind::sampled).find("must be one of sampling") !=
        std::string::npos);
}

TEST_CASE("a rule that is not lossless is refused, with those that are, unless the text allows it") {
  const std::string said = refusal("x:rule=token", ProposalKind::shared);
  CHECK(said.find("rule=token: " SPECULA_NOT_LOSSLESS) != std::string::npos);
  CHECK(said.find("Lossless are match, gumbel; add lossy=yes") != std::string::npos);
  CHECK(rule_of("x:rule=token:lossy=yes", ProposalKind::shared).lossy);
  CHECK_FALSE(rule_of("x:rule=token:lossy=yes", ProposalKind::sampled).lossy);  // permits, forces nothing
}

TEST_CASE("a chain ends by its confidence where neither a length nor costs limit it") {
  const auto parse = pipelines::parse_chain<Draw::greedy>;
  CHECK(shape_of("chain:6", parse).length == 6);
  CHECK(shape_of("chain:6", parse).exit_below == 0);
  CHECK(shape_of("chain", parse).exit_below == 0.6f);
  CHECK(shape_of("cost-aware:chain", parse).exit_below == 0);
  CHECK(shape_of("chain:6:exit=0.25", parse).exit_below == 0.25f);
}

TEST_CASE("CAPE's bins of confidence, or one number everywhere, which is the default by cost") {
  const Cape cape = shape_of("cape:3:budget=9:counts=4-3-2-1:thresholds=0.1-0.2-0.3", pipelines::parse_cape);
  CHECK(cape.length == 3);
  CHECK(cape.budget == 9);
  CHECK(cape.extras.counts == Counts{4, 3, 2, 1});
  CHECK(cape.extras.thresholds == std::array<float, 3>{0.1f, 0.2f, 0.3f});
  CHECK(shape_of("cape", pipelines::parse_cape).extras.counts == Cape{}.extras.counts);
  CHECK(shape_of("cape:fixed=2", pipelines::parse_cape).extras.counts == Counts{2, 2, 2, 2});
  CHECK(shape_of("cost-aware:cape", pipelines::parse_cape).extras.counts == Counts{7, 7, 7, 7});
  CHECK_THROWS_AS(shape_of("cape:fixed=2:counts=4-3-2-1", pipelines::parse_cape), PipelineError);
  CHECK_THROWS_AS(shape_of("cape:thresholds=0.1-0.2", pipelines::parse_cape), PipelineError);
}

TEST_CASE("a dynamic tree's three sizes") {
  const DynamicTree tree = shape_of("dynamic-tree:3:2:11", pipelines::parse_dynamic_tree);
  CHECK(tree.top_k == 3);
  CHECK(tree.expansions == 2);
  CHECK(tree.total == 11);
}
