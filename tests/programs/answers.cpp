// SPDX-License-Identifier: MIT
// labels: long
// the answers of specula run: what a text that fails leaves of the others, and which draws each has, one by
// one and in a batch.

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "asked_prompt.hpp"
#include "batch.hpp"
#include "draft_note.hpp"
#include "toy_chat.hpp"

using namespace specula_tools;
using specula_test::chatml;
using specula_test::kToyChat;

namespace {

/// Writes two tokens of each text per round, the letter of its `sequence`. Texts have 4 or 6 tokens, and
/// those that joined last end first.
class ScriptedTexts final : public TextBatch {
 public:
  explicit ScriptedTexts(std::int32_t texts) : texts_(texts) {}
  specula::TextId join(specula::TextRequest request) override {
    const std::uint32_t sequence = std::optional(request.sequence).value();
    sequences.push_back(sequence);
    queue_.push_back({++last_, sequence, std::move(request), {}});
    return last_;
  }
  bool cancel(specula::TextId) override { return false; }
  const std::vector<specula::TextResult>& step() override {
    ended_.clear();
    while (running_.size() < static_cast<std::size_t>(texts_) && !queue_.empty())
      running_.insert(running_.begin(), queue_.front()), queue_.pop_front();
    for (Text& text : running_) {
      const std::vector<Token> fresh(2, static_cast<Token>('a' + text.sequence));
      text.tokens.insert(text.tokens.end(), fresh.begin(), fresh.end());
      text.request.sink(fresh);
      const bool fails = text.sequence == fails_at && text.tokens.size() == 2;
      if (!fails && text.tokens.size() < 4 + (text.sequence % 3)) continue;
      ended_.push_back({.id = text.id, .tokens = text.tokens, .reason = specula::FinishReason::limit});
      if (fails) ended_.back().failure = std::make_exception_ptr(std::runtime_error("a row has NaN"));
      if (text.sequence == draft_fails_at) ended_.back().stats.failed_drafts = 1, draft_ended_ = text.id;
      text.id = 0;
    }
    std::erase_if(running_, [](const Text& text) { return text.id == 0; });
    return ended_;
  }
  bool empty() const override { return queue_.empty() && running_.empty(); }
  std::int32_t waiting() const override { return static_cast<std::int32_t>(queue_.size() + running_.size()); }
  std::string draft_error(specula::TextId id) const override { return id == draft_ended_ ? "no rows" : ""; }
  double pass_seconds() const override { return 0; }

  static constexpr std::uint32_t kNone = 1000;
  std::uint32_t fails_at = kNone, draft_fails_at = kNone;
  std::vector<std::uint32_t> sequences;

 private:
  struct Text {
    specula::TextId id = 0;
    std::uint32_t sequence = 0;
    specula::TextRequest request;
    std::vector<Token> tokens;
  };
  std::int32_t texts_;
  specula::TextId last_ = 0, draft_ended_ = 0;
  std::deque<Text> queue_;
  std::vector<Text> running_;
  std::vector<specula::TextResult> ended_;
};

/// Conversations of so many turns.
std::vector<AskedPrompt> conversations(const std::vector<int>& turns) {
  static const ChatSetting chat{chatml(), kToyChat, ""};
  std::vector<AskedPrompt> all;
  for (const int count : turns) {
    Prompt prompt{"first", Style::raw};
    for (int t = 1; t < count; ++t) prompt.later.push_back("turn " + std::to_string(t));
    all.push_back(asked_prompt(std::move(prompt), &chat, Style::raw, {}, 16, true));
  }
  return all;
}

struct Shown {
  std::vector<Answer> answers;
  std::string notes;
};
Shown answer(ScriptedTexts& batch, std::vector<AskedPrompt> prompts, std::int32_t texts) {
  Shown shown;
  std::ostringstream notes;
  answer_batch(
      batch, prompts, {"scripted", {}, texts, {}}, {.max_new_tokens = 16},
      [](Token token) { return std::string(1, static_cast<char>(token)); }, notes,
      [&](const Answer& answer) { shown.answers.push_back(answer); });
  shown.notes = notes.str();
  return shown;
}

}  // namespace

