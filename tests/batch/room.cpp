// SPDX-License-Identifier: MIT
// Room: texts that pause, or make room for others, go on as if they had not.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/batch.hpp>
#include <specula/specula.hpp>

#include "batch_scene.hpp"
#include "paged_batch.hpp"

using namespace specula;
using specula_test::BatchModels;
using specula_test::PagedBatch;
using specula_test::write_all;
using specula_test::WrittenText;

namespace {

/// Every text is paused after each of its rounds up to `pauses` times, in turn, and resumed some steps later.
template <class Rule, class Shape>
void pauses_change_nothing(Rule rule, Shape shape, float temperature) {
  const std::vector<TextRequest> all = specula_test::scene_requests(7, temperature);
  for (const std::int32_t slots : {1, 3})
    for (const std::int32_t chunk : {1000, 3}) {
      CAPTURE(slots);
      CAPTURE(chunk);
      BatchModels<> models(slots, chunk);
      BatchSpeculator batch(slots, models.each(rule, shape), models.draft, models.target);
      for (const TextRequest& request : all) batch.join(request);
      int paused = 0;
      std::set<TextId> waiting;
      auto texts = write_all(batch, [&](int step) {
        const auto id = static_cast<TextId>(step) % all.size() + 1;
        if (step % 4 == 3) {
          for (const TextId waiting_id : waiting) CHECK(batch.resume(waiting_id));
          waiting.clear();
        } else if (paused < 40 && !batch.text(id).empty() && batch.pause(id)) {
          ++paused;
          waiting.insert(id);
          CHECK(batch.paused() == static_cast<std::int32_t>(waiting.size()));
        }
        if (batch.empty())
          for (const TextId waiting_id : std::exchange(waiting, {})) batch.resume(waiting_id);
      });
      CHECK(paused > 5);
      REQUIRE(texts.size() == all.size());
      for (std::size_t i = 0; i < all.size(); ++i)
        CHECK(texts.at(i + 1) == specula_test::written_alone(all[i], rule, shape));
    }
}
std::string reason_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const NoRoom& e) {
    return e.what();
  }
}
/// A target that has too few pages for all, a draft that has enough; a page holds four tokens.
struct Paged {
  explicit Paged(std::int32_t slots, std::int32_t pages, std::int32_t chunk = 1000,
                 std::int32_t draft_pages = 1000)
      : target(slots, specula_test::kSceneVocab, 3, pages, chunk),
        draft(slots, specula_test::kSceneVocab, 4, draft_pages, chunk) {
    for (std::int32_t s = 0; s < slots; ++s) targets.emplace_back(target, s), drafts.emplace_back(draft, s);
  }
  template <class Rule, class Shape>
  auto each(Rule rule, Shape shape) {
    return [this, rule, shape](std::int32_t slot) {
      const auto s = static_cast<std::size_t>(slot);
      return Speculator{TreeVerifier{targets[s], rule}, ModelDrafter{drafts[s]}, shape};
    };
  }
  PagedBatch target, draft;
  std::vector<SlotOf<PagedBatch>> targets, drafts;
};

}  // namespace

TEST_CASE("a text that is paused and resumed is the one without, bit for bit, under every rule") {
  pauses_change_nothing(Sampling{}, Chain<>{.length = 3}, 0);
  pauses_change_nothing(Rejection{}, Chain<Draw::sampled>{.length = 3}, 1);
  pauses_change_nothing(Block{}, Chain<Draw::sampled>{.length = 3}, 1);
  pauses_change_nothing(Traversal{}, SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2}}, 1);
  pauses_change_nothing(KSeq{}, SampledTree<ProposalKind::sampled_iid>{.widths = {2, 1}}, 1);
  pauses_change_nothing(GumbelCoupling{}, Chain<Draw::shared>{.length = 3}, 1);
  pauses_change_nothing(SampleAndMatch{}, DynamicTree{.top_k = 2, .expansions = 2, .total = 5}, 1);
}

