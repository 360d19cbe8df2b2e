// SPDX-License-Identifier: MIT
// Pipelines by name over texts of a batch: each writes what it writes alone, in merged passes.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <specula/batch/batch_speculator.hpp>
#include <specula/runtime/factory.hpp>
#include <specula/runtime/named_models.hpp>

#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyModel;

namespace {

constexpr std::int32_t kVocab = 5, kTexts = 6;

struct Written {
  std::vector<std::vector<Token>> texts;
  std::int64_t draft_passes = 0, proposed = 0;
};

TextRequest request(std::int32_t i, float temperature) {
  TextRequest out;
  for (std::int32_t t = 0; t < 2 + i; ++t) out.prompt.push_back((i + 2 * t) % kVocab);
  out.max_new_tokens = 12 + i;
  out.params.temperature = temperature;
  out.seed = static_cast<std::uint64_t>(i);
  return out;
}

Written together(const std::string& text, std::int32_t slots, float temperature, bool shares) {
  ToyBatch target(slots, kVocab, 3), small(slots, kVocab, 4), base(slots, kVocab, 5);
  std::vector<SlotOf<ToyBatch>> targets, smalls, bases;
  for (std::int32_t s = 0; s < slots; ++s)
    targets.emplace_back(target, s), smalls.emplace_back(small, s), bases.emplace_back(base, s);
  std::vector<std::unique_ptr<NamedModels>> models;
  for (std::size_t s = 0; s < targets.size(); ++s) {
    models.push_back(std::make_unique<NamedModels>("toy", targets[s]));
    models.back()->add("small", smalls[s]).add("base", bases[s]);
  }
  const PipelineFactory factory = prepare_pipeline(text);
  BatchSpeculator batch(
      slots, [&](std::int32_t slot) { return factory.build(*models[static_cast<std::size_t>(slot)], {}); },
      small, base, target);
  if (shares) batch.share(BatchBudget(CostCurve({1, 1.01}), CostCurve({0.01})));
  Written out;
  out.texts.resize(kTexts);
  for (std::int32_t i = 0; i < kTexts; ++i) batch.join(request(i, temperature));
  while (!batch.empty())
    for (const TextResult& ended : batch.step()) {
      REQUIRE(!ended.failure);
      out.texts[static_cast<std::size_t>(ended.id - 1)] = ended.tokens;
      out.proposed += ended.stats.proposed;
    }
  out.draft_passes = small.passes + base.passes;
  return out;
}
std::vector<std::vector<Token>> alone(const std::string& text, float temperature) {
  std::vector<std::vector<Token>> out;
  for (std::int32_t i = 0; i < kTexts; ++i) {
    ToyModel target(kVocab, 3, 2.0f, 64), small(kVocab, 4, 2.0f, 64), base(kVocab, 5, 2.0f, 64);
    NamedModels models("toy", target);
    models.add("small", small).add("base", base);
    const TextRequest r = request(i, temperature);
    auto pipeline = make_pipeline(text, models, r.params);
    std::vector<Token> tokens;
    pipeline->generate(r.prompt, {r.max_new_tokens, r.stop}, PhiloxRandom{*r.seed},
                       [&](Tokens fresh) { tokens.insert(tokens.end(), fresh.begin(), fresh.end()); });
    out.push_back(tokens);
  }
  return out;
}

}  // namespace

TEST_CASE("a pipeline in a batch writes what it writes alone, and its passes are merged") {
  for (const float temperature : {0.0f, 0.8f})
    for (const std::string text :
         {"chain:3@small", "chain:3:draw=sampled@small", "cape:2@base", "dynamic-tree:2:2:6@small",
          "cascade:limits=2-3-2@base,small", "chain:3@max-gram", "sampled-tree:widths=2-2@small"}) {
      CAPTURE(text);
      CAPTURE(temperature);
      const Written one = together(text, 1, temperature, false),
                    three = together(text, 3, temperature, false);
      const auto want = alone(text, temperature);
      CHECK(one.texts == want);
      CHECK(three.texts == want);
      CHECK(three.proposed == one.proposed);
      if (one.draft_passes > 0) CHECK(three.draft_passes < 0.75 * static_cast<double>(one.draft_passes));
    }
}

TEST_CASE("with one budget of all, cost-aware pipelines leave the decision to it") {
  for (const std::string text :
       {"cost-aware:chain:4@small", "cost-aware:chain:4@small,max-gram", "cost-aware:cape@small",
        "cost-aware:dynamic-tree:2:2:6@base", "chain:4@small"}) {
    CAPTURE(text);
    const Written three = together(text, 3, 0, true);
    CHECK(three.texts == alone("autoregressive", 0));
    CHECK(three.proposed > 20);
  }
}

TEST_CASE("one budget is refused for a pipeline whose target is no slot of the batch") {
  ToyBatch target(1, kVocab, 3), small(1, kVocab, 4);
  ToyModel apart(kVocab, 3);
  SlotOf<ToyBatch> draft(small, 0);
  NamedModels models("toy", apart);
  models.add("small", draft);
  const PipelineFactory factory = prepare_pipeline("cost-aware:chain:3@small");
  BatchSpeculator batch(
      1, [&](std::int32_t) { return factory.build(models, {}); }, small, target);
  CHECK_THROWS_WITH_AS(batch.share(BatchBudget()), doctest::Contains("no slot"), std::invalid_argument);
}