TEST_CASE("an answer's draws are those of its prompt and turn, however many texts are written at once") {
  for (const std::int32_t texts : {1, 2, 3, 7}) {
    CAPTURE(texts);
    ScriptedTexts batch(texts);
    const Shown shown = answer(batch, conversations({2, 1, 3}), texts);
    REQUIRE(shown.answers.size() == 6);
    const std::vector<std::pair<std::size_t, std::size_t>> order{{0, 0}, {0, 1}, {1, 0},
                                                                 {2, 0}, {2, 1}, {2, 2}};
    for (std::size_t i = 0; i < 6; ++i) {
      const Answer& got = shown.answers[i];
      CHECK(std::pair(got.prompt, got.turn) == order[i]);
      CHECK(got.text.front() == static_cast<char>('a' + i));  // its sequence is its number
      CHECK(got.failure.empty());
    }
    CHECK(batch.sequences.size() == 6);
    CHECK(shown.notes.find("of 6 texts, " + std::to_string(texts) + " at once") != std::string::npos);
  }
  CHECK(first_numbers(conversations({2, 1, 3})) == std::vector<std::size_t>{0, 2, 3});
}

TEST_CASE("a text that fails ends its own turns, and no other prompt's") {
  for (const std::int32_t texts : {1, 2, 7}) {
    CAPTURE(texts);
    ScriptedTexts batch(texts);
    batch.fails_at = 3;  // the first of the third prompt's
    batch.draft_fails_at = 1;
    const Shown shown = answer(batch, conversations({2, 1, 3, 1}), texts);
    REQUIRE(shown.answers.size() == 5);
    const Answer& bad = shown.answers[3];
    CHECK(bad.prompt == 2);
    CHECK(bad.failure == "a row has NaN");
    CHECK(bad.text == "dd");  // what it had written
    CHECK(shown.answers[4].text.substr(0, 4) == "gggg");
    std::ostringstream notes;
    Answers all("program", 1, notes);
    CHECK(all.status() == 0);
    for (const Answer& one : shown.answers) all.add(one);
    all.finish();
    CHECK(all.status() == 1);
    CHECK(notes.str() ==
          "program: prompt 3 failed: a row has NaN\nnote: drafting ended in 1 of 5 texts: no rows\n");
    REQUIRE(all.json().size() == 5);
    CHECK(all.json()[3]["failed"] == "a row has NaN");
    CHECK(all.json()[3]["text"] == "dd");
    CHECK_FALSE(all.json()[3].contains("ended"));
    CHECK_FALSE(all.json()[4].contains("failed"));
    CHECK(all.json()[4]["ended"] == "limit");
    CHECK(all.json()[1]["draft_error"] == "no rows");
    CHECK_FALSE(all.json()[0].contains("draft_error"));
  }
}

TEST_CASE("a turn for which there is no room fails, and is named") {
  std::vector<AskedPrompt> prompts = conversations({3, 1});
  prompts[0].longest = prompts[0].tokens.size() + 12;  // not for the third turn
  ScriptedTexts batch(2);
  const Shown shown = answer(batch, std::move(prompts), 2);
  std::ostringstream notes;
  Answers all("program", 1, notes);
  for (const Answer& one : shown.answers) all.add(one);
  CHECK(all.status() == 1);
  CHECK(notes.str().find("program: prompt 1, turn ") == 0);
  CHECK(notes.str().find(" failed: a chat of ") != std::string::npos);
  CHECK(shown.answers.back().prompt == 1);
  CHECK(shown.answers.back().failure.empty());
}

TEST_CASE("the note of failed drafts") {
  DraftNote note;
  CHECK(note.line().empty());
  note.add("");
  CHECK(note.line().empty());
  note.add("first");
  note.add("second");
  CHECK(note.line() == "note: drafting ended in 2 of 3 texts: first\n");
  DraftNote one;
  one.add("why");
  CHECK(one.line() == "note: drafting ended in 1 of 1 text: why\n");
}
