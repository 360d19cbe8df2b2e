// labels: long
// The programs' pipelines: names, models, rules and texts.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <specula/pipeline.hpp>
#include "braces.hpp"
#include "decode.hpp"
#include "errors.hpp"
#include "self_models.hpp"
#include "slow_target.hpp"
#include "toy_model.hpp"

using namespace specula_examples;
using specula_test::SlowTarget;
using specula_test::ToyModel;

namespace {

class Toys final : public specula::PipelineModels {
 public:
  explicit Toys(std::optional<specula::BigramTable> table = std::nullopt) : table_(std::move(table)) {}
  specula::AnyModel& target() override { return target_.any; }
  specula::AnyModel& draft(const std::string& name) override { return held(name).any; }
  std::optional<specula::BigramTable> bigram() override {
    ++tables_asked;
    return table_;
  }
  int tables_asked = 0;

  std::int64_t target_calls() const { return target_.model.calls; }
  std::int64_t draft_calls(const std::string& name) { return held(name).model.calls; }
  ToyModel& draft_model(const std::string& name) { return held(name).model; }

 private:
  specula::HeldModel<ToyModel>& held(const std::string& name) {
    return drafts_.try_emplace(name, 12, name == "base" ? 7u : 9u, 1.0f, 256).first->second;
  }

  std::optional<specula::BigramTable> table_;
  // The draft `base` agrees with it about the likeliest token.
  specula::HeldModel<SlowTarget<ToyModel>> target_{12, 7u, 2.0f, 256};
  std::map<std::string, specula::HeldModel<ToyModel>> drafts_;
};

std::string complaint(const std::string& name) {
  try {
    specula::prepare_pipeline(name);
  } catch (const specula::PipelineError& error) {
    return error.what();
  }
  return "";
}

const std::vector<Token> kPrompt{1, 5, 2, 8};

/// The draft tokens of the first round after `prompt`.
std::vector<Token> first_draft_tokens(Toys& toys, const std::string& name, const std::vector<Token>& prompt) {
  const auto pipeline = specula::prepare_pipeline(name).build(toys, {.temperature = 0.0f});
  specula::PhiloxRandom rng(1);
  pipeline->start(prompt);
  pipeline->step(rng);
  const Tokens tokens = pipeline->proposal().tokens();
  return {tokens.begin() + 1, tokens.end()};
}

/// All pipelines of several drafters, and those that draft without a model.
const std::vector<std::string> kChosen{"max-gram",
                                       "max-gram:3:min=1:bigram=none:past-end=no",
                                       "max-gram:exit=0.5:bigram=both",
                                       "prompt-lookup",
                                       "prompt-lookup:6:ngram=1",
                                       "glide+max-gram",
                                       "glide+max-gram:glide:small:2:3",
                                       "adaptive-chain",
                                       "adaptive-chain:base:6:end=heuristic:carry=no",
                                       "adaptive-chain:base:exit=0.3",
                                       "horizontal",
                                       "horizontal:base:small:3:2",
                                       "horizontal:base:small:max-gram:1:2:5",
                                       "horizontal:base:small:0:0",
                                       "vertical",
                                       "vertical:base:small:2:3",
                                       "vertical:small:base:3:1:lenience=4",
                                       "vertical:base:small:max-gram",
                                       "cascade",
                                       "cascade:base:small",
                                       "cascade:base:small:limits=3-2-4:lenience=2",
                                       "cascade:base:small:max-gram",
                                       "cascade:base:small:max-gram:limits=8-5-10-1-10-10:lenience=1",
                                       "cascade:base:small:max-gram:limits=8-5-10-1-10-10:lenience=2",
                                       "cascade:base:small:max-gram:limits=8-5-10-1-10-10:lenience=3",
                                       "cascade:base:small:max-gram:limits=8-5-10-1-10-10:lenience=5",
                                       "cascade:base:hass:limits=8-0-4:lenience=5",
                                       "cascade:glide:hass:max-gram:lenience=5"};
const std::vector<std::string> kDrawn{"sampled-horizontal",
                                      "sampled-horizontal:base:small:2:3",
                                      "sampled-horizontal:base:small:max-gram",
                                      "sampled-vertical:base:small:2:3:lenience=2",
                                      "sampled-vertical:base:small:max-gram",
                                      "sampled-cascade",
                                      "sampled-cascade:base:small:rule=token",
                                      "sampled-cascade:base:small:lenience=1",
                                      "sampled-cascade:base:small:lenience=2",
                                      "sampled-cascade:base:small:lenience=5",
                                      "sampled-cascade:base:hass:max-gram:lenience=2",
                                      "sampled-cascade:base:small:max-gram:limits=8-5-10-1-10-10:lenience=3"};
const std::vector<std::string> kClocked{"cost-aware:max-gram", "cost-aware:max-gram:20:bigram=text",
                                        "cost-aware:cascade", "cost-aware:cascade:base:small",
                                        "cost-aware:cascade:base:small:max-gram:limits=8-5-10-1-10-10"};

/// The pipelines give exactly the text of `plain`.
void check_same_text(specula::PipelineModels& toys, const std::string& plain,
                     const std::vector<std::string>& names, float temperature) {
  const specula::SamplingParams params{.temperature = temperature};
  auto reference = specula::prepare_pipeline(plain).build(toys, params);
  for (const std::string& name : names) {
    CAPTURE(name);
    CAPTURE(temperature);
    auto pipeline = specula::prepare_pipeline(name).build(toys, params);
    for (std::uint32_t sequence = 0; sequence < 3; ++sequence) {
      const DecodeSettings settings{.max_new_tokens = 60, .seed = 5, .sequence = sequence};
      const std::vector<Token> prompt{1, 5, static_cast<Token>(sequence), 8};
      CHECK(decode(*pipeline, prompt, settings).tokens == decode(*reference, prompt, settings).tokens);
    }
    CHECK((pipeline->stats().proposed > 0) == !name.ends_with(":0:0"));
  }
}

}  // namespace

TEST_CASE("pipeline names and their parts") {
  const auto full = specula::prepare_pipeline("chain:base:6:exit=0.3:lenient=3:lossy=yes");
  CHECK(full.drafts == std::vector<std::string>{"base"});
  CHECK(full.max_nodes == 7);
  CHECK(full.lossy);
  const auto plain = specula::prepare_pipeline("chain");
  CHECK(plain.drafts == std::vector<std::string>{specula::kDefaultDraft});
  CHECK(plain.max_nodes == specula::kDefaultChainLength + 1);
  CHECK_FALSE(plain.lossy);
  CHECK(specula::prepare_pipeline("chain:3").max_nodes == 4);
  CHECK(specula::prepare_pipeline("sampled-chain:3:base").max_nodes == 4);
  CHECK(specula::prepare_pipeline("autoregressive").max_nodes == 1);
}

