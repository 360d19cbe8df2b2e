// SPDX-License-Identifier: MIT
// A Speculator as a Pipeline, and which errors are a text's.
#include <specula/runtime/assemble.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/shape/chain.hpp>

#include "toy_model.hpp"

using namespace specula;
namespace pipelines = specula::detail::pipelines;
using specula_test::ToyModel;

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
