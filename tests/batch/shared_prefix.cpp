// SPDX-License-Identifier: MIT
// What texts of a batch begin alike with: which slot a text gets, whether it waits, what is copied.
#include <specula/batch/shared_prefix.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

using namespace specula;

namespace {

struct Run {
  std::vector<Token> words;
  Tokens text() const { return words; }
};
struct Request {
  std::vector<Token> prompt;
};
struct Text {
  std::int32_t slot = 0;
  std::uint64_t id = 0, last = 0;
  Run slot_run;
  Run* run = &slot_run;
  Request request;
};
using Texts = std::vector<std::unique_ptr<Text>>;
Text& add(Texts& texts, std::uint64_t id, std::uint64_t last, std::vector<Token> words) {
  texts.push_back(std::make_unique<Text>());
  Text& text = *texts.back();
  text.slot = static_cast<std::int32_t>(texts.size()) - 1;
  text.id = id, text.last = last, text.slot_run.words = words, text.request.prompt = std::move(words);
  return text;
}

/// Sizes and queues by slot, and the last fork.
struct Model {
  std::vector<std::int32_t> sizes, queues;
  std::int32_t from = -1, to = -1, n = -1;
  bool full = false;
  std::int32_t vocab_size() const { return 9; }
  std::int32_t slots() const { return static_cast<std::int32_t>(sizes.size()); }
  std::int32_t size(std::int32_t s) const { return sizes.at(static_cast<std::size_t>(s)); }
  std::int32_t capacity(std::int32_t) const { return 100; }
  std::int32_t queued(std::int32_t s) const { return queues.at(static_cast<std::size_t>(s)); }
  std::int32_t chunk() const { return 2; }
  void append(std::int32_t, Tokens) {}
  LogitsView extend(std::span<const SlotNodes>) { return {}; }
  void commit(std::int32_t, Nodes) {}
  void truncate(std::int32_t, std::int32_t) {}
  void fork(std::int32_t a, std::int32_t b, std::int32_t count) {
    if (full) throw NoRoom("full");
    from = a, to = b, n = count;
  }
};
static_assert(ForksTexts<Model>);

}  // namespace

TEST_CASE(
    "a text takes the free slot that it shares the least with, of equal ones the one that ended first") {
  Texts texts;
  add(texts, 7, 7, {5});
  add(texts, 0, 3, {1, 2, 3});
  add(texts, 0, 2, {1, 4});
  add(texts, 0, 1, {1, 5});
  CHECK(detail::free_slot(texts, std::vector<Token>{1, 2, 3}).slot == 3);
  CHECK(detail::free_slot(texts, std::vector<Token>{1, 5, 6}).slot == 2);
  CHECK(detail::free_slot(texts, std::vector<Token>{8}).slot == 3);
}

TEST_CASE("a text waits while more than a chunk of its prompt is being read for another") {
  Texts texts;
  add(texts, 1, 1, {1, 2, 3, 4, 5, 6, 7});
  Model model{{7}, {7}};
  const std::vector<Token> alike{1, 2, 3, 8}, other{1, 2, 8};
  CHECK(detail::is_being_read(model, texts, alike));
  CHECK(!detail::is_being_read(model, texts, other));  // a chunk: read at once
  model.queues = {5};                                  // 2 have run
  CHECK(!detail::is_being_read(model, texts, alike));
  model.queues = {2};
  CHECK(!detail::is_being_read(model, texts, std::vector<Token>{1, 2, 3, 4, 5, 6, 7}));
  model.queues = {7}, texts[0]->id = 0;  // it has ended
  CHECK(!detail::is_being_read(model, texts, alike));
}

TEST_CASE("the longest prefix that another text has computed is copied, of a draft within the prompt only") {
  Texts texts;
  add(texts, 1, 1, {1, 2, 3, 4, 5}).request.prompt = {1, 2, 3};  // two tokens of its own
  add(texts, 2, 2, {1, 2, 3, 9});
  Text& text = add(texts, 3, 3, {1, 2, 3, 4, 5, 6});
  Model model{{5, 4, 6}, {0, 0, 6}};
  detail::copy_prefix(model, false, text, texts);
  CHECK(model.from == 0);
  CHECK(model.to == 2);
  CHECK(model.n == 5);
  detail::copy_prefix(model, true, text, texts);  // slot 1's prompt has 4 tokens, of which 3 are the same
  CHECK(model.from == 1);
  CHECK(model.n == 3);
  model.queues = {4, 0, 6}, model.from = -1;
  detail::copy_prefix(model, false, text, texts);  // of slot 0 one has run
  CHECK(model.from == 1);
  CHECK(model.n == 3);
  model.queues = {0, 0, 0}, model.from = -1;
  detail::copy_prefix(model, false, text, texts);  // it has all
  CHECK(model.from == -1);
  model.queues = {0, 0, 6}, model.full = true;
  detail::copy_prefix(model, false, text, texts);  // read instead
  CHECK(model.from == -1);
}
