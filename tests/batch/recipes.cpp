// SPDX-License-Identifier: MIT
// The recipes of docs/server.md, which quotes their functions: each does what the page says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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
    for (const SlotNodes& slot_nodes : nodes)
      wanted += (static_cast<std::int32_t>(slot_nodes.tokens.size()) + 3) / 4;
    if (wanted > pages_ && ++refused)
      throw NoRoom(std::to_string(wanted) + " pages are needed, and there are " + std::to_string(pages_));
    return Model::extend(nodes);
  }
  std::int64_t refused = 0;  // passes

 private:
  std::int32_t pages_;
};

/// Adds what has ended in a step.
template <class Batch>
void step(Batch& batch, Texts& texts) {
  for (const TextResult& text : batch.step()) texts[text.id] = text.tokens;
}

/// Something urgent takes the slot of `other`, which loses nothing: its tokens, its draws and its statistics
/// stay; what the models held of it is computed again. Texts that wait in the batch would come first: a
/// server with priorities keeps those in a queue of its own, and joins what is to begin.
template <class Batch>
Texts preempt(Batch& batch, TextId other, TextRequest urgent) {
  Texts texts;
  batch.pause(other);
  const TextId first = batch.join(std::move(urgent));
  while (!texts.contains(first)) step(batch, texts);
  batch.resume(other);
  while (!batch.empty()) step(batch, texts);
  return texts;
}

/// While a long prompt is read, chunk() tokens per pass, the texts that are being written get tokens in every
/// step. Returns how many steps that took.
template <class Batch>
int read_beside(Batch& batch, TextRequest long_prompt, Texts& texts) {
  const auto begun = std::make_shared<bool>(false);
  long_prompt.sink = [begun](Tokens) { return *begun = true; };
  const TextId id = batch.join(std::move(long_prompt));
  int steps = 0;
  while (!*begun && !texts.contains(id)) step(batch, texts), ++steps;
  return steps;
}

/// A client leaves. Its sink says so with the next tokens; cancel() also ends a text that waits for a slot,
/// or whose prompt is being read. The result has the tokens so far.
template <class Batch>
void write_while(Batch& batch, TextId id, const std::function<bool()>& client_waits, Texts& texts) {
  while (!texts.contains(id)) {
    if (!client_waits()) batch.cancel(id);
    step(batch, texts);
  }
}

