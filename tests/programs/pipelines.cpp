#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "decode.hpp"
#include "pipeline_registry.hpp"
#include "toy_model.hpp"

using namespace specula_examples;
using specula_test::ToyModel;

namespace {

class Toys final : public ModelSource<ToyModel> {
 public:
  ToyModel& target() override { return target_; }
  ToyModel& draft(const std::string& name) override {
    return drafts_.try_emplace(name, 12, name == "base" ? 7u : 9u, 1.0f, 256).first->second;
  }

 private:
  ToyModel target_{12, 7, 2.0f, 256};  // the draft `base` agrees with it about the likeliest token
  std::map<std::string, ToyModel> drafts_;
};

std::string complaint(const std::string& name) {
  try {
    prepare_pipeline<ToyModel>(name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("names and their parts") {
  const auto full = prepare_pipeline<ToyModel>("chain:base:6:exit=0.3:lenient=3");
  CHECK(full.drafts == std::vector<std::string>{"base"});
  CHECK(full.max_nodes == 7);
  CHECK(full.lossy);
  const auto plain = prepare_pipeline<ToyModel>("chain");
  CHECK(plain.drafts == std::vector<std::string>{kDefaultDraft});
  CHECK(plain.max_nodes == kDefaultChainLength + 1);
  CHECK_FALSE(plain.lossy);
  CHECK(prepare_pipeline<ToyModel>("chain:3").max_nodes == 4);
  CHECK(prepare_pipeline<ToyModel>("sampled-chain:3:base").max_nodes == 4);
  CHECK(prepare_pipeline<ToyModel>("autoregressive").max_nodes == 1);
}

TEST_CASE("trees: their sizes, and what the draft holds beside the context") {
  const auto nodes = [](const std::string& name) {
    const auto recipe = prepare_pipeline<ToyModel>(name);
    return std::pair{recipe.max_nodes, recipe.draft_nodes};
  };
  CHECK(nodes("cape") == std::pair{33, 33});
  CHECK(nodes("cape:base:6:fixed=2:budget=100") == std::pair{19, 19});
  CHECK(nodes("beam") == std::pair{17, 17});
  CHECK(nodes("beam:3:5") == std::pair{16, 16});
  CHECK(nodes("dynamic-tree") == std::pair{60, 60});
  CHECK(nodes("dynamic-tree:10:5:20") == std::pair{21, 51});
  CHECK(nodes("sampled-tree") == std::pair{21, 21});
  CHECK(nodes("iid-tree:widths=3-3") == std::pair{13, 13});
  CHECK(nodes("cost-aware") == std::pair{64, 64});
  CHECK(nodes("cost-aware:chain:base:5") == std::pair{6, 6});
  CHECK(nodes("cost-aware:dynamic-tree:10:5:20") == std::pair{21, 51});
  CHECK(prepare_pipeline<ToyModel>("cost-aware:chain:base").drafts == std::vector<std::string>{"base"});
}

TEST_CASE("rules by name: those that keep the law, and the lossy ones marked as such") {
  CHECK_FALSE(prepare_pipeline<ToyModel>("sampled-chain:rule=token").lossy);
  CHECK_FALSE(prepare_pipeline<ToyModel>("sampled-chain:rule=block").lossy);
  CHECK_FALSE(prepare_pipeline<ToyModel>("iid-tree:rule=k-seq").lossy);
  CHECK(prepare_pipeline<ToyModel>("cape:rule=typical").lossy);
  CHECK(prepare_pipeline<ToyModel>("sampled-tree:lenient=2").lossy);
  for (const char* wrong : {"cape:rule=block", "sampled-tree:rule=k-seq", "shared-chain:rule=token",
                            "sampled-tree:rule=block", "chain:rule=nonsense"})
    CHECK(complaint(wrong).find("must be one of") != std::string::npos);
  CHECK(complaint("shared-chain:lenient=2").find("it does not go with") != std::string::npos);
  CHECK(complaint("sampled-chain:rule=token:lenient=2").find("it does not go with") != std::string::npos);
}

TEST_CASE("names that are wrong are explained") {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(complaint("chian"), "unknown pipeline 'chian'; known are autoregressive[:rule=noise], chain["));
  CHECK(has(complaint(""), "unknown pipeline ''"));
  CHECK(has(complaint("chain:0"), "length is 0, must be 1 to 64"));
  CHECK(has(complaint("chain:99999999999"), "99999999999 is too large"));
  CHECK(has(complaint("chain:small:base"), "does not know what to do with 'base'"));
  CHECK(has(complaint("chain:4:5"), "does not know what to do with '5'"));
  CHECK(has(complaint("chain:depth=3"), "does not know what to do with 'depth=3'"));
  CHECK(has(complaint("chain:exit=x"), "exit is 'x', must be a number"));
  CHECK(has(complaint("chain:exit=2"), "exit is 2, must be 0 to 1"));
  CHECK(has(complaint("chain:exit=nan"), "must be 0 to 1"));
  CHECK(has(complaint("chain:=3"), "is not key=value"));
  CHECK(has(complaint("chain::3"), "a part is empty"));
  CHECK(has(complaint("autoregressive:small"), "does not know"));
  CHECK(has(complaint("sampled-tree:widths=4-x"), "widths is '4-x', must be numbers from 1 to 64"));
  CHECK(has(complaint("sampled-tree:widths=64-64"), "more than 1024 guesses"));
  CHECK(has(complaint("sampled-tree:widths=0"), "must be numbers from 1 to 64"));
  CHECK(has(complaint("cape:4:5"), "does not know what to do with '5'"));
  CHECK(has(complaint("cost-aware:chain:base:cape"), "does not know what to do with 'cape'"));
  CHECK(has(complaint("beam:4:65"), "length is 65, must be 1 to 64"));
  CHECK_THROWS_AS(split_list("a,,b"), UsageError);
}

TEST_CASE("pipelines take turns on the same models, and the exact ones write the same text") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  for (const float temperature : {0.0f, 0.9f}) {
    const specula::SamplingParams params{.temperature = temperature};
    auto plain = prepare_pipeline<ToyModel>("autoregressive").build(toys, params);
    auto good = prepare_pipeline<ToyModel>("chain:base:5").build(toys, params);
    auto bad = prepare_pipeline<ToyModel>("chain:small:3:exit=0.2").build(toys, params);
    for (std::uint32_t sequence = 0; sequence < 4; ++sequence) {
      const DecodeSettings settings{.max_new_tokens = 50, .seed = 3, .sequence = sequence};
      const auto expected = decode(*plain, prompt, settings).tokens;
      CHECK(expected.size() == 50);
      CHECK(decode(*good, prompt, settings).tokens == expected);
      CHECK(decode(*bad, prompt, settings).tokens == expected);
      CHECK(decode(*plain, prompt, settings).tokens == expected);
    }
    CHECK(good->stats().mat() > 1.5);
    CHECK(plain->drafts().empty());
    CHECK(good->drafts().at(0).model == "base");
  }
}

TEST_CASE("every deterministic pipeline writes plain decoding's text, every sampled one at temperature 0") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  for (const float temperature : {0.0f, 0.9f}) {
    const specula::SamplingParams params{.temperature = temperature};
    auto plain = prepare_pipeline<ToyModel>("autoregressive").build(toys, params);
    const DecodeSettings settings{.max_new_tokens = 60, .seed = 3};
    const auto expected = decode(*plain, prompt, settings).tokens;
    for (const char* name :
         {"cape:base", "cape:small:3:fixed=3", "beam:base", "dynamic-tree:base:4:3:12", "cost-aware:base",
          "cost-aware:chain:base", "cost-aware:beam:small", "cost-aware:dynamic-tree:base"}) {
      CAPTURE(name);
      auto run = prepare_pipeline<ToyModel>(name).build(toys, params);
      CHECK(decode(*run, prompt, settings).tokens == expected);
    }
    for (const char* name :
         {"sampled-chain:base", "sampled-chain:small:4:rule=block", "shared-chain:base", "sampled-tree:base",
          "iid-tree:small:rule=k-seq", "cost-aware:sampled-chain:base", "cost-aware:sampled-tree:base"}) {
      CAPTURE(name);
      auto run = prepare_pipeline<ToyModel>(name).build(toys, params);
      const auto tokens = decode(*run, prompt, settings).tokens;
      CHECK(tokens.size() == 60);
      if (temperature == 0.0f) CHECK(tokens == expected);
    }
    auto noise = prepare_pipeline<ToyModel>("autoregressive:rule=noise").build(toys, params);
    const auto by_noise = decode(*noise, prompt, settings).tokens;
    for (const char* name : {"shared-chain:base", "shared-chain:small:5"}) {
      auto run = prepare_pipeline<ToyModel>(name).build(toys, params);
      CHECK(decode(*run, prompt, settings).tokens == by_noise);
    }
  }
}

TEST_CASE("what goes beyond the limit or the stop token is not emitted") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  auto chain = prepare_pipeline<ToyModel>("chain:base:5").build(toys, {.temperature = 0.0f});
  const auto full = decode(*chain, prompt, {.max_new_tokens = 30});
  std::vector<Token> streamed;
  std::size_t guesses = 0;
  const auto cut = decode(*chain, prompt, {.max_new_tokens = 3}, [&](Tokens fresh, std::size_t accepted) {
    CHECK(accepted <= fresh.size());
    guesses += accepted;
    streamed.insert(streamed.end(), fresh.begin(), fresh.end());
  });
  CHECK(cut.tokens == std::vector<Token>(full.tokens.begin(), full.tokens.begin() + 3));
  CHECK(streamed == cut.tokens);
  CHECK(guesses == 3);  // six tokens came in one round, the first five of them guesses
  CHECK(cut.stats.rounds == 1);
  CHECK(cut.stats.new_tokens == 6);
  const Token stop = full.tokens[1];
  const auto stopped = decode(*chain, prompt, {.max_new_tokens = 30, .stop = stop});
  CHECK(stopped.tokens.back() == stop);
  CHECK(stopped.tokens.size() <= 2);
}
