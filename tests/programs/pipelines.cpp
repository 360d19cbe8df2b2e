// SPDX-License-Identifier: MIT
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

using namespace specula_tools;
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
const std::vector<std::string> kChosen{"chain:10@max-gram",
                                       "chain:3:min=1:bigram=none:past-end=no@max-gram",
                                       "chain:10:exit=0.5:bigram=both@max-gram",
                                       "chain:10@prompt-lookup",
                                       "chain:6:ngram=1@prompt-lookup",
                                       "horizontal@glide,max-gram",
                                       "horizontal:2:3@glide,small",
                                       "adaptive-chain",
                                       "adaptive-chain:6:end=heuristic:carry=no@base",
                                       "adaptive-chain:exit=0.3@base",
                                       "horizontal",
                                       "horizontal:3:2@base,small",
                                       "horizontal:1:2:5@base,small,max-gram",
                                       "horizontal:0:0@base,small",
                                       "vertical",
                                       "vertical:2:3@base,small",
                                       "vertical:3:1:lenience=4@small,base",
                                       "vertical@base,small,max-gram",
                                       "cascade",
                                       "cascade@base,small",
                                       "cascade:limits=3-2-4:lenience=2@base,small",
                                       "cascade@base,small,max-gram",
                                       "cascade:limits=8-5-10-1-10-10:lenience=1@base,small,max-gram",
                                       "cascade:limits=8-5-10-1-10-10:lenience=2@base,small,max-gram",
                                       "cascade:limits=8-5-10-1-10-10:lenience=3@base,small,max-gram",
                                       "cascade:limits=8-5-10-1-10-10:lenience=5@base,small,max-gram",
                                       "cascade:limits=8-0-4:lenience=5@base,hass",
                                       "cascade:lenience=5@glide,hass,max-gram"};
const std::vector<std::string> kDrawn{
    "horizontal:draw=sampled",
    "horizontal:2:3:draw=sampled@base,small",
    "horizontal:draw=sampled@base,small,max-gram",
    "vertical:2:3:draw=sampled:lenience=2@base,small",
    "vertical:draw=sampled@base,small,max-gram",
    "cascade:draw=sampled",
    "cascade:draw=sampled:rule=token@base,small",
    "cascade:draw=sampled:lenience=1@base,small",
    "cascade:draw=sampled:lenience=2@base,small",
    "cascade:draw=sampled:lenience=5@base,small",
    "cascade:draw=sampled:lenience=2@base,hass,max-gram",
    "cascade:draw=sampled:limits=8-5-10-1-10-10:lenience=3@base,small,max-gram"};
const std::vector<std::string> kClocked{
    "cost-aware:chain:10@max-gram", "cost-aware:chain:20:bigram=text@max-gram", "cost-aware:cascade",
    "cost-aware:cascade@base,small", "cost-aware:cascade:limits=8-5-10-1-10-10@base,small,max-gram"};

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
    const bool drafts = name.find(":0:0") == std::string::npos;
    CHECK((pipeline->stats().proposed > 0) == drafts);
  }
}

}  // namespace

