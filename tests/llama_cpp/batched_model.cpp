// SPDX-License-Identifier: MIT
// labels: long optimised
// llama_cpp::BatchedModel: several texts in one libllama context, against a Model for each.
#include <specula/llama_cpp/batched_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/batch/batch_speculator.hpp>
#include <specula/llama_cpp/model.hpp>
#include <specula/specula.hpp>

#include "model_findings.hpp"
#include "pack.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula_test;
using llama_cpp::BatchedModel;
using llama_cpp::Model;
using llama_cpp::Options;

static_assert(BatchedLanguageModel<BatchedModel>);
static_assert(MergesPasses<SlotOf<BatchedModel>>);

namespace {

using List = std::vector<Token>;
constexpr double kTolerance = 2e-3;  // as for Model: floats, summed in another order

List random_tokens(Random& random, std::int32_t count) {
  List tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(3 + random.below(1000));
  return tokens;
}
/// Parents of a chain that goes on after `held` nodes.
std::vector<NodeId> chain(std::int32_t held, std::size_t count) {
  std::vector<NodeId> parents;
  for (std::size_t i = 0; i < count; ++i) parents.push_back(held + static_cast<NodeId>(i) - 1);
  return parents;
}

}  // namespace

TEST_CASE("several texts in a pass have the rows that each has alone") {
  Random random(1);
  constexpr std::int32_t kSlots = 4, kCapacity = 300;
  const auto weights = pack_model("small");
  BatchedModel batch(weights, kSlots, exact_options(kCapacity, 8));
  std::vector<std::unique_ptr<Model>> alone;
  for (std::int32_t s = 0; s < kSlots; ++s)
    alone.push_back(std::make_unique<Model>(weights, exact_options(kCapacity, 8)));
  double most = 0;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    std::vector<List> tokens(kSlots);
    std::vector<std::vector<NodeId>> parents(kSlots);
    std::vector<SlotNodes> nodes;
    for (std::int32_t s = 0; s < kSlots; ++s) {
      const auto at = static_cast<std::size_t>(s);
      Model& model = *alone[at];
      if (random.bernoulli(0.1) || model.size() > kCapacity - 180) {
        const std::int32_t n = random.below(model.size() + 1);
        batch.truncate(s, n), model.truncate(n);
      }
      if (random.bernoulli(0.5)) {
        const List more = random_tokens(random, random.bernoulli(0.1) ? 160 : random.below(5));
        batch.append(s, more), model.append(more);
      }
      REQUIRE(batch.size(s) == model.size());
      if (random.bernoulli(0.2)) continue;
      tokens[at] = random_tokens(random, random.below(5));
      parents[at] = chain(model.node_count(), tokens[at].size());
      if (model.node_count() + static_cast<std::int32_t>(tokens[at].size()) > 8)
        tokens[at].clear(), parents[at].clear();
      nodes.insert(nodes.begin() + random.below(static_cast<std::int32_t>(nodes.size()) + 1),
                   SlotNodes{s, tokens[at], parents[at]});
    }
    const LogitsView rows = batch.extend(nodes);
    std::int32_t row = 0;
    for (const SlotNodes& slot_nodes : nodes) {
      if (slot_nodes.tokens.empty()) continue;
      CHECK(batch.queued(slot_nodes.slot) == 0);
      const LogitsView want =
          alone[static_cast<std::size_t>(slot_nodes.slot)]->extend(slot_nodes.tokens, slot_nodes.parents);
      for (std::int32_t i = 0; i < want.rows; ++i, ++row)
        most = std::max(most, specula_test::difference(rows.row(row), want.row(i)));
    }
    CHECK(row == rows.rows);
    for (std::int32_t s = 0; s < kSlots; ++s) {
      Model& model = *alone[static_cast<std::size_t>(s)];
      if (random.bernoulli(0.3)) continue;
      std::vector<NodeId> path;
      for (NodeId node = 0; node < random.below(model.node_count() + 1); ++node) path.push_back(node);
      batch.commit(s, path), model.commit(path);
    }
  }
  CHECK(most < kTolerance);
  CHECK(most > 0);
}

TEST_CASE("check_batched_model() finds nothing, in chains") {
  BatchedModel model(pack_model("small"), 3, exact_options(64, 12));
  CHECK(words(check_batched_model(model, {.trees = false})) == "");
}

