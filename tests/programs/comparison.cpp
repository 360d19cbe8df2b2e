// SPDX-License-Identifier: MIT
// labels: long
// specula compare: figures, intervals and costs of pipelines whose counts and times are known.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comparison.hpp"
#include "figures.hpp"
#include "report.hpp"

using namespace specula_tools;
using specula::FinishReason;

namespace {

/// A record that a scripted pipeline writes.
struct Record : specula::RunRecord {
  Record() : RunRecord(100, 6, false, 0) {}
  using RunRecord::add_round, RunRecord::begin_round, RunRecord::builder, RunRecord::set_text,
      RunRecord::sums;
};

/// A pipeline without models: its rounds are scripted.
class Script : public specula::Pipeline {
 public:
  void forget() override {}
  std::int32_t room() const override { return 1000; }
  specula::NodeCounts nodes() const override { return {1}; }
  specula::ProposalKind kind() const override { return specula::ProposalKind::deterministic; }
  void begin(specula::PhiloxRandom& rng, Tokens stop, specula::CostModel*, std::int32_t) override {
    step(rng, stop);
  }
  void keep(std::span<const std::uint8_t>) override {}
  Tokens end() override { return text().last(static_cast<std::size_t>(emitted())); }
  void abandon() override {}
  const specula::SamplingParams& params() const override { return params_; }
  void set_params(const specula::SamplingParams& params) override { params_ = params; }
  void report_logprobs(const specula::LogprobOptions&) override {}
  void report_no_logprobs() override {}
  specula::Logprobs logprobs() const override { return {}; }
  std::vector<specula::DraftUsage> drafts() const override { return {}; }

 protected:
  Record& record() override { return record_; }
  const Record& record() const override { return record_; }
  /// The record has a round of a chain, of which all or a part is accepted. Returns its tokens: `first` and
  /// those after it.
  Tokens add_chain(std::int32_t draft_tokens, std::int32_t accepted, Token first) {
    record_.begin_round();
    specula::ProposalBuilder& tree = record_.builder();
    tree.reset(1, 0);
    result_.clear();
    for (specula::NodeId node = 0; node < draft_tokens; ++node) tree.choose(node, first + node, 1.0f);
    for (specula::NodeId node = 1; node <= accepted; ++node) result_.accepted.push_back(node);
    result_.next_token = first + accepted;
    record_.add_round(result_);
    return text().last(result_.accepted.size());
  }

 private:
  Record record_;
  specula::VerifyResult result_;
  specula::SamplingParams params_;
};

/// Emits 10, 11, 12, ... `per_round` at a time and claims fixed times: a target call takes 8 ms, a draft call
/// 2 ms.
class Scripted final : public Script {
 public:
  Scripted(std::string name, std::int32_t per_round, std::vector<std::string>& log)
      : name_(std::move(name)), per_round_(per_round), log_(&log) {}
  void start(Tokens prompt) override {
    log_->push_back(name_);
    record().set_text(prompt);
    next_ = 10;
    record().sums().prefill_seconds += 0.1;
  }
  Tokens step(specula::PhiloxRandom&, Tokens) override {
    specula::Stats& stats = record().sums();
    stats.proposed += per_round_ - 1;  // as many rejected siblings
    stats.target += {1, 2 * per_round_ - 1, 0.008};
    if (per_round_ > 1) stats.draft += {per_round_ - 1, per_round_ - 1, 0.002 * (per_round_ - 1)};
    stats.round_seconds += 0.010 + (per_round_ > 1 ? 0.002 * (per_round_ - 1) : 0.0);
    next_ += per_round_;
    return add_chain(per_round_ - 1, per_round_ - 1, next_ - per_round_);
  }
  std::vector<specula::DraftUsage> drafts() const override {
    if (per_round_ == 1) return {};
    return {{"small", stats().draft}};
  }