TEST_CASE("trees: nodes of the proposals and of the drafts' KV caches") {
  const auto nodes = [](const std::string& name, std::int32_t proposed, std::int32_t drafted) {
    CAPTURE(name);
    const auto factory = specula::prepare_pipeline(name);
    CHECK(factory.max_nodes == proposed);
    CHECK(factory.draft_nodes == drafted);
    CHECK_FALSE(factory.lossy);
  };
  nodes("chain:3", 4, 4);
  nodes("shared-chain:3", 4, 4);
  nodes("cape", 33, 33);  // four spine tokens and 28 runners-up, at most
  nodes("cape:2:base", 17, 17);
  nodes("cape:3:fixed=1", 7, 7);
  nodes("cape:6:budget=10", 11, 11);
  nodes("cape:base:6:fixed=2:budget=100", 19, 19);
  nodes("beam", 17, 17);
  nodes("beam:base:3:5", 16, 16);
  nodes("beam:8", 33, 33);
  nodes("cape:small:4:counts=7-5-3-1", 33, 33);
  nodes("cape:base:3:counts=1-0-0-2:budget=100", 10, 10);
  nodes("cape:3:counts=0-0-0-0", 4, 4);
  nodes("cape:3:fixed=0", 4, 4);
  nodes("cape:2:thresholds=0.1-0.2-0.9", 17, 17);
  nodes("glide+cape:5:counts=2-2-1-0:thresholds=0.5-0.7-0.9", 16, 16);
  nodes("static-tree", 26, 26);
  nodes("static-tree:hass:draw=sampled", 26, 26);
  nodes("static-tree:base:choices=0-1-0.0-1.0-1.2", 6, 6);
  nodes("cost-aware:static-tree:base:choices=0-0.0", 3, 3);
  nodes("dynamic-tree", 60, 60);
  nodes("dynamic-tree:4:8:12", 13, 33);  // the draft runs more nodes than are proposed
  nodes("dynamic-tree:10:5:20", 21, 51);
  nodes("dynamic-tree:2:0", 3, 3);
  nodes("sampled-tree", 21, 21);
  nodes("sampled-tree:widths=2", 3, 3);
  nodes("iid-tree:base:widths=3-1-2", 13, 13);
  nodes("cost-aware", 64, 64);
  nodes("cost-aware:chain:5", 6, 6);
  nodes("cost-aware:dynamic-tree:base:3:6:10", 11, 19);
  nodes("cost-aware:base:beam:2:3", 7, 7);
  CHECK(specula::prepare_pipeline("cost-aware:base").drafts == std::vector<std::string>{"base"});
  CHECK(specula::prepare_pipeline("cost-aware:beam").drafts ==
        std::vector<std::string>{specula::kDefaultDraft});
}

TEST_CASE("rules by name") {
  for (const std::string exact :
       {"autoregressive:rule=gumbel", "chain:rule=match", "cape:rule=token", "beam:rule=traversal",
        "dynamic-tree:rule=gumbel", "sampled-chain:rule=block", "sampled-chain:rule=match",
        "shared-chain:rule=match", "sampled-tree:rule=traversal", "sampled-tree:rule=token",
        "iid-tree:rule=k-seq", "cost-aware:sampled-chain:rule=token"}) {
    CAPTURE(exact);
    CHECK_FALSE(specula::prepare_pipeline(exact).lossy);
  }
  for (const std::string lossy : {"chain:lenient=2", "cape:lenient=1.5", "sampled-tree:lenient=3",
                                  "beam:rule=typical", "shared-chain:rule=typical"}) {
    CAPTURE(lossy);
    CHECK(specula::prepare_pipeline(lossy + ":lossy=yes").lossy);
  }
}

TEST_CASE("errors explain wrong names") {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(complaint("chian"), "unknown pipeline 'chian'; the nearest are chain, cape, beam"));
  CHECK_FALSE(has(complaint("chian"), "--"));  // the library knows no command lines
  CHECK(has(complaint(""), "unknown pipeline ''"));
  CHECK(has(complaint("chain:0"), "length is 0, must be 1 to 64"));
  CHECK(has(complaint("chain:99999999999"), "99999999999 is too large"));
  CHECK(has(complaint("chain:small:base"), "does not know what to do with 'base'"));
  CHECK(has(complaint("chain:4:5"), "does not know what to do with '5'"));
  CHECK(has(complaint("chain:depth=3"), "does not know what to do with 'depth=3'"));
  CHECK(has(complaint("chain:exit=x"), "exit is 'x', must be a number"));
  CHECK(has(complaint("cape:budget=2.5"), "budget is 2.5, must be a whole number"));
  CHECK(has(complaint("max-gram:min=0"), "min is 0, must be 1 to 64"));
  CHECK(has(complaint("chain:exit=2"), "exit is 2, must be 0 to 1"));
  CHECK(has(complaint("chain:exit=nan"), "must be 0 to 1"));
  CHECK(has(complaint("chain:=3"), "is not key=value"));
  CHECK(has(complaint("chain::3"), "a part is empty"));
  CHECK(has(complaint("autoregressive:small:base"), "does not know what to do with 'base'"));
  CHECK(has(complaint("autoregressive:4"), "does not know what to do with '4'"));
  CHECK(has(complaint("cape:65"), "length is 65, must be 1 to 64"));
  CHECK(has(complaint("cape:fixed=64"), "fixed is 64, must be 0 to 63"));
  CHECK(has(complaint("cape:budget=0"), "budget is 0, must be 1 to 1024"));
  CHECK(has(complaint("cape:widths=2"), "does not know what to do with 'widths=2'"));
  CHECK(has(complaint("cape:counts=7-5-3"), "counts are 4 numbers, one for each bin of confidence"));
  CHECK(has(complaint("cape:counts=7-5-3-1-1"), "counts has more than 4 numbers"));
  CHECK(has(complaint("cape:counts=7-5-3-64"), "must be numbers from 0 to 63"));
  CHECK(has(complaint("cape:counts=7-5--1"), "must be numbers from 0 to 63"));
  CHECK(has(complaint("cape:counts=1-1-1-1:fixed=2"), "it does not go with counts or thresholds"));
  CHECK(has(complaint("cape:thresholds=0.3-0.6-0.8:fixed=2"), "it does not go with counts or thresholds"));
  CHECK(has(complaint("cape:thresholds=0.3-0.6"), "thresholds are 3 numbers, the ends of all bins"));
  CHECK(has(complaint("cape:thresholds=0.6-0.3-0.8"), "thresholds must ascend"));
  CHECK(has(complaint("cape:thresholds=0.3-0.6-1.5"), "must be numbers from 0 to 1"));
  CHECK(has(complaint("static-tree:choices=0-0.1.x"),
            "must be paths with dashes between them, each of numbers"));
  CHECK(has(complaint("static-tree:choices=0-0..1"), "must be paths with dashes between them"));
  CHECK(has(complaint("static-tree:choices=0--1"), "must be paths with dashes between them"));
  CHECK(has(complaint("static-tree:choices=1024"), "numbers from 0 to 1023"));
  CHECK(has(complaint("static-tree:choices=0.0-0"),
            "RankedTree: draft token 0, {0, 0}, comes before its parent"));
  CHECK(has(complaint("static-tree:choices=0-1-0"), "RankedTree: draft tokens 0 and 2 are both {0}"));
  CHECK(has(complaint("static-tree:choices=0-2:draw=sampled"),
            "StaticTree: the 2 children of node 0 have ranks"));
  CHECK(has(complaint("static-tree:draw=iid"), "draw is 'iid', must be one of greedy, sampled"));
  CHECK(has(complaint("static-tree:4"), "does not know what to do with '4'"));
  CHECK(has(complaint("s2d:exits=2-1"), "exits must ascend"));
  CHECK(has(complaint("s2d:exits=1-2:thresholds=0.5-0.5"),
            "thresholds are 2 numbers, must be 1: one for each"));
  CHECK(has(complaint("s2d:exits=0"), "must be numbers from 1 to 1024"));
  CHECK(has(complaint("asd:attention=1:alike=0.9"), "does not know what to do with 'alike=0.9'"));
  CHECK(has(complaint("asd:mlp=0"), "must be numbers from 1 to 1024"));
  CHECK(has(complaint("beam:0"), "width is 0, must be 1 to 64"));
  CHECK(has(complaint("beam:2:0"), "length is 0, must be 1 to 64"));
  CHECK(has(complaint("dynamic-tree:0"), "top-k is 0, must be 1 to 64"));
  CHECK(has(complaint("dynamic-tree:2:64"), "expansions is 64, must be 0 to 63"));
  CHECK(has(complaint("dynamic-tree:2:2:0"), "total is 0, must be 1 to 1024"));
  for (const std::string widths : {"0", "2-x", "2--2", "-2", "2-", "65", "4,2"}) {
    CAPTURE(widths);
    CHECK(has(complaint("sampled-tree:widths=" + widths),
              "must be numbers from 1 to 64 with dashes between them"));
  }
  CHECK(
      has(complaint("iid-tree:widths=1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1"), "widths has more than 16 numbers"));
  CHECK(has(complaint("iid-tree:widths=32-32"), "a tree of more than 1024 draft tokens"));
  CHECK(has(complaint("iid-tree:widths=64-64-64-64-64-64-64-64-64-64"),
            "a tree of more than 1024 draft tokens"));
  CHECK(has(complaint("cost-aware:beam:budget=3"), "does not know what to do with 'budget=3'"));
  CHECK(has(complaint("cost-aware:chain:base:cape"), "does not know what to do with 'cape'"));
  CHECK(has(complaint("cape:4:5"), "does not know what to do with '5'"));
  CHECK_THROWS_AS(split_list("a,,b"), UsageError);
  CHECK_THROWS_AS(split_list(""), UsageError);
  CHECK(split_list("a,{b,c") == std::vector<std::string>{"a", "{b", "c"});
}

