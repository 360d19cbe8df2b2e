// SPDX-License-Identifier: MIT
// Texts in a batch whose drafts read the target's state, keys and values (Glide) or features (FeatureHead):
// bitwise those alone, under random schedules.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <specula/any.hpp>
#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "conditioned_batch.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula_test;

namespace {

static_assert(BatchedLanguageModel<SeenBatch> && BatchedLanguageModel<DraftBatch<ToyGlide>>);
static_assert(ExposesKeyValues<SlotOf<SeenBatch>> && ExposesFeatures<SlotOf<SeenBatch>>);
static_assert(specula::MergesPasses<GlideInBatch::Draft> && specula::MergesPasses<HeadInBatch::Draft>);

struct Text {
  std::vector<Token> tokens;
  FinishReason reason = FinishReason::cancelled;
  std::int64_t rounds = 0, proposed = 0;
  std::vector<std::int64_t> accepted;
  bool operator==(const Text&) const = default;
};

/// A schedule: models, shape, requests and what happens, all drawn from a seed.
template <class Kind, ProposalKind kind>
class Schedule {
 public:
  Schedule(std::uint64_t seed, bool drafts_fail) : random_(seed), drafts_fail_(drafts_fail) {
    vocab_ = 3 + random_.below(4);
    slots_ = 1 + random_.below(4);
    capacity_ = random_.bernoulli(0.3) ? 12 + random_.below(12) : 64;
    const std::int32_t chunks[] = {1, 2, 3, 7, 1000};
    chunk_ = chunks[random_.below(5)], draft_chunk_ = chunks[random_.below(5)];
    rule_ = random_.bernoulli(0.3) ? RuleName::match : RuleName::sampling;
    temperature_ = drafts_fail || random_.bernoulli(0.2) ? 0.0f : 0.8f;
    shape_ = random_.below(3);
  }

  /// Plays it. The number of texts that were compared; those that are not as alone fail a check.
  std::int64_t run() {
    Models models(*this, slots_, chunk_, draft_chunk_);
    BatchSpeculator batch(
        slots_, [&](std::int32_t slot) { return make(models, slot); }, models.draft, models.target);
    std::map<TextId, TextRequest> asked;
    std::vector<std::vector<Token>> written;  // texts to go on with
    std::int64_t compared = 0;
    for (int step = 0, joined = 0; joined < 8 || !batch.empty(); ++step) {
      REQUIRE(step < 4000);
      while (joined < 8 && random_.bernoulli(0.4)) {
        TextRequest request = next(joined++, written);
        const TextId id = batch.join(request);
        asked.emplace(id, std::move(request));
      }
      if (random_.bernoulli(0.03) && !asked.empty())
        batch.cancel(1 + static_cast<TextId>(random_.below(static_cast<std::int32_t>(asked.size()))));
      if (random_.bernoulli(0.05)) models.target.throw_pass = models.target.passes + 1;
      if (drafts_fail_ && random_.bernoulli(0.05)) models.draft.throw_pass = models.draft.passes + 1;
      try {
        for (const TextResult& text : batch.step()) {
          const TextRequest& request = asked.at(text.id);
          const Text want = alone(request);
          Text have{text.tokens, text.reason, text.stats.rounds, text.stats.proposed, text.stats.accepted};
          CHECK(!text.failure);
          if (text.reason == FinishReason::cancelled) {
            CHECK(have.tokens.size() <= want.tokens.size());
            CHECK(std::equal(have.tokens.begin(), have.tokens.end(), want.tokens.begin()));
          } else if (drafts_fail_) {
            CHECK(have.tokens == want.tokens);
          } else {
            CHECK(have == want);
          }
          ++compared;
          accepted += have.rounds == 0 ? 0 : static_cast<std::int64_t>(have.tokens.size()) - have.rounds;
          written.push_back(request.prompt);
          written.back().insert(written.back().end(), text.tokens.begin(), text.tokens.end());
        }
      } catch (const std::runtime_error&) {
        ++failed;
      }
    }
    forked += models.draft.forked;
    failed_drafts += models.draft.throw_pass > 0 && models.draft.throw_pass <= models.draft.passes;
    return compared;
  }
  std::int64_t accepted = 0, forked = 0, failed = 0, failed_drafts = 0;