 private:
  std::string name_;
  std::int32_t per_round_;
  std::vector<std::string>* log_;
  Token next_ = 10;
};

/// Rounds of a chain: the number of draft tokens, and of accepted ones. Emits 10, 11, 12, ...
class Chains final : public Script {
 public:
  using Rounds = std::vector<std::pair<std::int32_t, std::int32_t>>;
  explicit Chains(Rounds rounds) : rounds_(std::move(rounds)) {}
  void start(Tokens prompt) override {
    record().set_text(prompt);
    round_ = 0;
    next_ = 10;
  }
  Tokens step(specula::PhiloxRandom&, Tokens stop) override {
    ends.assign(stop.begin(), stop.end());
    const auto [draft_tokens, stay] = rounds_[round_++];
    ++record().sums().target.calls;
    next_ += stay + 1;
    return add_chain(draft_tokens, stay, next_ - stay - 1);
  }
  std::int32_t room() const override { return round_ < rounds_.size() ? 1 : 0; }
  std::vector<Token> ends;  // where the last round's draft was to end

 private:
  Rounds rounds_;
  std::size_t round_ = 0;
  Token next_ = 10;
};

}  // namespace

TEST_CASE("figures of a run with known counts and times") {
  std::vector<std::string> log;
  Scripted plain("autoregressive", 1, log), chain("chain", 3, log);
  const std::vector<Contender> contenders{{"autoregressive", &plain}, {"chain", &chain}};
  const std::vector<std::vector<Token>> prompts{{1, 2}, {1, 3}, {1, 4}};
  std::size_t calls = 0;
  const auto outcomes =
      compare(contenders, prompts, {.max_new_tokens = 10, .stop = {99}, .seed = 1, .repeat = 2},
              [&](std::size_t done, std::size_t total) {
                CHECK(done == ++calls);
                CHECK(total == 12);
              });
  CHECK(calls == 12);
  // Two warm-up runs, then the first place rotates with prompts and repetitions.
  const std::vector<std::string> expected{"autoregressive", "chain",          "autoregressive", "chain",
                                          "chain",          "autoregressive", "chain"};
  CHECK(std::vector<std::string>(log.begin(), log.begin() + 7) == expected);

  const Figures base = figures(outcomes[0], outcomes[0]), f = figures(outcomes[1], outcomes[0]);
  CHECK(base.speedup == doctest::Approx(1.0));
  CHECK(base.swi == doctest::Approx(1.0));
  CHECK(base.tokens_per_second == doctest::Approx(100.0));
  CHECK(base.tokens_per_second_with_prefill == doctest::Approx(50.0));
  CHECK(base.overhead_share == doctest::Approx(0.2));
  CHECK(base.mean_proposed == doctest::Approx(0.0));
  CHECK(base.mat_per_verified_node == doctest::Approx(1.0));
  CHECK(base.draft_milliseconds_per_round == doctest::Approx(0.0));
  // Four rounds of three tokens; ten tokens are emitted.
  CHECK(f.prompts == 3);
  CHECK(f.new_tokens == 30);
  CHECK(f.target_calls == 12);
  CHECK(f.draft_calls == 24);
  CHECK(f.mat == doctest::Approx(2.5));
  CHECK(f.tau == doctest::Approx(2.5));
  REQUIRE(f.acceptance_by_depth.size() == 2);
  CHECK(*f.acceptance_by_depth[0] == doctest::Approx(1.0));
  CHECK(*f.acceptance_by_depth[1] == doctest::Approx(1.0));
  REQUIRE(f.by_context.size() == 1);  // short texts: all rounds begin with less than 64 tokens
  CHECK(f.by_context[0].rounds == 12);
  CHECK(f.by_context[0].new_tokens == 30);
  CHECK(f.by_confidence[9].proposals == 21);  // all have confidence 1; seven per prompt were emitted
  CHECK(f.by_confidence[9].accepted == 21);
  CHECK(f.by_confidence[0].proposals == 0);
  CHECK(f.acceptance == doctest::Approx(1.0));  // the last round's second draft token is beyond the limit
  REQUIRE(f.drafts.size() == 1);
  CHECK(f.drafts[0].cost_coefficient == doctest::Approx(0.25));
  CHECK(f.swi == doctest::Approx(30.0 / (12 + 24 * 0.25)));
  CHECK(f.tokens_per_second == doctest::Approx(10 / 0.056));
  CHECK(f.speedup == doctest::Approx(10 / 5.6));
  CHECK(f.identical_to_autoregressive == 3);
  CHECK(f.mean_proposed == doctest::Approx(4.0));
  CHECK(f.mat_per_verified_node == doctest::Approx(10.0 / 20));  // five nodes per round, ten tokens emitted
  CHECK(f.draft_milliseconds_per_round == doctest::Approx(4.0));
}

