// SPDX-License-Identifier: MIT
// labels: slow
// Pipelines by name over the model pack: the same text, rounds and acceptance as the Speculators that they
// stand for.
#include <specula/pipeline.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

#include "skip.hpp"

using namespace specula;

namespace {

using Model = cpu::Decoder<float>;
const std::filesystem::path kPack = SPECULA_MODELS_DIR;
// "Natalia sold clips to 48 of her friends" or not: any tokens do.
const std::vector<Token> kPrompt{1, 415, 1014, 318, 99, 270, 1203, 57, 640, 88, 12};
constexpr std::size_t kTokens = 40;

/// The pack: its target and drafts, each once.
class Pack {
 public:
  Pack() {
    const auto of = [](const char* name, std::shared_ptr<const cpu::DecoderWeights<float>> lender) {
      return std::make_shared<const cpu::DecoderWeights<float>>(
          cpu::load_decoder_weights<float>(kPack / name, std::move(lender)));
    };
    const auto target = of("target", nullptr);
    cpu::DecoderOptions options{.capacity = 256, .max_nodes = 80};
    std::map<std::string, std::shared_ptr<const cpu::DecoderWeights<float>>> drafts;
    for (const char* name : {"small", "base", "glide", "eagle", "hass", "s2d"}) {
      drafts[name] = of(name, target);
      const auto& layers = drafts[name]->config.feature_layers;
      if (!layers.empty()) options.feature_layers = layers;
    }
    const auto of_draft = options;
    options.measure_similarity = true;
    target_ = std::make_unique<Model>(target, options);
    options = of_draft;
    options.feature_layers = {};
    for (auto& [name, weights] : drafts) drafts_[name] = std::make_unique<Model>(weights, options);
  }
  Model& target() { return *target_; }
  Model& draft(const std::string& name) { return *drafts_.at(name); }
  void add_to(NamedModels& models) {
    for (auto& [name, model] : drafts_) models.add(name, *model);
  }

 private:
  std::unique_ptr<Model> target_;
  std::map<std::string, std::unique_ptr<Model>> drafts_;
};

Pack* pack() {
  if (!std::filesystem::exists(kPack / "target" / "model.safetensors")) {
    specula_test::skip("no model pack");
    return nullptr;
  }
  static Pack pack;
  return &pack;
}

struct Run {
  std::vector<Token> text;
  std::int64_t rounds, draft_nodes;
  double mat, layers;
  friend bool operator==(const Run&, const Run&) = default;
};

template <class P>
Run run_of(P& pipeline) {
  PhiloxRandom rng(5);
  pipeline.start(kPrompt);
  while (pipeline.text().size() < kPrompt.size() + kTokens) pipeline.step(rng);
  const Tokens text = pipeline.text().first(kPrompt.size() + kTokens);
  const Stats& stats = pipeline.stats();
  return {{text.begin(), text.end()}, stats.rounds, stats.draft.nodes, stats.mat(), stats.draft.layers};
}

}  // namespace

TEST_CASE("glide, glide+cape, eagle2, hass, s2d, asd and cascades of the pack, by name and by type") {
  Pack* models = pack();
  if (!models) return;
  NamedModels named("target", models->target());
  models->add_to(named);
  for (const float temperature : {0.0f, 0.8f}) {
    CAPTURE(temperature);
    const auto as = [&](const std::string& name, auto drafter_of, auto shape) {
      CAPTURE(name);
      const Run got = run_of(*make_pipeline(name, named, {.temperature = temperature}));
      Speculator run{TreeVerifier{models->target(), Sampling{}, {.temperature = temperature}}, drafter_of(),
                     shape};
      CHECK(got == run_of(run));
      CHECK(got.draft_nodes > 0);
    };
    const auto glide = [&] { return Glide{models->draft("glide"), models->target()}; };
    const auto head = [&](const char* name) {
      return [&, name] { return FeatureHead{models->draft(name), models->target()}; };
    };
    as("chain:4@glide", glide, Chain<>{.length = 4});
    as("cape@glide", glide, Cape{.length = 4, .budget = 32});
    as("dynamic-tree:4:4:11@eagle", head("eagle"), DynamicTree{.top_k = 4, .expansions = 4, .total = 11});
    as("dynamic-tree:4:4:11@hass", head("hass"), DynamicTree{.top_k = 4, .expansions = 4, .total = 11});
    as(
        "chain:4:exits=0.5@s2d",
        [&] {
          return EarlyExitDrafter{models->draft("s2d"), {0.5f}};
        },
        Chain<>{.length = 4});
    as(
        "chain:4@layer-skip",
        [&] {
          return LayerSkip{models->target(), SkipRules{}};
        },
        Chain<>{.length = 4});
    as(
        "vertical:2:3@hass,small",
        [&] {
          return Stack{FeatureHead{models->draft("hass"), models->target()},
                       ModelDrafter{models->draft("small")}};
        },
        Vertical<2>{.reviews = 2, .length = 3});
  }
}
