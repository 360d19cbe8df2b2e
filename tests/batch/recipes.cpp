// SPDX-License-Identifier: MIT
// The recipes of docs/server.md, which quotes their functions: each does what the page says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/batch.hpp>
#include <specula/model/processed.hpp>
#include <specula/model/processors.hpp>
#include <specula/specula.hpp>

#include "toy_batch.hpp"

using namespace specula;

namespace {

using Model = specula_test::ToyBatch;
using Texts = std::map<TextId, std::vector<Token>>;

/// A model whose texts take pages of one pool: a pass that finds none throws NoRoom, before it changes
/// anything. The batch then pauses the youngest text, repeats the pass, and takes that text up again when
/// another has ended.
class Paged : public Model {
 public:
  Paged(std::int32_t slots, std::int32_t pages) : Model(slots, 7, 5), pages_(pages) {}
  LogitsView extend(std::span<const SlotNodes> nodes) {
    std::int32_t wanted = 0;
    for (std::int32_t slot = 0; slot < slots(); ++slot)
      wanted += (size(slot) + 3) / 4;  // committed and queued
    for (const SlotNodes& own : nodes) wanted += (static_cast<std::int32_t>(own.tokens.size()) + 3) / 4;
    if (wanted > pages_ && ++refused)
      throw NoRoom(std::to_string(wanted) + " pages are needed, and there are " + std::to_string(pages_));
    return Model::extend(nodes);
  }
  std::int64_t refused = 0;  // passes

 private:
  std::int32_t pages_;
};

/// Something urgent is written before `other` goes on, which has lost nothing: its tokens, its draws and its
/// statistics stay; what the models held of it is computed again.
template <class Batch>
Texts preempt(Batch& batch, TextId other, TextRequest urgent) {
  Texts texts;
  batch.pause(other);
  const TextId first = batch.join(std::move(urgent));
  while (!texts.contains(first))
    for (const TextResult& text : batch.step()) texts[text.id] = text.tokens;
  batch.resume(other);
  while (!batch.empty())
    for (const TextResult& text : batch.step()) texts[text.id] = text.tokens;
  return texts;
}

/// While a long prompt is read, chunk() tokens a pass, the texts that are being written get tokens in every
/// step. Returns how many steps that took.
template <class Batch>
int read_beside(Batch& batch, TextRequest long_prompt) {
  bool begun = false;
  long_prompt.sink = [&](Tokens) { return begun = true; };
  batch.join(std::move(long_prompt));
  int steps = 0;
  while (!begun) batch.step(), ++steps;
  return steps;
}

/// A client leaves. Its sink says so with the next tokens; cancel() also ends a text that waits for a slot,
/// or whose prompt is being read. The result has the tokens so far.
template <class Batch>
std::vector<Token> written_before(Batch& batch, TextId id, const std::function<bool()>& client_left) {
  while (true) {
    if (client_left()) batch.cancel(id);
    for (const TextResult& text : batch.step())
      if (text.id == id) return text.tokens;
  }
}

/// n answers to one prompt: a seed for all, a sequence for each. The prompt is read once, where the models
/// can fork().
template <class Batch>
std::vector<std::vector<Token>> samples(Batch& batch, const TextRequest& asked, std::uint32_t n) {
  std::map<TextId, std::uint32_t> number;
  for (std::uint32_t i = 0; i < n; ++i) {
    TextRequest one = asked;
    one.seed = 42, one.sequence = i;
    number[batch.join(std::move(one))] = i;
  }
  std::vector<std::vector<Token>> texts(n);
  while (!batch.empty())
    for (const TextResult& text : batch.step()) texts[number.at(text.id)] = text.tokens;
  return texts;
}

/// Parameters of one text: temperature, filters and stop tokens are its request's. What rewrites logits is
/// set when the text gets a slot, here in `rules`, one for each slot, which the slots' Processed refer to.
TextRequest request_of(std::vector<Token> prompt, const Banned& banned, std::vector<Banned>& rules) {
  TextRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = 16;
  request.params = {.temperature = 0.7f, .top_p = 0.9f};
  request.stop = {6};
  request.enter = [&rules, banned](std::int32_t slot) { rules[static_cast<std::size_t>(slot)] = banned; };
  return request;
}

/// A pass of the target fails: step() throws, and no text has changed, so the next one repeats the round. Who
/// gives up cancels the texts; those get what they have.
template <class Batch>
Texts with_retries(Batch& batch, int retries) {
  Texts texts;
  while (!batch.empty()) {
    try {
      for (const TextResult& text : batch.step()) texts[text.id] = text.tokens;
    } catch (const std::exception&) {
      if (retries-- == 0) throw;
    }
  }
  return texts;
}

/// Structured output: a processor that allows what may follow a path. It is a function of the path alone, so
/// it is right for every node of a tree, and after every rollback. Here: a digit of 1 to 3 after each 0, and
/// nothing but a 0 after each digit.
struct Pairs {
  std::size_t from = 0;  // the prompt's length
  void operator()(Tokens path, std::span<float> row) const {
    const bool digit = path.size() > from && path.back() == 0;
    for (std::size_t token = 0; token < row.size(); ++token)
      if (digit ? token < 1 || token > 3 : token != 0) row[token] = -std::numeric_limits<float>::infinity();
  }
};

/// What a server exports of texts that have ended.
struct Exported {
  Stats all;
  std::int64_t texts = 0, failed = 0;
  void add(const TextResult& text) {
    all += text.stats;
    ++texts;
    failed += text.failure != nullptr;
  }
  std::string lines() const {
    const auto line = [](const char* name, double value) {
      return std::string(name) + ' ' + std::to_string(value) + '\n';
    };
    return line("texts_total", static_cast<double>(texts)) +
           line("texts_failed_total", static_cast<double>(failed)) +
           line("tokens_total", static_cast<double>(all.new_tokens)) + line("tokens_per_pass", all.mat()) +
           line("first_draft_token_accepted", all.acceptance(1)) +
           line("library_share", all.overhead_share());
  }
};

/// Several targets in a process: a batch each, in turn. Each has its own budget, since costs are a model's.
template <class... Batches>
std::vector<Texts> write_all(Batches&... batches) {
  std::vector<Texts> texts(sizeof...(batches));
  const auto step = [](auto& batch, Texts& own) {
    if (!batch.empty())
      for (const TextResult& text : batch.step()) own[text.id] = text.tokens;
  };
  while (!(batches.empty() && ...)) {
    std::size_t i = 0;
    (step(batches, texts[i++]), ...);
  }
  return texts;
}

// ---- what they run on

/// A pipeline for each slot of two models.
template <class Target = Model>
struct Slots {
  Target& target;
  Model draft;
  std::deque<SlotOf<Target>> targets;
  std::deque<SlotOf<Model>> drafts;
  explicit Slots(Target& t) : target(t), draft(t.slots(), 7, 5) {
    for (std::int32_t slot = 0; slot < target.slots(); ++slot) {
      targets.emplace_back(target, slot);
      drafts.emplace_back(draft, slot);
    }
  }
  auto make(std::int32_t slot) {
    const auto s = static_cast<std::size_t>(slot);
    return Speculator{TreeVerifier{targets[s], Sampling{}}, ModelDrafter{drafts[s]}, Chain<>{.length = 2}};
  }
  auto batch() {
    return BatchSpeculator{target.slots(), [this](std::int32_t slot) { return make(slot); }, draft, target};
  }
};
TextRequest asked(Token first, std::int32_t tokens = 16) {
  TextRequest request;
  request.prompt = {first, 1, 2};
  request.max_new_tokens = tokens;
  request.seed = 3;
  return request;
}
/// What a text is alone.
std::vector<Token> alone(TextRequest request) {
  request.sink = {}, request.enter = {};
  Model target(1, 7, 5);
  Slots own(target);
  auto batch = own.batch();
  batch.join(std::move(request));
  std::vector<Token> tokens;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) tokens = text.tokens;
  return tokens;
}

}  // namespace