TEST_CASE("the report has every field, in order, and the settings after them") {
  std::vector<std::string> log;
  Scripted plain("autoregressive", 1, log), chain("chain", 3, log);
  const std::vector<Contender> contenders{{"autoregressive", &plain}, {"chain", &chain}};
  const std::vector<std::vector<Token>> prompts{{1, 2}};
  const auto outcomes = compare(contenders, prompts, {.max_new_tokens = 10});
  const std::vector<Figures> all{figures(outcomes[0], outcomes[0]), figures(outcomes[1], outcomes[0])};
  const auto json = to_json(all, {{"seed", 7}, {"threads", 1}});
  REQUIRE(json["pipelines"].size() == 2);
  std::string keys;
  for (const auto& item : json["pipelines"][1].items()) keys += item.key() + " ";
  CHECK(keys.rfind("name prompts new_tokens target_calls draft_calls mat tau acceptance acceptance_by_depth "
                   "acceptance_by_confidence mat_by_context swi "
                   "tokens_per_second "
                   "tokens_per_second_with_prefill tokens_per_second_over_plain speedup overhead_share "
                   "identical_to_autoregressive "
                   "lossy mean_proposed mat_per_verified_node draft_milliseconds_per_round ",
                   0) == 0);
  CHECK(json["pipelines"][0]["acceptance_by_confidence"].empty());
  const auto& confidences = json["pipelines"][1]["acceptance_by_confidence"];
  REQUIRE(confidences.size() == 1);
  CHECK(confidences[0].dump() == R"({"from":0.9,"proposals":7,"accepted":7})");
  CHECK(json["seed"] == 7);
  const std::string table = to_table(all);
  CHECK(table.find("chain") != std::string::npos);
  for (const char* head : {"  nodes  ", "  MAT/node", "  draft ms  ", "  alpha  "})
    CHECK(table.find(head) != std::string::npos);
  CHECK(table.find("  4.0  ") != std::string::npos);
  CHECK(table.find("  0.50") != std::string::npos);
  CHECK(table.find("  4.000  ") != std::string::npos);
  CHECK(table.find("  1.000  ") != std::string::npos);
  CHECK(table.find("1/1") != std::string::npos);
  for (std::size_t at = 0; at < table.size(); at = table.find('\n', at) + 1)
    CHECK(table.find('\n', at) - at <= 100);
}

TEST_CASE("figures of a subset of the prompts are those of a run on the subset") {
  std::vector<std::string> log;
  Scripted plain("autoregressive", 1, log), chain("chain", 3, log);
  const std::vector<Contender> contenders{{"autoregressive", &plain}, {"chain", &chain}};
  const std::vector<std::vector<Token>> prompts{{1, 2}, {1, 3}, {1, 4}};
  const CompareSettings settings{.max_new_tokens = 10, .repeat = 2};
  const auto all = compare(contenders, prompts, settings);
  const auto some = compare(contenders, std::span(prompts).first(2), settings);
  const std::vector<std::size_t> which{0, 2}, every{0, 1, 2};
  const auto part = std::vector{only(all[0], which), only(all[1], which)};
  const std::vector<Figures> a{figures(part[0], part[0]), figures(part[1], part[0])},
      b{figures(some[0], some[0]), figures(some[1], some[0])};
  CHECK(to_table(a) == to_table(b));
  CHECK(only(all[1], every).pooled.rounds == all[1].pooled.rounds);
  CHECK(only(all[1], every).drafts[0].usage.calls == all[1].drafts[0].usage.calls);
  CHECK_THROWS(only(all[0], std::vector<std::size_t>{3}));
}

