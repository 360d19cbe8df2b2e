// SPDX-License-Identifier: MIT
// Pipelines over the models that come with the sources, on the CPU and on the emulated device: the same
// greedy text, in as many rounds. A wrong draft would leave the text right, and take more rounds.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/cuda/model/model.hpp>
#include <specula/specula.hpp>

#include "emulated_device.hpp"

namespace pack_pipelines {

using specula::Token;
using Weights = std::shared_ptr<const specula::cpu::DecoderWeights<float>>;
using DeviceModel = specula::cuda::Model<specula_test::EmulatedDevice>;

struct Text {
  std::vector<Token> tokens;
  std::int64_t rounds = 0;
};

template <class Run>
Text text_of(Run run, const std::vector<Token>& prompt, std::int32_t fresh) {
  Text out;
  run.generate(prompt, {.max_new_tokens = fresh}, specula::PhiloxRandom{1},
               [&](specula::Tokens part) { out.tokens.insert(out.tokens.end(), part.begin(), part.end()); });
  out.rounds = run.stats().rounds;
  return out;
}

/// The pipelines, each a function of target, draft, prompt and number of tokens.
inline constexpr int kPipelines = 8;
template <class Target, class Draft>
Text decode(int pipeline, Target& target, Draft& draft, const std::vector<Token>& prompt,
            std::int32_t fresh) {
  using namespace specula;
  const auto by = [&](auto drafter, auto shape) {
    return text_of(
        Speculator{TreeVerifier{target, Greedy{}, {.temperature = 0}}, std::move(drafter), std::move(shape)},
        prompt, fresh);
  };
  DynamicTree dynamic;
  dynamic.top_k = 4, dynamic.expansions = 3, dynamic.total = 12;
  switch (pipeline) {
    case 0:
      return by(ModelDrafter{draft}, Chain<>{.length = 5});
    case 1:
      return by(ModelDrafter{draft}, dynamic);
    case 2:
      return by(ModelDrafter{draft}, Cape{});
    case 3:
      return by(MaxGram{target.vocab_size()}, Chain<>{.length = 6});
    case 4:
      return by(ModelDrafter{draft}, StaticTree<>{});
    case 5:
      return by(ModelDrafter{draft}, Chain<>{.length = 2});
    case 6:
      return by(ModelDrafter{draft}, Beam{});
    default:
      return by(ModelDrafter{draft}, Chain<>{.length = 10});
  }
}

/// Whether the two likeliest tokens after `text` are within 2% of the row's spread: rounding may choose the
/// other.
inline bool is_near_tie(specula::cpu::Decoder<float>& target, const std::vector<Token>& prompt,
                        const std::vector<Token>& text, std::size_t until) {
  target.truncate(0);
  std::vector<Token> before = prompt;
  before.insert(before.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(until));
  target.append(specula::Tokens(before).first(before.size() - 1));
  const specula::NodeId parent[] = {specula::kNoParent};
  const auto row = target.extend(specula::Tokens(before).last(1), parent).row(0);
  std::vector<float> sorted(row.begin(), row.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return sorted[0] - sorted[1] < 0.02f * (sorted.front() - sorted.back());
}

/// Runs pipelines on prompts of 24 tokens; at most one text in eight may differ, at a near tie.
inline void check(int pipelines, int prompts, std::int32_t fresh) {
  namespace cpu = specula::cpu;
  const std::string pack = SPECULA_MODELS_DIR;
  const auto load = [&](const char* name) -> Weights {
    return std::make_shared<const cpu::DecoderWeights<float>>(
        cpu::load_decoder_weights<float>(pack + "/" + name));
  };
  const Weights target_weights = load("target"), draft_weights = load("small");
  cpu::Decoder<float> target(target_weights, {.capacity = 256}), draft(draft_weights, {.capacity = 256});
  specula_test::EmulatedDevice device;
  DeviceModel on_device(device, *target_weights, {.capacity = 256}),
      draft_on_device(device, *draft_weights, {.capacity = 256});
  CHECK(on_device.weights().distance == 0);  // int8 groups
  int differing = 0;
  for (int p = 0; p < prompts; ++p) {
    // A prompt that the target would write.
    std::vector<Token> prompt{1};
    specula::Speculator sampled{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0.8f}},
                                specula::ModelDrafter{draft}, specula::Chain<>{.length = 0}};
    sampled.generate(prompt, {.max_new_tokens = 23}, specula::PhiloxRandom{static_cast<std::uint64_t>(p + 1)},
                     [&](specula::Tokens part) { prompt.insert(prompt.end(), part.begin(), part.end()); });
    prompt.resize(24);
    for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
      CAPTURE(p);
      CAPTURE(pipeline);
      const Text expected = decode(pipeline, target, draft, prompt, fresh),
                 got = decode(pipeline, on_device, draft_on_device, prompt, fresh);
      if (got.tokens == expected.tokens) {
        CHECK(got.rounds == expected.rounds);
        continue;
      }
      ++differing;
      const auto [own, its] = std::mismatch(got.tokens.begin(), got.tokens.end(), expected.tokens.begin());
      CHECK(is_near_tie(target, prompt, expected.tokens,
                        static_cast<std::size_t>(its - expected.tokens.begin())));
    }
  }
  MESSAGE(differing << " of " << pipelines * prompts << " texts differ");
  CHECK(8 * differing <= pipelines * prompts);
}

}  // namespace pack_pipelines