 private:
  struct Models {
    Models(const Schedule& s, std::int32_t slots, std::int32_t chunk, std::int32_t draft_chunk)
        : target(slots, s.vocab_, 3, chunk, s.capacity_),
          draft(slots, s.vocab_, 3, draft_chunk, s.capacity_) {
      for (std::int32_t i = 0; i < slots; ++i) targets.emplace_back(target, i), drafts.emplace_back(draft, i);
    }
    SeenBatch target;
    typename Kind::Batch draft;
    std::vector<SlotOf<SeenBatch>> targets;
    std::vector<SlotOf<typename Kind::Batch>> drafts;
  };
  using Shape = AnyShape<typename Kind::Draft, kind>;

  Shape shape() const {
    if constexpr (kind == ProposalKind::deterministic) {
      if (shape_ == 0) return Shape(DynamicTree{.top_k = 2, .expansions = 2, .total = 5});
      if (shape_ == 1) return Shape(StaticTree<>{.form = {{0}, {1}, {0, 0}, {0, 1}}});
      return Shape(Chain<>{.length = 4});
    } else {
      return Shape(Chain<Draw::sampled>{.length = 1 + shape_, .exit_below = shape_ == 1 ? 0.3f : 0.0f});
    }
  }
  auto make(Models& models, std::int32_t slot) const {
    const auto s = static_cast<std::size_t>(slot);
    return Speculator{TreeVerifier{models.targets[s], AnyRule<kind>(rule_)},
                      typename Kind::Draft{models.drafts[s], models.targets[s]}, shape()};
  }
  Text alone(const TextRequest& request) const {
    Models models(*this, 1, 1000, 1000);
    auto run = make(models, 0);
    run.verifier().set_params(request.params);
    PhiloxRandom rng{request.seed.value(), request.sequence.value()};
    Text out;
    out.reason =
        run.generate(request.prompt, {request.max_new_tokens, request.stop}, rng,
                     [&](Tokens fresh) { out.tokens.insert(out.tokens.end(), fresh.begin(), fresh.end()); })
            .reason;
    out.rounds = run.stats().rounds, out.proposed = run.stats().proposed, out.accepted = run.stats().accepted;
    return out;
  }
  /// A prompt of its own, one that begins as others do, or a text that has ended and goes on.
  TextRequest next(int index, const std::vector<std::vector<Token>>& written) {
    TextRequest request;
    const int from = random_.below(3);
    if (from == 0 && !written.empty()) {
      request.prompt =
          written[static_cast<std::size_t>(random_.below(static_cast<std::int32_t>(written.size())))];
      request.prompt.resize(
          std::min<std::size_t>(request.prompt.size(), static_cast<std::size_t>(capacity_ - 4)));
    } else if (from == 1) {
      for (Token t = 0; t < 8; ++t) request.prompt.push_back(t * t % vocab_);
    }
    for (int i = 1 + random_.below(3); i > 0; --i) request.prompt.push_back(random_.below(vocab_));
    request.max_new_tokens = 1 + random_.below(20);
    request.params.temperature = temperature_;
    if (random_.bernoulli(0.3)) request.stop = {random_.below(vocab_)};
    request.seed = random_.bits();
    request.sequence = static_cast<std::uint32_t>(index);
    return request;
  }

  Random random_;
  bool drafts_fail_;
  std::int32_t vocab_, slots_, capacity_, chunk_, draft_chunk_;
  RuleName rule_;
  float temperature_;
  int shape_;
};

template <class Kind, ProposalKind kind>
void play(bool drafts_fail = false) {
  std::int64_t compared = 0, accepted = 0, forked = 0, failed = 0, failed_drafts = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Schedule<Kind, kind> schedule(seed, drafts_fail);
    compared += schedule.run();
    accepted += schedule.accepted, forked += schedule.forked, failed += schedule.failed;
    failed_drafts += schedule.failed_drafts;
  }
  CHECK(compared == 40 * 8);
  CHECK(accepted > 300);
  CHECK(forked > 200);
  CHECK(failed > 20);
  CHECK((failed_drafts > 10) == drafts_fail);
}

}  // namespace

TEST_CASE_TEMPLATE("texts with a draft that reads the target's state are those alone, in random schedules",
                   Kind, GlideInBatch, HeadInBatch) {
  play<Kind, ProposalKind::sampled>();
  play<Kind, ProposalKind::deterministic>();
}