namespace {

/// Three prompts: tokens, target calls, calls of small, seconds.
Outcome counted(const std::string& name, const std::vector<std::array<double, 4>>& prompts) {
  Outcome out;
  out.name = name;
  for (const auto& [tokens, calls, drafted, seconds] : prompts) {
    PromptResult result;
    result.first.tokens.assign(static_cast<std::size_t>(tokens), 1);
    result.first.stats.target = {static_cast<std::int64_t>(calls), static_cast<std::int64_t>(calls), seconds};
    result.first.stats.offered = {10};
    result.first.stats.accepted = {static_cast<std::int64_t>(tokens - calls)};
    if (drafted > 0)
      result.first.drafts = {{"small", {static_cast<std::int64_t>(drafted), 1, 0.1 * seconds}}};
    result.decode_seconds = seconds;
    out.pooled += result.first.stats;
    out.drafts = result.first.drafts;
    out.prompts.push_back(result);
  }
  return out;
}

}  // namespace

TEST_CASE("intervals contain the figures, and comparisons of pipelines are paired") {
  // The second and third pipeline have prompts of very different speed; the third is 5% slower on each.
  const auto plain = counted("autoregressive", {{20, 20, 0, 2}, {20, 20, 0, 2}, {20, 20, 0, 2}}),
             chain = counted("chain", {{20, 18, 36, 1.9}, {20, 10, 20, 1}, {20, 5, 10, 0.5}}),
             slower = counted("slower", {{20, 18, 36, 1.995}, {20, 10, 20, 1.05}, {20, 5, 10, 0.525}});
  const Bootstrap bootstrap(3);
  const std::vector<GivenCosts> given{{"paper", {{"small", 0.5}}}, {"other", {{"base", 0.5}}}};
  const CostCoefficients costs{{"small", 0.1}};
  std::vector<Figures> all;
  for (const Outcome* o : {&plain, &chain, &slower})
    all.push_back(figures(*o, plain, costs, given, &bootstrap));
  const Figures& f = all[1];
  REQUIRE(f.intervals);
  const auto around = [](const Interval& interval, double value) {
    CHECK(interval.value == doctest::Approx(value));
    CHECK(interval.low < value);
    CHECK(interval.high > value);
  };
  around(f.intervals->speedup, f.speedup);
  CHECK(f.speedup == doctest::Approx(6 / 3.4));  // seconds for as many tokens, of all prompts
  CHECK(f.tokens_per_second_over_plain == doctest::Approx((20 / 1.9 + 20 + 40) / 30));
  CHECK(f.intervals->speedup.low ==
        doctest::Approx(20 / 1.9 / 10));  // the slowest prompt three times: 1 in 27
  CHECK(f.intervals->speedup.high == doctest::Approx(4.0));
  around(f.intervals->mat, f.mat);
  CHECK(f.mat == doctest::Approx(60.0 / 33));
  around(f.intervals->tau, f.tau);
  around(f.intervals->acceptance, f.acceptance);
  CHECK(f.acceptance == doctest::Approx(27.0 / 30));
  around(f.intervals->swi, f.swi);
  CHECK(f.swi == doctest::Approx(60 / (33 + 6.6)));
  REQUIRE(f.given_swi.size() == 2);
  REQUIRE(f.intervals->given_swi.size() == 2);
  CHECK(f.given_swi[0].terms->ratio() == doctest::Approx(60.0 / (33 + 33)));
  around(*f.intervals->given_swi[0], 60.0 / 66);
  CHECK(!f.given_swi[1].terms);  // no cost of small is known
  CHECK(!f.intervals->given_swi[1]);
  CHECK(all[0].given_swi[0].terms->ratio() == doctest::Approx(1.0));  // without a drafter

  const Gain gained = gain(all[2], all[1], bootstrap);
  CHECK(gained.speed.value == doctest::Approx(1 / 1.05));
  CHECK(gained.speed.high == doctest::Approx(1 / 1.05));
  CHECK(gained.mat.value == doctest::Approx(1.0));
  CHECK(!gained.within_noise());
  CHECK(Gain{.speed = {1.1, 0.99, 1.2}, .mat = {}, .tau = {}, .swi = {}}.within_noise());

  const Against beside = against("chain", all, bootstrap);
  CHECK(beside.others == std::vector<std::string>{"autoregressive", "slower"});
  const std::string table = against_table(beside);
  CHECK(table.find("against chain") == 0);
  CHECK(table.find("slower          0.95x [0.95, 0.95]") != std::string::npos);
  CHECK(table.find("0.57x [0.25, 0.95]") != std::string::npos);
  CHECK(against_json(beside)["slower"]["speed"][0] == doctest::Approx(1 / 1.05));
  CHECK(against_json(beside)["slower"]["within_noise"] == false);
  CHECK_THROWS_AS(against("other", all, bootstrap), std::invalid_argument);

  const auto json = to_json(all, {});
  CHECK(json["pipelines"][1]["intervals"]["speedup"].size() == 2);
  CHECK(json["pipelines"][1]["by_prompt"].dump() == "[[20,1.9,18],[20,1.0,10],[20,0.5,5]]");
  CHECK(json["pipelines"][1]["swi_by_costs"]["paper"]["value"] == doctest::Approx(60.0 / 66));
  CHECK(json["pipelines"][1]["swi_by_costs"]["other"].is_null());
  const std::string shown = to_table(all);
  CHECK(shown.find("1.76x [1.05, 4.00]") != std::string::npos);
  CHECK(shown.find("SWI by paper") != std::string::npos);

  const std::vector<Group> groups{{"easy", all}, {"hard", all}};
  CHECK(group_table(groups).find("easy (3)") != std::string::npos);
  CHECK(group_json(groups)[1]["name"] == "hard");
  CHECK(group_json(groups)[1]["pipelines"][1]["mat"] == doctest::Approx(60.0 / 33));
}