TEST_CASE("rules that do not keep the target's distribution for a pipeline's proposals are refused") {
  const auto refused = [](const std::string& pipeline, const std::string& rule) {
    CAPTURE(pipeline);
    CAPTURE(rule);
    const std::string named = pipeline + ":rule=" + rule;
    CHECK(complaint(named).find(
              "'" + named + "': rule=" + rule +
              ": this rule does not keep the target's distribution for proposals drawn as this shape draws "
              "them. Lossless are ") != std::string::npos);
    CHECK(complaint(named + ":lossy=no") != "");
    CHECK(specula::prepare_pipeline(named + ":lossy=yes").lossy);
  };
  for (const char* tree : {"chain", "cape", "beam", "dynamic-tree", "sampled-tree", "iid-tree", "cost-aware"})
    refused(tree, "block");
  for (const char* not_iid : {"chain", "sampled-chain", "sampled-tree", "cape"}) refused(not_iid, "k-seq");
  for (const char* reads_q : {"sampling", "token", "block", "traversal"}) refused("shared-chain", reads_q);
  refused("cost-aware:sampled-tree", "block");
  for (const char* lossy : {"chain", "sampled-chain", "shared-chain"}) refused(lossy, "typical");
  const auto explained = [](const std::string& name, const char* part) {
    CAPTURE(name);
    CHECK(complaint(name).find(part) != std::string::npos);
  };
  explained("autoregressive:rule=token", "rule is 'token', must be one of ");
  explained("chain:rule=greedy", "rule is 'greedy', must be one of ");
  explained("chain:lenient=2", "lenient: this rule does not keep the target's distribution");
  explained("chain:lossy=maybe", "lossy is 'maybe', must be one of yes, no");
  CHECK_FALSE(specula::prepare_pipeline("chain:lossy=yes").lossy);
  CHECK(complaint("chain:rule=token:lenient=2").find("does not go with rule=token") != std::string::npos);
  CHECK(complaint("shared-chain:lenient=2").find("does not go with shared noise") != std::string::npos);
}

