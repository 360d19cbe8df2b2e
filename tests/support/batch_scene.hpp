// SPDX-License-Identifier: MIT
// Texts of toy models: what a batch writes, and what each text is alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "toy_batch.hpp"

namespace specula_test {

inline constexpr std::int32_t kSceneVocab = 5;

/// Target and draft of so many texts, and their slots.
template <class Model = ToyBatch>
struct BatchModels {
  template <class... A>
  explicit BatchModels(std::int32_t slots, A... rest)
      : target(slots, kSceneVocab, 3, rest...), draft(slots, kSceneVocab, 4, rest...) {
    for (std::int32_t s = 0; s < slots; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  }
  /// What makes the Speculator of a slot.
  template <class Rule, class Shape>
  auto each(Rule rule, Shape shape) {
    return [this, rule, shape](std::int32_t slot) {
      const auto s = static_cast<std::size_t>(slot);
      return specula::Speculator{specula::TreeVerifier{targets[s], rule}, specula::ModelDrafter{drafts[s]},
                                 shape};
    };
  }
  Model target, draft;
  std::vector<specula::SlotOf<Model>> targets, drafts;
};

struct WrittenText {
  std::vector<Token> tokens;
  std::int64_t rounds = 0, proposed = 0;
  std::vector<std::int64_t> accepted;
  std::vector<double> logprobs;  // of each token, with its likeliest ones
  bool operator==(const WrittenText&) const = default;
};
inline WrittenText written(std::vector<Token> tokens, const specula::Stats& stats,
                           const specula::LogprobList& logprobs) {
  WrittenText out{std::move(tokens), stats.rounds, stats.proposed, stats.accepted, {}};
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    out.logprobs.push_back(logprobs[i].logprob);
    for (const specula::TokenLogprob& top : logprobs.top(i)) out.logprobs.push_back(top.logprob);
  }
  return out;
}
inline WrittenText written(const specula::TextResult& text) {
  return written(text.tokens, text.stats, text.logprobs);
}

/// What a Speculator writes of the text alone. The request has a seed.
template <class Rule, class Shape>
WrittenText written_alone(const specula::TextRequest& request, Rule rule, Shape shape) {
  BatchModels<ToyBatch> models(1);
  auto run = models.each(rule, shape)(0);
  run.verifier().set_params(request.params);
  if (request.logprobs) run.verifier().report_logprobs(*request.logprobs);
  std::vector<Token> tokens;
  specula::LogprobList logprobs;
  run.generate(request.prompt, {request.max_new_tokens, request.stop},
               specula::PhiloxRandom{*request.seed, request.sequence.value_or(0)}, [&](Tokens fresh) {
                 tokens.insert(tokens.end(), fresh.begin(), fresh.end());
                 logprobs.add(run.logprobs());
               });
  return written(tokens, run.stats(), logprobs);
}

/// Requests of different prompts, lengths, seeds and parameters, with log-probabilities.
inline std::vector<specula::TextRequest> scene_requests(std::size_t count, float temperature) {
  std::vector<specula::TextRequest> all;
  for (std::size_t i = 0; i < count; ++i) {
    specula::TextRequest& request = all.emplace_back();
    for (std::size_t t = 0; t < 1 + 5 * i % 13; ++t)
      request.prompt.push_back(static_cast<Token>((i + 2 * t) % kSceneVocab));
    request.max_new_tokens = static_cast<std::int32_t>(8 + 7 * i % 23);
    request.params.temperature = i % 5 == 4 ? 0.7f * temperature : temperature;
    request.seed = 100 + i;
    request.logprobs = specula::LogprobOptions{.top = static_cast<std::int32_t>(i % 3)};
    if (i % 3 == 1) request.stop = {static_cast<Token>(i % kSceneVocab)};
  }
  return all;
}

/// Steps until nothing is left; the texts by their ids. A text that fails is left out.
template <class Batch, class Each>
std::map<specula::TextId, WrittenText> write_all(Batch& batch, Each after_step) {
  std::map<specula::TextId, WrittenText> all;
  for (int step = 0; !batch.empty() && step < 10000; ++step) {
    for (const specula::TextResult& text : batch.step())
      if (!text.failure) all[text.id] = written(text);
    after_step(step);
  }
  return all;
}
template <class Batch>
std::map<specula::TextId, WrittenText> write_all(Batch& batch) {
  return write_all(batch, [](int) {});
}

}  // namespace specula_test