TEST_CASE("rounds by the length of their context") {
  Chains chains({{2, 1}, {2, 2}, {2, 0}, {2, 2}});
  const std::vector<Token> prompt(126, 3);  // 125 tokens before the root, then 127, 130, 131
  const Decoded run = decode(chains, prompt, {.max_new_tokens = 8});
  REQUIRE(run.by_context.size() == 3);
  CHECK(run.by_context[0].rounds == 0);
  CHECK(run.by_context[1].rounds == 2);
  CHECK(run.by_context[1].new_tokens == 5);
  CHECK(run.by_context[2].rounds == 2);
  CHECK(run.by_context[2].new_tokens == 3);  // of four tokens: the limit
  CHECK(run.from_draft == std::vector<bool>{true, false, true, true, false, false, true, true});
}

TEST_CASE("draft tokens beyond the text's end count as neither accepted nor offered") {
  Chains chains({{5, 5}, {5, 3}, {4, 2}});
  using Counts = std::vector<std::int64_t>;
  const Token none = specula::kNoToken;  // not in the vocabulary
  const auto counts = [&](std::int32_t limit, Token stop, const Counts& offered, const Counts& accepted) {
    CAPTURE(limit);
    CAPTURE(stop);
    for (int again = 0; again < 2; ++again) {
      const auto run = decode(chains, std::vector<Token>{1}, {.max_new_tokens = limit, .stop = {stop}});
      CHECK(run.stats.offered == offered);
      CHECK(run.stats.accepted == accepted);
      CHECK(chains.ends == (stop == none ? std::vector<Token>{} : std::vector<Token>{stop}));
    }
  };
  // 6, 4 and 3 tokens.
  counts(13, none, {3, 3, 3, 2, 1, 0}, {3, 3, 2, 1, 1, 0});
  counts(100, none, {3, 3, 3, 2, 1, 0}, {3, 3, 2, 1, 1, 0});
  counts(12, none, {3, 3, 2, 2, 1, 0}, {3, 3, 2, 1, 1, 0});  // all except the target's own token
  counts(11, none, {3, 2, 2, 2, 1, 0}, {3, 2, 2, 1, 1, 0});
  counts(7, none, {2, 1, 1, 1, 1, 0}, {2, 1, 1, 1, 1, 0});
  counts(6, none, {1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 0});
  counts(2, none, {1, 1, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0});
  counts(0, none, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0});
  // The stop token is part of the text: here the second draft token, a last draft token, and the next token.
  counts(100, 11, {1, 1, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0});
  counts(100, 14, {1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 0});
  counts(100, 19, {2, 2, 2, 2, 1, 0}, {2, 2, 2, 1, 1, 0});
  // The limit and the stop token in one round: the first one counts.
  counts(3, 11, {1, 1, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0});
}