TEST_CASE("a paused text gives its slot and its pages back, and is counted, shown and cancelled") {
  Paged models(1, 100);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  const TextRequest request{.prompt = {1, 2, 3, 4, 0, 1},
                            .max_new_tokens = 30,
                            .params = {.temperature = 0},
                            .logprobs = LogprobOptions{}};
  const TextId first = batch.join(request), second = batch.join(request);
  batch.step();
  const Tokens text = batch.text(first);
  const std::vector<Token> before(text.begin(), text.end());
  REQUIRE(before.size() > 6);
  REQUIRE(batch.pause(first));
  CHECK(batch.pause(first));  // it is
  CHECK(models.target.size(0) == 0);
  CHECK(models.draft.size(0) == 0);
  CHECK(batch.running() == 0);
  CHECK(batch.paused() == 1);
  CHECK(batch.queued() == 1);
  CHECK(std::vector<Token>(batch.text(first).begin(), batch.text(first).end()) == before);
  CHECK_FALSE(batch.resume(second));  // it is not paused
  CHECK_FALSE(batch.pause(99));
  while (!batch.empty())
    for (const TextResult& ended : batch.step()) CHECK(ended.id == second);
  CHECK(batch.paused() == 1);
  CHECK(batch.step().empty());
  batch.cancel(first);
  CHECK_FALSE(batch.empty());
  const auto& ends = batch.step();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].tokens == std::vector<Token>(before.begin() + 6, before.end()));
  CHECK(ends[0].reason == FinishReason::cancelled);
  CHECK(ends[0].stats.rounds == 1);
  CHECK(ends[0].logprobs.size() == ends[0].tokens.size());
  CHECK(batch.paused() == 0);
}

TEST_CASE("resume() queues a text first; a queued text can be paused") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  for (int i = 0; i < 4; ++i) batch.join({.prompt = {1}, .max_new_tokens = 6, .params = {.temperature = 0}});
  batch.step();
  CHECK(batch.pause(1));
  CHECK(batch.pause(4));
  CHECK(batch.resume(4));
  CHECK(batch.resume(1));
  std::vector<TextId> order;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) order.push_back(text.id);
  CHECK(order == std::vector<TextId>{1, 4, 2, 3});
}

TEST_CASE("a sink may pause its text, which ends its round before") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  TextRequest request{.prompt = {1, 2}, .max_new_tokens = 20, .params = {.temperature = 1}, .seed = 3};
  const auto alone = specula_test::written_alone(request, Sampling{}, Chain<>{.length = 2});
  std::vector<Token> seen;
  TextId id = 0;
  request.sink = [&](Tokens fresh) {
    seen.insert(seen.end(), fresh.begin(), fresh.end());
    CHECK(batch.pause(id));
    return true;
  };
  id = batch.join(request);
  std::vector<Token> tokens;
  for (int step = 0; step < 100 && tokens.empty(); ++step) {
    for (const TextResult& text : batch.step()) tokens = text.tokens;
    if (tokens.empty()) {
      CHECK(batch.running() == 0);
      CHECK(batch.resume(id));
    }
  }
  CHECK(tokens == alone.tokens);
  CHECK(seen == tokens);
}

TEST_CASE("a text whose draft has failed goes on plainly after every pause") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Rejection{}, Chain<Draw::sampled>{.length = 2}), models.draft,
                        models.target);
  const TextId id = batch.join({.prompt = {1, 2}, .max_new_tokens = 20, .params = {.temperature = 1}});
  models.draft.throw_pass = 3;
  batch.step(), batch.step();
  const std::int64_t before = models.draft.passes;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(batch.pause(id));
    REQUIRE(batch.resume(id));
    batch.step();
  }
  while (!batch.empty())
    for (const TextResult& text : batch.step()) CHECK(text.stats.failed_drafts == 1);
  CHECK(models.draft.passes == before);
}

