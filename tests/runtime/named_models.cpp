// SPDX-License-Identifier: MIT
#include <specula/runtime/named_models.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <specula/pipeline.hpp>
#include <specula/specula.hpp>

#include "able_model.hpp"
#include "conditioned_models.hpp"
#include "count_allocations.hpp"
#include "self_models.hpp"
#include "slow_target.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::SeenModel;
using specula_test::SlowTarget;
using specula_test::ToyExits;
using specula_test::ToyGlide;
using specula_test::ToyHead;
using specula_test::ToyModel;
using specula_test::ToySkips;

namespace {

constexpr std::int32_t kCapacity = 256;
const std::vector<Token> kPrompt{1, 5, 2, 8};
constexpr std::size_t kTokens = 80;

struct Run {
  std::vector<Token> text;
  std::int64_t rounds, draft_calls;
  double mat;
  friend bool operator==(const Run&, const Run&) = default;
};

template <class P>
Run run_of(P& pipeline) {
  PhiloxRandom rng(3);
  pipeline.start(kPrompt);
  while (pipeline.text().size() < kPrompt.size() + kTokens) pipeline.step(rng);
  const Tokens text = pipeline.text().first(kPrompt.size() + kTokens);
  const Stats& stats = pipeline.stats();
  return {{text.begin(), text.end()}, stats.rounds, stats.draft.calls, stats.mat()};
}

/// Everything that pipelines may ask for, given as AnyModels.
struct Toys {
  SlowTarget<SeenModel> target{12, 7, 2.0f, kCapacity};
  ToyModel small{12, 9, 1.0f, kCapacity}, base{12, 7, 1.0f, kCapacity};
  ToyGlide glide{12, 7, 1.0f, true, kCapacity};
  ToyHead head{12, 7, 1.0f, true, kCapacity};
  ToyExits exits{12, 7, 3, 2.0f, kCapacity};
  NamedModels models{"toy", target};
  Toys() {
    models.add("small", small).add("base", base).add("glide", glide).add("s2d", exits);
    models.add("eagle", head).add("hass", head);
  }
};

Run run_of(const std::string& name, float temperature) {
  Toys toys;
  return run_of(*make_pipeline(name, toys.models, {.temperature = temperature}));
}

template <class M>
std::string complaint(const std::string& name, M& target, const std::string& target_name = "toy") {
  Toys toys;
  NamedModels models(target_name, target);
  models.add("small", toys.small).add("glide", toys.glide).add("hass", toys.head);
  try {
    make_pipeline(name, models);
  } catch (const PipelineError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("pipelines of conditioned drafts run as the Speculators that they stand for") {
  for (const float temperature : {0.0f, 0.9f}) {
    CAPTURE(temperature);
    const auto as = [&](const std::string& name, auto drafter_of, auto shape, auto rule) {
      CAPTURE(name);
      Toys toys;
      Speculator run{TreeVerifier{toys.target, rule, {.temperature = temperature}}, drafter_of(toys), shape};
      CHECK(run_of(name, temperature) == run_of(run));
    };
    const auto glide = [](Toys& toys) { return Glide{toys.glide, toys.target}; };
    const auto head = [](Toys& toys) { return FeatureHead{toys.head, toys.target}; };
    as("chain:4@glide", glide, Chain<>{.length = 4}, Sampling{});
    as("chain:3:draw=sampled@glide", glide, Chain<Draw::sampled>{.length = 3}, Sampling{});
    as("cape:4@glide", glide, Cape{.length = 4, .budget = 32}, Sampling{});
    as("dynamic-tree:3:2:9@eagle", head, DynamicTree{.top_k = 3, .expansions = 2, .total = 9}, Sampling{});
    as("dynamic-tree:3:2:9@hass", head, DynamicTree{.top_k = 3, .expansions = 2, .total = 9}, Sampling{});
    as("chain:4@hass", head, Chain<>{.length = 4}, Sampling{});
    as("chain:3:draw=sampled@hass", head, Chain<Draw::sampled>{.length = 3}, Sampling{});
  }
}

TEST_CASE("every kind of pipeline is built from AnyModels alone") {
  const Run plain = run_of("autoregressive", 0.0f);
  for (const std::string name :
       {"chain@glide", "cape@glide", "beam@glide", "horizontal@glide,max-gram", "dynamic-tree@eagle",
        "dynamic-tree@hass", "cost-aware:cape@glide", "cost-aware:dynamic-tree@hass", "chain:4:exits=0@s2d",
        "cost-aware:chain:exits=0@s2d", "cascade@base,small", "cascade@glide,hass,max-gram",
        "vertical:2:3@glide,small", "horizontal:2:3@hass,small", "cost-aware:cascade@hass,small",
        "cost-aware:chain@hass,max-gram", "cost-aware:dynamic-tree@glide,max-gram",
        "cost-aware:chain:exits=0@s2d,max-gram"}) {
    CAPTURE(name);
    const Run run = run_of(name, 0.0f);
    CHECK(run.text == plain.text);
    CHECK(run.rounds < plain.rounds);  // draft tokens were accepted
  }
  SlowTarget<ToySkips> target(12, 7, 4, 2.0f, kCapacity);
  NamedModels models("self", target);
  const Run self = run_of(*make_pipeline("autoregressive", models, {.temperature = 0.0f}));
  for (const std::string name :
       {"adaptive-chain:end=paper@layer-skip", "adaptive-chain:end=paper:attention=1-3:mlp=2@layer-skip",
        "cost-aware:chain@layer-skip"}) {
    CAPTURE(name);
    const Run run = run_of(*make_pipeline(name, models, {.temperature = 0.0f}));
    CHECK(run.text == self.text);
    CHECK(run.rounds < self.rounds);
  }
}

TEST_CASE("a model that lacks what a pipeline needs is named, and so is the pipeline") {
  ToyModel plain(12, 7, 2.0f, kCapacity);
  SeenModel seen(12, 7, 2.0f, kCapacity), wide(13, 7, 2.0f, kCapacity);
  CHECK(complaint("chain:4@glide", plain) ==
        "pipeline 'chain:4@glide': the target 'toy' does not expose keys and values, which the draft 'glide' "
        "reads");
  CHECK(complaint("chain@glide", plain, "") ==
        "pipeline 'chain@glide': the target does not expose keys and values, which the draft 'glide' reads");
  CHECK(complaint("chain@hass", plain) ==
        "pipeline 'chain@hass': the target 'toy' does not expose features, which the draft 'hass' reads");
  CHECK(complaint("cascade@hass,small", plain) ==
        "pipeline 'cascade@hass,small': the target 'toy' does not expose features, which the draft 'hass' "
        "reads");
  CHECK(
      complaint("chain@glide", wide) ==
      "pipeline 'chain@glide': the draft 'glide' for the target 'toy': Glide: the draft's vocabulary has 12 "
      "tokens, "
      "the target's 13");
  CHECK(complaint("autoregressive@hass", seen) ==
        "pipeline 'autoregressive@hass': 'hass' reads the target's features: it does nothing by itself");
  CHECK(complaint("chain:4:exits=0.5-0@small", seen) ==
        "pipeline 'chain:4:exits=0.5-0@small': the draft 'small' has no exits");
  CHECK(complaint("beam@layer-skip", seen) ==
        "pipeline 'beam@layer-skip': the target 'toy' cannot leave layers out");
  CHECK(complaint("chain@other", seen) ==
        "pipeline 'chain@other': there is no draft 'other'; drafts are glide, hass, small");

  NamedModels twice("toy", seen);
  twice.add("seen", seen);
  CHECK_THROWS_WITH_AS(make_pipeline("chain@seen", twice),
                       "pipeline 'chain@seen': the draft 'seen' is the target itself: a model holds one text",
                       PipelineError);
  CHECK_THROWS_WITH_AS(twice.add("seen", plain), "NamedModels::add: there is a draft 'seen' already",
                       std::invalid_argument);
}

TEST_CASE_TEMPLATE("pipelines of two NamedModels over one model: each text is right", Model,
                   specula_test::AbleModel<true>, specula_test::AbleModel<false>) {
  const auto prompt = [](int kind) {
    std::vector<Token> tokens;
    for (int i = 0; i < 200; ++i) tokens.push_back((kind * i * i + i) % 6);
    return tokens;
  };
  const auto write = [&](Pipeline& pipeline, int kind) {
    PhiloxRandom rng(3);
    pipeline.start(prompt(kind));
    while (pipeline.text().size() < 220) pipeline.step(rng);
    return std::vector<Token>(pipeline.text().begin(), pipeline.text().begin() + 220);
  };
  for (const std::string name : {"autoregressive", "chain:3@small", "cascade@small,base"}) {
    CAPTURE(name);
    Model target(6), small(6, 2), base(6, 3), alone(6), alone_small(6, 2), alone_base(6, 3);
    NamedModels one("one", target), two("two", target), fresh("fresh", alone);
    for (NamedModels* models : {&one, &two}) models->add("small", small).add("base", base);
    fresh.add("small", alone_small).add("base", alone_base);
    const auto first = make_pipeline(name, one), second = make_pipeline(name, two),
               third = make_pipeline(name, one);
    const auto want = write(*make_pipeline(name, fresh), 1);
    CHECK(write(*first, 1) == want);
    write(*second, 2);
    CHECK(write(*first, 1) == want);
    write(*third, 2);
    CHECK(write(*first, 1) == want);
    write(*second, 2);
    first->forget();
    CHECK(write(*first, 1) == want);
    target.set_weights(5, false);  // not counted: the caller says so
    alone.set_weights(5, false);
    first->forget();
    CHECK(write(*first, 1) == write(*make_pipeline(name, fresh), 1));
  }
}

TEST_CASE("one model under two names is no cascade: the pipeline is not made") {
  ToyModel target(12, 7, 2.0f, kCapacity), small(12, 9, 1.0f, kCapacity);
  NamedModels models("toy", target);
  models.add("x", small).add("y", small);
  for (const std::string name :
       {"cascade@x,y", "vertical:draw=sampled@x,y", "horizontal@x,y", "cascade@x,y,max-gram"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(make_pipeline(name, models),
                         doctest::Contains("two drafters have the same model, which holds one text"),
                         std::invalid_argument);
  }
  CHECK_NOTHROW(make_pipeline("chain@x", models));
}

TEST_CASE("the table of bigrams is what was given") {
  ToyModel plain(12, 7, 2.0f, kCapacity);
  NamedModels models("toy", plain);
  CHECK_THROWS_AS(make_pipeline("chain:bigram=table@max-gram", models), PipelineError);
  models.set_bigram(BigramTable(std::vector<Token>(12, 3)));
  CHECK(make_pipeline("chain:bigram=table@max-gram", models) != nullptr);
}

TEST_CASE("a round of a pipeline by name allocates nothing") {
  for (const std::string name : {"chain:4@small", "chain:4@glide", "dynamic-tree:3:2:9@hass",
                                 "chain:4:exits=0.5-0@s2d", "cascade@glide,small"}) {
    CAPTURE(name);
    Toys toys;
    const auto pipeline = make_pipeline(name, toys.models, {.temperature = 0.9f});
    PhiloxRandom rng(3);
    pipeline->start(kPrompt);
    pipeline->step(rng);
    specula_test::AllocationCount allocated;
    for (int round = 0; round < 15; ++round) pipeline->step(rng);
    const auto n = allocated.count();
    CHECK(n == 0);
  }
}