TEST_CASE("why a text ended: limit, stop token, stop string, full context") {
  const std::vector<Token> prompt{1};
  std::vector<Token> asked;
  const auto text = [&](const DecodeSettings& settings, FinishReason ending) {
    Chains chains({{3, 3}, {3, 1}, {2, 2}});  // 10 to 13, 14 and 15, 16 to 18
    const Decoded run = decode(chains, prompt, settings);
    CHECK(run.ending == ending);
    return run;
  };
  const auto ends_at = [&](Token last) {
    return [&asked, last](Token token) {
      asked.push_back(token);
      return token == last;
    };
  };
  CHECK(text({.max_new_tokens = 5}, FinishReason::limit).tokens.size() == 5);
  CHECK(text({}, FinishReason::context_full).tokens.size() == 9);
  CHECK(text({.stop = {12}}, FinishReason::stop_token).tokens.back() == 12);
  const Decoded run = text({.stop = {17}, .ends = ends_at(12)}, FinishReason::cancelled);
  CHECK(run.tokens == std::vector<Token>{10, 11, 12});
  CHECK(asked == run.tokens);  // each token once, and none after the end
  CHECK(run.stats.accepted == text({.stop = {12}}, FinishReason::stop_token).stats.accepted);
  CHECK(run.stats.new_tokens == 3);
  CHECK(text({.stop = {12}, .ends = ends_at(12)}, FinishReason::stop_token).tokens.size() == 3);
  CHECK(text({.max_new_tokens = 3, .ends = ends_at(12)}, FinishReason::cancelled).tokens.size() == 3);
  CHECK(text({.max_new_tokens = 2, .ends = ends_at(12)}, FinishReason::limit).tokens.size() == 2);
  asked.clear();
  CHECK(text({.max_new_tokens = 6, .ends = ends_at(17)}, FinishReason::limit).tokens.size() == 6);
  CHECK(asked.size() == 6);
}

TEST_CASE("a long prompt is read in parts only if progress is shown") {
  std::vector<std::string> log;
  Scripted pipeline("p", 1, log);
  const std::vector<Token> prompt(258, 3);
  decode(pipeline, prompt, {.max_new_tokens = 1});
  CHECK(log.size() == 1);
  std::vector<std::size_t> shown;
  const auto note = [&](std::size_t done, std::size_t total) {
    CHECK(total == 258);
    shown.push_back(done);
  };
  const Decoded run =
      decode(pipeline, prompt, {.max_new_tokens = 1, .prefill = note}, [&](Tokens, std::size_t) {
        CHECK(shown == std::vector<std::size_t>{0, 128, 256, 258});  // before the text
      });
  CHECK(shown == std::vector<std::size_t>{0, 128, 256, 258});
  CHECK(log.size() == 4);
  CHECK(run.prefill_seconds == doctest::Approx(0.3));
  CHECK(pipeline.text().size() == 259);
  shown.clear();
  decode(pipeline, prompt, {.max_new_tokens = 0, .prefill = note});
  CHECK(shown.back() == 258);
  shown.clear();
  decode(pipeline, Tokens(prompt).first(129),
         {.max_new_tokens = 1, .prefill = [&](auto done, auto) { shown.push_back(done); }});
  CHECK(shown == std::vector<std::size_t>{129});
}