TEST_CASE("pages in common that run out: the youngest make room, come back, and all texts are those alone") {
  for (const std::int32_t chunk : {1000, 5})
    for (const std::int32_t pages : {14, 20, 40}) {
      CAPTURE(chunk);
      CAPTURE(pages);
      Paged models(8, pages, chunk);
      BatchSpeculator batch(8, models.each(Rejection{}, Chain<Draw::sampled>{.length = 4}), models.draft,
                            models.target);
      std::vector<TextRequest> all;
      for (std::uint32_t i = 0; i < 8; ++i)
        all.push_back({.prompt = {1, 2, 3, 4, 0, 1, 2, 3},
                       .max_new_tokens = 35,
                       .params = {.temperature = 1},
                       .seed = 5,
                       .sequence = i});
      int entered = 0;
      for (TextRequest request : all) {
        request.enter = [&](std::int32_t) { ++entered; };
        batch.join(request);
      }
      bool waited = false;
      const auto texts = write_all(batch, [&](int) {
        CHECK(batch.running() + batch.queued() <= 8);
        waited = waited || batch.queued() > 0;
      });
      CHECK(models.target.refused > 0);
      CHECK(waited);
      REQUIRE(texts.size() == 8);
      std::set<std::vector<Token>> different;
      for (std::size_t i = 0; i < 8; ++i) {
        CHECK(texts.at(i + 1) ==
              specula_test::written_alone(all[i], Rejection{}, Chain<Draw::sampled>{.length = 4}));
        different.insert(texts.at(i + 1).tokens);
      }
      CHECK(different.size() == 8);
      // No thrashing: a text comes back after another's end, so it is read again at most as often.
      CHECK(entered <= 8 + 7);
      CHECK(models.target.refused <= 2 * 8 + 8);
      CHECK(models.target.ran <= 8 * 8 + 8 * 45);
    }
}

