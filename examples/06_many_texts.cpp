// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -Iinclude -I/usr/include/eigen3 examples/06_*.cpp cmake/*-model*.cpp
//
// Many texts at once: their passes are merged, and one budget says how many draft tokens they have. First by
// BatchSpeculator, which has a queue; then by an engine's own loop, which runs the merged passes itself.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <vector>

#include <specula/batch.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

using namespace specula;
using Model = cpu::Decoder<float>;
using Texts = std::vector<std::vector<Token>>;
constexpr std::int32_t kSlots = 4, kNewTokens = 32;

/// Two models with room for as many texts as there are slots. Each slot is a model of one text.
struct Models {
  static cpu::DecoderOptions options() {
    cpu::DecoderOptions o;
    o.slots = kSlots;
    o.capacity = 128;
    o.max_nodes = 8;
    return o;
  }
  Model target{"examples/models/target", options()}, draft{"examples/models/small", options()};
  std::deque<SlotOf<Model>> targets, drafts;
  Models() {
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
      targets.emplace_back(target, slot);
      drafts.emplace_back(draft, slot);
    }
  }
  /// The pipeline of a slot.
  auto make(std::int32_t slot) {
    const auto s = static_cast<std::size_t>(slot);
    return Speculator{TreeVerifier{targets[s], Sampling{}, {.temperature = 0}}, ModelDrafter{drafts[s]},
                      Chain<>{.length = 6}};
  }
};

/// More texts than slots: the others wait. Texts may join at any time, and a sink would get their tokens.
Texts by_the_driver(Models& models, const Texts& prompts) {
  BatchSpeculator batch{kSlots, [&](std::int32_t slot) { return models.make(slot); }, models.draft,
                        models.target};
  batch.share(BatchBudget());
  std::map<std::uint64_t, std::size_t> places;  // of the texts, which end in any order
  for (const std::vector<Token>& prompt : prompts) {
    TextRequest request{.prompt = prompt, .max_new_tokens = kNewTokens};
    request.params.temperature = 0;
    const std::size_t place = places.size();
    places[batch.join(std::move(request))] = place;
  }
  Texts out(prompts.size());
  while (!batch.empty())
    for (const TextResult& text : batch.step()) out[places[text.id]] = text.tokens;
  return out;
}

/// Four texts; one that has its tokens leaves the batch.
Texts by_own_loop(Models& models, const Texts& prompts) {
  using Run = decltype(models.make(0));
  std::vector<std::unique_ptr<Run>> runs;
  std::deque<BatchText<Run>> texts;
  std::vector<BatchText<Run>*> writing;
  Texts out(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Run& run = *runs.emplace_back(new Run(models.make(static_cast<std::int32_t>(i))));
    run.start(prompts[i]);  // the next passes read it
    texts.push_back({.run = &run,
                     .rng = PhiloxRandom{/*seed*/ 1, static_cast<std::uint32_t>(i)},
                     .limits = {.max_new_tokens = kNewTokens},
                     .sink = [&text = out[i]](Tokens fresh) {
                       text.insert(text.end(), fresh.begin(), fresh.end());
                       return true;
                     }});
    writing.push_back(&texts.back());
  }
  BatchRounds<Run> rounds({.texts = kSlots, .nodes = {.most = 7}}, BatchBudget());
  while (!writing.empty()) {
    run_round(writing, rounds, [&](const MergedPass& pass) {  // of either model, for all texts
      return run_pass(pass.model == &models.target ? models.target : models.draft, pass);
    });
    std::erase_if(writing, [](const BatchText<Run>* text) {
      if (text->failure) std::rethrow_exception(text->failure);
      return text->state == TextState::ended;
    });
  }
  return out;
}

int main() {
  Texts prompts;
  for (Token first = 0; first < 2 * kSlots; ++first)
    prompts.push_back({1, 863, 406, 1953, 1980 + first, 1585, 304});
  Models models;
  const Texts driven = by_the_driver(models, prompts);
  prompts.resize(kSlots);
  Models others;
  const Texts looped = by_own_loop(others, prompts);
  int same = 0;
  for (std::size_t i = 0; i < looped.size(); ++i) same += looped[i] == driven[i];
  std::printf("%zu texts by the driver; %d of %zu are the same by an own loop\n", driven.size(), same,
              looped.size());
  return same == kSlots ? 0 : 1;
}