TEST_CASE("an interrupted text ends after a part of its prompt or after a round") {
  std::vector<std::string> log;
  Scripted pipeline("p", 1, log);
  const std::vector<Token> prompt(258, 3);
  const auto now = [] { return true; };
  std::vector<std::size_t> shown;
  const Decoded early = decode(
      pipeline, prompt,
      {.max_new_tokens = 9, .prefill = [&](auto done, auto) { shown.push_back(done); }, .interrupted = now});
  CHECK(early.interrupted);
  CHECK(early.tokens.empty());
  CHECK(early.ending == specula::FinishReason::cancelled);
  CHECK(early.prompt_tokens == 258);
  CHECK(shown == std::vector<std::size_t>{0, 128, 258});  // the bar ends
  CHECK(log.size() == 1);
  const Decoded later = decode(pipeline, prompt, {.max_new_tokens = 9, .interrupted = now});
  CHECK(later.interrupted);
  CHECK(!later.tokens.empty());
  CHECK(later.tokens.size() < 9);
  CHECK(later.ending == specula::FinishReason::cancelled);
  CHECK_FALSE(
      decode(pipeline, prompt, {.max_new_tokens = 1, .interrupted = now}).interrupted);  // was at its end
}

TEST_CASE("costs of drafts: from plain decoding if measured, else from their calls in the pipeline") {
  const auto run = [](const std::string& name, std::vector<specula::DraftUsage> drafts) {
    Outcome out;
    out.name = name;
    out.prompts.resize(1);
    Decoded& first = out.prompts[0].first;
    first.tokens.assign(60, 1);
    first.stats.target = {drafts.empty() ? 60 : 20, drafts.empty() ? 60 : 100, 0.6};
    first.drafts = drafts;
    out.pooled = first.stats;
    out.drafts = drafts;
    return out;
  };
  const Outcome plain = run("autoregressive", {});  // 10 ms per call
  const Outcome cascade = run("cascade", {{"base", {30, 90, 0.18}}, {"max-gram", {100, 100, 0.01}}});
  const auto swi = [](double base, double gram) { return 60 / (20 + 30 * base + 100 * gram); };

  const Figures from_run = figures(cascade, plain);
  REQUIRE(from_run.drafts.size() == 2);
  CHECK(from_run.draft_calls == 130);
  CHECK(from_run.drafts[0].cost_coefficient == doctest::Approx(0.6));  // calls over three nodes each
  CHECK(from_run.drafts[1].cost_coefficient == doctest::Approx(0.01));
  CHECK(from_run.swi == doctest::Approx(swi(0.6, 0.01)));

  const Figures measured = figures(cascade, plain, {{"base", 0.3}, {"small", 1.0}});
  CHECK(measured.drafts[0].model == "base");
  CHECK(measured.drafts[0].calls == 30);
  CHECK(measured.drafts[0].cost_coefficient == doctest::Approx(0.3));
  CHECK(measured.drafts[0].milliseconds_per_call == doctest::Approx(6.0));  // unchanged
  CHECK(measured.drafts[1].cost_coefficient == doctest::Approx(0.01));
  CHECK(measured.swi == doctest::Approx(swi(0.3, 0.01)));
  CHECK(figures(cascade, plain, {{"max-gram", 0.0}}).swi == doctest::Approx(swi(0.6, 0.0)));
  CHECK(figures(plain, plain, {{"base", 0.3}}).swi == doctest::Approx(1.0));
}

TEST_CASE("c: the median over prompts of the cost of a call in plain decoding of the draft") {
  const auto plain = [](const std::string& name, const std::vector<double>& call_seconds) {
    Outcome out;
    out.name = name;
    for (const double seconds : call_seconds) {
      out.prompts.emplace_back();
      out.prompts.back().first.stats.target = {seconds > 0 ? 10 : 0, 10, 10 * seconds};
    }
    return out;
  };
  const std::vector<Outcome> outcomes{plain("autoregressive", {0.010, 0.020, 0.010, 0.0}),
                                      plain("chain@base", {0.5, 0.5, 0.5, 0.5}),
                                      plain("autoregressive@base", {0.001, 0.006, 0.09, 0.5}),
                                      plain("autoregressive@small", {0.003, 0.002, 0.001, 0.5})};
  const CostCoefficients costs = cost_coefficients(outcomes);
  REQUIRE(costs.size() == 2);
  CHECK(costs.at("base") ==
        doctest::Approx(0.3));  // of 0.1, 0.3 and 9; the prompt without a call is left out
  CHECK(costs.at("small") == doctest::Approx(0.1));
  CHECK(cost_coefficients(std::span(outcomes).first(2)).empty());
}