TEST_CASE("pipeline names and their parts") {
  const auto full = specula::prepare_pipeline("chain:6:exit=0.3:lenient=3:lossy=yes@base");
  CHECK(full.drafts == std::vector<std::string>{"base"});
  CHECK(full.max_nodes == 7);
  CHECK(full.lossy);
  const auto plain = specula::prepare_pipeline("chain");
  CHECK(plain.drafts == std::vector<std::string>{specula::kDefaultDraft});
  CHECK(plain.max_nodes == 5);
  CHECK_FALSE(plain.lossy);
  CHECK(specula::prepare_pipeline("chain:3").max_nodes == 4);
  CHECK(specula::prepare_pipeline("chain:3:draw=sampled@base").max_nodes == 4);
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
  nodes("chain:3:draw=shared", 4, 4);
  nodes("cape", 33, 33);  // four spine tokens and 28 runners-up, at most
  nodes("cape:2@base", 17, 17);
  nodes("cape:3:fixed=1", 7, 7);
  nodes("cape:6:budget=10", 11, 11);
  nodes("cape:6:fixed=2:budget=100@base", 19, 19);
  nodes("beam", 17, 17);
  nodes("beam:3:5@base", 16, 16);
  nodes("beam:8", 33, 33);
  nodes("cape:4:counts=7-5-3-1@small", 33, 33);
  nodes("cape:3:counts=1-0-0-2:budget=100@base", 10, 10);
  nodes("cape:3:counts=0-0-0-0", 4, 4);
  nodes("cape:3:fixed=0", 4, 4);
  nodes("cape:2:thresholds=0.1-0.2-0.9", 17, 17);
  nodes("cape:5:counts=2-2-1-0:thresholds=0.5-0.7-0.9@glide", 16, 16);
  nodes("static-tree", 26, 26);
  nodes("static-tree:draw=sampled@hass", 26, 26);
  nodes("static-tree:choices=0-1-0.0-1.0-1.2@base", 6, 6);
  nodes("cost-aware:static-tree:choices=0-0.0@base", 3, 3);
  nodes("dynamic-tree", 60, 60);
  nodes("dynamic-tree:4:8:12", 13, 33);  // the draft runs more nodes than are proposed
  nodes("dynamic-tree:10:5:20", 21, 51);
  nodes("dynamic-tree:2:0", 3, 3);
  nodes("sampled-tree", 21, 21);
  nodes("sampled-tree:widths=2", 3, 3);
  nodes("sampled-tree:draw=iid:widths=3-1-2@base", 13, 13);
  nodes("cost-aware:cape", 64, 64);
  nodes("cost-aware:chain:5", 6, 6);
  nodes("cost-aware:dynamic-tree:3:6:10@base", 11, 19);
  nodes("cost-aware:beam:2:3@base", 7, 7);
  CHECK(specula::prepare_pipeline("cost-aware:cape@base").drafts == std::vector<std::string>{"base"});
  CHECK(specula::prepare_pipeline("cost-aware:beam").drafts ==
        std::vector<std::string>{specula::kDefaultDraft});
}