TEST_CASE("pipelines that use the same models in turn give the same text if they are exact") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  for (const float temperature : {0.0f, 0.9f}) {
    const specula::SamplingParams params{.temperature = temperature};
    auto plain = specula::prepare_pipeline("autoregressive").build(toys, params);
    auto good = specula::prepare_pipeline("chain:base:5").build(toys, params);
    auto bad = specula::prepare_pipeline("chain:small:3:exit=0.2").build(toys, params);
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

TEST_CASE("one seed gives one text: deterministic proposals at any temperature, all others at 0") {
  const std::vector<std::string> deterministic{"cape",
                                               "cape:base:3:budget=5",
                                               "cape:base:fixed=2",
                                               "beam",
                                               "beam:base:3:2",
                                               "dynamic-tree:base",
                                               "dynamic-tree:3:4:9",
                                               "static-tree:base",
                                               "static-tree:choices=0-3-3.1",
                                               "cape:counts=3-2-1-0:thresholds=0.2-0.3-0.4",
                                               "beam:8",
                                               "cost-aware:static-tree:base",
                                               "cost-aware",
                                               "cost-aware:chain:base",
                                               "cost-aware:beam:base:2:3",
                                               "cost-aware:dynamic-tree:base",
                                               "sampled-chain:base:rule=match",
                                               "sampled-tree:rule=match"};
  const std::vector<std::string> greedy_only{"sampled-chain:base",
                                             "sampled-chain:rule=token",
                                             "sampled-chain:rule=block",
                                             "shared-chain:base",
                                             "static-tree:draw=sampled",
                                             "static-tree:base:choices=0-1-0.0:draw=sampled:rule=token",
                                             "sampled-tree",
                                             "sampled-tree:base:widths=3-2-1-1:rule=token",
                                             "iid-tree",
                                             "iid-tree:base:rule=k-seq",
                                             "cape:rule=traversal",
                                             "cost-aware:sampled-chain:base",
                                             "cost-aware:sampled-tree"};
  const std::vector<std::string> noise{"shared-chain", "shared-chain:base:5", "cape:base:rule=gumbel",
                                       "sampled-tree:rule=gumbel", "chain:base:rule=gumbel"};
  Toys toys;
  check_same_text(toys, "autoregressive", deterministic, 0.0f);
  check_same_text(toys, "autoregressive", deterministic, 0.9f);
  check_same_text(toys, "autoregressive", greedy_only, 0.0f);
  check_same_text(toys, "autoregressive", noise, 0.0f);
  check_same_text(toys, "autoregressive:rule=gumbel", noise, 0.9f);
}

TEST_CASE("sampled proposals above temperature 0: another text, with accepted draft tokens") {
  Toys toys;
  const specula::SamplingParams params{.temperature = 0.9f};
  for (const std::string name :
       {"sampled-chain:base", "sampled-tree:base", "static-tree:base:draw=sampled",
        "iid-tree:base:rule=k-seq", "iid-tree:base:rule=token", "sampled-tree:base:rule=token"}) {
    CAPTURE(name);
    auto pipeline = specula::prepare_pipeline(name).build(toys, params);
    const auto run = decode(*pipeline, std::vector<Token>{1, 5, 2, 8}, {.max_new_tokens = 100, .seed = 1});
    CHECK(run.tokens.size() == 100);
    CHECK(run.stats.mat() > 1.05);
  }
}

TEST_CASE("tokens beyond the limit or the stop token are not emitted") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  auto chain = specula::prepare_pipeline("chain:base:5").build(toys, {.temperature = 0.0f});
  const auto full = decode(*chain, prompt, {.max_new_tokens = 30});
  std::vector<Token> streamed;
  std::size_t draft_tokens = 0;
  const auto cut = decode(*chain, prompt, {.max_new_tokens = 3}, [&](Tokens fresh, std::size_t accepted) {
    CHECK(accepted <= fresh.size());
    draft_tokens += accepted;
    streamed.insert(streamed.end(), fresh.begin(), fresh.end());
  });
  CHECK(cut.tokens == std::vector<Token>(full.tokens.begin(), full.tokens.begin() + 3));
  CHECK(streamed == cut.tokens);
  CHECK(draft_tokens == 3);  // six tokens came in one round, the first five of them draft tokens
  CHECK(cut.stats.rounds == 1);
  CHECK(cut.stats.new_tokens == 3);
  CHECK(cut.stats.accepted == std::vector<std::int64_t>{1, 1, 1, 0, 0, 0});
  CHECK(cut.stats.offered == std::vector<std::int64_t>{1, 1, 1, 0, 0, 0});
  const Token stop = full.tokens[1];
  const auto stopped = decode(*chain, prompt, {.max_new_tokens = 30, .stop = {specula::kNoToken, stop}});
  CHECK(stopped.tokens.back() == stop);
  CHECK(stopped.tokens.size() <= 2);
}

TEST_CASE("a draft that fails: programs that measure end, those that write text go on plainly") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  auto chain = specula::prepare_pipeline("chain:base:5").build(toys, {.temperature = 0.0f});
  const auto whole = decode(*chain, prompt, {.max_new_tokens = 30});
  CHECK(whole.draft_error.empty());
  ToyModel& draft = toys.draft_model("base");
  draft.throw_call = draft.calls + 3;
  CHECK_THROWS_WITH_AS(decode(*chain, prompt, {.max_new_tokens = 30}), "the draft failed: extend failed",
                       std::runtime_error);
  draft.throw_call = draft.calls + 3;
  const auto plainly = decode(*chain, prompt, {.max_new_tokens = 30, .goes_on_plainly = true});
  CHECK(plainly.draft_error == "extend failed");
  CHECK(plainly.tokens == whole.tokens);
  CHECK(plainly.stats.failed_drafts == 1);
}

TEST_CASE(
    "counts by the draft's confidence include the draft tokens under an accepted path, up to the last "
    "emitted token") {
  specula::ProposalBuilder tree(12, 8, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 0.0f), tree.choose(0, 2, 0.95f), tree.choose(1, 3, 0.55f);  // 1, 2, 3: below 1
  tree.choose(2, 4, 1.0f), tree.choose(2, 5, 0.5f), tree.choose(4, 6, 0.125f);  // 4, 5, and 6 below 4
  specula::VerifyResult result;
  result.clear();
  result.accepted.push_back(2), result.accepted.push_back(4);
  const auto counted = [&](std::size_t emitted) {
    ByConfidence ranges{};
    count_confidences(tree, result, emitted, ranges);
    std::vector<std::int64_t> out;
    for (std::size_t r = 0; r < ranges.size(); ++r)
      if (ranges[r].proposals > 0)
        for (const std::int64_t n : {static_cast<std::int64_t>(r), ranges[r].proposals, ranges[r].accepted})
          out.push_back(n);
    return out;
  };
  using Counts = std::vector<std::int64_t>;
  CHECK(counted(0) == Counts{});
  CHECK(counted(1) == Counts{0, 1, 0, 9, 1, 1});
  CHECK(counted(2) == Counts{0, 1, 0, 5, 1, 0, 9, 2, 2});
  CHECK(counted(3) == Counts{0, 1, 0, 1, 1, 0, 5, 1, 0, 9, 2, 2});

  Toys toys;  // in a chain they equal the counts by depth, for any limit
  for (const char* name : {"chain:base:5", "sampled-chain:base:3", "max-gram"})
    for (const std::int32_t limit : {3, 40}) {
      auto pipeline = specula::prepare_pipeline(name).build(toys, {.temperature = 0.9f});
      const auto run = decode(*pipeline, kPrompt, {.max_new_tokens = limit});
      ConfidenceRange sum;
      for (const ConfidenceRange& range : run.by_confidence)
        sum.proposals += range.proposals, sum.accepted += range.accepted;
      std::int64_t accepted = 0, offered = 0;
      for (const std::int64_t n : run.stats.accepted) accepted += n;
      for (const std::int64_t n : run.stats.offered) offered += n;
      CAPTURE(name);
      CHECK(sum.accepted == accepted);
      CHECK((sum.proposals == offered || sum.proposals + 1 == offered));  // a draft token beyond the limit
    }
}

