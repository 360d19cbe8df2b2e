// SPDX-License-Identifier: MIT
// What a Pipeline shows of the record that its rounds are written to, and generate() of it.
#include <specula/runtime/run_time_pipeline.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

using namespace specula;

namespace {

/// Each round emits the token 4 once; it has room for five of them.
class Fours final : public Pipeline, public RunRecord {
 public:
  Fours() : RunRecord(6, 1, false, 1) {}
  void start(Tokens prompt) override {
    expect_no_sink();
    set_text(prompt);
    left_ = 5;
  }
  Tokens step(PhiloxRandom&, Tokens) override {
    expect_no_sink();
    --left_;
    round_.accepted = {0}, round_.next_token = 4;
    builder().reset(4, 0, 1);
    begin_round();
    add_round(round_);
    return Pipeline::text().last(1);
  }
  void forget() override {}
  std::int32_t room() const override { return left_; }
  NodeCounts nodes() const override { return {1}; }
  ProposalKind kind() const override { return ProposalKind::deterministic; }
  void begin(PhiloxRandom& rng, Tokens stop, CostModel*, std::int32_t) override { step(rng, stop); }
  void keep(std::span<const std::uint8_t>) override {}
  Tokens end() override { return Pipeline::text().last(1); }
  void abandon() override {}
  const SamplingParams& params() const override { return params_; }
  void set_params(const SamplingParams& params) override { params_ = params; }
  void report_logprobs(const LogprobOptions&) override {}
  void report_no_logprobs() override {}
  Logprobs logprobs() const override { return {}; }
  std::vector<DraftUsage> drafts() const override { return {}; }

 protected:
  RunRecord& record() override { return *this; }
  const RunRecord& record() const override { return *this; }

 private:
  std::int32_t left_ = 0;
  VerifyResult round_;
  SamplingParams params_;
};

}  // namespace

TEST_CASE("text, proposal, result and statistics are those of the record") {
  Fours fours;
  Pipeline& pipeline = fours;
  PhiloxRandom rng(1);
  pipeline.start(std::vector<Token>{1, 2});
  CHECK_THROWS_AS(static_cast<void>(pipeline.result()), std::logic_error);
  pipeline.step(rng);
  const Tokens text = pipeline.text();
  CHECK(std::vector<Token>(text.begin(), text.end()) == std::vector<Token>{1, 2, 4});
  CHECK(pipeline.vocab_size() == 6);
  CHECK(pipeline.proposal().size() == 1);
  CHECK(pipeline.result().next_token == 4);
  CHECK(pipeline.emitted() == 1);
  CHECK(pipeline.stats().new_tokens == 1);
  CHECK(pipeline.draft_error().empty());
  CHECK(pipeline.reviews().empty());
  pipeline.count_emitted(0);
  CHECK(pipeline.emitted() == 0);
  CHECK(pipeline.stats().new_tokens == 0);
  pipeline.reset_stats();
  CHECK(pipeline.stats().rounds == 0);
}

TEST_CASE("a text: until a limit, or until there is no room; a sink must not begin another") {
  Fours fours;
  Pipeline& pipeline = fours;
  const std::vector<Token> prompt{1};
  std::vector<Token> got;
  const auto keep = [&](Tokens fresh) { got.insert(got.end(), fresh.begin(), fresh.end()); };
  CHECK(pipeline.generate(prompt, {.max_new_tokens = 3}, PhiloxRandom(1), keep).reason ==
        FinishReason::limit);
  CHECK(got == std::vector<Token>{4, 4, 4});
  const Generated full = pipeline.generate(prompt, {.max_new_tokens = 9}, PhiloxRandom(1), keep);
  CHECK(full.reason == FinishReason::context_full);
  CHECK(full.tokens == 5);
  CHECK_THROWS_AS(pipeline.generate(prompt, {.max_new_tokens = 3}, PhiloxRandom(1),
                                    [&](Tokens) { pipeline.start(prompt); }),
                  std::logic_error);
}