TEST_CASE("pages: texts that make room for others lose nothing") {
  Paged target(4, 14);
  Slots own(target);
  auto batch = own.batch();
  for (Token first = 0; first < 6; ++first) batch.join(asked(first, 20));
  Texts texts;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      CHECK(!text.failure);
      texts[text.id] = text.tokens;
    }
  CHECK(target.refused > 0);
  for (Token first = 0; first < 6; ++first)
    CHECK(texts.at(static_cast<TextId>(first) + 1) == alone(asked(first, 20)));
}

TEST_CASE("preemption: the urgent text comes first, the other is what it is alone") {
  Model target(1, 7, 5);
  Slots own(target);
  auto batch = own.batch();
  const TextId other = batch.join(asked(1));
  batch.step();
  const Texts texts = preempt(batch, other, asked(2));
  CHECK(texts.at(other) == alone(asked(1)));
  CHECK(texts.at(other + 1) == alone(asked(2)));
}

TEST_CASE("chunks: a text gets tokens while a long prompt is read") {
  Model target(2, 7, 5, /*chunk*/ 4, /*capacity*/ 128);
  Slots own(target);
  auto batch = own.batch();
  int beside = 0;
  TextRequest text = asked(1, 40);
  text.sink = [&](Tokens) { return ++beside > 0; };
  batch.join(std::move(text));
  batch.step();
  TextRequest other = asked(2);
  other.prompt.assign(40, 3);
  beside = 0;
  const int steps = read_beside(batch, std::move(other));
  CHECK(steps >= 10);
  CHECK(beside == steps);
}

TEST_CASE("cancellation: what was written until then") {
  Model target(1, 7, 5);
  Slots own(target);
  auto batch = own.batch();
  int asked_for = 0;
  const TextId id = batch.join(asked(1, 40));
  const std::vector<Token> tokens = written_before(batch, id, [&] { return ++asked_for > 3; });
  const std::vector<Token> all = alone(asked(1, 40));
  CHECK(tokens.size() >= 3);
  CHECK(tokens.size() < all.size());
  CHECK(std::equal(tokens.begin(), tokens.end(), all.begin()));
  CHECK(batch.empty());
  const TextId running = batch.join(asked(1)), waits = batch.join(asked(2));
  CHECK(written_before(batch, waits, [] { return true; }).empty());
  CHECK(written_before(batch, running, [] { return false; }) == alone(asked(1)));
}

