// SPDX-License-Identifier: MIT
// labels: long
// specula compare --batch: batches whose rounds and times are scripted.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "batches.hpp"
#include "errors.hpp"

using namespace specula_tools;

namespace {

/// Prompt {p} is read for p rounds, then gives p + 1 tokens per round. A round takes a second, and 100 more
/// for each prompt that is read; half of it is the models'.
class ScriptedBatch final : public TextBatch {
 public:
  explicit ScriptedBatch(std::int32_t texts) : texts_(texts) {}
  specula::TextId join(specula::TextRequest request) override {
    sequences.push_back(request.sequence.value());
    queue_.push_back({++last_, std::move(request)});
    return last_;
  }
  bool cancel(specula::TextId id) override {
    for (auto text = running_.begin(); text != running_.end(); ++text)
      if (text->id == id) {
        ended_.push_back({.id = id});
        running_.erase(text);
        return true;
      }
    return std::erase_if(queue_, [&](const Text& text) { return text.id == id; }) > 0;
  }
  const std::vector<specula::TextResult>& step() override {
    returned_.clear();
    while (running_.size() < static_cast<std::size_t>(texts_) && !queue_.empty())
      running_.push_back(queue_.front()), queue_.pop_front();
    full &= running_.size() == static_cast<std::size_t>(texts_);
    double took = 1;
    for (Text& text : running_) {
      const Token p = text.request.prompt.front();
      if (text.read < p) {
        ++text.read, took += 100;
        continue;
      }
      std::vector<Token> fresh;
      while (fresh.size() < static_cast<std::size_t>(p + 1) &&
             text.tokens.size() < static_cast<std::size_t>(text.request.max_new_tokens))
        fresh.push_back(p), text.tokens.push_back(p);
      text.request.sink(fresh);
      if (text.read == p) took += 100, ++text.read;
      if (text.tokens.size() == static_cast<std::size_t>(text.request.max_new_tokens)) {
        ended_.push_back({.id = text.id, .tokens = text.tokens, .reason = specula::FinishReason::limit});
        if (p == fails) ended_.back().failure = std::make_exception_ptr(std::runtime_error("the text fails"));
        ended_.back().stats.failed_drafts = draft_fails ? 1 : 0;
        text.id = 0;
      }
    }
    std::erase_if(running_, [](const Text& text) { return text.id == 0; });
    now += took;
    std::swap(returned_, ended_);
    return returned_;
  }
  bool empty() const override { return queue_.empty() && running_.empty(); }
  std::int32_t waiting() const override { return static_cast<std::int32_t>(queue_.size() + running_.size()); }
  std::string draft_error(specula::TextId) const override { return draft_fails ? "no rows" : ""; }
  double pass_seconds() const override { return now / 2; }

  bool full = true;
  double now = 0;
  Token fails = -1;
  bool draft_fails = false;
  std::vector<std::uint32_t> sequences;

 private:
  struct Text {
    specula::TextId id = 0;
    specula::TextRequest request;
    Token read = 0;  // p + 1 after its first tokens, whose pass reads the rest of it
    std::vector<Token> tokens = {};
  };
  std::int32_t texts_;
  specula::TextId last_ = 0;
  std::deque<Text> queue_;
  std::vector<Text> running_;
  std::vector<specula::TextResult> ended_, returned_;
};

BatchRuns write(ScriptedBatch& batch, const std::vector<std::vector<Token>>& prompts, std::int32_t texts,
                std::int32_t new_tokens, int repeat = 1) {
  BatchRuns runs(prompts.size());
  std::size_t ended = 0;
  for (int r = 0; r < repeat; ++r)
    write_full(
        batch, prompts, texts, {.max_new_tokens = new_tokens}, {}, [&] { return batch.now; }, runs,
        [&] { ++ended; });
  CHECK(batch.full);
  CHECK(ended == static_cast<std::size_t>(repeat) * counted_texts(prompts.size(), texts));
  return runs;
}
Outcome alone_of(const std::vector<std::vector<Token>>& tokens) {
  Outcome alone;
  for (const auto& text : tokens) alone.prompts.emplace_back().first.tokens = text;
  return alone;
}

}  // namespace

