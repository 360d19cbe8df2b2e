// SPDX-License-Identifier: MIT
// Prompts in passes of many texts: they hold up the texts that are being written by one chunk together.
#include <specula/batch/run_pass.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"

using namespace specula;
using specula_test::BatchModels;
using specula_test::ToyBatch;

namespace {

constexpr std::int32_t kChunk = 16, kLong = 200, kCapacity = 300;

std::vector<Token> prompt_of(std::int32_t tokens, Token first) {
  std::vector<Token> prompt(static_cast<std::size_t>(tokens), 1);
  prompt[0] = first % 5, prompt[1] = first / 5 % 5, prompt[2] = first / 25;
  return prompt;
}

}  // namespace

TEST_CASE(
    "beside a text that is written all prompts together bring a chunk into a pass, in the order of joining") {
  for (const std::int32_t count : {1, 7, 31}) {
    CAPTURE(count);
    BatchModels<> models(32, kChunk, kCapacity);
    BatchSpeculator batch(32, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
    const TextId written =
        batch.join({.prompt = {1, 2}, .max_new_tokens = 290, .params = {.temperature = 0}});
    batch.step(), batch.step();
    models.target.most_rows = models.draft.most_rows = 0;
    for (Token t = 0; t < count; ++t)
      batch.join({.prompt = prompt_of(kLong, t), .max_new_tokens = 1, .params = {.temperature = 0}});
    std::size_t size = batch.text(written).size();
    std::vector<TextId> order;
    int steps = 0;
    while (batch.running() + batch.queued() > 1 && batch.running() > 0) {
      const std::int64_t before = models.target.passes + models.draft.passes;
      for (const TextResult& text : batch.step()) order.push_back(text.id);
      ++steps;
      const std::size_t now = batch.text(written).size();
      if (now == 0) break;  // it has ended
      CHECK(now > size);    // a token in every step
      CHECK(models.target.passes + models.draft.passes - before <= 4);
      size = now;
    }
    // a chunk of prompts, and the nodes of the texts that get rows: their trees, and at the end of prompts
    // one each
    CHECK(models.target.most_rows <= kChunk + 3 + 3 * 2);
    CHECK(models.draft.most_rows <= kChunk + 2 * 3);
    if (!order.empty()) CHECK(order.front() == written + 1);
    if (count <= 7) CHECK(static_cast<std::int32_t>(order.size()) == count);  // none starves
    CHECK(steps >= kLong / kChunk);
  }
}

TEST_CASE("none of many prompts starves, and each text is the one alone") {
  std::vector<TextRequest> all;
  for (Token t = 0; t < 12; ++t)
    all.push_back({.prompt = prompt_of(20 + 7 * t % 60, t),
                   .max_new_tokens = 30,
                   .params = {.temperature = 1},
                   .seed = 1});
  BatchModels<> models(6, 8, kCapacity);
  BatchSpeculator batch(6, models.each(Rejection{}, Chain<Draw::sampled>{.length = 2}), models.draft,
                        models.target);
  for (const TextRequest& request : all) batch.join(request);
  const auto texts = write_all(batch);
  REQUIRE(texts.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    // alone by models of the same capacity
    BatchModels<> one(1, 8, kCapacity);
    BatchSpeculator alone(1, one.each(Rejection{}, Chain<Draw::sampled>{.length = 2}), one.draft, one.target);
    alone.join(all[i]);
    CHECK(texts.at(i + 1) == write_all(alone).at(1));
  }
}

TEST_CASE("while no text is written each prompt brings a chunk") {
  BatchModels<> models(8, kChunk, kCapacity);
  BatchSpeculator batch(8, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  for (Token t = 0; t < 8; ++t)
    batch.join({.prompt = prompt_of(kLong, t), .max_new_tokens = 4, .params = {.temperature = 0}});
  batch.step();
  CHECK(models.draft.most_rows == 8 * kChunk);
  while (!batch.empty()) batch.step();
  CHECK(models.target.most_rows >= 8 * kChunk);
  // as many passes as a prompt has chunks, for all of them
  CHECK(models.target.passes <= kLong / kChunk + 1 + 4);
}

TEST_CASE("run_pass(): what runs of texts that are written, and of prompts") {
  ToyBatch model(5, 5, 3, 10, 100);
  const std::vector<Token> ten(10, 1), three(3, 1), many(30, 1), root{2};
  const std::vector<NodeId> none{kNoParent};
  const auto run = [&](std::vector<SlotNodes> nodes, std::size_t written, bool holds_up,
                       std::vector<std::int32_t> named, std::int32_t rows, std::int32_t queued) {
    const PassRows got = run_pass(model, MergedPass{&model, nodes, written, holds_up});
    std::vector<std::int32_t> slots;
    for (const SlotNodes& slot_nodes : nodes) slots.push_back(slot_nodes.slot);
    CHECK(slots == named);
    CHECK(got.rows.rows == rows);
    CHECK(got.queued == queued);
  };
  const auto node = [&](std::int32_t slot) { return SlotNodes{slot, root, none}; };
  model.append(0, three), model.append(1, many), model.append(2, ten), model.append(3, three),
      model.append(4, many);
  // 0 is written: its queued tokens are its own. 1 takes the chunk.
  run({node(0), node(1), node(2), node(3)}, 1, true, {0, 1}, 1, 13);
  model.truncate(0, 3);
  // 3 fits after 1 has gone, 2 does not
  model.truncate(1, 10);
  run({node(0), node(3), node(2), node(1)}, 1, true, {0, 3, 1}, 3, 3);
  for (const std::int32_t slot : {0, 1, 3}) model.truncate(slot, model.size(slot));
  // nothing is written: a chunk each
  run({node(2), node(4)}, 0, false, {2, 4}, 1, 20);
  CHECK(model.queued(4) == 20);
  // nothing is asked of 0, and nothing is queued there: the model does not see it
  run({{0}, node(3)}, 0, false, {3}, 1, 0);
  run({{0}}, 0, false, {}, 0, 0);
  // a text that is written with more than a chunk to catch up: a chunk, without rows
  run({node(4)}, 1, true, {4}, 0, 10);
}

TEST_CASE("share() while a prompt is being read: the round begins anew, under the budget") {
  BatchModels<> models(1, 3);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 3}), models.draft, models.target);
  batch.join({.prompt = std::vector<Token>(20, 2), .max_new_tokens = 1, .params = {.temperature = 0}});
  batch.step();
  REQUIRE(batch.running() == 1);  // its round waits
  batch.share(BatchBudget());
  std::int64_t proposed = -1;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) proposed = text.stats.proposed;
  CHECK(proposed == 0);  // the first round of a budget that knows nothing is plain
}