TEST_CASE_TEMPLATE("with passes of the draft that fail, their tokens are those alone", Kind, GlideInBatch,
                   HeadInBatch) {
  play<Kind, ProposalKind::deterministic>(true);
}

namespace {

/// A target whose texts hold at most `limit` tokens and nodes together.
class SmallSeenBatch : public SeenBatch {
 public:
  using SeenBatch::SeenBatch;
  ToyKeyValues key_values(std::int32_t slot) {
    const SlotNodes queue{slot};
    expect_room({&queue, 1});
    return SeenBatch::key_values(slot);
  }
  LogitsView extend(std::span<const SlotNodes> nodes) {
    expect_room(nodes);
    return SeenBatch::extend(nodes);
  }
  std::int32_t limit = 1000;

 private:
  void expect_room(std::span<const SlotNodes> nodes) const {
    std::int32_t held = 0;
    for (std::int32_t s = 0; s < slots(); ++s) held += size(s) - queued(s);
    for (const SlotNodes& slot_nodes : nodes)
      held += queued(slot_nodes.slot) + static_cast<std::int32_t>(slot_nodes.tokens.size());
    if (held > limit) throw NoRoom("no room for " + std::to_string(held));
  }
};

}  // namespace

TEST_CASE(
    "a prompt that such a draft reads where there is no room: ended texts give up theirs, then it waits") {
  using Batch = DraftBatch<ToyGlide>;
  constexpr std::int32_t kSlots = 3;
  SmallSeenBatch target(kSlots, 5, 3, 1000, 64);
  Batch draft(kSlots, 5, 3, 1000, 64);
  std::vector<SlotOf<SmallSeenBatch>> targets;
  std::vector<SlotOf<Batch>> drafts;
  for (std::int32_t i = 0; i < kSlots; ++i) targets.emplace_back(target, i), drafts.emplace_back(draft, i);
  BatchSpeculator batch(
      kSlots,
      [&](std::int32_t slot) {
        const auto s = static_cast<std::size_t>(slot);
        return Speculator{TreeVerifier{targets[s], Sampling{}},
                          Glide<SlotOf<Batch>, SlotOf<SmallSeenBatch>>{drafts[s], targets[s]},
                          Chain<>{.length = 2}};
      },
      draft, target);
  const auto join = [&](Token first, std::int32_t tokens) {
    return batch.join({.prompt = std::vector<Token>(20, first),
                       .max_new_tokens = tokens,
                       .params = {.temperature = 0},
                       .seed = 1});
  };
  const auto write = [&] {
    std::vector<TextResult> all;
    while (!batch.empty())
      for (const TextResult& text : batch.step()) all.push_back(text);
    return all;
  };
  join(1, 6), join(2, 20), join(3, 2), join(4, 6);
  const auto want = write();  // with room for all
  REQUIRE(want.size() == 4);
  const auto expect_same = [&](const TextResult& have, std::size_t text) {
    CHECK(!have.failure);
    CHECK(have.stats.failed_drafts == 0);
    for (const TextResult& one : want)
      if (one.id == text) CHECK(have.tokens == one.tokens);
  };

  join(1, 6);
  write();  // it stays in its slot
  const TextId second = join(2, 20);
  batch.step();
  target.limit = 62;
  const TextId third = join(3, 2);
  std::vector<TextResult> ended = batch.step();
  CHECK(batch.queued() == 0);  // the ended one gave up its room
  while (batch.running() == 2)
    for (const TextResult& text : batch.step()) ended.push_back(text);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == third);
  expect_same(ended[0], 3);
  target.limit = 36;  // neither does the prompt fit now, nor would its text later
  const TextId fourth = join(4, 6);
  batch.step();
  target.limit = 45;
  CHECK(batch.running() == 1);
  CHECK(batch.queued() == 1);  // it waits for the end of the second
  ended = write();
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].id == second);
  expect_same(ended[0], 2);
  CHECK(ended[1].id == fourth);
  expect_same(ended[1], 4);
  target.limit = 15;
  join(1, 2);
  ended = write();  // it does not fit alone
  REQUIRE(ended.size() == 1);
  REQUIRE(ended[0].failure);
  CHECK_THROWS_AS(std::rethrow_exception(ended[0].failure), NoRoom);
}