TEST_CASE("a batch is always full, and rounds in which a prompt is read are not timed") {
  // Two texts at once of 12 tokens: {0} writes one per round, 12 rounds, the first of which reads it.
  ScriptedBatch batch(2);
  const BatchRuns runs = write(batch, {{0}, {0}}, 2, 12);
  CHECK(runs.rounds == 11);
  CHECK(runs.timed == 11);
  CHECK(runs.passes == 5.5);
  CHECK(runs.written == std::vector<std::vector<double>>{{11, 11}});
  CHECK(runs.seconds == std::vector<std::vector<double>>{{5.5, 5.5}});
  CHECK(runs.tokens == std::vector<std::vector<Token>>(2, std::vector<Token>(12, 0)));
}
TEST_CASE("texts of other lengths: every timed round takes a second") {
  for (const std::int32_t texts : {1, 2, 3, 4, 7}) {
    CAPTURE(texts);
    ScriptedBatch batch(texts);
    const BatchRuns runs = write(batch, {{0}, {1}, {2}}, texts, 40, 3);
    CHECK(runs.timed == static_cast<double>(runs.rounds));
    CHECK(runs.written.size() == 3);
    double seconds = 0;
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t p = 0; p < 3; ++p) {
        seconds += runs.seconds[r][p];
        if (p == 0) CHECK(runs.written[r][p] == doctest::Approx(runs.seconds[r][p] * texts));
        CHECK(runs.written[r][p] <= runs.seconds[r][p] * texts * static_cast<double>(p + 1) + 1e-9);
      }
    CHECK(seconds == doctest::Approx(runs.timed));
    for (std::size_t p = 0; p < 3; ++p)
      CHECK(runs.tokens[p] == std::vector<Token>(40, static_cast<Token>(p)));
    const std::set<std::uint32_t> first(batch.sequences.begin(),
                                        batch.sequences.begin() + std::max(3, texts));
    CHECK(first.size() == static_cast<std::size_t>(std::max(3, texts)));  // each with draws of its own
  }
}
TEST_CASE("a text that fails, and texts too short to be timed") {
  ScriptedBatch failing(2);
  failing.fails = 1;
  BatchRuns runs(2);
  const std::vector<std::vector<Token>> prompts{{0}, {1}};
  CHECK_THROWS_WITH(write_full(
                        failing, prompts, 2, {.max_new_tokens = 9}, {}, [] { return 0.0; }, runs),
                    "the text fails");
  ScriptedBatch plain(2);
  plain.draft_fails = true;  // the rest would be plain decoding
  BatchRuns others(2);
  CHECK_THROWS_WITH(write_full(
                        plain, prompts, 2, {.max_new_tokens = 9}, {}, [] { return 0.0; }, others),
                    "the draft failed: no rows");
  ScriptedBatch brief(2);
  CHECK_THROWS_WITH_AS(write_full(
                           brief, prompts, 2, {.max_new_tokens = 1}, {}, [] { return 0.0; }, runs),
                       "--batch: with 2 texts of at most 1 new tokens each there was no round in which none "
                       "read its prompt",
                       std::invalid_argument);
}
TEST_CASE("figures of batches") {
  const std::vector<std::string> pipelines{"autoregressive", "fast"};
  const std::vector<std::int32_t> texts{1, 4};
  const std::vector<Token> plain(12, 0), other(12, 1);
  const auto runs_of = [&](double tokens, double seconds, std::int64_t rounds) {
    BatchRuns runs(2);
    runs.tokens = {plain, other};
    runs.written.assign(3, {tokens, 2 * tokens});
    runs.seconds = {
        {seconds, 2 * seconds}, {9 * seconds, 2 * seconds}, {seconds, 2 * seconds}};  // one disturbed
    runs.rounds = rounds, runs.timed = 10, runs.passes = 9;
    return runs;
  };
  // Tokens of a repetition, 3 and 6, in 3 and 6 times the seconds; of all texts together.
  const std::vector<std::vector<BatchRuns>> runs{{runs_of(3, 3, 9), runs_of(3, 1.5, 9)},
                                                 {runs_of(3, 1, 27), runs_of(3, 0.25, 9)}};
  const auto all = batch_figures(pipelines, texts, runs, alone_of({plain, plain}));
  REQUIRE(all.size() == 4);
  CHECK(all[3].name == "fast");
  CHECK(all[3].texts == 4);
  CHECK(all[0].tokens_per_second.value == doctest::Approx(1));
  CHECK(all[1].tokens_per_second.value == doctest::Approx(2));
  CHECK(all[2].tokens_per_second.value == doctest::Approx(3));
  CHECK(all[3].tokens_per_second.value == doctest::Approx(12));
  CHECK(all[3].tokens_per_second.low == doctest::Approx(12));
  CHECK(all[0].over_plain.value == doctest::Approx(1));
  CHECK(all[1].over_plain.value == doctest::Approx(2));
  CHECK(all[3].over_plain.value == doctest::Approx(4));
  CHECK(all[2].over_fewest.value == doctest::Approx(3));
  CHECK(all[3].over_fewest.value == doctest::Approx(6));
  CHECK(all[0].milliseconds_per_token == doctest::Approx(1000));
  CHECK(all[3].milliseconds_per_token == doctest::Approx(1000.0 / 3));  // 4 texts, 12 tokens per second
  CHECK(all[0].tokens_per_round == doctest::Approx(3));
  CHECK(all[2].tokens_per_round == doctest::Approx(0.25));
  CHECK(all[0].own_share == doctest::Approx(0.1));
  CHECK(all[3].identical_to_alone == 1);
  CHECK(batch_table(all).find("\n4  fast") != std::string::npos);
  const auto json = batch_json(all);
  REQUIRE(json.size() == 2);
  CHECK(json[1]["texts"] == 4);
  CHECK(json[1]["pipelines"][1]["over_plain"][0] == doctest::Approx(4));
}
TEST_CASE("--batch takes ascending numbers of texts") {
  CHECK(parse_batches("1") == std::vector<std::int32_t>{1});
  CHECK(parse_batches("1,2,32") == std::vector<std::int32_t>{1, 2, 32});
  for (const char* bad : {"0", "-1", "2,1", "2,2", "x", "1,", "1,,2", "1.5", "1025", "99999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_batches(bad), UsageError);
  }
}
