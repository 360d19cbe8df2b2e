// SPDX-License-Identifier: MIT
// Rounds on the emulated device over the models that come with the sources, beside the CPU's: the same text,
// in as many rounds. A wrong draft would leave the text right, and take more rounds.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <specula/cuda/model/round.hpp>

#include "pack_pipelines.hpp"

namespace round_pipelines {

using namespace specula;
using pack_pipelines::Text;
using pack_pipelines::Weights;
using specula_test::EmulatedDevice;

/// The pack on the CPU and on the device.
struct Pack {
  static constexpr std::int32_t kCapacity = 256;
  Weights target_weights, small_weights, hass_weights, glide_weights;
  std::unique_ptr<cpu::Decoder<float>> target, small, hass, glide;
  EmulatedDevice device;
  cuda::DeviceWeights target_on_device, small_on_device, hass_on_device, glide_on_device;

  static Weights load(const std::string& name, Weights target = {}) {
    return std::make_shared<const cpu::DecoderWeights<float>>(
        cpu::load_decoder_weights<float>(std::string(SPECULA_MODELS_DIR) + "/" + name, std::move(target)));
  }
  Pack()
      : target_weights(load("target")),
        small_weights(load("small")),
        hass_weights(load("hass", target_weights)),
        glide_weights(load("glide")) {
    const auto decoder = [](const Weights& w) {
      return std::make_unique<cpu::Decoder<float>>(w, cpu::DecoderOptions{.capacity = kCapacity});
    };
    target = decoder(target_weights), small = decoder(small_weights);
    hass = decoder(hass_weights), glide = decoder(glide_weights);
    target_on_device = cuda::upload(device, *target_weights, kCapacity);
    small_on_device = cuda::upload(device, *small_weights, kCapacity);
    hass_on_device = cuda::upload(device, *hass_weights, kCapacity, &target_on_device);
    glide_on_device = cuda::upload(device, *glide_weights, kCapacity);
  }
};

inline DynamicTree tree_of_12() {
  DynamicTree out;
  out.top_k = 4, out.expansions = 3, out.total = 12;
  return out;
}

/// Text and rounds of a shape and a rule: on the CPU by `drafter`, on the device by the weights of `draft`.
template <class Drafter, class Shape, class Rule>
std::pair<Text, Text> both(Pack& pack, Drafter drafter, const cuda::DeviceWeights& draft, const Shape& shape,
                           const Rule& rule, const SamplingParams& params, std::uint64_t seed,
                           const std::vector<Token>& prompt, std::int32_t fresh) {
  Text on_cpu, on_device;
  Speculator run{TreeVerifier{*pack.target, rule, params}, std::move(drafter), shape};
  run.generate(prompt, {.max_new_tokens = fresh}, PhiloxRandom{seed},
               [&](Tokens part) { on_cpu.tokens.insert(on_cpu.tokens.end(), part.begin(), part.end()); });
  on_cpu.rounds = run.stats().rounds;
  cuda::Round rounds(pack.device, pack.target_on_device, draft, shape, rule,
                     {.capacity = Pack::kCapacity, .params = params});
  rounds.generate(prompt, {.max_new_tokens = fresh}, seed, [&](Tokens part) {
    on_device.tokens.insert(on_device.tokens.end(), part.begin(), part.end());
  });
  on_device.rounds = rounds.rounds();
  return {on_cpu, on_device};
}

inline constexpr int kPipelines = 7;
inline std::pair<Text, Text> decode(Pack& pack, int pipeline, bool draws, std::uint64_t seed,
                                    const std::vector<Token>& prompt, std::int32_t fresh) {
  const SamplingParams params{.temperature = draws ? 0.8f : 0.0f};
  const auto by = [&](auto drafter, const cuda::DeviceWeights& draft, const auto& shape) {
    return draws ? both(pack, std::move(drafter), draft, shape, SampleAndMatch{}, params, seed, prompt, fresh)
                 : both(pack, std::move(drafter), draft, shape, Greedy{}, params, seed, prompt, fresh);
  };
  switch (pipeline) {
    case 0:
      return by(ModelDrafter{*pack.small}, pack.small_on_device, Chain<>{.length = 5});
    case 1:
      return by(ModelDrafter{*pack.small}, pack.small_on_device, tree_of_12());
    case 2:
      return by(ModelDrafter{*pack.small}, pack.small_on_device, Cape{});
    case 3:
      return by(FeatureHead{*pack.hass, *pack.target}, pack.hass_on_device, tree_of_12());
    case 4:
      return by(FeatureHead{*pack.hass, *pack.target}, pack.hass_on_device, Chain<>{.length = 4});
    case 5:
      return by(Glide{*pack.glide, *pack.target}, pack.glide_on_device, Chain<>{.length = 4});
    default:
      return by(Glide{*pack.glide, *pack.target}, pack.glide_on_device, Cape{});
  }
}

/// What the CPU's target writes without a draft.
inline std::vector<Token> plain_text(Pack& pack, const std::vector<Token>& prompt, float temperature,
                                     std::int32_t fresh) {
  std::vector<Token> out;
  Speculator run{TreeVerifier{*pack.target, SampleAndMatch{}, SamplingParams{.temperature = temperature}},
                 NoDrafter{pack.target->vocab_size()}, Chain<>{.length = 0}};
  run.generate(prompt, {.max_new_tokens = fresh}, PhiloxRandom{1},
               [&](Tokens part) { out.insert(out.end(), part.begin(), part.end()); });
  return out;
}

/// Whether rounding should not decide its text: no near tie, and no draw near a boundary.
inline bool is_stable(Pack& pack, const std::vector<Token>& prompt, bool draws, std::int32_t fresh) {
  if (draws) {
    const std::vector<Token> text = plain_text(pack, prompt, 0.8f, fresh);
    return text == plain_text(pack, prompt, 0.82f, fresh) && text == plain_text(pack, prompt, 0.78f, fresh);
  }
  const std::vector<double> lead = pack_pipelines::leads(*pack.target, prompt, fresh);
  return *std::min_element(lead.begin(), lead.end()) >= 2e-3;
}

/// A prompt of 24 tokens that the target would write.
inline std::vector<Token> prompt_of(Pack& pack, std::uint64_t seed) {
  std::vector<Token> prompt{1};
  Speculator sampled{TreeVerifier{*pack.target, Sampling{}, {.temperature = 0.8f}},
                     NoDrafter{pack.target->vocab_size()}, Chain<>{.length = 0}};
  sampled.generate(prompt, {.max_new_tokens = 23}, PhiloxRandom{seed},
                   [&](Tokens part) { prompt.insert(prompt.end(), part.begin(), part.end()); });
  return prompt;
}

}  // namespace round_pipelines