TEST_CASE("texts of a BatchSpeculator are those that each has alone") {
  constexpr std::int32_t kSlots = 3;
  const auto target = pack_model("target"), small = pack_model("small");
  Options options = exact_options(256, 8);
  BatchedModel targets(target, kSlots, options), drafts(small, kSlots, options);
  std::vector<SlotOf<BatchedModel>> of_target, of_draft;
  for (std::int32_t s = 0; s < kSlots; ++s)
    of_target.emplace_back(targets, s), of_draft.emplace_back(drafts, s);
  BatchSpeculator batch(
      kSlots,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{of_target[s], Sampling{}}, ModelDrafter{of_draft[s]},
                          Chain<>{.length = 3}};
      },
      drafts, targets);
  Model alone(target, options), draft(small, options);
  Speculator one{TreeVerifier{alone, Sampling{}}, ModelDrafter{draft}, Chain<>{.length = 3}};
  Random random(2);
  std::vector<List> prompts;
  for (const std::int32_t length : {1, 9, 150, 30, 5}) {
    prompts.push_back(random_tokens(random, length));
    batch.join({.prompt = prompts.back(), .max_new_tokens = 24, .params = {.temperature = 0}});
  }
  one.verifier().set_params({.temperature = 0});
  std::size_t ended = 0;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      CHECK(!text.failure);
      List want;
      PhiloxRandom rng(1);
      one.generate(prompts[static_cast<std::size_t>(text.id - 1)], {24, {}}, rng,
                   [&](Tokens fresh) { want.insert(want.end(), fresh.begin(), fresh.end()); });
      CHECK(text.tokens == want);
      ++ended;
    }
  CHECK(ended == prompts.size());
  CHECK(one.stats().mat() > 1.2);                      // drafts are accepted
  CHECK(2 * batch.passes() < 4 * one.stats().rounds);  // a pass serves more than one text
}

TEST_CASE("errors name bad input and change nothing") {
  const auto weights = pack_model("small");
  BatchedModel batch(weights, 2, exact_options(20, 6));
  const auto throws = [&](auto call, const std::string& message) {
    CHECK_THROWS_WITH_AS(call(), ("llama_cpp::Model: " + message).c_str(), std::invalid_argument);
  };
  const List two{5, 6}, many(21, 5), outside{-1};
  const std::vector<NodeId> fork{kNoParent, kNoParent}, both{kNoParent, 0}, one{kNoParent}, second{1};
  batch.append(0, two);
  const auto of = [&](std::vector<SlotNodes> nodes) { return [&, nodes] { batch.extend(nodes); }; };
  throws(
      of({{1, two, fork}}),
      "extend: parent -1 of node 1 of slot 1, must be 0: with several texts a slot is one sequence, so its "
      "nodes are a chain; trees take a Model of one text");
  throws(of({{0, two, both}, {0, two, both}}), "extend: slot 0 is named twice");
  throws(of({{2, two, both}}), "slot is 2, must be 0 to 1");
  throws(of({{1, two, one}}), "extend: 2 tokens and 1 parents");
  throws(of({{1, outside, one}}),
         "extend or append: token -1, must be 0 to " + std::to_string(batch.vocab_size() - 1));
  throws([&] { batch.append(1, many); },
         "append: the context is full: 0 of capacity 20 tokens in use, 21 more asked for");
  throws([&] { batch.truncate(0, 3); }, "truncate: to 3 tokens, must be 0 to 2");
  throws([&] { batch.commit(0, second); },
         "commit: node 1 at place 0, must be the first of the slot's 0 nodes in their order");
  CHECK(batch.size(0) == 2);
  CHECK(batch.queued(0) == 2);
  CHECK(batch.size(1) == 0);
  throws([&] { BatchedModel(weights, 0); }, "slots is 0, must be 1 to 256");
  Options features, same;
  features.features = true, same.same_bits = true;
  throws([&] { BatchedModel(weights, 2, features); }, "features are kept of one text at a time, by Model");
  throws([&] { BatchedModel(weights, 2, same); },
         "same_bits: passes over several texts run their rows in groups; Model has it, for one text");
}
