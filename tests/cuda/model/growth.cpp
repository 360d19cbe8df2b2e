// SPDX-License-Identifier: MIT
// labels: optimised
// Which shapes and rules have rounds on a device, each tried over tables of bigrams; and rounds beside the
// host's over cuda::Model, by drafts and shapes of every kind: the same text, in as many rounds. Drawn chains
// show what the draft's rows are, whether their tokens are accepted or not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <specula/cuda/model/growth.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include "bigram_model.hpp"
#include "emulated_device.hpp"
#include "small_drafts.hpp"

namespace cuda = specula::cuda;
using namespace bigram_model;
using namespace small_model;
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

TEST_CASE(
    "every shape with every rule writes a text; of greedy parameters the target's; the page has a table") {
  const auto check = [](const auto& shape, const auto& rule) {
    EmulatedDevice device;
    const auto target = weights_of(device, kTarget, 40), draft = weights_of(device, kDraft, 40);
    cuda::Round run(device, target, draft, shape, rule, {.capacity = 40, .params = {.temperature = 0}});
    std::vector<Token> text;
    const std::vector<Token> prompt{1};
    run.generate(prompt, {.max_new_tokens = 9}, 1,
                 [&](Tokens part) { text.insert(text.end(), part.begin(), part.end()); });
    CHECK(text == std::vector<Token>{2, 1, 2, 1, 2, 1, 2, 1, 2});
  };
  std::ifstream file(SPECULA_MODELS_DIR "/../../docs/cuda_rounds.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto row = [&]<class Shape>(const char* name, const Shape& shape) {
    std::string out = std::string("\n| `") + name + "` |";
    const auto cell = [&]<class Rule>(const Rule& rule) {
      if constexpr (Rule::lossless_for(Shape::kind))
        check(shape, rule), out += " yes |";
      else
        out += " |";
    };
    cell(Greedy{}), cell(SampleAndMatch{}), cell(Rejection{}), cell(Block{}), cell(Traversal{});
    CAPTURE(out);
    CHECK(page.find(out + '\n') != std::string::npos);
  };
  row("Chain<>", Chain<>{.length = 3}), row("Chain<Draw::sampled>", Chain<Draw::sampled>{.length = 3});
  row("Cape", Cape{.length = 3, .budget = 8, .extras = CapeExtras::fixed(2)});
  row("DynamicTree", DynamicTree{.top_k = 2, .expansions = 2, .total = 5});
}

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

TEST_CASE("rounds of prescribed lengths, plain ones between, are the host's of these sizes") {
  Models on(Draft{.name = "plain draft of two layers", .layers = 2});
  const Chain<Draw::sampled> chain{.length = 4};
  const SamplingParams params{.temperature = 1.5f};
  const std::vector<Token> prompt = random_tokens(5, 8);
  Model target(on.device, on.target, {.capacity = on.capacity}),
      draft(on.device, on.draft, {.capacity = on.capacity});
  Speculator host{TreeVerifier{target, Rejection{}, params}, ModelDrafter{draft}, chain};
  cuda::Round run(on.device, on.target, on.draft, chain, Rejection{},
                  {.capacity = on.capacity, .params = params});
  PhiloxRandom rng{7};
  host.start(prompt), run.start(prompt, {.max_new_tokens = 80}, 7);
  specula_test::Random random(3);
  std::vector<std::size_t> sizes;  // of the host's text after each round
  for (int round = 0; host.text().size() < 80; ++round) {
    const std::int32_t length = round < 30 ? 0 : random.below(5);  // at first more than one pass catches up
    host.begin(rng, {}, nullptr, 1 + length);
    host.end();
    sizes.push_back(host.text().size());
    run.step(length);
    CHECK(run.text().size() == (round == 0 ? prompt.size() : sizes[sizes.size() - 2]));
  }
  run.drain();
  CHECK(std::equal(run.text().begin(), run.text().end(), host.text().begin(), host.text().end()));
  CHECK(sizes.size() < 65);
}

TEST_CASE("target and draft read a prompt by several passes") {
  Models on(640);
  check(on, Chain<>{.length = 3}, Greedy{}, {.temperature = 0}, 600, 8);
}