TEST_CASE("bins of CAPE are closed on the right") {
  class Flat final : public specula::PipelineModels {  // every token of the draft has probability 1/8
   public:
    specula::AnyModel& target() override { return target_.any; }
    specula::AnyModel& draft(const std::string&) override { return flat_.any; }

   private:
    specula::HeldModel<ToyModel> target_{8, 7u, 2.0f, 64}, flat_{8, 9u, 0.0f, 64};
  } flat;
  const auto draft_tokens = [&](const std::string& name) {
    auto pipeline = specula::prepare_pipeline(name).build(flat, {.temperature = 0.0f});
    pipeline->start(std::vector<Token>{1, 5, 2});
    specula::PhiloxRandom rng(1);
    pipeline->step(rng);
    return pipeline->proposal().size() - 1;
  };
  CHECK(draft_tokens("cape:1:counts=5-3-2-1:thresholds=0.125-0.5-0.75") == 6);
  CHECK(draft_tokens("cape:1:counts=5-3-2-1:thresholds=0.124-0.5-0.75") == 4);
  CHECK(draft_tokens("cape:1:counts=5-3-2-1:thresholds=0.1-0.125-0.75") == 4);
  CHECK(draft_tokens("cape:1:counts=5-3-2-1:thresholds=0-0.1-0.125") == 3);
  CHECK(draft_tokens("cape:1:counts=5-3-2-1:thresholds=0-0.1-0.12") == 2);
  CHECK(draft_tokens("cape:1:counts=5-0-2-1:thresholds=0.1-0.125-0.75") == 1);
  CHECK(draft_tokens("cape:2:counts=5-0-2-1") == 12);
}

TEST_CASE("parsing of the parts of a name") {
  specula::PipelineSpec spec("x:small:beam:7:mode=fast:widths=3-2:p=0.5");
  CHECK(spec.name() == "x");
  CHECK(spec.keyword("cape", {"beam", "cape"}) == "beam");
  CHECK(spec.keyword("cape", {"beam", "cape"}) == "cape");
  CHECK(spec.word("none") == "small");
  CHECK(spec.choice("mode", "slow", {"slow", "fast"}) == "fast");
  CHECK(spec.choice("mode", "slow", {"slow", "fast"}) == "slow");
  CHECK(spec.sizes("widths", {1}, 2, 1, 3) == std::vector<std::int32_t>{3, 2});
  CHECK(spec.sizes("widths", {1}, 2, 1, 3) == std::vector<std::int32_t>{1});
  specula::PipelineSpec levels("x:thresholds=0.5-0.75-2");
  CHECK(levels.numbers("thresholds", {1.0f}, 3, 0, 2) == std::vector<float>{0.5f, 0.75f, 2.0f});
  CHECK(levels.numbers("thresholds", {1.0f}, 3, 0, 2) == std::vector<float>{1.0f});
  specula::PipelineSpec steep("x:thresholds=0.5-3");
  CHECK_THROWS_WITH_AS(
      steep.numbers("thresholds", {}, 3, 0, 2),
      "pipeline 'x:thresholds=0.5-3': thresholds is '0.5-3', must be numbers from 0 to 2 with dashes "
      "between them",
      specula::PipelineError);
  specula::PipelineSpec tree("x:choices=0-2-0.11");
  using Paths = std::vector<std::vector<std::int32_t>>;
  CHECK(tree.paths("choices", {}, 3, 11) == Paths{{0}, {2}, {0, 11}});
  CHECK(tree.paths("choices", {{5}}, 3, 11) == Paths{{5}});
  CHECK_THROWS_WITH_AS(specula::PipelineSpec("x:choices=0-2-0.11").paths("choices", {}, 2, 11),
                       "pipeline 'x:choices=0-2-0.11': choices has more than 2 paths",
                       specula::PipelineError);
  CHECK_THROWS_AS(specula::PipelineSpec("x:choices=0-2-0.11").paths("choices", {}, 3, 10),
                  specula::PipelineError);
  CHECK_THROWS_AS(spec.done("x"), specula::PipelineError);
  CHECK(spec.size("size", 1, 1, 9) == 7);
  CHECK(spec.option("p", 0, 0, 1) == 0.5);
  CHECK_NOTHROW(spec.done("x"));
  specula::PipelineSpec wrong("x:mode=sideways");
  CHECK_THROWS_WITH_AS(wrong.choice("mode", "slow", {"slow", "fast"}),
                       "pipeline 'x:mode=sideways': mode is 'sideways', must be one of slow, fast",
                       specula::PipelineError);
}

TEST_CASE("drafters without a model, and several drafters: nodes, models, names") {
  const auto holds = [](const std::string& name, std::int32_t proposed, std::int32_t drafted,
                        const std::vector<std::string>& models, const std::vector<std::string>& drafters) {
    CAPTURE(name);
    const auto factory = specula::prepare_pipeline(name);
    CHECK(factory.max_nodes == proposed);
    CHECK(factory.draft_nodes == drafted);
    CHECK(factory.drafts == models);
    CHECK(factory.drafters == drafters);
    CHECK(factory.lossy == name.starts_with("autoregressive:"));  // the text of another model
  };
  holds("max-gram", 11, 1, {}, {specula::kMaxGram});
  holds("max-gram:256:exit=0.2:min=64:bigram=none:past-end=no", 257, 1, {}, {specula::kMaxGram});
  holds("prompt-lookup", 11, 1, {}, {specula::kMaxGram});
  holds("prompt-lookup:4:ngram=2", 5, 1, {}, {specula::kMaxGram});
  holds("cost-aware:max-gram", 11, 1, {}, {specula::kMaxGram});
  holds("cost-aware:20:max-gram:min=3", 21, 1, {}, {specula::kMaxGram});
  const std::vector<std::string> two{specula::kDefaultDraft, specula::kMaxGram},
      three{"base", "small", specula::kMaxGram};
  for (const std::string draw : {"", "sampled-"}) {
    holds(draw + "horizontal", 7, 7, {specula::kDefaultDraft}, two);
    holds(draw + "horizontal:base:small:max-gram", 11, 11, {"base", "small"}, three);
    holds(draw + "horizontal:base:small:3:5", 9, 9, {"base", "small"}, {"base", "small"});
    holds(draw + "horizontal:base:small:0:0", 1, 1, {"base", "small"}, {"base", "small"});
    holds(draw + "vertical", 11, 11, {specula::kDefaultDraft}, two);
    holds(draw + "vertical:base:small:max-gram", 11, 11, {"base", "small"}, three);
    holds(draw + "vertical:base:small:32:31:lenience=1000", 1025, 1025, {"base", "small"}, {"base", "small"});
    holds(draw + "cascade", 15, 15, {specula::kDefaultDraft}, two);
    holds(draw + "cascade:base:small:max-gram", 17, 17, {"base", "small"}, three);
    holds(draw + "cascade:base:small:max-gram:limits=8-5-10-1-10-10", 33, 33, {"base", "small"}, three);
    holds(draw + "cascade:small:base:limits=0-3-1:lenience=3", 4, 4, {"small", "base"}, {"small", "base"});
  }
  holds("cascade:base:small:max-gram:limits=256-256-256-256-256-256", 1024, 1024, {"base", "small"}, three);
  holds("cost-aware:cascade", 15, 15, {specula::kDefaultDraft}, two);
  holds("cost-aware:cascade:base:small:max-gram", 17, 17, {"base", "small"}, three);
  holds("autoregressive:small", 1, 1, {"small"}, {});
  // Pipelines of drafts conditioned on the target.
  holds("glide", specula::kDefaultChainLength + 1, specula::kDefaultChainLength + 1, {"glide"}, {"glide"});
  holds("glide:other:7", 8, 8, {"other"}, {"other"});
  holds("glide+cape", 33, 33, {"glide"}, {"glide"});
  holds("glide+beam4", 17, 17, {"glide"}, {"glide"});
  holds("glide+max-gram", 7, 7, {"glide"}, {"glide", specula::kMaxGram});
  holds("eagle2", 60, 60, {"eagle"}, {"eagle"});
  holds("hass", 60, 60, {"hass"}, {"hass"});
  holds("hass:4:8:12", 13, 33, {"hass"}, {"hass"});
  // Adaptive chains, and self-speculation.
  holds("adaptive-chain", 13, 13, {specula::kDefaultDraft}, {specula::kDefaultDraft});
  holds("adaptive-chain:base:7:end=heuristic", 8, 8, {"base"}, {"base"});
  holds("s2d", specula::kDefaultChainLength + 1, specula::kDefaultChainLength + 1, {}, {"s2d"});
  holds("s2d:other:6:thresholds=0.5-0.7-2:draw=sampled", 7, 7, {}, {"other"});
  holds("asd", 13, 13, {}, {"the target"});
  holds("cost-aware:s2d:other:6", 7, 7, {}, {"other"});
  holds("cost-aware:asd:alike=0.9", 9, 9, {}, {"the target"});
  holds("asd:5:alike=2:every=0:last=0:end=fixed", 6, 6, {}, {"the target"});
  const std::vector<specula::PipelineFactory> exits{specula::prepare_pipeline("s2d"),
                                                    specula::prepare_pipeline("cost-aware:s2d:other"),
                                                    specula::prepare_pipeline("chain:base")};
  CHECK(specula::draft_names(exits) == std::vector<std::string>{specula::kEarlyExitDraft, "other", "base"});
  for (const std::string lossy : {"max-gram:lenient=2", "prompt-lookup:rule=typical", "cascade:lenient=1.5",
                                  "sampled-vertical:rule=typical", "cost-aware:max-gram:rule=typical"}) {
    CAPTURE(lossy);
    CHECK(specula::prepare_pipeline(lossy + ":lossy=yes").lossy);
  }
}

