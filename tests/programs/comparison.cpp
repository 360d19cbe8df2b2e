#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "comparison.hpp"
#include "figures.hpp"
#include "report.hpp"

using namespace specula_examples;

namespace {

/// Emits 10, 11, 12, ... `per_round` at a time and claims fixed times: a target call takes 8 ms, a draft call
/// 2 ms.
class Scripted final : public Pipeline {
 public:
  Scripted(std::string name, std::int32_t per_round, std::vector<std::string>& log)
      : name_(std::move(name)), per_round_(per_round), log_(&log) {
    stats_.offered.resize(4);
    stats_.accepted.resize(4);
  }
  void start(Tokens prompt) override {
    log_->push_back(name_);
    text_.assign(prompt.begin(), prompt.end());
    begin_ = text_.size();
    stats_.prefill_seconds += 0.1;
  }
  Tokens step(specula::PhiloxChance&) override {
    for (std::int32_t i = 0; i < per_round_; ++i)
      text_.push_back(static_cast<Token>(10 + text_.size() - begin_));
    ++stats_.rounds;
    stats_.proposed += 2 * (per_round_ - 1);  // as many rejected ones beside them
    stats_.new_tokens += per_round_;
    for (std::size_t d = 0; d + 1 < static_cast<std::size_t>(per_round_); ++d)
      ++stats_.offered[d], ++stats_.accepted[d];
    stats_.target += {1, 2 * per_round_ - 1, 0.008};
    if (per_round_ > 1) stats_.draft += {per_round_ - 1, per_round_ - 1, 0.002 * (per_round_ - 1)};
    stats_.round_seconds += 0.010 + (per_round_ > 1 ? 0.002 * (per_round_ - 1) : 0.0);
    return Tokens(text_).last(static_cast<std::size_t>(per_round_));
  }
  void forget() override {}
  Tokens text() const override { return text_; }
  std::int32_t room() const override { return 1000; }
  const specula::Stats& stats() const override { return stats_; }
  const specula::TokenTree& proposal() const override { return tree_; }
  const specula::Verdict& verdict() const override { return verdict_; }
  std::vector<DraftUsage> drafts() const override {
    if (per_round_ == 1) return {};
    return {{"small", stats_.draft}};
  }

 private:
  std::string name_;
  std::int32_t per_round_;
  std::vector<std::string>* log_;
  std::vector<Token> text_;
  std::size_t begin_ = 0;
  specula::Stats stats_;
  specula::TokenTree tree_{4, 1, 0};
  specula::Verdict verdict_;
};

}  // namespace

TEST_CASE("the figures of a run whose counts and times are known") {
  std::vector<std::string> log;
  Scripted plain("autoregressive", 1, log), chain("chain", 3, log);
  const std::vector<Contender> contenders{{"autoregressive", &plain}, {"chain", &chain}};
  const std::vector<std::vector<Token>> prompts{{1, 2}, {1, 3}, {1, 4}};
  std::size_t calls = 0;
  const auto outcomes =
      compare(contenders, prompts, {.max_new_tokens = 10, .stop = 99, .seed = 1, .repeat = 2},
              [&](std::size_t done, std::size_t total) {
                CHECK(done == ++calls);
                CHECK(total == 12);
              });
  CHECK(calls == 12);
  // Two runs to warm up, then the first place goes round with prompts and repetitions.
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
  // Four rounds of three tokens, of which ten tokens are emitted.
  CHECK(f.prompts == 3);
  CHECK(f.new_tokens == 30);
  CHECK(f.target_calls == 12);
  CHECK(f.draft_calls == 24);
  CHECK(f.mat == doctest::Approx(2.5));
  CHECK(f.tau == doctest::Approx(2.5));
  REQUIRE(f.acceptance_by_depth.size() == 2);
  CHECK(*f.acceptance_by_depth[1] == doctest::Approx(1.0));
  REQUIRE(f.drafts.size() == 1);
  CHECK(f.drafts[0].cost_coefficient == doctest::Approx(0.25));
  CHECK(f.swi == doctest::Approx(30.0 / (12 + 24 * 0.25)));
  CHECK(f.tokens_per_second == doctest::Approx(10 / 0.056));
  CHECK(f.speedup == doctest::Approx(10 / 5.6));
  CHECK(f.identical_to_autoregressive == 3);
  CHECK(f.mean_proposed == doctest::Approx(4.0));
  CHECK(f.mat_per_verified_node == doctest::Approx(3.0 / 5));  // three tokens for five nodes a round
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
  CHECK(keys.rfind("name prompts new_tokens target_calls draft_calls mat tau acceptance_by_depth swi "
                   "tokens_per_second "
                   "tokens_per_second_with_prefill speedup overhead_share identical_to_autoregressive "
                   "lossy mean_proposed mat_per_verified_node draft_milliseconds_per_round ",
                   0) == 0);
  CHECK(json["seed"] == 7);
  const std::string table = to_table(all);
  CHECK(table.find("chain") != std::string::npos);
  for (const char* head : {"  nodes  ", "  MAT/node  ", "  draft ms  "})
    CHECK(table.find(head) != std::string::npos);
  CHECK(table.find("  4.0  ") != std::string::npos);
  CHECK(table.find("  0.60  ") != std::string::npos);
  CHECK(table.find("  4.000  ") != std::string::npos);
  CHECK(table.find("1/1") != std::string::npos);
}
