// SPDX-License-Identifier: MIT
// Which drafts' passes are merged, in which order, and that texts are those alone either way.
#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"
#include "self_models.hpp"
#include "toy_batch.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyExits;
using specula_test::ToySkips;

namespace {

constexpr std::int32_t kVocab = specula_test::kSceneVocab, kTexts = 4;
using Slots = std::vector<SlotOf<ToyBatch>>;
using Draft = ModelDrafter<SlotOf<ToyBatch>>;

std::vector<TextRequest> requests() {
  std::vector<TextRequest> all;
  for (std::uint32_t i = 0; i < kTexts; ++i)
    all.push_back({.prompt = {1, static_cast<Token>(i), 2},
                   .max_new_tokens = 24,
                   .params = {.temperature = 1},
                   .seed = 9,
                   .sequence = i});
  return all;
}
template <class Batch>
std::vector<std::vector<Token>> write(Batch& batch) {
  std::vector<std::vector<Token>> texts(kTexts);
  for (const TextRequest& request : requests()) batch.join(request);
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      CHECK(!text.failure);
      texts[static_cast<std::size_t>(text.id - 1)] = text.tokens;
    }
  return texts;
}
template <class Make>
std::vector<std::vector<Token>> alone(Make make) {
  std::vector<std::vector<Token>> texts;
  for (const TextRequest& request : requests()) {
    auto run = make(static_cast<std::int32_t>(texts.size()));
    run.verifier().set_params(request.params);
    std::vector<Token>& text = texts.emplace_back();
    run.generate(request.prompt, {.max_new_tokens = request.max_new_tokens},
                 PhiloxRandom{*request.seed, *request.sequence},
                 [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); });
  }
  return texts;
}
Slots slots_of(ToyBatch& model) {
  Slots all;
  for (std::int32_t s = 0; s < kTexts; ++s) all.emplace_back(model, s);
  return all;
}

/// A target and two drafts of so many texts, and their slots.
struct Scene {
  ToyBatch target{kTexts, kVocab, 3}, better{kTexts, kVocab, 4}, worse{kTexts, kVocab, 5};
  Slots targets = slots_of(target), betters = slots_of(better), worses = slots_of(worse);
};
struct Passes {
  std::int64_t better, worse;
  explicit Passes(const Scene& scene) : better(scene.better.passes), worse(scene.worse.passes) {}
};
struct Counted {
  Passes alone, merged;
};
/// `make(scene, slot)`: texts in a batch are those alone; the passes of drafts for either.
template <class Make>
Counted write_both(Make make) {
  Scene one, scene;
  const auto want = alone([&](std::int32_t slot) { return make(one, static_cast<std::size_t>(slot)); });
  BatchSpeculator batch(
      kTexts, [&](std::int32_t slot) { return make(scene, static_cast<std::size_t>(slot)); }, scene.worse,
      scene.better, scene.target);
  CHECK(write(batch) == want);
  CHECK(2 * scene.target.passes < one.target.passes);
  return {Passes(one), Passes(scene)};
}

}  // namespace

TEST_CASE("a Stack is merged member by member; a shape for one drafter takes the first") {
  const auto stack = [](Scene& scene, std::size_t slot) {
    return Stack{Draft{scene.betters[slot]}, Draft{scene.worses[slot]}};
  };
  const Counted both = write_both([&](Scene& scene, std::size_t slot) {
    return Speculator{TreeVerifier{scene.targets[slot], Sampling{}}, stack(scene, slot),
                      Horizontal<2>{.counts = {2, 2}}};
  });
  CHECK(both.merged.better > 0);
  CHECK(both.merged.worse > 0);
  CHECK(2 * both.merged.better < both.alone.better);
  CHECK(2 * both.merged.worse < both.alone.worse);
  const Counted first = write_both([&](Scene& scene, std::size_t slot) {
    return Speculator{TreeVerifier{scene.targets[slot], Sampling{}}, stack(scene, slot),
                      Chain<>{.length = 2}};
  });
  CHECK(first.merged.better > 0);
  CHECK(first.merged.worse == 0);
}

TEST_CASE("copies have no passes") {
  const Counted grams = write_both([](Scene& scene, std::size_t slot) {
    return Speculator{TreeVerifier{scene.targets[slot], Sampling{}}, MaxGram{kVocab}, Chain<>{.length = 2}};
  });
  CHECK(grams.merged.better + grams.merged.worse == 0);
}

TEST_CASE("a draft with exits is not merged, under a target that is") {
  std::deque<ToyExits> exits;
  write_both([&](Scene& scene, std::size_t slot) {
    return Speculator{TreeVerifier{scene.targets[slot], Sampling{}},
                      EarlyExitDrafter{exits.emplace_back(kVocab, 4, 3), {0.5f, 0.6f}}, Chain<>{.length = 2}};
  });
  CHECK(exits.size() == 2 * kTexts);
  for (const ToyExits& draft : exits) CHECK(draft.size() > 3);  // each has its own passes
}

TEST_CASE("a target that skips layers as its draft is not merged") {
  std::deque<ToySkips> models;
  const auto make = [&](std::int32_t) {
    ToySkips& model = models.emplace_back(kVocab, 3, 3);
    return Speculator{TreeVerifier{model, Sampling{}}, LayerSkip{model}, Chain<>{.length = 2}};
  };
  const auto want = alone(make);
  ToyBatch none(kTexts, kVocab, 3);
  BatchSpeculator batch(kTexts, make, none);
  CHECK(write(batch) == want);
  CHECK(batch.passes() == 0);
}

namespace {

/// A batched model that writes its letter with every pass.
struct Logged : ToyBatch {
  using ToyBatch::ToyBatch;
  std::string* log = nullptr;
  char name = ' ';
  LogitsView extend(std::span<const SlotNodes> nodes) {
    *log += name;
    return ToyBatch::extend(nodes);
  }
};

}  // namespace

TEST_CASE("where texts wait for several drafts the cheapest, which is named first, runs first") {
  std::string log;
  Logged target(2, kVocab, 3), cheap(2, kVocab, 4), dear(2, kVocab, 5);
  target.log = cheap.log = dear.log = &log;
  target.name = 't', cheap.name = 'c', dear.name = 'd';
  std::vector<SlotOf<Logged>> targets, drafts;
  for (std::int32_t s = 0; s < 2; ++s) targets.emplace_back(target, s);
  drafts.emplace_back(dear, 0), drafts.emplace_back(cheap, 1);  // the older text waits for the dear one
  BatchSpeculator batch(
      2,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{targets[s], Sampling{}}, ModelDrafter{drafts[s]},
                          Chain<>{.length = 1}};
      },
      cheap, dear, target);
  for (int i = 0; i < 2; ++i) batch.join({.prompt = {1}, .max_new_tokens = 9, .params = {.temperature = 0}});
  batch.step();
  batch.step();
  CHECK(log == "cdtcdt");
}