TEST_CASE("errors explain drafters and limits that do not match") {
  const auto explained = [](const std::string& name, const std::string& part) {
    CAPTURE(name);
    const std::string text = complaint(name);
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const std::string kinds[] = {"horizontal", "sampled-vertical", "cascade", "cost-aware:cascade"};
  for (const std::string& kind : kinds) {
    explained(kind + ":max-gram:base", "max-gram can only be the last drafter: it cannot review");
    explained(kind + ":base:max-gram:small", "max-gram can only be the last drafter");
    explained(kind + ":base:base", "two drafters are 'base'");
    explained(kind + ":small:base:small", "two drafters are 'small'");
    explained(kind + ":base", "a cascade has two drafters, or three of which the last is max-gram");
    explained(kind + ":a:b:c:max-gram", "a cascade has two drafters");
    explained(kind + ":a:b:c", "the last of three drafters must be max-gram");
    explained(kind + ":base:small:bigram=none", "does not know what to do with 'bigram=none'");
    explained(kind + ":bigram=some", "bigram is 'some', must be one of table, text, both, none");
    explained(kind + ":min=0", "min is 0, must be 1 to 64");
    explained(kind + ":rule=block:exit=0.5",
              kind == "sampled-vertical" ? "'exit=0.5'" : "rule=block: this rule does not keep");
    explained(kind + ":rule=k-seq", "rule=k-seq: this rule does not keep the target");
  }
  explained("cascade:limits=4-0", "limits of 2 drafters are 3 numbers, row after row of an upper triangle");
  explained("cascade:base:small:max-gram:limits=4-0-10", "limits of 3 drafters are 6 numbers");
  explained("cost-aware:cascade:limits=4-0", "limits of 2 drafters are 3 numbers");
  explained("cascade:limits=4-0-10-2", "limits has more than 3 numbers");
  explained("cascade:limits=4-0-257", "must be numbers from 0 to 256");
  explained("cascade:limits=4-x-2", "must be numbers from 0 to 256");
  explained("cascade:4", "does not know what to do with '4'");
  explained("cascade:lenience=0.5", "lenience is 0.5, must be 1 to 1000");
  explained("vertical:lenience=1001", "lenience is 1001, must be 1 to 1000");
  explained("horizontal:lenience=2", "has no option 'lenience', is lenient=2 meant?");
  explained("horizontal:257", "count is 257, must be 0 to 256");
  explained("horizontal:1:2:3", "does not know what to do with '3'");
  explained("vertical:0", "reviews is 0, must be 1 to 64");
  explained("vertical:1:0", "length is 0, must be 1 to 64");
  explained("vertical:33:31", "a proposal of more than 1024 draft tokens");
  explained("max-gram:0", "length is 0, must be 1 to 256");
  explained("max-gram:257", "length is 257, must be 1 to 256");
  explained("max-gram:base", "does not know what to do with 'base'");
  explained("max-gram:min=65", "min is 65, must be 1 to 64");
  explained("max-gram:past-end=maybe", "past-end is 'maybe', must be one of yes, no");
  explained("max-gram:ngram=2", "has no option 'ngram'");
  explained("max-gram:rule=block", "rule=block: this rule does not keep");
  explained("prompt-lookup:ngram=0", "ngram is 0, must be 1 to 64");
  explained("prompt-lookup:bigram=none", "has no option 'bigram'");
  explained("prompt-lookup:min=2", "does not know what to do with 'min=2'");
  explained("cost-aware:max-gram:base", "does not know what to do with 'base'");
  explained("cost-aware:base:max-gram", "does not know what to do with 'base'");
}

TEST_CASE("several drafters: the text of plain decoding") {
  std::vector<Token> next;
  for (Token t = 0; t < 12; ++t) next.push_back((t + 1) % 12);
  for (const bool table : {false, true}) {
    Toys toys(table ? std::optional(specula::BigramTable(next)) : std::nullopt);
    for (const float temperature : {0.0f, 0.9f}) {
      check_same_text(toys, "autoregressive", kChosen, temperature);
      check_same_text(toys, "autoregressive", kClocked, temperature);
    }
    check_same_text(toys, "autoregressive", kDrawn, 0.0f);
  }
}

TEST_CASE("several drafters above temperature 0: one seed gives one text, with accepted draft tokens") {
  Toys toys;
  for (const std::string& name : kDrawn) {
    CAPTURE(name);
    auto pipeline = specula::prepare_pipeline(name).build(toys, {.temperature = 0.9f});
    const DecodeSettings settings{.max_new_tokens = 100, .seed = 2};
    const auto run = decode(*pipeline, kPrompt, settings);
    CHECK(run.tokens.size() == 100);
    CHECK(run.stats.mat() > 1.02);
    CHECK(decode(*pipeline, kPrompt, settings).tokens == run.tokens);
    CHECK(decode(*pipeline, kPrompt, {.max_new_tokens = 100, .seed = 3}).tokens != run.tokens);
  }
}

TEST_CASE("usage of each drafter, by name") {
  Toys toys;
  for (const auto& names : {kChosen, kDrawn, kClocked})
    for (const std::string& name : names) {
      CAPTURE(name);
      const auto factory = specula::prepare_pipeline(name);
      auto pipeline = factory.build(toys, {.temperature = 0.9f});
      REQUIRE(pipeline->drafts().size() == factory.drafters.size());  // also before it ran
      const auto first = decode(*pipeline, kPrompt, {.max_new_tokens = 30, .seed = 1});
      const auto second = decode(*pipeline, kPrompt, {.max_new_tokens = 40, .seed = 2});
      specula::Usage sum;
      for (std::size_t d = 0; d < factory.drafters.size(); ++d) {
        const specula::DraftUsage all = pipeline->drafts()[d];
        CHECK(all.model == factory.drafters[d]);
        CHECK(second.drafts[d].model == factory.drafters[d]);
        CHECK(all.usage.calls == first.drafts[d].usage.calls + second.drafts[d].usage.calls);
        CHECK(all.usage.nodes == first.drafts[d].usage.nodes + second.drafts[d].usage.nodes);
        CHECK(second.stats.drafters[d].calls == second.drafts[d].usage.calls);
        sum += second.drafts[d].usage;
      }
      CHECK(sum.calls == second.stats.draft.calls);
      CHECK(sum.nodes == second.stats.draft.nodes);
      CHECK(sum.seconds == doctest::Approx(second.stats.draft.seconds));
    }
}

TEST_CASE("counts of reviews: the calls of a drafter that only reviews") {
  Toys toys;
  const auto reviews = [&](const std::string& name) {
    auto pipeline = specula::prepare_pipeline(name).build(toys, {.temperature = 0.0f});
    decode(*pipeline, kPrompt, {.max_new_tokens = 60});
    const auto all = pipeline->reviews();
    for (std::size_t r = 0; r < all.size(); ++r) {
      CAPTURE(name);
      CHECK(all[r].calls > 0);
      CHECK(all[r].calls == pipeline->drafts()[r].usage.calls);
      CHECK(all[r].offered[0] > 0);
      for (std::size_t d = 0; d < specula::Reviews::kDepths; ++d) {
        CHECK(all[r].accepted[d] <= all[r].offered[d]);
        if (d > 0)
          CHECK(all[r].offered[d] <= all[r].accepted[d - 1]);  // only accepted tokens are drafted from
      }
    }
    return all;
  };
  const auto vertical = reviews("vertical:base:small:2:3");
  REQUIRE(vertical.size() == 1);
  CHECK(vertical[0].offered[0] == vertical[0].calls);  // `small` always draft tokens
  CHECK(vertical[0].offered[3] == 0);
  CHECK(reviews("vertical:base:small:max-gram").size() == 2);
  CHECK(reviews("cascade:base:small:limits=3-0-2").size() == 1);
  CHECK(reviews("cascade:base:small:max-gram:limits=3-0-2-2-0-4:bigram=text").size() == 2);
  for (const std::string none : {"autoregressive", "chain", "max-gram", "horizontal"}) {
    CAPTURE(none);
    CHECK(specula::prepare_pipeline(none).build(toys, {})->reviews().empty());
  }
}

TEST_CASE("Max-Gram copies, and uses the models' bigram table without a match") {
  std::vector<Token> next;
  for (Token t = 0; t < 12; ++t) next.push_back(t < 11 ? t + 1 : specula::kNoToken);
  Toys bare, toys{specula::BigramTable(next)};
  const std::vector<Token> cycle{1, 2, 3, 1, 2}, pair{8, 3, 8};
  using DraftTokens = std::vector<Token>;
  // Copies of the text, longest matches first; draft tokens extend the text.
  CHECK(first_draft_tokens(bare, "max-gram:7", cycle) == DraftTokens{3, 1, 2, 3, 1, 2, 3});
  CHECK(first_draft_tokens(bare, "max-gram:7:min=3:bigram=none", cycle).empty());
  CHECK(first_draft_tokens(bare, "prompt-lookup:2", cycle) == DraftTokens{3, 1});
  CHECK(first_draft_tokens(toys, "prompt-lookup", kPrompt).empty());
  CHECK(toys.tables_asked == 0);
  // The table alone, the text alone, both, none.
  CHECK(first_draft_tokens(toys, "max-gram:5:bigram=table", kPrompt) == DraftTokens{9, 10, 11});
  CHECK(first_draft_tokens(toys, "max-gram:2:bigram=table", kPrompt) == DraftTokens{9, 10});
  CHECK(first_draft_tokens(toys, "max-gram:2:bigram=table", pair) == DraftTokens{9, 10});
  const int asked = std::exchange(toys.tables_asked, 0);
  CHECK(asked == 3);
  CHECK(first_draft_tokens(toys, "max-gram:2:bigram=text", pair).front() == 3);
  CHECK(toys.tables_asked == 0);
  CHECK(first_draft_tokens(toys, "max-gram:2:bigram=both", pair).front() == 3);
  CHECK(first_draft_tokens(toys, "max-gram:2", kPrompt) == DraftTokens{9, 10});
  CHECK(first_draft_tokens(toys, "max-gram:bigram=text", kPrompt).empty());
  CHECK(first_draft_tokens(toys, "max-gram:bigram=none", kPrompt).empty());
  // Without a table, `both` learns from the text only, and `table` is an error.
  CHECK(first_draft_tokens(bare, "max-gram:bigram=both", pair).front() == 3);
  for (const char* name : {"max-gram:bigram=table", "horizontal:base:max-gram:bigram=table"})
    CHECK_THROWS_WITH_AS(first_draft_tokens(bare, name, pair),
                         ("pipeline '" + std::string(name) +
                          "': bigram=table: there is no table of bigrams for this target; write one with "
                          "specula-bigram, or take bigram=text or bigram=none, which need none")
                             .c_str(),
                         specula::PipelineError);
  CHECK(first_draft_tokens(toys, "horizontal:base:max-gram:0:2", kPrompt) == DraftTokens{9, 10});
  CHECK(first_draft_tokens(bare, "horizontal:base:max-gram:0:2", kPrompt).empty());
}

TEST_CASE("plain decoding of a draft does not call the target") {
  Toys toys;
  const specula::SamplingParams params{.temperature = 0.0f};
  auto draft = specula::prepare_pipeline("autoregressive:small").build(toys, params);
  const auto run = decode(*draft, kPrompt, {.max_new_tokens = 30});
  CHECK(toys.target_calls() == 0);
  CHECK(toys.draft_calls("small") == 30);
  CHECK(run.stats.target.calls == 30);
  CHECK(draft->drafts().empty());
  auto plain = specula::prepare_pipeline("autoregressive").build(toys, params);
  CHECK(decode(*plain, kPrompt, {.max_new_tokens = 30}).tokens != run.tokens);
}

TEST_CASE("models without exits, and a target that cannot skip layers, are refused by name") {
  Toys toys;
  const auto build = [&](const std::string& name) { specula::prepare_pipeline(name).build(toys, {}); };
  CHECK_THROWS_WITH_AS(build("s2d:base"), "pipeline 's2d:base': the draft 'base' has no exits",
                       specula::PipelineError);
  CHECK_THROWS_WITH_AS(build("asd"), "pipeline 'asd': the target cannot leave layers out",
                       specula::PipelineError);
  CHECK(complaint("asd:end=never").find("end is 'never', must be one of") != std::string::npos);
  CHECK(complaint("s2d:carry=no").find("'carry=no'") != std::string::npos);  // a fixed length learns nothing
}

TEST_CASE("AnyModel: optional capabilities of the model, and its count of changes") {
  specula_test::ToyExits exits(12, 7, 2);
  specula_test::ToySkips skips(12, 7, 4);
  specula::AnyModel any_exits(exits), any_skips(skips);
  CHECK(any_exits.exits() == exits.exits());
  CHECK_FALSE(any_exits.skips_layers());
  CHECK(any_skips.exits() == 0);
  CHECK(any_skips.skips_layers());
  CHECK(any_exits.early_exit({0.5f}, specula::ExitBy::confidence).vocab_size() == 12);
  CHECK(any_skips.layer_skip(specula::SkipRules{}).vocab_size() == 12);
  CHECK(any_skips.layer_skip(specula::BlockLists{.attention = {1, 4}, .mlp = {2}}).vocab_size() == 12);
  CHECK_THROWS_AS(any_skips.layer_skip(specula::BlockLists{.attention = {5}, .mlp = {}}),
                  std::invalid_argument);
  CHECK_THROWS_WITH_AS(any_skips.early_exit({0.5f}, specula::ExitBy::confidence),
                       "AnyModel::early_exit: a model of this kind has no exits", std::invalid_argument);
  CHECK_THROWS_WITH_AS(any_exits.layer_skip(specula::SkipRules{}),
                       "AnyModel::layer_skip: a model of this kind leaves no layers out",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(any_exits.layer_skip(specula::BlockLists{}),
                       "AnyModel::layer_skip: a model of this kind leaves no layers out",
                       std::invalid_argument);
  const specula::NodeId none = specula::kNoParent, root = 0;
  const Token token = 3;
  for (const auto& change : std::vector<std::function<void()>>{[&] {
                                                                 any_skips.append({&token, 1});
                                                               },
                                                               [&] {
                                                                 any_skips.extend({&token, 1}, {&none, 1});
                                                               },
                                                               [&] {
                                                                 any_skips.commit({&root, 1});
                                                               },
                                                               [&] { any_skips.truncate(0); }}) {
    const auto before = any_skips.change_count();
    change();
    CHECK(any_skips.change_count() != before);
  }
}

TEST_CASE("self-speculation gives the text of plain decoding") {
  class Selves final : public specula::PipelineModels {
   public:
    specula::AnyModel& target() override { return target_.any; }
    specula::AnyModel& draft(const std::string&) override { return exits_.any; }

   private:
    specula::HeldModel<SlowTarget<specula_test::ToySkips>> target_{12, 7u, 4, 2.0f, 256};
    specula::HeldModel<specula_test::ToyExits> exits_{12, 7u, 3, 2.0f, 256};
  } selves;
  for (const float temperature : {0.0f, 0.9f})
    check_same_text(selves, "autoregressive",
                    {"s2d", "s2d:s2d:3:leave=sample", "s2d:exits=1-3:thresholds=0.4", "s2d:exits=2", "asd",
                     "cost-aware:asd", "asd:attention=1-3:mlp=2", "asd:mlp=4:end=fixed", "static-tree:s2d"},
                    temperature);
  CHECK_THROWS_WITH_AS(
      specula::prepare_pipeline("s2d:thresholds=0.5-0.5-0.5").build(selves, {}),
      "pipeline 's2d:thresholds=0.5-0.5-0.5': the draft 's2d': 3 thresholds, must be fewer than its exits, 3",
      specula::PipelineError);
  CHECK(specula::prepare_pipeline("asd").measures);
  CHECK_FALSE(specula::prepare_pipeline("asd:mlp=2").measures);
  CHECK_FALSE(specula::prepare_pipeline("cost-aware:asd:attention=2").measures);
  CHECK_THROWS_WITH_AS(specula::prepare_pipeline("s2d:exits=2-4").build(selves, {}),
                       "pipeline 's2d:exits=2-4': the draft 's2d' has no exit 4, its exits are 1 to 3",
                       specula::PipelineError);
  CHECK_THROWS_WITH_AS(
      specula::prepare_pipeline("asd:attention=4-5").build(selves, {}),
      "pipeline 'asd:attention=4-5': the target: SkippedBlocks: attention of layer 5, the layers are 1 to 4",
      specula::PipelineError);
  CHECK_THROWS_WITH_AS(specula::prepare_pipeline("asd:mlp=2-2").build(selves, {}),
                       "pipeline 'asd:mlp=2-2': the target: SkippedBlocks: MLP of layer 2 is named twice",
                       specula::PipelineError);
}

TEST_CASE("tokens leave at the named exits only") {
  class Exits final : public specula::PipelineModels {
   public:
    specula::AnyModel& target() override { return target_.any; }
    specula::AnyModel& draft(const std::string&) override { return exits_.any; }
    specula::HeldModel<specula_test::ToyExits>& exits() { return exits_; }

   private:
    specula::HeldModel<ToyModel> target_{12, 7u, 2.0f, 256};
    specula::HeldModel<specula_test::ToyExits> exits_{12, 9u, 3, 2.0f, 256};
  } models;
  const auto layers_per_node = [&](const std::string& name) {
    auto pipeline = specula::prepare_pipeline(name).build(models, {.temperature = 0.0f});
    const auto run = decode(*pipeline, kPrompt, {.max_new_tokens = 40});
    return run.stats.draft.layers / static_cast<double>(run.stats.draft.nodes);
  };
  // Exit e is after e + 1 layers; all remaining tokens leave at the last named exit.
  CHECK(layers_per_node("s2d:exits=1") == 2);
  CHECK(layers_per_node("s2d:exits=2") == 3);
  CHECK(layers_per_node("s2d:exits=3") == 4);
  CHECK(layers_per_node("s2d:exits=1-3:thresholds=2") == 4);
  CHECK(layers_per_node("s2d:exits=1-3:thresholds=0") == 2);
  CHECK(layers_per_node("s2d:exits=1-3:thresholds=0.4-0") ==
        layers_per_node("s2d:thresholds=0.4-2-0:exits=1-2-3"));
  CHECK(layers_per_node("s2d:exits=1-3:thresholds=0.4") == layers_per_node("s2d:thresholds=0.4-2"));
}
