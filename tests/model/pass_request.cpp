// SPDX-License-Identifier: MIT
// MergesPasses: a pass in two halves is the pass of extend(), and one that fails in between never began.
#include <specula/model/pass_request.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <specula/draft/model_drafter.hpp>
#include <specula/draft/stack.hpp>
#include <specula/model/batched.hpp>
#include <specula/model/processed.hpp>
#include <specula/runtime/any_model.hpp>

#include "toy_batch.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyModel;

namespace {

using List = std::vector<Token>;
using Path = std::vector<NodeId>;
constexpr std::int32_t kVocab = 6;

/// A penalty for all tokens of the path, and a grammar in which no token follows itself.
struct Rules {
  void operator()(Tokens path, std::span<float> row) const {
    for (const Token token : path) row[static_cast<std::size_t>(token)] -= 0.25f;
    row[static_cast<std::size_t>(path.back())] = -std::numeric_limits<float>::infinity();
  }
};

std::vector<float> rows_of(const LogitsView& view) {
  std::vector<float> all;
  for (std::int32_t i = 0; i < view.rows; ++i) all.insert(all.end(), view.row(i).begin(), view.row(i).end());
  return all;
}

/// The rows of new nodes: in one call, or in two halves.
template <class M>
std::vector<float> run(ToyBatch* batch, M& model, const List& tokens, const Path& parents) {
  if constexpr (MergesPasses<M>) {
    const PassRequest request = model.begin_pass(tokens, parents);
    REQUIRE(request.batch == batch);
    const SlotNodes nodes{request.slot, request.tokens, request.parents};
    return rows_of(model.end_pass(batch->extend(std::span(&nodes, 1))));
  } else {
    return rows_of(model.extend(tokens, parents));
  }
}

/// Nodes in several passes, all ways of going on, and in between what fails: the pass, or the caller that
/// drops it.
template <class M>
std::vector<std::vector<float>> story(ToyBatch* batch, M& model, bool fails) {
  std::vector<std::vector<float>> all;
  const auto fail = [&] {
    if constexpr (MergesPasses<M>) {
      if (!fails) return;
      REQUIRE(model.begin_pass(List{3, 3}, Path{kNoParent, 0}).batch == batch);
      REQUIRE(model.begin_pass({}, {}).batch == batch);
    }
  };
  fail();
  model.append(List{1, 2});
  fail();
  all.push_back(run(batch, model, {4}, {kNoParent}));
  fail();
  all.push_back(run(batch, model, {5, 4, 0}, {0, 0, 1}));  // 4 after 4: excluded
  fail();
  all.push_back(run(batch, model, {1, 2}, {2, 3}));
  fail();
  model.commit(Path{0, 1, 3});
  CHECK(model.size() == 5);
  fail();
  all.push_back(run(batch, model, {0, 1}, {kNoParent, kNoParent}));
  fail();
  model.truncate(4);
  all.push_back(rows_of(model.extend(List{2}, Path{kNoParent})));
  fail();
  all.push_back(rows_of(model.extend(List{3}, Path{0})));
  return all;
}

}  // namespace

TEST_CASE("two halves are one pass, and a pass that fails between them never began") {
  ToyModel plain(kVocab, 3), rewritten(kVocab, 3);
  Processed processed_alone{rewritten, Rules{}};
  const auto raw = story(nullptr, plain, false), processed = story(nullptr, processed_alone, false);
  REQUIRE(raw != processed);
  for (const bool fails : {false, true}) {
    ToyBatch batch(5, kVocab, 3);
    SlotOf<ToyBatch> a(batch, 0), b(batch, 1), c(batch, 2), d(batch, 3), e(batch, 4);
    AnyModel any(b), erased(d);
    Processed over_slot{c, Rules{}};
    Processed over_any{erased, Rules{}};
    Processed inner{e, [](Tokens, std::span<float>) {}};
    Processed over_processed{inner, Rules{}};
    CHECK(story(&batch, a, fails) == raw);
    CHECK(story(&batch, any, fails) == raw);
    CHECK(story(&batch, over_slot, fails) == processed);
    CHECK(story(&batch, over_any, fails) == processed);
    CHECK(story(&batch, over_processed, fails) == processed);
  }
}

TEST_CASE("a question within a pass does not end it") {
  ToyBatch batch(2, kVocab, 3);
  SlotOf<ToyBatch> slot(batch, 0), other(batch, 1);
  Processed model{slot, Rules{}}, same{other, Rules{}};
  ModelDrafter drafter{model}, drafter_same{same};
  const List context{1, 2}, tokens{4, 3};
  const Path parents{kNoParent, 0};
  drafter.sync(context, {}), drafter_same.sync(context, {});
  const PassRequest request = drafter.begin_pass(tokens, parents);
  CHECK(drafter.begin_pass({}, {}).batch == &batch);
  const SlotNodes nodes{request.slot, request.tokens, request.parents};
  CHECK(rows_of(drafter.end_pass(batch.extend(std::span(&nodes, 1)))) ==
        rows_of(drafter_same.extend(tokens, parents)));
  CHECK(drafter.usage().nodes == 2);
}

TEST_CASE("a drafter repairs a pass that failed, one whose rows were dropped, and a processor that threw") {
  ToyModel alone(kVocab, 3);
  Processed want_model{alone, Rules{}};
  ModelDrafter want{want_model};
  const List context{1, 2}, longer{1, 2, 4}, tokens{4, 3};
  const Path parents{kNoParent, 0};
  want.sync(longer, {});
  const auto expected = rows_of(want.extend(tokens, parents));
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    ToyBatch batch(1, kVocab, 3);
    SlotOf<ToyBatch> slot(batch, 0);
    bool broken = false;
    Processed model{slot, [&](Tokens path, std::span<float> row) {
                      if (broken) throw std::runtime_error("broken");
                      Rules{}(path, row);
                    }};
    ModelDrafter drafter{model};
    const auto go = [&] { return run(&batch, drafter, tokens, parents); };
    drafter.sync(context, {});
    const PassRequest request = drafter.begin_pass(tokens, parents);
    const SlotNodes nodes{request.slot, request.tokens, request.parents};
    if (kind == 0) {
      batch.throw_pass = batch.passes + 1;
      CHECK_THROWS_AS(batch.extend(std::span(&nodes, 1)), std::runtime_error);
    } else if (kind == 1) {
      batch.extend(std::span(&nodes, 1));
    } else {
      broken = true;
      const LogitsView rows = batch.extend(std::span(&nodes, 1));
      CHECK_THROWS_WITH_AS(drafter.end_pass(rows), "Processed: the processor threw at node 0: broken",
                           std::runtime_error);
      broken = false;
    }
    CHECK(drafter.usage().calls == 0);
    drafter.sync(longer, {});
    CHECK(go() == expected);
    CHECK(drafter.usage().calls == 1);
    CHECK(model.size() == 3);
  }
}

TEST_CASE("a wrapper whose model was changed by another caller refuses to begin a pass") {
  ToyBatch batch(1, kVocab, 3);
  SlotOf<ToyBatch> slot(batch, 0);
  Processed model{slot, Rules{}};
  model.append(List{1, 2});
  batch.append(0, List{3});
  CHECK_THROWS_AS(model.begin_pass(List{1}, Path{kNoParent}), std::logic_error);
}