TEST_CASE("rules by name") {
  for (const std::string exact :
       {"autoregressive:rule=gumbel", "chain:rule=match", "cape:rule=token", "beam:rule=traversal",
        "dynamic-tree:rule=gumbel", "chain:2:draw=sampled:rule=block", "chain:2:draw=sampled:rule=match",
        "chain:2:draw=shared:rule=match", "sampled-tree:rule=traversal", "sampled-tree:rule=token",
        "sampled-tree:draw=iid:rule=k-seq", "cost-aware:chain:draw=sampled:rule=token"}) {
    CAPTURE(exact);
    CHECK_FALSE(specula::prepare_pipeline(exact).lossy);
  }
  for (const std::string lossy : {"chain:lenient=2", "cape:lenient=1.5", "sampled-tree:lenient=3",
                                  "beam:rule=typical", "chain:2:draw=shared:rule=typical"}) {
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
  CHECK(has(complaint("chain:0"), "length is 0, must be 1 to 256"));
  CHECK(has(complaint("chain:99999999999"), "length is 99999999999, must be 1 to 256"));
  CHECK(has(complaint("chain@small,base"), "2 drafters, must be 1"));
  CHECK(has(complaint("chain@"), "'' is no drafter"));
  CHECK(has(complaint("chain@small,"), "'' is no drafter"));
  CHECK(has(complaint("chain@small:4"), "'small:4' is no drafter"));
  CHECK(has(complaint("chain@small@base"), "'small@base' is no drafter"));
  CHECK(has(complaint("chain:-3"), "'-3' is neither a size nor key=value; drafters come after an @"));
  CHECK(has(complaint("cape@max-gram"), "max-gram does not draft for cape"));
  CHECK(has(complaint("cascade@layer-skip,max-gram"), "layer-skip does not draft for cascade"));
  CHECK(has(complaint("chain:draw=sampled@max-gram"), "max-gram draws nothing"));
  CHECK(has(complaint("cost-aware:vertical"), "cost-aware does not go with vertical"));
  CHECK(has(complaint("cost-aware:chain:draw=shared"), "cost-aware does not go with draw=shared"));
  CHECK(has(complaint("chain:exit=0.5:exit=0.6"), "does not know what to do with 'exit=0.6'"));
  CHECK(has(complaint("chain:4:5"), "does not know what to do with '5'"));
  CHECK(has(complaint("chain:depth=3"), "does not know what to do with 'depth=3'"));
  CHECK(has(complaint("chain:exit=x"), "exit is 'x', must be a number"));
  CHECK(has(complaint("cape:budget=2.5"), "budget is 2.5, must be a whole number"));
  CHECK(has(complaint("chain:min=0@max-gram"), "min is 0, must be 1 to 64"));
  CHECK(has(complaint("chain:exit=2"), "exit is 2, must be 0 to 1"));
  CHECK(has(complaint("chain:exit=nan"), "exit is 'nan', must be a number"));
  CHECK(has(complaint("chain:=3"), "is not key=value"));
  CHECK(has(complaint("chain::3"), "a part is empty"));
  CHECK(has(complaint("autoregressive@small,base"), "2 drafters, must be 0 to 1"));
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
  CHECK(has(complaint("chain:4:exits=0.5-3@s2d"), "must be numbers from 0 to 2"));
  CHECK(has(complaint("chain:4:exits=0.5:leave=never@s2d"),
            "leave is 'never', must be one of confidence, sample"));
  CHECK(has(complaint("chain:4:leave=sample@s2d"), "does not know what to do with 'leave=sample'"));
  CHECK(has(complaint("adaptive-chain:end=paper:attention=1:alike=0.9@layer-skip"),
            "does not know what to do with 'alike=0.9'"));
  CHECK(has(complaint("adaptive-chain:end=paper:mlp=0@layer-skip"), "must be numbers from 1 to 1024"));
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
  CHECK(has(complaint("sampled-tree:draw=iid:widths=1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1"),
            "widths has more than 16 numbers"));
  CHECK(has(complaint("sampled-tree:draw=iid:widths=32-32"), "a tree of more than 1024 draft tokens"));
  CHECK(has(complaint("sampled-tree:draw=iid:widths=64-64-64-64-64-64-64-64-64-64"),
            "a tree of more than 1024 draft tokens"));
  CHECK(has(complaint("cost-aware:beam:budget=3"), "does not know what to do with 'budget=3'"));
  CHECK(has(complaint("cost-aware:chain@base,cape"), "2 drafters, must be 1"));
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
  for (const char* tree :
       {"chain", "cape", "beam", "dynamic-tree", "sampled-tree", "sampled-tree:draw=iid", "cost-aware:cape"})
    refused(tree, "block");
  for (const char* not_iid : {"chain", "chain:2:draw=sampled", "sampled-tree", "cape"})
    refused(not_iid, "k-seq");
  for (const char* reads_q : {"sampling", "token", "block", "traversal"})
    refused("chain:2:draw=shared", reads_q);
  refused("cost-aware:sampled-tree", "block");
  for (const char* lossy : {"chain", "chain:2:draw=sampled", "chain:2:draw=shared"})
    refused(lossy, "typical");
  const auto explained = [](const std::string& name, const char* part) {
    CAPTURE(name);
    CHECK(complaint(name).find(part) != std::string::npos);
  };
  explained("autoregressive:rule=token", "rule is 'token', must be one of ");
  explained("chain:rule=greedy", "rule is 'greedy', must be one of ");
  explained("chain:lenient=2", "lenient: this rule does not keep the target's distribution");
  explained("chain:lossy=maybe", "lossy is 'maybe', must be one of no, yes");
  CHECK_FALSE(specula::prepare_pipeline("chain:lossy=yes").lossy);
  CHECK(complaint("chain:rule=token:lenient=2").find("does not go with rule=token") != std::string::npos);
  CHECK(complaint("chain:2:draw=shared:lenient=2").find("does not go with shared noise") !=
        std::string::npos);
}

TEST_CASE("pipelines that use the same models in turn give the same text if they are exact") {
  Toys toys;
  const std::vector<Token> prompt{1, 5, 2, 8};
  for (const float temperature : {0.0f, 0.9f}) {
    const specula::SamplingParams params{.temperature = temperature};
    auto plain = specula::prepare_pipeline("autoregressive").build(toys, params);
    auto good = specula::prepare_pipeline("chain:5@base").build(toys, params);
    auto bad = specula::prepare_pipeline("chain:3:exit=0.2@small").build(toys, params);
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
                                               "cape:3:budget=5@base",
                                               "cape:fixed=2@base",
                                               "beam",
                                               "beam:3:2@base",
                                               "dynamic-tree@base",
                                               "dynamic-tree:3:4:9",
                                               "static-tree@base",
                                               "static-tree:choices=0-3-3.1",
                                               "cape:counts=3-2-1-0:thresholds=0.2-0.3-0.4",
                                               "beam:8",
                                               "cost-aware:static-tree@base",
                                               "cost-aware:cape",
                                               "cost-aware:chain@base",
                                               "cost-aware:beam:2:3@base",
                                               "cost-aware:dynamic-tree@base",
                                               "chain:2:draw=sampled:rule=match@base",
                                               "sampled-tree:rule=match"};
  const std::vector<std::string> greedy_only{"chain:2:draw=sampled@base",
                                             "chain:2:draw=sampled:rule=token",
                                             "chain:2:draw=sampled:rule=block",
                                             "chain:2:draw=shared@base",
                                             "static-tree:draw=sampled",
                                             "static-tree:choices=0-1-0.0:draw=sampled:rule=token@base",
                                             "sampled-tree",
                                             "sampled-tree:widths=3-2-1-1:rule=token@base",
                                             "sampled-tree:draw=iid",
                                             "sampled-tree:draw=iid:rule=k-seq@base",
                                             "cape:rule=traversal",
                                             "cost-aware:chain:draw=sampled@base",
                                             "cost-aware:sampled-tree"};
  const std::vector<std::string> noise{"chain:2:draw=shared", "chain:5:draw=shared@base",
                                       "cape:rule=gumbel@base", "sampled-tree:rule=gumbel",
                                       "chain:rule=gumbel@base"};
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
  for (const std::string name : {"chain:2:draw=sampled@base", "sampled-tree@base",
                                 "static-tree:draw=sampled@base", "sampled-tree:draw=iid:rule=k-seq@base",
                                 "sampled-tree:draw=iid:rule=token@base", "sampled-tree:rule=token@base"}) {
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
  auto chain = specula::prepare_pipeline("chain:5@base").build(toys, {.temperature = 0.0f});
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
  auto chain = specula::prepare_pipeline("chain:5@base").build(toys, {.temperature = 0.0f});
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
  for (const char* name : {"chain:5@base", "chain:3:draw=sampled@base", "chain:10@max-gram"})
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
  using specula::PipelineError;
  using specula::PipelineField;
  using specula::PipelineSpec;
  using Kind = PipelineField::Kind;
  using Paths = std::vector<std::vector<std::int32_t>>;
  static constexpr PipelineField kFields[] = {
      {"size", Kind::size, "1", 1, 9},         {"second", Kind::size, "3", 1, 9, 1, "4"},
      {"mode", Kind::word, "slow|fast"},       {"widths", Kind::wholes, "1", 1, 3, 2},
      {"p", Kind::number, "0.25", 0, 1},       {"thresholds", Kind::numbers, "1", 0, 2, 3},
      {"choices", Kind::paths, "5", 0, 11, 3}, {"count", Kind::whole, "7", 0, 9}};
  const auto spec_of = [&](const char* text) {
    PipelineSpec spec(text);
    spec.know(kFields);
    return spec;
  };
  PipelineSpec spec = spec_of("x:7:mode=fast:widths=3-2:p=0.5@small,beam");
  CHECK_FALSE(spec.cost_aware());
  CHECK(spec.shape() == "x");
  CHECK(spec.drafters() == std::vector<std::string>{"small", "beam"});
  CHECK(spec.word("mode") == "fast");
  CHECK(spec.is("mode", "fast"));
  CHECK(spec.wholes("widths") == std::vector<std::int32_t>{3, 2});
  CHECK_THROWS_AS(spec.done("x"), PipelineError);
  CHECK(spec.given("size"));
  CHECK(spec.whole("size") == 7);
  CHECK(spec.number("p") == 0.5);
  CHECK_NOTHROW(spec.done("x"));
  CHECK_FALSE(spec.given("second"));
  CHECK(spec.whole("second") == 3);
  PipelineSpec bare = spec_of("cost-aware:x");
  CHECK(bare.cost_aware());
  CHECK(bare.shape() == "x");
  CHECK(bare.drafters().empty());
  CHECK(bare.whole("second") == 4);
  CHECK(bare.word("mode") == "slow");
  CHECK(bare.wholes("widths") == std::vector<std::int32_t>{1});
  CHECK(bare.numbers("thresholds") == std::vector<float>{1.0f});
  CHECK(bare.paths("choices") == Paths{{5}});
  CHECK(bare.number("p") == 0.25);
  CHECK(bare.whole("count") == 7);
  CHECK_THROWS_AS(bare.whole("none"), std::logic_error);
  CHECK(spec_of("x:thresholds=0.5-0.75-2").numbers("thresholds") == std::vector<float>{0.5f, 0.75f, 2.0f});
  CHECK_THROWS_WITH_AS(
      spec_of("x:thresholds=0.5-3").numbers("thresholds"),
      "pipeline 'x:thresholds=0.5-3': thresholds is '0.5-3', must be numbers from 0 to 2 with dashes "
      "between them",
      PipelineError);
  CHECK(spec_of("x:choices=0-2-0.11").paths("choices") == Paths{{0}, {2}, {0, 11}});
  CHECK_THROWS_WITH_AS(spec_of("x:choices=0-2-0.11-3").paths("choices"),
                       "pipeline 'x:choices=0-2-0.11-3': choices has more than 3 paths", PipelineError);
  CHECK_THROWS_AS(spec_of("x:choices=0-2-0.12").paths("choices"), PipelineError);
  CHECK_THROWS_WITH_AS(spec_of("x:mode=sideways").word("mode"),
                       "pipeline 'x:mode=sideways': mode is 'sideways', must be one of slow, fast",
                       PipelineError);
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
    CHECK(factory.lossy == name.starts_with("autoregressive@"));  // the text of another model
  };
  holds("chain:10@max-gram", 11, 1, {}, {specula::kMaxGram});
  holds("chain:256:exit=0.2:min=64:bigram=none:past-end=no@max-gram", 257, 1, {}, {specula::kMaxGram});
  holds("chain:10@prompt-lookup", 11, 1, {}, {specula::kPromptLookup});
  holds("chain:4:ngram=2@prompt-lookup", 5, 1, {}, {specula::kPromptLookup});
  holds("cascade:ngram=2@base,prompt-lookup", 15, 15, {"base"}, {"base", specula::kPromptLookup});
  holds("cost-aware:chain:10@max-gram", 11, 1, {}, {specula::kMaxGram});
  holds("cost-aware:chain:20:min=3@max-gram", 21, 1, {}, {specula::kMaxGram});
  const std::vector<std::string> two{specula::kDefaultDraft, specula::kMaxGram},
      three{"base", "small", specula::kMaxGram};
  for (const std::string draw : {"", ":draw=sampled"}) {
    const auto drawn = [&](std::string name, std::int32_t proposed, std::int32_t drafted,
                           const std::vector<std::string>& models, const std::vector<std::string>& drafters) {
      name.insert(std::min(name.find('@'), name.size()), draw);
      holds(name, proposed, drafted, models, drafters);
    };
    drawn("horizontal", 7, 7, {specula::kDefaultDraft}, two);
    drawn("horizontal@base,small,max-gram", 11, 11, {"base", "small"}, three);
    drawn("horizontal:3:5@base,small", 9, 9, {"base", "small"}, {"base", "small"});
    drawn("horizontal:0:0@base,small", 1, 1, {"base", "small"}, {"base", "small"});
    drawn("vertical", 11, 11, {specula::kDefaultDraft}, two);
    drawn("vertical@base,small,max-gram", 11, 11, {"base", "small"}, three);
    drawn("vertical:32:31:lenience=1000@base,small", 1025, 1025, {"base", "small"}, {"base", "small"});
    drawn("cascade", 15, 15, {specula::kDefaultDraft}, two);
    drawn("cascade@base,small,max-gram", 17, 17, {"base", "small"}, three);
    drawn("cascade:limits=8-5-10-1-10-10@base,small,max-gram", 33, 33, {"base", "small"}, three);
    drawn("cascade:limits=0-3-1:lenience=3@small,base", 4, 4, {"small", "base"}, {"small", "base"});
  }
  holds("cascade:limits=256-256-256-256-256-256@base,small,max-gram", 1024, 1024, {"base", "small"}, three);
  holds("cost-aware:cascade", 15, 15, {specula::kDefaultDraft}, two);
  holds("cost-aware:cascade@base,small,max-gram", 17, 17, {"base", "small"}, three);
  holds("autoregressive@small", 1, 1, {"small"}, {});
  // Pipelines of drafts conditioned on the target.
  holds("chain@glide", 5, 5, {"glide"}, {"glide"});
  holds("chain:7@other", 8, 8, {"other"}, {"other"});
  holds("cape@glide", 33, 33, {"glide"}, {"glide"});
  holds("beam@glide", 17, 17, {"glide"}, {"glide"});
  holds("horizontal@glide,max-gram", 7, 7, {"glide"}, {"glide", specula::kMaxGram});
  holds("dynamic-tree@eagle", 60, 60, {"eagle"}, {"eagle"});
  holds("dynamic-tree@hass", 60, 60, {"hass"}, {"hass"});
  holds("dynamic-tree:4:8:12@hass", 13, 33, {"hass"}, {"hass"});
  // Adaptive chains, and self-speculation.
  holds("adaptive-chain", 13, 13, {specula::kDefaultDraft}, {specula::kDefaultDraft});
  holds("adaptive-chain:7:end=heuristic@base", 8, 8, {"base"}, {"base"});
  holds("chain:exits=0.5-0@s2d", 5, 5, {}, {"s2d"});
  holds("chain:6:exits=0.5-0.7-2:draw=sampled@other", 7, 7, {}, {"other"});
  holds("adaptive-chain:end=paper@layer-skip", 13, 13, {}, {"layer-skip"});
  holds("cost-aware:chain:6:exits=0.5-0@other", 7, 7, {}, {"other"});
  holds("cost-aware:chain:alike=0.9@layer-skip", 9, 9, {}, {"layer-skip"});
  holds("chain:5:alike=2:every=0:last=0@layer-skip", 6, 6, {}, {"layer-skip"});
  const std::vector<specula::PipelineFactory> exits{
      specula::prepare_pipeline("chain:exits=0.5-0@s2d"),
      specula::prepare_pipeline("cost-aware:chain:exits=0.5-0@other"),
      specula::prepare_pipeline("chain@base")};
  CHECK(specula::draft_names(exits) == std::vector<std::string>{"s2d", "other", "base"});
  for (const std::string lossy :
       {"chain:lenient=2:lossy=yes@max-gram", "chain:rule=typical:lossy=yes@prompt-lookup",
        "cascade:lenient=1.5:lossy=yes", "vertical:draw=sampled:rule=typical:lossy=yes",
        "cost-aware:chain:rule=typical:lossy=yes@max-gram"}) {
    CAPTURE(lossy);
    CHECK(specula::prepare_pipeline(lossy).lossy);
  }
}

TEST_CASE("errors explain drafters and limits that do not match") {
  const auto explained = [](const std::string& name, const std::string& part) {
    CAPTURE(name);
    const std::string text = complaint(name);
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const std::string kinds[] = {"horizontal", "vertical:draw=sampled", "cascade", "cost-aware:cascade"};
  for (const std::string& kind : kinds) {
    explained(kind + "@max-gram,base", "max-gram can only be the last drafter: it cannot review");
    explained(kind + "@base,max-gram,small", "max-gram can only be the last drafter");
    explained(kind + "@base,base", "two drafters are 'base'");
    explained(kind + "@small,base,small", "two drafters are 'small'");
    explained(kind + "@base", "1 drafters, must be 2 to 3");
    explained(kind + "@a,b,c,max-gram", "4 drafters, must be 2 to 3");
    explained(kind + "@a,b,c", "the last of three drafters must be max-gram");
    explained(kind + ":bigram=none@base,small", "does not know what to do with 'bigram=none'");
    explained(kind + ":bigram=some", "bigram is 'some', must be one of both, table, text, none");
    explained(kind + ":min=0", "min is 0, must be 1 to 64");
    explained(kind + ":rule=block:exit=0.5",
              kind == "vertical:draw=sampled" ? "'exit=0.5'" : "rule=block: this rule does not keep");
    explained(kind + ":rule=k-seq", "rule=k-seq: this rule does not keep the target");
  }
  explained("cascade:limits=4-0", "limits of 2 drafters are 3 numbers, row after row of an upper triangle");
  explained("cascade:limits=4-0-10@base,small,max-gram", "limits of 3 drafters are 6 numbers");
  explained("cost-aware:cascade:limits=4-0", "limits of 2 drafters are 3 numbers");
  explained("cascade:limits=4-0-10-2", "limits of 2 drafters are 3 numbers");
  explained("cascade:limits=4-0-257", "must be numbers from 0 to 256");
  explained("cascade:limits=4-x-2", "must be numbers from 0 to 256");
  explained("cascade:4", "does not know what to do with '4'");
  explained("cascade:lenience=0.5", "lenience is 0.5, must be 1 to 1000");
  explained("vertical:lenience=1001", "lenience is 1001, must be 1 to 1000");
  explained("horizontal:lenience=2", "has no option 'lenience', is lenient=2 meant?");
  explained("horizontal:257", "first is 257, must be 0 to 256");
  explained("horizontal:1:2:3", "does not know what to do with '3'");
  explained("vertical:0", "reviews is 0, must be 1 to 64");
  explained("vertical:1:0", "length is 0, must be 1 to 64");
  explained("vertical:33:31", "a proposal of more than 1024 draft tokens");
  explained("chain:0@max-gram", "length is 0, must be 1 to 256");
  explained("chain:257@max-gram", "length is 257, must be 1 to 256");
  explained("chain:min=2@base", "does not know what to do with 'min=2'");
  explained("chain:min=65@max-gram", "min is 65, must be 1 to 64");
  explained("chain:10:past-end=maybe@max-gram", "past-end is 'maybe', must be one of yes, no");
  explained("chain:10:ngram=2@max-gram", "has no option 'ngram'");
  explained("chain:10:rule=block@max-gram", "rule=block: this rule does not keep");
  explained("chain:10:ngram=0@prompt-lookup", "ngram is 0, must be 1 to 64");
  explained("chain:10:bigram=none@prompt-lookup", "has no option 'bigram'");
  explained("chain:min=2@prompt-lookup", "does not know what to do with 'min=2'");
  explained("chain:10@base,max-gram",
            "base or max-gram, whichever promises more, is a choice of cost-aware:chain");
  explained("cost-aware:chain:10@max-gram,base", "2 drafters, must be 1");
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
  const auto vertical = reviews("vertical:2:3@base,small");
  REQUIRE(vertical.size() == 1);
  CHECK(vertical[0].offered[0] == vertical[0].calls);  // `small` always draft tokens
  CHECK(vertical[0].offered[3] == 0);
  CHECK(reviews("vertical@base,small,max-gram").size() == 2);
  CHECK(reviews("cascade:limits=3-0-2@base,small").size() == 1);
  CHECK(reviews("cascade:limits=3-0-2-2-0-4:bigram=text@base,small,max-gram").size() == 2);
  for (const std::string none : {"autoregressive", "chain", "chain:10@max-gram", "horizontal"}) {
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
  CHECK(first_draft_tokens(bare, "chain:7@max-gram", cycle) == DraftTokens{3, 1, 2, 3, 1, 2, 3});
  CHECK(first_draft_tokens(bare, "chain:7:min=3:bigram=none@max-gram", cycle).empty());
  CHECK(first_draft_tokens(bare, "chain:2@prompt-lookup", cycle) == DraftTokens{3, 1});
  CHECK(first_draft_tokens(toys, "chain:10@prompt-lookup", kPrompt).empty());
  CHECK(toys.tables_asked == 0);
  // The table alone, the text alone, both, none.
  CHECK(first_draft_tokens(toys, "chain:5:bigram=table@max-gram", kPrompt) == DraftTokens{9, 10, 11});
  CHECK(first_draft_tokens(toys, "chain:2:bigram=table@max-gram", kPrompt) == DraftTokens{9, 10});
  CHECK(first_draft_tokens(toys, "chain:2:bigram=table@max-gram", pair) == DraftTokens{9, 10});
  const int asked = std::exchange(toys.tables_asked, 0);
  CHECK(asked == 3);
  CHECK(first_draft_tokens(toys, "chain:2:bigram=text@max-gram", pair).front() == 3);
  CHECK(toys.tables_asked == 0);
  CHECK(first_draft_tokens(toys, "chain:2:bigram=both@max-gram", pair).front() == 3);
  CHECK(first_draft_tokens(toys, "chain:2@max-gram", kPrompt) == DraftTokens{9, 10});
  CHECK(first_draft_tokens(toys, "chain:10:bigram=text@max-gram", kPrompt).empty());
  CHECK(first_draft_tokens(toys, "chain:10:bigram=none@max-gram", kPrompt).empty());
  // Without a table, `both` learns from the text only, and `table` is an error.
  CHECK(first_draft_tokens(bare, "chain:10:bigram=both@max-gram", pair).front() == 3);
  for (const char* name : {"chain:10:bigram=table@max-gram", "horizontal:bigram=table@base,max-gram"})
    CHECK_THROWS_WITH_AS(first_draft_tokens(bare, name, pair),
                         ("pipeline '" + std::string(name) +
                          "': bigram=table: there is no table of bigrams for this target; write one with "
                          "specula bigram, or take bigram=text or bigram=none, which need none")
                             .c_str(),
                         specula::PipelineError);
  CHECK(first_draft_tokens(toys, "horizontal:0:2@base,max-gram", kPrompt) == DraftTokens{9, 10});
  CHECK(first_draft_tokens(bare, "horizontal:0:2@base,max-gram", kPrompt).empty());
}

TEST_CASE("plain decoding of a draft does not call the target") {
  Toys toys;
  const specula::SamplingParams params{.temperature = 0.0f};
  auto draft = specula::prepare_pipeline("autoregressive@small").build(toys, params);
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
  CHECK_THROWS_WITH_AS(build("chain:4:exits=0.5-0@base"),
                       "pipeline 'chain:4:exits=0.5-0@base': the draft 'base' has no exits",
                       specula::PipelineError);
  CHECK_THROWS_WITH_AS(build("chain@layer-skip"),
                       "pipeline 'chain@layer-skip': the target cannot leave layers out",
                       specula::PipelineError);
  CHECK(complaint("adaptive-chain:end=never@layer-skip").find("end is 'never', must be one of") !=
        std::string::npos);
  CHECK(complaint("chain:4:exits=0.5-0:carry=no@s2d").find("'carry=no'") !=
        std::string::npos);  // a fixed length learns nothing
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
    check_same_text(
        selves, "autoregressive",
        {"chain:4:exits=0.5-0@s2d", "chain:3:exits=0.5-0:leave=sample@s2d", "chain:4:exits=0.4-2@s2d",
         "chain:4:exits=2@s2d", "adaptive-chain:end=paper@layer-skip", "cost-aware:chain@layer-skip",
         "adaptive-chain:end=paper:attention=1-3:mlp=2@layer-skip", "chain:4:mlp=4@layer-skip",
         "static-tree@s2d", "cape@layer-skip", "beam:3:2:mlp=2@layer-skip",
         "dynamic-tree:3:2:9:exits=0.4-2@s2d", "cost-aware:cape:exits=0.5@s2d"},
        temperature);
  CHECK_THROWS_WITH_AS(specula::prepare_pipeline("chain:4:exits=0.5-0.5-0.5@s2d").build(selves, {}),
                       "pipeline 'chain:4:exits=0.5-0.5-0.5@s2d': the draft 's2d': 3 thresholds, must be "
                       "fewer than its exits, 3",
                       specula::PipelineError);
  CHECK(specula::prepare_pipeline("chain@layer-skip").measures);
  CHECK_FALSE(specula::prepare_pipeline("adaptive-chain:end=paper:mlp=2@layer-skip").measures);
  CHECK_FALSE(specula::prepare_pipeline("cost-aware:chain:attention=2@layer-skip").measures);
  CHECK_THROWS_WITH_AS(
      specula::prepare_pipeline("adaptive-chain:end=paper:attention=4-5@layer-skip").build(selves, {}),
      "pipeline 'adaptive-chain:end=paper:attention=4-5@layer-skip': the target: SkippedBlocks: attention of "
      "layer 5, the layers are 1 to 4",
      specula::PipelineError);
  CHECK_THROWS_WITH_AS(
      specula::prepare_pipeline("adaptive-chain:end=paper:mlp=2-2@layer-skip").build(selves, {}),
      "pipeline 'adaptive-chain:end=paper:mlp=2-2@layer-skip': the target: SkippedBlocks: MLP of layer 2 is "
      "named twice",
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
  // Exit e is after e + 1 layers; all remaining tokens leave at the exit after the thresholds.
  CHECK(layers_per_node("chain:4:exits=0@s2d") == 2);
  CHECK(layers_per_node("chain:4:exits=2@s2d") == 3);
  CHECK(layers_per_node("chain:4:exits=2-2@s2d") == 4);
  CHECK(layers_per_node("chain:4:exits=0-2@s2d") == 2);
  CHECK(layers_per_node("chain:4:exits=0.4-2@s2d") == layers_per_node("chain:4:exits=0.4-1.5@s2d"));
  CHECK(layers_per_node("chain:4@s2d") == 4);  // as a whole
}
