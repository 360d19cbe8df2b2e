// SPDX-License-Identifier: MIT
// Pipelines over the models that come with the sources, on the CPU and on the emulated device: the same
// greedy text, in as many rounds. A wrong draft would leave the text right, and take more rounds.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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

/// Of each token of the target's greedy text: by how much the likeliest one leads, as a share of the row's
/// spread.
inline std::vector<double> leads(specula::cpu::Decoder<float>& target, const std::vector<Token>& prompt,
                                 std::int32_t fresh) {
  target.truncate(0);
  target.append(specula::Tokens(prompt).first(prompt.size() - 1));
  std::vector<double> out;
  for (Token last = prompt.back(); static_cast<std::int32_t>(out.size()) < fresh;) {
    const specula::NodeId parent[] = {specula::kNoParent}, path[] = {0};
    const auto row = target.extend(specula::Tokens(&last, 1), parent).row(0);
    std::vector<float> sorted(row.begin(), row.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    out.push_back(static_cast<double>(sorted[0] - sorted[1]) /
                  static_cast<double>(sorted.front() - sorted.back()));
    last = static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
    target.commit(path);
  }
  return out;
}

/// Runs pipelines, from `first` on, on prompts of 24 tokens, of which the text has no tie that rounding
/// decides: a lead below a thousandth. At most one text in eight may differ, at a near tie, and of the others
/// one in five may take a round more or less: the draft has ties as well, in wide trees the most.
inline void check(int first, int pipelines, int prompts, std::int32_t fresh) {
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
  int differing = 0, other_rounds = 0, tried = 0;
  for (std::uint64_t seed = 1; tried < prompts; ++seed) {
    // A prompt that the target would write.
    std::vector<Token> prompt{1};
    specula::Speculator sampled{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0.8f}},
                                specula::NoDrafter{target.vocab_size()}, specula::Chain<>{.length = 0}};
    sampled.generate(prompt, {.max_new_tokens = 23}, specula::PhiloxRandom{seed},
                     [&](specula::Tokens part) { prompt.insert(prompt.end(), part.begin(), part.end()); });
    prompt.resize(24);
    const std::vector<double> lead = leads(target, prompt, fresh);
    if (*std::min_element(lead.begin(), lead.end()) < 1e-3) continue;
    ++tried;
    for (int pipeline = first; pipeline < first + pipelines; ++pipeline) {
      CAPTURE(seed);
      CAPTURE(pipeline);
      const Text expected = decode(pipeline, target, draft, prompt, fresh),
                 got = decode(pipeline, on_device, draft_on_device, prompt, fresh);
      if (got.tokens == expected.tokens) {
        CHECK(std::abs(got.rounds - expected.rounds) <= 1);
        other_rounds += got.rounds == expected.rounds ? 0 : 1;
        continue;
      }
      ++differing;
      const auto [got_at, expected_at] =
          std::mismatch(got.tokens.begin(), got.tokens.end(), expected.tokens.begin());
      CHECK(lead[static_cast<std::size_t>(expected_at - expected.tokens.begin())] < 0.02);
    }
  }
  MESSAGE(differing << " of " << pipelines * prompts << " texts differ, " << other_rounds
                    << " take other rounds");
  CHECK(8 * differing <= pipelines * prompts);
  CHECK(5 * other_rounds <= pipelines * prompts);
}

}  // namespace pack_pipelines
