// SPDX-License-Identifier: MIT
// A text's rule, and a Speculator as a Pipeline.
#include <specula/runtime/assemble.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/shape/chain.hpp>

#include "toy_model.hpp"

using namespace specula;
namespace pipelines = specula::detail::pipelines;
using specula_test::ToyModel;

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

TEST_CASE("what is wrong in a pipeline's parts is a PipelineError, and nothing else is") {
  CHECK(pipelines::of_pipeline([] { return 3; }) == 3);
  CHECK_THROWS_WITH_AS(pipelines::of_pipeline([]() -> int { throw std::invalid_argument("too long"); }),
                       "too long", PipelineError);
  CHECK_THROWS_AS(pipelines::of_pipeline([]() -> int { throw std::length_error("memory"); }),
                  std::length_error);
}

TEST_CASE("a Speculator as a Pipeline: its text, parameters, room and drafters by name") {
  const std::vector<Token> prompt{1, 2, 0};
  const SamplingParams greedy{.temperature = 0};
  ToyModel target(3, 1), same(3, 1), draft(3, 2), same_draft(3, 2);
  const Chain<> shape{.length = 2};
  Speculator run{TreeVerifier{target, Sampling{}, greedy}, ModelDrafter{draft}, shape};
  using Of = PipelineOf<TreeVerifier<ToyModel, Sampling>, ModelDrafter<ToyModel>, Chain<>>;
  Of made({same, Sampling{}, greedy}, ModelDrafter{same_draft}, shape, {"small"});
  Pipeline& pipeline = made;
  PhiloxRandom rng(1), again(1);
  run.start(prompt), pipeline.start(prompt);
  for (int round = 0; round < 3; ++round) run.step(rng), pipeline.step(again);
  CHECK(std::vector(pipeline.text().begin(), pipeline.text().end()) ==
        std::vector(run.text().begin(), run.text().end()));
  CHECK(pipeline.room() == run.room());
  CHECK(pipeline.params().temperature == 0);
  REQUIRE(pipeline.drafts().size() == 1);
  CHECK(pipeline.drafts()[0].model == "small");
  CHECK(pipeline.drafts()[0].usage.calls == run.stats().drafters[0].calls);
  CHECK(run.stats().drafters[0].calls > 0);
  CHECK(pipeline.reviews().empty());
}
