// SPDX-License-Identifier: MIT
// labels: optimised
// Either: copies where they promise more tokens per second than the draft does.
#include <specula/shape/either.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <specula/draft/max_gram.hpp>
#include <specula/draft/model_drafter.hpp>

#include "simulated_costs.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 40;

/// Copies the token 1 for ever, as sure of it as it is told.
class Sure {
 public:
  explicit Sure(float confidence) : confidences_(1, confidence) {}
  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t capacity() const { return 1 << 20; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) {}
  PointMasses extend(Tokens, Nodes) { return {tokens_, confidences_}; }

 private:
  std::vector<Token> tokens_ = {1};
  std::vector<float> confidences_;
};

/// The costs of a batch in which draft calls pay, or do not.
class Granting final : public CostModel {
 public:
  explicit Granting(bool pays) : pays_(pays) {}
  double accept_probability(double confidence) const override { return confidence; }
  bool call_pays(const DraftCall&) override { return pays_; }
  bool is_shared() const override { return true; }
  bool node_pays(double, double, std::int32_t) override { return true; }
  std::int32_t best_count(std::span<const double> probabilities, std::int32_t) const override {
    return static_cast<std::int32_t>(probabilities.size());
  }

 private:
  bool pays_;
};

/// What `shape` proposes after a text, by a copier of this confidence.
Usage drafted(Either<Chain<>> shape, float confidence, std::int32_t& proposed, CostModel* costs = nullptr,
              std::int32_t most = 100) {
  const Tables tables = similar_tables(kVocab, 1.6, 1, 5);
  BigramModel draft(tables.draft, kVocab);
  Stack stack{ModelDrafter{draft}, Sure(confidence)};
  ProposalBuilder tree(kVocab, shape.nodes().most, 0);
  const std::vector<Token> text{1, 2, 3};
  const std::int32_t nodes = std::min(most, shape.nodes().most);
  tree.reset(4, 3, nodes);
  PhiloxRandom rng(1);
  shape.reserve();
  shape.reset();
  shape.propose(stack, {.committed = text, .params = {}, .max_nodes = nodes, .cost_model = costs}, tree, rng)
      .run();
  proposed = tree.size() - 1;
  return stack.usage(0);
}

/// The rate of a pipeline over the draft and copies of the text, under simulated costs.
template <class MakeDrafter, class S>
double rate_of(float temperature, MakeDrafter make_drafter, S shape, const Cost& target_cost,
               const Cost& draft_cost) {
  const Tables tables = similar_tables(kVocab, 1.6, 1, 5);
  BigramModel target(tables.target, kVocab, 1 << 20), draft(tables.draft, kVocab, 1 << 20);
  using V = TreeVerifier<BigramModel, Sampling>;
  using D = ModelDrafter<BigramModel>;
  Speculator run{SimulatedVerifier<V>(V{target, Sampling{}, {.temperature = temperature}}, target_cost),
                 make_drafter(SimulatedDrafter<D>(D{draft}, draft_cost)), shape};
  PhiloxRandom rng(11);
  run.start(std::vector<Token>{1, 2, 3});
  for (int i = 0; i < 300; ++i) run.step(rng);
  const Stats before = run.stats();
  for (int i = 0; i < 2000; ++i) run.step(rng);
  const Stats spent = run.stats() - before;
  return static_cast<double>(spent.new_tokens) / (spent.target.seconds + spent.draft.seconds);
}

}  // namespace

TEST_CASE("copies where they promise more than the rate of drafting; as many as raise it") {
  const CostCurve target({1, 1.2, 1.4, 1.6}), draft({0.1});
  std::int32_t proposed = 0;
  const auto shape = [&](std::int32_t copies) { return Either(Chain<>{.length = 2}, copies, target, draft); };
  CHECK(drafted(shape(3), 1.0f, proposed).calls == 0);  // (2, 3, 4) / (1.2, 1.4, 1.6): each raises it
  CHECK(proposed == 3);
  CHECK(drafted(shape(1), 1.0f, proposed).calls == 0);
  CHECK(proposed == 1);
  CHECK(drafted(shape(3), 0.6f, proposed).calls ==
        0);  // (1.6, 1.96, 2.18) / (1.2, 1.4, 1.6): the first two do
  CHECK(proposed == 2);
  CHECK(drafted(shape(3), 0.1f, proposed).calls > 0);  // 1.1 / 1.2: plain decoding is faster
}

TEST_CASE("copies are as many as the balance covers while nothing is known of their acceptance") {
  std::int32_t proposed = 0;
  const Either<Chain<>> shape(Chain<>{.length = 2}, 3, CostCurve({1, 1.5, 2, 2.5}), CostCurve({0.1}));
  CHECK(drafted(shape, 1.0f, proposed).calls == 0);  // a rejection of one costs 0.5 passes, of two 1
  CHECK(proposed == 1);
}

TEST_CASE("a round in which drafting would be tried, but does not pay, copies as many as it may") {
  Granting refuses(false), grants(true);
  std::int32_t proposed = 0;
  const Either<Chain<>> shape(Chain<>{.length = 3}, 2);  // learns its costs, so it drafts at first
  CHECK(drafted(shape, 0.6f, proposed, &grants).calls == 3);
  CHECK(proposed == 3);
  CHECK(drafted(shape, 0.6f, proposed, &refuses).calls == 0);
  CHECK(proposed == 2);
  CHECK(drafted(shape, 0.6f, proposed, &refuses, 2).calls == 0);
  CHECK(proposed == 1);
}

TEST_CASE("within 3% of the better of its drafters, on texts that repeat and on texts that do not") {
  const Cost target = [](std::int32_t n) { return 1 + 0.06 * (n - 1); };
  for (const double draft_cost : {0.02, 0.1})
    for (const float temperature : {0.0f, 0.7f, 1.0f}) {
      const Cost draft = [=](std::int32_t) { return draft_cost; };
      const double drafts = rate_of(
          temperature, [](auto d) { return d; }, CostAware(Chain<>{.length = 8}), target, draft);
      const double copies = rate_of(
          temperature, [](auto) { return MaxGram(kVocab, {.past_end = true}); },
          CostAware(Chain<>{.length = 10}), target, draft);
      const double either = rate_of(
          temperature,
          [](auto d) {
            return Stack{std::move(d), MaxGram(kVocab, {.past_end = true})};
          },
          Either(Chain<>{.length = 8}), target, draft);
      CAPTURE(draft_cost);
      CAPTURE(temperature);
      CAPTURE(drafts);
      CAPTURE(copies);
      CHECK(either > 0.97 * std::max(drafts, copies));
      if (temperature == 0) CHECK(copies > 1.2 * drafts);
      if (temperature == 1 && draft_cost < 0.1) CHECK(drafts > 1.1 * copies);
    }
}

TEST_CASE("Either names what is out of range") {
  CHECK_THROWS_WITH_AS(Either(Chain<>{}, 0).validate(), doctest::Contains("Either::copies is 0"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(Either(Chain<>{.length = -1}).validate(), doctest::Contains("Chain::length is -1"),
                       std::invalid_argument);
  CHECK(Either(Chain<>{.length = 3}, 7).nodes().most == 8);
  CHECK(Either(Chain<>{.length = 9}, 7).nodes().most == 10);
}
