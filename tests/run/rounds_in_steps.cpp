// SPDX-License-Identifier: MIT
// A round in steps: calls in an order that is none throw, and change nothing.
#include <specula/run/speculator.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/cost/curve_cost_model.hpp>
#include <specula/specula.hpp>

#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;

namespace {

/// A text whose passes are run by hand.
struct Scene {
  ToyBatch target{1, 5, 3}, draft{1, 5, 4};
  SlotOf<ToyBatch> targets{target, 0}, drafts{draft, 0};
  Speculator<TreeVerifier<SlotOf<ToyBatch>, Sampling>, ModelDrafter<SlotOf<ToyBatch>>, Chain<>> run{
      TreeVerifier{targets, Sampling{}}, ModelDrafter{drafts}, Chain<>{.length = 2}};
  PhiloxRandom rng{1};

  Scene() { run.start(std::vector<Token>{1, 2}); }
  LogitsView rows() {
    const PassRequest& want = *run.want();
    const SlotNodes nodes{want.slot, want.tokens, want.parents};
    return (want.batch == &target ? target : draft).extend({&nodes, 1});
  }
  void finish() {
    while (run.want()) run.give(rows());
  }
};

}  // namespace

TEST_CASE("end() needs a begin(), once") {
  Scene scene;
  auto& run = scene.run;
  CHECK_THROWS_AS(run.end(), std::logic_error);
  run.begin(scene.rng);
  CHECK(run.in_round());
  CHECK_THROWS_AS(run.end(), std::logic_error);  // it waits
  CHECK_THROWS_AS(run.begin(scene.rng), std::logic_error);
  CHECK_THROWS_AS(run.start(std::vector<Token>{1}), std::logic_error);
  scene.finish();
  CHECK(run.in_round());
  CHECK_THROWS_AS(run.begin(scene.rng), std::logic_error);  // its tokens would be lost
  CHECK_THROWS_AS(run.step(scene.rng), std::logic_error);
  const std::size_t size = run.text().size();
  CHECK(run.end().size() == size - 2);
  CHECK_FALSE(run.in_round());
  CHECK_THROWS_AS(run.end(), std::logic_error);  // they would be emitted twice
  CHECK(run.text().size() == size);
  CHECK(!run.step(scene.rng).empty());
  CHECK_THROWS_AS(run.end(), std::logic_error);
}

TEST_CASE("another round is refused with what to do first, and then it begins") {
  for (const bool abandons : {false, true}) {
    Scene scene;
    auto& run = scene.run;
    run.begin(scene.rng);
    CHECK_THROWS_WITH_AS(run.begin(scene.rng), "Speculator: a round waits for a pass; give() or abandon()",
                         std::logic_error);
    CHECK_THROWS_WITH_AS(run.start(std::vector<Token>{1}),
                         "Speculator: a round waits for a pass; give() or abandon()", std::logic_error);
    if (abandons) {
      run.abandon();
      run.begin(scene.rng);
    }
    scene.finish();
    CHECK_THROWS_WITH_AS(run.begin(scene.rng), "Speculator: a round has begun; end() or abandon() it",
                         std::logic_error);
    abandons ? run.abandon() : static_cast<void>(run.end());
    CHECK(!run.step(scene.rng).empty());
  }
}

TEST_CASE("abandon() and forget() end a round, at any wait") {
  for (int passes = 0; passes < 3; ++passes)
    for (const bool forgets : {false, true}) {
      Scene scene;
      auto& run = scene.run;
      run.begin(scene.rng);
      for (int i = 0; i < passes; ++i) run.give(scene.rows());
      if (forgets)
        run.forget();
      else
        run.abandon();
      CHECK_FALSE(run.in_round());
      CHECK_FALSE(run.proposed());
      CHECK_FALSE(run.want());
      CHECK_THROWS_AS(run.end(), std::logic_error);
      if (forgets) run.start(std::vector<Token>{1, 2});
      CHECK(run.text().size() == 2);
      run.begin(scene.rng);
      scene.finish();
      CHECK(!run.end().empty());
    }
}

TEST_CASE("give(), fail(), grant() and keep() answer what is asked, and nothing else") {
  Scene scene;
  auto& run = scene.run;
  const auto failure = std::make_exception_ptr(std::runtime_error("on purpose"));
  std::vector<std::uint8_t> kept(3, 1);
  const auto refuse_all = [&] {
    CHECK_THROWS_AS(run.give({}), std::logic_error);
    CHECK_THROWS_AS(run.fail(failure), std::logic_error);
    CHECK_THROWS_AS(run.grant(true), std::logic_error);
    CHECK_THROWS_AS(run.keep(kept), std::logic_error);
  };
  refuse_all();
  run.begin(scene.rng);
  CHECK_THROWS_AS(run.grant(true), std::logic_error);
  kept.resize(static_cast<std::size_t>(run.proposal().size()));
  CHECK_THROWS_WITH(run.keep(kept),
                    "Speculator::keep: the round does not wait for the target's pass");  // but the draft's
  while (!run.proposed()) run.give(scene.rows());
  CHECK_THROWS_AS(run.grant(true), std::logic_error);
  REQUIRE(run.want()->tokens.size() == 3);
  kept = {1, 1, 0};
  run.keep(kept);
  CHECK(run.want()->tokens.size() == 2);
  scene.finish();
  refuse_all();
  run.end();
  refuse_all();
}

TEST_CASE("a target's pass that fails ends the round, which can be begun again") {
  Scene scene;
  auto& run = scene.run;
  run.begin(scene.rng);
  while (!run.proposed()) run.give(scene.rows());
  run.fail(std::make_exception_ptr(std::runtime_error("on purpose")));
  CHECK_THROWS_WITH(run.end(), "on purpose");
  CHECK_FALSE(run.proposed());
  CHECK(run.text().size() == 2);
  CHECK(!run.step(scene.rng).empty());
}

TEST_CASE("a Speculator names the model of many texts whose slot its target is") {
  Scene scene;
  CHECK(scene.run.batch() == &scene.target);
  Speculator path{PathVerifier{scene.targets, Sampling{}}, NoDrafter{5}, Chain<>{.length = 0}};
  CHECK(path.batch() == nullptr);
}
