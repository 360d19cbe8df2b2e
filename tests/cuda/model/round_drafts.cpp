// SPDX-License-Identifier: MIT
// labels: optimised
// Rounds on the device beside the host's rounds over cuda::Model, by drafts and shapes of every kind: the
// same text, in as many rounds. Drawn chains show what the draft's rows are, whether their tokens are
// accepted or not.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include "small_drafts.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using namespace specula;
using specula_test::EmulatedDevice;
using Model = cuda::Model<EmulatedDevice>;

namespace {

struct Text {
  std::vector<Token> tokens;
  std::int64_t rounds = 0;
  auto sink() {
    return [this](Tokens part) { tokens.insert(tokens.end(), part.begin(), part.end()); };
  }
};

/// A target and a draft, on the device.
struct Models {
  int capacity = 96;
  EmulatedDevice device;
  cuda::DeviceWeights target, draft;
  explicit Models(const Draft& how) {
    using Weights = cpu::DecoderWeights<float>;
    const auto weights = std::make_shared<const Weights>(
        cpu::random_decoder_weights<float>(target_config(how), 3, cpu::WeightType::bf16));
    target = cuda::upload(device, *weights, capacity);
    draft = cuda::upload(
        device,
        cpu::random_decoder_weights<float>(draft_config(how), 5, cpu::WeightType::bf16,
                                           draft_config(how).borrows_embedding() ? weights : nullptr),
        capacity, &target);
  }
  /// Its first layer as the draft, which agrees often.
  explicit Models(int tokens = 96) : capacity(tokens) {
    auto weights = small_weights();
    target = cuda::upload(device, weights, capacity);
    weights.config.layers = 1, weights.layers.resize(1);
    draft = cuda::upload(device, weights, capacity);
  }
};

/// Of a prompt of `size` tokens: by the host's rounds, and by the device's.
template <class Shape, class Rule>
std::pair<Text, Text> both(Models& on, const Shape& shape, const Rule& rule, const SamplingParams& params,
                           int size, std::int32_t fresh) {
  const std::vector<Token> prompt = random_tokens(size, 8);
  Text host, device;
  {
    Model target(on.device, on.target, {.capacity = on.capacity, .features = true}),
        draft(on.device, on.draft, {.capacity = on.capacity});
    const auto run = [&](auto drafter) {
      Speculator by{TreeVerifier{target, rule, params}, std::move(drafter), shape};
      by.generate(prompt, {.max_new_tokens = fresh}, PhiloxRandom{7}, host.sink());
      host.rounds = by.stats().rounds;
    };
    if (draft.conditioned_on() == Conditioning::features)
      run(FeatureHead{draft, target});
    else if (draft.conditioned_on() == Conditioning::key_values)
      run(Glide{draft, target});
    else
      run(ModelDrafter{draft});
  }
  cuda::Round run(on.device, on.target, on.draft, shape, rule, {.capacity = on.capacity, .params = params});
  run.generate(prompt, {.max_new_tokens = fresh}, 7, device.sink());
  device.rounds = run.rounds();
  return {host, device};
}

template <class Shape, class Rule>
void check(Models& on, const Shape& shape, const Rule& rule, const SamplingParams& params, int size,
           std::int32_t fresh) {
  const auto [host, device] = both(on, shape, rule, params, size, fresh);
  CHECK(device.tokens == host.tokens);
  CHECK(device.rounds == host.rounds);
  CHECK(host.rounds < fresh);
  MESSAGE(fresh << " tokens in " << host.rounds << " rounds");
}

}  // namespace

TEST_CASE("drawn chains by drafts of every kind are the host's draws") {
  const std::vector<Draft> all{
      {.name = "plain draft of another width, of two layers", .layers = 2},
      {.name = "projected embedding, draft vocabulary", .vocab = 120, .projects = true},
      {.name = "feature head", .reads = Conditioning::features, .head_dim = 64},
      {.name = "feature head of two layers, draft vocabulary",
       .reads = Conditioning::features,
       .layers = 2,
       .vocab = 120},
      {.name = "GLIDE", .reads = Conditioning::key_values},
      {.name = "GLIDE of two layers, draft vocabulary, projected embedding",
       .reads = Conditioning::key_values,
       .layers = 2,
       .vocab = 120,
       .projects = true},
  };
  for (const Draft& how : all) {
    CAPTURE(how.name);
    Models on(how);
    for (const int prompt : {1, 20})
      check(on, Chain<Draw::sampled>{.length = 3}, Rejection{}, {.temperature = 1.5f}, prompt, 24);
  }
}

TEST_CASE("shapes by a draft that agrees often, and rules") {
  Models on;
  const SamplingParams greedy{.temperature = 0}, warm{.temperature = 0.8f};
  check(on, Chain<Draw::sampled>{.length = 4}, Block{}, warm, 9, 32);
  check(on, Chain<Draw::sampled>{.length = 4}, Traversal{}, warm, 9, 32);
  check(on, Chain<>{.length = 4}, SampleAndMatch{}, warm, 9, 32);
  check(on, Cape{.length = 3, .budget = 8}, Greedy{}, greedy, 9, 32);
  check(on, Cape{.length = 3, .budget = 8}, SampleAndMatch{}, warm, 9, 32);
  check(on, Cape{.length = 6, .budget = 3}, Greedy{}, greedy, 9, 32);  // a spine beyond its budget
  check(on, DynamicTree{.top_k = 3, .expansions = 3, .total = 8}, Greedy{}, greedy, 9, 32);
  check(on, DynamicTree{.top_k = 3, .expansions = 3, .total = 8}, SampleAndMatch{}, warm, 9, 32);
  check(on, DynamicTree{.top_k = 4, .expansions = 3, .total = 4}, Greedy{}, greedy, 9, 32);
}

TEST_CASE("target and draft read a prompt by several passes") {
  Models on(640);
  check(on, Chain<>{.length = 3}, Greedy{}, {.temperature = 0}, 600, 8);
}