/// n answers to one prompt: a seed for all, a sequence for each. A prompt that is longer than a chunk is read
/// once, where the models can fork().
template <class Batch>
std::vector<std::vector<Token>> samples(Batch& batch, const TextRequest& asked, std::uint32_t n) {
  std::vector<TextId> ids;
  for (std::uint32_t i = 0; i < n; ++i) {
    TextRequest one = asked;
    one.seed = 42, one.sequence = i;
    ids.push_back(batch.join(std::move(one)));
  }
  Texts texts;
  while (!batch.empty()) step(batch, texts);
  std::vector<std::vector<Token>> out;
  for (const TextId id : ids) out.push_back(texts[id]);
  return out;
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

/// A pass of the target fails: step() throws, and no text has changed, so the next one repeats the round.
/// After so many failures in a row the texts are given up; each has the tokens that it got.
template <class Batch>
Texts with_retries(Batch& batch, const std::vector<TextId>& ids, int retries) {
  Texts texts;
  for (int failed = 0; !batch.empty();) {
    try {
      step(batch, texts);
      failed = 0;
    } catch (const std::exception&) {
      if (++failed <= retries) continue;
      for (const TextId id : ids) batch.cancel(id);
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

/// Several targets in a process: a batch each, in turn. Costs are a model's, so a budget is a batch's.
template <class... Batches>
std::vector<Texts> write_in_turn(Batches&... batches) {
  (batches.share(BatchBudget()), ...);
  std::vector<Texts> texts(sizeof...(batches));
  while (!(batches.empty() && ...)) {
    std::size_t i = 0;
    (step(batches, texts[i++]), ...);  // does nothing for one that is empty
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
/// What a text is alone, by a model of this seed.
std::vector<Token> alone(TextRequest request, std::uint64_t model = 5) {
  request.sink = {}, request.enter = {};
  Model target(1, 7, model);
  Slots slots(target);
  auto batch = slots.batch();
  batch.join(std::move(request));
  Texts texts;
  while (!batch.empty()) step(batch, texts);
  return texts.begin()->second;
}

}  // namespace

TEST_CASE("pages: texts that make room for others lose nothing") {
  Paged target(4, 14);
  Slots slots(target);
  auto batch = slots.batch();
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
  Slots slots(target);
  auto batch = slots.batch();
  const TextId other = batch.join(asked(1));
  batch.step();
  const Texts texts = preempt(batch, other, asked(2));
  CHECK(texts.at(other) == alone(asked(1)));
  CHECK(texts.at(other + 1) == alone(asked(2)));
}

TEST_CASE("chunks: a text gets tokens while a long prompt is read") {
  Model target(2, 7, 5, /*chunk*/ 4, /*capacity*/ 128);
  Slots slots(target);
  auto batch = slots.batch();
  int beside = 0;
  TextRequest text = asked(1, 40);
  text.sink = [&](Tokens) { return ++beside > 0; };
  batch.join(std::move(text));
  batch.step();
  TextRequest other = asked(2);
  other.prompt.assign(40, 3);
  beside = 0;
  Texts texts;
  const int steps = read_beside(batch, std::move(other), texts);
  CHECK(steps >= 10);
  CHECK(beside == steps);
  CHECK(texts.empty());
  while (!batch.empty()) step(batch, texts);
  CHECK(texts.at(1) == alone(asked(1, 40)));
  CHECK(texts.at(2).size() == 16);
  TextRequest too_long = asked(3);
  too_long.prompt.assign(500, 3);
  read_beside(batch, std::move(too_long), texts);
  CHECK(texts.at(3).empty());
}

TEST_CASE("cancellation: what was written until then, and nothing of others is lost") {
  Model target(1, 7, 5);
  Slots slots(target);
  auto batch = slots.batch();
  int left = 3;
  Texts texts;
  const TextId id = batch.join(asked(1, 40)), next = batch.join(asked(2));
  write_while(
      batch, id, [&] { return --left >= 0; }, texts);
  const std::vector<Token> all = alone(asked(1, 40));
  CHECK(texts.at(id).size() >= 3);
  CHECK(texts.at(id).size() < all.size());
  CHECK(std::equal(texts.at(id).begin(), texts.at(id).end(), all.begin()));
  const TextId waits = batch.join(asked(3));
  write_while(
      batch, waits, [] { return false; }, texts);
  CHECK(texts.at(waits).empty());
  write_while(
      batch, next, [] { return true; }, texts);
  CHECK(texts.at(next) == alone(asked(2)));
}

TEST_CASE("seeds: samples differ, are the same again, and their prompt is read once") {
  Model target(3, 7, 5, /*chunk*/ 4);
  Slots slots(target);
  auto batch = slots.batch();
  TextRequest one = asked(1);
  one.prompt = {1, 1, 2, 3, 1, 4, 2, 2, 0, 5, 1, 3};
  const auto texts = samples(batch, one, 3);
  CHECK(target.forked > 0);
  CHECK(std::count(texts.begin(), texts.end(), texts[0]) < 3);
  CHECK(samples(batch, one, 3) == texts);
  one.seed = 42, one.sequence = 2;
  CHECK(texts[2] == alone(one));
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
    Slots slots(target);
    auto batch = slots.batch();
    const TextId one = batch.join(asked(1)), other = batch.join(asked(2));
    target.throw_pass = fails;
    const Texts texts = with_retries(batch, {one, other}, 1);
    CHECK(texts.at(one) == alone(asked(1)));
    CHECK(texts.at(other) == alone(asked(2)));
  }
  Model target(1, 7, 5);
  Slots slots(target);
  auto batch = slots.batch();
  const TextId id = batch.join(asked(1));
  target.throw_pass = 4;
  const std::vector<Token> some = with_retries(batch, {id}, 0).at(id), all = alone(asked(1));
  CHECK(some.size() >= 3);
  CHECK(some.size() < all.size());
  CHECK(std::equal(some.begin(), some.end(), all.begin()));
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
  Slots slots(target);
  auto batch = slots.batch();
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
  const std::vector<Texts> texts = write_in_turn(some, others);
  CHECK(texts[0].at(1) == alone(asked(1)));
  for (Token token = 0; token < 3; ++token)
    CHECK(texts[1].at(static_cast<TextId>(token) + 1) == alone(asked(token), 9));
}
