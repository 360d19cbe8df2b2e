// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include <specula/model/batched.hpp>

#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyModel;

TEST_CASE("a slot is a model: its rows are those of the model alone, whatever else is in the pass") {
  ToyBatch batch(3, 5, 11);
  ToyModel alone(5, 11);
  SlotOf<ToyBatch> slot(batch, 1), other(batch, 2);
  static_assert(LanguageModel<SlotOf<ToyBatch>>);
  static_assert(CountsChanges<SlotOf<ToyBatch>>);
  static_assert(TimesItself<SlotOf<ToyBatch>>);
  static_assert(MergesPasses<SlotOf<ToyBatch>>);
  static_assert(!ExposesKeyValues<SlotOf<ToyBatch>> && !ExposesFeatures<SlotOf<ToyBatch>>);
  static_assert(!TargetConditioned<SlotOf<ToyBatch>>);
  CHECK(slot.cache_id() != other.cache_id());

  const std::vector<Token> prompt{1, 2, 3}, more{4, 0}, draft_tokens{2, 1};
  const std::vector<NodeId> parents{kNoParent, 0};
  slot.append(prompt);
  alone.append(prompt);
  CHECK(batch.queued(1) == 3);
  CHECK(slot.size() == 3);
  other.append(more);
  const PassRequest request = slot.begin_pass(draft_tokens, parents);
  CHECK(request.batch == &batch);
  CHECK(request.slot == 1);
  CHECK(request.tokens.data() == draft_tokens.data());
  CHECK(request.parents.data() == parents.data());
  const std::vector<SlotNodes> nodes{{2, more, parents}, {1, draft_tokens, parents}, {0}};
  const LogitsView rows = batch.extend(nodes);
  REQUIRE(rows.rows == 4);
  CHECK(slot.end_pass(rows.part(2, 2)).data == rows.row(2).data());
  const LogitsView want = alone.extend(draft_tokens, parents);
  for (std::int32_t i = 0; i < 2; ++i)
    for (std::int32_t x = 0; x < 5; ++x)
      CHECK(rows.row(2 + i)[static_cast<std::size_t>(x)] == want.row(i)[static_cast<std::size_t>(x)]);
  CHECK(batch.queued(1) == 0);
  CHECK(slot.pass_seconds() == 2);
  const std::vector<NodeId> path{0, 1};
  slot.commit(path);
  CHECK(slot.size() == 5);
  slot.truncate(2);
  CHECK(slot.size() == 2);
  CHECK(other.size() == 2);
  CHECK(slot.capacity() - slot.size() == 62);
}

TEST_CASE("a slot without nodes gets on with its queue by a chunk") {
  ToyBatch batch(2, 5, 11, 2);
  const std::vector<Token> prompt{1, 2, 3, 4, 0};
  batch.append(0, prompt);
  const std::vector<SlotNodes> queued{{0}};
  for (const std::int32_t left : {3, 1, 0, 0}) {
    CHECK(batch.extend(queued).rows == 0);
    CHECK(batch.queued(0) == left);
    CHECK(batch.size(0) == 5);
  }
}