TEST_CASE("seeds: samples differ, and are the same again") {
  Model target(3, 7, 5);
  Slots own(target);
  auto batch = own.batch();
  const auto texts = samples(batch, asked(1), 5);
  CHECK(std::count(texts.begin(), texts.end(), texts[0]) < 5);
  CHECK(samples(batch, asked(1), 5) == texts);
  TextRequest third = asked(1);
  third.seed = 42, third.sequence = 3;
  CHECK(texts[3] == alone(third));
}

TEST_CASE("parameters of each text: none has what is banned in it, others do") {
  Model target(2, 7, 5), draft(2, 7, 5);
  std::vector<Banned> rules(2);
  using Masked = Processed<SlotOf<Model>, std::reference_wrapper<const Banned>>;
  std::deque<SlotOf<Model>> slots;
  std::deque<Masked> models;
  const auto in = [&](Model& model, std::int32_t slot) -> Masked& {
    return models.emplace_back(slots.emplace_back(model, slot),
                               std::cref(rules[static_cast<std::size_t>(slot)]));
  };
  BatchSpeculator batch{2,
                        [&](std::int32_t slot) {
                          return Speculator{TreeVerifier{in(target, slot), Sampling{}},
                                            ModelDrafter{in(draft, slot)}, Chain<>{.length = 2}};
                        },
                        draft, target};
  for (Token token = 0; token < 6; ++token) batch.join(request_of({token, 1}, Banned{{token}}, rules));
  std::size_t others = 0;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      const auto token = static_cast<Token>(text.id - 1);
      CHECK(!text.failure);
      CHECK(std::count(text.tokens.begin(), text.tokens.end(), token) == 0);
      others += static_cast<std::size_t>(std::count(text.tokens.begin(), text.tokens.end(), (token + 1) % 6));
    }
  CHECK(others > 0);
}

TEST_CASE("a failing pass: the round is repeated, and the texts are those of a target that does not fail") {
  for (const int fails : {2, 5}) {
    Model target(2, 7, 5);
    Slots own(target);
    auto batch = own.batch();
    const TextId one = batch.join(asked(1)), other = batch.join(asked(2));
    target.throw_pass = fails;
    const Texts texts = with_retries(batch, 1);
    CHECK(texts.at(one) == alone(asked(1)));
    CHECK(texts.at(other) == alone(asked(2)));
  }
  Model target(1, 7, 5);
  Slots own(target);
  auto batch = own.batch();
  batch.join(asked(1));
  target.throw_pass = 2;
  CHECK_THROWS_WITH(with_retries(batch, 0), "the pass failed");
}

TEST_CASE("structured output: pairs, and nothing else") {
  Model target(2, 7, 5), draft(2, 7, 5);
  std::deque<SlotOf<Model>> slots;
  std::deque<Processed<SlotOf<Model>, Pairs>> models;
  const auto in = [&](Model & model, std::int32_t slot) -> auto& {
    return models.emplace_back(slots.emplace_back(model, slot), Pairs{3});
  };
  BatchSpeculator batch{2,
                        [&](std::int32_t slot) {
                          return Speculator{TreeVerifier{in(target, slot), Sampling{}},
                                            ModelDrafter{in(draft, slot)}, Chain<>{.length = 3}};
                        },
                        draft, target};
  for (Token first = 0; first < 4; ++first) batch.join(asked(first));
  std::int64_t digits[7] = {};
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      REQUIRE(text.tokens.size() == 16);
      for (std::size_t i = 0; i < 16; ++i) {
        CHECK((text.tokens[i] == 0) == (i % 2 == 0));
        ++digits[text.tokens[i]];
      }
    }
  CHECK(digits[0] == 32);
  CHECK(digits[1] + digits[2] + digits[3] == 32);
}

TEST_CASE("metrics: their sums are those of the texts") {
  Model target(2, 7, 5);
  Slots own(target);
  auto batch = own.batch();
  for (Token first = 0; first < 4; ++first) batch.join(asked(first));
  Exported out;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) out.add(text);
  CHECK(out.lines().find("texts_total 4.0") == 0);
  CHECK(out.lines().find("tokens_total 64.0") != std::string::npos);
  CHECK(out.all.mat() > 1);
}

TEST_CASE("several models: each batch writes its own texts") {
  Model one(1, 7, 5), two(2, 7, 9);
  Slots first(one), second(two);
  auto some = first.batch(), others = second.batch();
  some.join(asked(1));
  for (Token token = 0; token < 3; ++token) others.join(asked(token));
  const std::vector<Texts> texts = write_all(some, others);
  CHECK(texts[0].at(1) == alone(asked(1)));
  CHECK(texts[1].size() == 3);
}