TEST_CASE("texts that have ended in free slots make room before any text is paused") {
  Paged models(3, 13);
  BatchSpeculator batch(3, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  const TextRequest request{
      .prompt = {1, 2, 3, 4, 0, 1, 2, 3}, .max_new_tokens = 24, .params = {.temperature = 0}};
  batch.join(request);
  while (!batch.empty()) batch.step();
  CHECK(models.target.size(0) > 20);  // kept for a text that begins alike
  TextRequest other = request;
  other.prompt = {4, 4, 4, 4};
  batch.join(other);
  while (!batch.empty()) {
    batch.step();
    CHECK(batch.queued() == 0);
  }
  CHECK(models.target.refused > 0);
}

TEST_CASE("a text that does not fit alone ends with NoRoom, and the others do not") {
  for (const std::int32_t chunk : {1000, 5}) {
    Paged models(3, 12, chunk);
    BatchSpeculator batch(3, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
    const TextRequest fits{.prompt = {1, 2, 3}, .max_new_tokens = 12, .params = {.temperature = 0}};
    TextRequest large = fits, grows = fits;
    large.prompt.assign(60, 2);
    grows.max_new_tokens = 60;
    const std::vector<TextRequest> all{fits, large, grows, fits};
    for (const TextRequest& request : all) batch.join(request);
    int ended = 0, failed = 0;
    for (int step = 0; !batch.empty() && step < 1000; ++step)
      for (const TextResult& text : batch.step()) {
        ++ended;
        if (text.id == 1 || text.id == 4) {
          CHECK(!text.failure);
          CHECK(text.tokens.size() == 12);
          continue;
        }
        ++failed;
        REQUIRE(text.failure);
        CHECK(reason_of(text.failure).find("of 12 pages") != std::string::npos);
        if (text.id == 3) CHECK(text.tokens.size() > 20);  // what it has
      }
    CHECK(ended == 4);
    CHECK(failed == 2);
  }
}

TEST_CASE("a draft without room: the youngest make room; alone, a text goes on without its draft") {
  Paged models(4, 1000, 1000, 14);
  BatchSpeculator batch(4, models.each(Rejection{}, Chain<Draw::sampled>{.length = 3}), models.draft,
                        models.target);
  std::vector<TextRequest> all;
  for (std::uint32_t i = 0; i < 4; ++i)
    all.push_back(
        {.prompt = {1, 2, 3}, .max_new_tokens = 30, .params = {.temperature = 1}, .seed = 5, .sequence = i});
  for (const TextRequest& request : all) batch.join(request);
  const auto texts = write_all(batch);
  CHECK(models.draft.refused > 0);
  REQUIRE(texts.size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(texts.at(i + 1) ==
          specula_test::written_alone(all[i], Rejection{}, Chain<Draw::sampled>{.length = 3}));
  TextRequest large = all[0];
  large.prompt.assign(58, 2), large.max_new_tokens = 5;
  batch.join(large);
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      CHECK(!text.failure);
      CHECK(text.tokens.size() == 5);
      CHECK(text.stats.failed_drafts == 1);
    }
}

TEST_CASE("texts that joined later do not overtake one that has made room") {
  Paged models(4, 16);
  BatchSpeculator batch(4, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  const TextRequest request{.prompt = {1, 2, 3, 4}, .max_new_tokens = 40, .params = {.temperature = 0}};
  for (int i = 0; i < 3; ++i) batch.join(request);
  while (batch.running() == 3 || batch.running() == 0) batch.step();  // one has made room
  TextRequest small = request;
  small.max_new_tokens = 1;
  const TextId later = batch.join(small);
  std::vector<TextId> order;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) order.push_back(text.id);
  REQUIRE(order.size() == 4);
  CHECK(order[0] == 1);
  CHECK(batch.text(later).empty());
}

TEST_CASE(
    "a text that has made room stays out until another ends, or none is left, and goes before new ones") {
  Paged models(3, 14);
  BatchSpeculator batch(3, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  const TextRequest request{.prompt = {1, 2, 3, 4}, .max_new_tokens = 40, .params = {.temperature = 0}};
  batch.join({.prompt = {2}, .max_new_tokens = 1});
  batch.step();  // its end is before
  for (int i = 0; i < 4; ++i) batch.join(request);
  const TextId last = 5;
  while (batch.running() == 0 || batch.running() == 3) REQUIRE(batch.step().empty());
  std::int32_t running = batch.running();
  while (batch.running() > 1) {
    REQUIRE(batch.step().empty());
    CHECK(batch.running() <= running);  // more make room, and none comes back
    running = batch.running();
  }
  CHECK(batch.queued() == 3);
  CHECK(batch.text(last).empty());
  REQUIRE(batch.pause(2));
  batch.step();
  CHECK(batch.running() > 0);
  CHECK(batch.text(last).empty());
  batch.resume(2);
  std::vector<TextId> order;
  while (!batch.empty())
    for (const TextResult& text : batch.step()) {
      CHECK(!text.failure);
      order.push_back(text.id);
    }
  CHECK(order.size() == 4);
  CHECK(order.back() == last);
}

TEST_CASE("the youngest makes room by its number, also if an older one came back after it") {
  Paged models(3, 20);
  BatchSpeculator batch(3, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  std::vector<int> entered(4);
  for (TextId id = 1; id <= 3; ++id) {
    TextRequest request{.prompt = {1, 2, 3, 4}, .max_new_tokens = 35, .params = {.temperature = 0}};
    request.enter = [&, id](std::int32_t slot) {
      ++entered[id];
      CHECK(models.target.size(slot) == 0);  // before the prompt
    };
    CHECK(batch.join(request) == id);
  }
  batch.step();
  REQUIRE(batch.pause(1));
  REQUIRE(batch.resume(1));
  while (!batch.empty()) batch.step();
  CHECK(models.target.refused > 0);
  CHECK(entered == std::vector<int>{0, 2, 1, 2});  // once more after a pause, or after making room
}

TEST_CASE("a text that is paused while it makes room waits for resume()") {
  Paged models(2, 14);
  BatchSpeculator batch(2, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  TextRequest request{.prompt = {1, 2, 3, 4}, .max_new_tokens = 40, .params = {.temperature = 0}};
  bool paused = false;
  request.sink = [&](Tokens) {
    if (models.target.refused == 1 && !std::exchange(paused, true)) CHECK(batch.pause(2));  // in that step
    return true;
  };
  batch.join(request);
  request.sink = nullptr;
  batch.join(request);
  while (!batch.empty())
    for (const TextResult& text : batch.step()) CHECK(text.id == 1);
  CHECK(models.target.refused == 1);
  CHECK(batch.paused() == 1);
  CHECK(batch.text(2).size() > 4);
}

TEST_CASE("a text that ends in the step in which another makes room lets that one come back") {
  Paged models(3, 4);
  BatchSpeculator batch(3, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  TextRequest request{.prompt = {1, 2, 3, 4}, .max_new_tokens = 1, .params = {.temperature = 0}};
  batch.join(request);
  request.max_new_tokens = 3;
  batch.join(request), batch.join(request);
  REQUIRE(batch.step().size() == 1);
  REQUIRE(models.target.refused == 1);
  REQUIRE(batch.queued() == 1);
  batch.step();
  CHECK(batch.queued() == 0);
}

TEST_CASE("a text without a seed keeps its draws after a pause") {
  const auto write = [](bool pauses) {
    BatchModels<> models(1);
    BatchSpeculator batch(1, models.each(Rejection{}, Chain<Draw::sampled>{.length = 2}), models.draft,
                          models.target);
    const TextId id = batch.join({.prompt = {1, 2}, .max_new_tokens = 30, .params = {.temperature = 1}});
    return write_all(batch, [&](int) {
      if (pauses && batch.pause(id)) batch.resume(id);
    });
  };
  CHECK(write(true) == write(false));
}

TEST_CASE("a shape that learns within a text begins anew after a pause") {
  struct Written {
    std::vector<Token> tokens;
    std::int64_t proposed = 0;
  };
  const std::vector<Token> prompt{1, 2};
  /// Writes `tokens` tokens after `text`, and after `steps` steps pauses, or is cancelled.
  const auto write = [](std::vector<Token> text, std::size_t tokens, int steps, bool cancels) {
    BatchModels<> models(1, 1000, 200);
    BatchSpeculator batch(
        1, models.each(Sampling{}, AdaptiveChain<HeuristicEnd>{.end = {.longest = 12}, .carry = false}),
        models.draft, models.target);
    const TextId id = batch.join({.prompt = std::move(text),
                                  .max_new_tokens = static_cast<std::int32_t>(tokens),
                                  .params = {.temperature = 0}});
    Written out;
    for (int step = 1; !batch.empty(); ++step) {
      for (const TextResult& ended : batch.step()) out = {ended.tokens, ended.stats.proposed};
      if (step != steps) continue;
      if (cancels) {
        batch.cancel(id);
      } else {
        CHECK(batch.pause(id));
        CHECK(batch.resume(id));
      }
    }
    return out;
  };
  const Written whole = write(prompt, 100, -1, false), paused = write(prompt, 100, 9, false),
                begun = write(prompt, 100, 9, true);
  std::vector<Token> text = prompt;
  text.insert(text.end(), begun.tokens.begin(), begun.tokens.end());
  const Written rest = write(text, 100 - begun.tokens.size(), -1, false);
  CHECK(paused.tokens == whole.tokens);
  CHECK(paused.proposed == begun.proposed + rest.proposed);
  CHECK(paused.proposed != whole.proposed);  // the chain had learned a length
}

TEST_CASE("a text with a full context is not paused: it ends") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  const TextId id = batch.join({.prompt = {1, 2}, .max_new_tokens = 200, .params = {.temperature = 0}});
  while (batch.text(id).size() <= 64) REQUIRE(batch.step().empty());
  CHECK(batch.pause(id));
  CHECK(batch.paused() == 0);
  const auto& ends = batch.step();
  REQUIRE(ends.size() == 1);
  CHECK(!ends[0].failure);
  CHECK(ends[0].reason == FinishReason::context_full);
  CHECK(ends[0].tokens.size() == 63);
}

TEST_CASE("a text that failed leaves nothing in its slot") {
  BatchModels<> models(1);
  BatchSpeculator batch(1, models.each(Sampling{}, Chain<>{.length = 2}), models.draft, models.target);
  TextRequest request{.prompt = {1, 2}, .max_new_tokens = 5};
  request.sink = [](Tokens) -> bool { throw std::runtime_error("no disk"); };
  batch.join(request);
  const auto& ends = batch.step();
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].failure);
  CHECK(models.target.size(0) == 0);
  CHECK(models.draft.size(0) == 0);
}
