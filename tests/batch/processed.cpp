// SPDX-License-Identifier: MIT
// Texts with logit processors in a batch: their passes are merged, each text is the one that it is alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/batch.hpp>
#include <specula/model/processed.hpp>
#include <specula/runtime/any_model.hpp>
#include <specula/specula.hpp>

#include "toy_batch.hpp"
#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyBatch;
using specula_test::ToyModel;

namespace {

constexpr std::int32_t kVocab = 6, kTexts = 4, kCapacity = 200;
using List = std::vector<Token>;

/// Another for each text: a penalty of what was written, and a token that must not follow itself. From path
/// length `throws_at` on it throws.
struct Rules {
  float penalty;
  Token once;
  std::size_t throws_at = 1000;

  explicit Rules(std::int32_t text) : penalty(0.1f + 0.2f * static_cast<float>(text)), once(text % kVocab) {}
  void operator()(Tokens path, std::span<float> row) const {
    if (path.size() >= throws_at) throw std::runtime_error("no rule goes on here");
    for (const Token token : path.last(std::min<std::size_t>(path.size(), 3)))
      row[static_cast<std::size_t>(token)] -= penalty;
    if (path.back() == once) row[static_cast<std::size_t>(once)] = -std::numeric_limits<float>::infinity();
  }
};
using Slot = SlotOf<ToyBatch>;
using ProcessedSlot = Processed<Slot, std::reference_wrapper<const Rules>>;

TextRequest request(std::int32_t text, float temperature) {
  TextRequest one;
  one.prompt = {static_cast<Token>(text % kVocab), static_cast<Token>((text + 2) % kVocab), 3};
  one.max_new_tokens = 40 + 3 * text;
  one.params.temperature = temperature;
  one.seed = 17;
  one.sequence = static_cast<std::uint32_t>(text);
  return one;
}
struct Text {
  List tokens;
  std::int64_t rounds = 0, proposed = 0;
  std::vector<std::int64_t> accepted;
  bool operator==(const Text&) const = default;
};
Text text_of(List tokens, const Stats& stats) {
  return {std::move(tokens), stats.rounds, stats.proposed, stats.accepted};
}

/// What the pipeline over Processed writes with one text in the models.
template <class MakeVerifier, class Shape>
Text write_alone(const Rules& rules, bool masks_draft, MakeVerifier verifier, const Shape& shape,
                 const TextRequest& request) {
  ToyModel target(kVocab, 1, 2.0f, kCapacity), draft(kVocab, 2, 2.0f, kCapacity);
  Processed processed_target{target, std::cref(rules)}, processed_draft{draft, std::cref(rules)};
  const auto write = [&](auto drafter) {
    Speculator run{verifier(processed_target), std::move(drafter), shape};
    run.verifier().set_params(request.params);
    List tokens;
    run.generate(request.prompt, {.max_new_tokens = request.max_new_tokens},
                 PhiloxRandom{*request.seed, *request.sequence},
                 [&](Tokens fresh) { tokens.insert(tokens.end(), fresh.begin(), fresh.end()); });
    return text_of(tokens, run.stats());
  };
  return masks_draft ? write(ModelDrafter{processed_draft}) : write(ModelDrafter{draft});
}

/// Models of kTexts slots, with what wraps each slot. The texts that join first have the slots in this order.
struct Models {
  ToyBatch target, draft;
  std::vector<Rules> rules;
  std::deque<Slot> targets, drafts;
  std::deque<ProcessedSlot> processed_targets, processed_drafts;
  std::deque<AnyModel> any, any_drafts;

  explicit Models(std::int32_t chunk = 1000)
      : target(kTexts, kVocab, 1, chunk, kCapacity), draft(kTexts, kVocab, 2, chunk, kCapacity) {
    for (std::int32_t i = 0; i < kTexts; ++i) rules.emplace_back(i);
    for (std::int32_t i = 0; i < kTexts; ++i) {
      targets.emplace_back(target, i), drafts.emplace_back(draft, i);
      processed_targets.emplace_back(targets.back(), std::cref(rules[static_cast<std::size_t>(i)]));
      processed_drafts.emplace_back(drafts.back(), std::cref(rules[static_cast<std::size_t>(i)]));
      any.emplace_back(processed_targets.back()), any_drafts.emplace_back(processed_drafts.back());
    }
  }
};

template <class Make>
std::vector<TextResult> write_all(Models& models, Make make, float temperature) {
  BatchSpeculator batch{kTexts, make, models.draft, models.target};
  for (std::int32_t i = 0; i < kTexts; ++i) batch.join(request(i, temperature));
  std::vector<TextResult> all(kTexts);
  int failed = 0;
  while (!batch.empty()) {
    try {
      for (const TextResult& text : batch.step()) all[static_cast<std::size_t>(text.id - 1)] = text;
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()) == "the pass failed");
      REQUIRE(++failed < 3);
    }
  }
  return all;
}

/// Every text of the batch is the one that it is alone, and a round of all has as many passes as a round of
/// one.
template <class MakeVerifier, class Shape>
void check_batch(MakeVerifier verifier, const Shape& shape, std::int64_t draft_passes, float temperature) {
  for (const bool masks_draft : {false, true})
    for (const bool erased : {false, true}) {
      CAPTURE(masks_draft);
      CAPTURE(erased);
      Models models;
      const auto make = [&](auto& target, auto& draft) {
        return Speculator{verifier(target), ModelDrafter{draft}, shape};
      };
      const auto at = [](std::int32_t slot) { return static_cast<std::size_t>(slot); };
      std::vector<TextResult> all;
      if (erased && masks_draft)
        all = write_all(
            models, [&](std::int32_t s) { return make(models.any[at(s)], models.any_drafts[at(s)]); },
            temperature);
      else if (erased)
        all = write_all(
            models, [&](std::int32_t s) { return make(models.any[at(s)], models.drafts[at(s)]); },
            temperature);
      else if (masks_draft)
        all = write_all(
            models,
            [&](std::int32_t s) {
              return make(models.processed_targets[at(s)], models.processed_drafts[at(s)]);
            },
            temperature);
      else
        all = write_all(
            models,
            [&](std::int32_t s) { return make(models.processed_targets[at(s)], models.drafts[at(s)]); },
            temperature);
      std::int64_t rounds = 0;
      for (std::int32_t i = 0; i < kTexts; ++i) {
        CAPTURE(i);
        const TextResult& text = all[static_cast<std::size_t>(i)];
        CHECK(!text.failure);
        const Text alone = write_alone(models.rules[static_cast<std::size_t>(i)], masks_draft, verifier,
                                       shape, request(i, temperature));
        CHECK(text_of(text.tokens, text.stats) == alone);
        CHECK(text.stats.failed_drafts == 0);
        rounds = std::max(rounds, text.stats.rounds);
      }
      CHECK(models.target.passes == rounds);
      if (draft_passes > 0) {
        CHECK(models.draft.passes <= draft_passes * rounds);
        CHECK(models.draft.passes > draft_passes * rounds / 2);
      }
    }
}

}  // namespace

TEST_CASE("texts with processors of their own are merged, and each is bitwise the one that it is alone") {
  const auto verify = [](auto rule) { return [rule](auto& target) { return TreeVerifier{target, rule}; }; };
  check_batch(verify(Greedy{}), Chain<>{.length = 3}, 3, 0);
  check_batch(verify(Block{}), Chain<Draw::sampled>{.length = 3}, 3, 1);
  check_batch(verify(Sampling{}), Cape{.length = 3, .budget = 12}, 3, 0.8f);
  check_batch(verify(Traversal{}), SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2}}, 2, 1);
  check_batch(verify(Sampling{}), DynamicTree{.top_k = 3, .expansions = 2, .total = 8}, 0, 1);
}

TEST_CASE("texts that share slots have each its own processor, also after a pause") {
  const auto verifier = [](auto& target) { return TreeVerifier{target, Sampling{}}; };
  const Chain<> shape{.length = 3};
  constexpr std::int32_t kMore = 11;
  for (const bool pauses : {false, true}) {
    CAPTURE(pauses);
    Models models;
    std::vector<Rules> of_text;
    for (std::int32_t i = 0; i < kMore; ++i) of_text.emplace_back(i);
    BatchSpeculator batch{
        kTexts,
        [&](std::int32_t s) {
          const auto at = static_cast<std::size_t>(s);
          return Speculator{verifier(models.processed_targets[at]), ModelDrafter{models.processed_drafts[at]},
                            shape};
        },
        models.draft, models.target};
    std::vector<std::int32_t> entered(kMore);
    for (std::int32_t i = 0; i < kMore; ++i) {
      TextRequest one = request(i, 0.8f);
      one.enter = [&, i](std::int32_t slot) {
        models.rules[static_cast<std::size_t>(slot)] = of_text[static_cast<std::size_t>(i)];
        ++entered[static_cast<std::size_t>(i)];
      };
      batch.join(one);
    }
    TextRequest bad = request(kMore, 0.8f);
    bad.enter = [](std::int32_t) { throw std::runtime_error("no grammar of this name"); };
    const TextId bad_one = batch.join(bad);
    std::int32_t round = 0, ended = 0;
    std::deque<TextId> paused;
    while (!batch.empty() || !paused.empty()) {
      for (const TextResult& text : batch.step()) {
        ++ended;
        CHECK((text.failure != nullptr) == (text.id == bad_one));
        if (text.id == bad_one) continue;
        const auto i = static_cast<std::int32_t>(text.id) - 1;
        CAPTURE(i);
        const Text alone =
            write_alone(of_text[static_cast<std::size_t>(i)], true, verifier, shape, request(i, 0.8f));
        CHECK(text_of(text.tokens, text.stats) == alone);
      }
      ++round;
      if (pauses && round % 3 == 0) {
        const auto id = static_cast<TextId>(1 + round / 3 % kMore);
        if (batch.pause(id)) paused.push_back(id);
      }
      if (!paused.empty() && (round % 7 == 0 || batch.running() == 0)) {
        batch.resume(paused.front());
        paused.pop_front();
      }
    }
    CHECK(ended == kMore + 1);
    CHECK((*std::max_element(entered.begin(), entered.end()) > 1) == pauses);
    CHECK(*std::min_element(entered.begin(), entered.end()) >= 1);
  }
}

TEST_CASE("a processor that changes nothing costs no pass") {
  const auto passes = [](auto wrap) {
    ToyBatch target(kTexts, kVocab, 1, 2, kCapacity), draft(kTexts, kVocab, 2, 2, kCapacity);
    std::deque<Slot> targets, drafts;
    for (std::int32_t i = 0; i < kTexts; ++i) targets.emplace_back(target, i), drafts.emplace_back(draft, i);
    auto wrapped = wrap(targets);
    BatchSpeculator batch{kTexts,
                          [&](std::int32_t s) {
                            const auto at = static_cast<std::size_t>(s);
                            return Speculator{TreeVerifier{wrapped[at], Sampling{}}, ModelDrafter{drafts[at]},
                                              Chain<Draw::sampled>{.length = 4}};
                          },
                          draft, target};
    // More texts than slots; prompts of several chunks.
    for (std::int32_t i = 0; i < 3 * kTexts; ++i) {
      TextRequest one = request(i, 1);
      one.prompt.insert(one.prompt.end(), static_cast<std::size_t>(i % 5), 2);
      batch.join(one);
    }
    std::vector<List> texts(3 * kTexts);
    while (!batch.empty())
      for (const TextResult& text : batch.step()) texts[static_cast<std::size_t>(text.id - 1)] = text.tokens;
    return std::pair(std::pair(target.passes, draft.passes), texts);
  };
  const auto plain = passes([](std::deque<Slot>& slots) -> std::deque<Slot>& { return slots; });
  const auto nothing = [](Tokens, std::span<float>) {};
  const auto processed = passes([&](std::deque<Slot>& slots) {
    std::deque<Processed<Slot, decltype(nothing)>> all;
    for (Slot& slot : slots) all.emplace_back(slot, nothing);
    return all;
  });
  CHECK(processed == plain);
}

TEST_CASE("a processor that throws ends its text alone, one of a draft ends drafting alone") {
  for (const bool of_draft : {false, true}) {
    CAPTURE(of_draft);
    Models models;
    std::vector<Rules> broken = models.rules;
    broken[2].throws_at = 20;
    std::deque<ProcessedSlot> targets, drafts;
    for (std::size_t i = 0; i < kTexts; ++i) {
      targets.emplace_back(models.targets[i], std::cref(of_draft ? models.rules[i] : broken[i]));
      drafts.emplace_back(models.drafts[i], std::cref(broken[i]));
    }
    const Chain<> shape{.length = 3};
    const auto all = write_all(
        models,
        [&](std::int32_t s) {
          const auto at = static_cast<std::size_t>(s);
          return Speculator{TreeVerifier{targets[at], Greedy{}}, ModelDrafter{drafts[at]}, shape};
        },
        0);
    const auto verifier = [](auto& target) { return TreeVerifier{target, Greedy{}}; };
    for (std::int32_t i = 0; i < kTexts; ++i) {
      CAPTURE(i);
      const auto at = static_cast<std::size_t>(i);
      const Text alone = write_alone(models.rules[at], true, verifier, shape, request(i, 0));
      if (i != 2) {
        CHECK(text_of(all[at].tokens, all[at].stats) == alone);
        CHECK(!all[at].failure);
      } else if (of_draft) {
        CHECK(all[at].tokens == alone.tokens);  // greedy: whatever is drafted
        CHECK(all[at].stats.failed_drafts == 1);
        CHECK(all[at].stats.rounds > alone.rounds);
      } else {
        REQUIRE(all[at].failure);
        CHECK_THROWS_WITH(std::rethrow_exception(all[at].failure), doctest::Contains("no rule goes on here"));
        CHECK(all[at].tokens.size() > 5);
        CHECK(std::equal(all[at].tokens.begin(), all[at].tokens.end(), alone.tokens.begin()));
      }
    }
  }
}

TEST_CASE("a pass of the target that fails is repeated, with the same texts") {
  const auto verifier = [](auto& target) { return TreeVerifier{target, Block{}}; };
  const Chain<Draw::sampled> shape{.length = 3};
  for (const std::int64_t pass : {1, 2, 5}) {
    Models models;
    models.target.throw_pass = pass;
    const auto all = write_all(
        models,
        [&](std::int32_t s) {
          const auto at = static_cast<std::size_t>(s);
          return Speculator{verifier(models.processed_targets[at]), ModelDrafter{models.processed_drafts[at]},
                            shape};
        },
        1);
    for (std::int32_t i = 0; i < kTexts; ++i) {
      const auto at = static_cast<std::size_t>(i);
      CHECK(all[at].tokens == write_alone(models.rules[at], true, verifier, shape, request(i, 1)).tokens);
    }
  }
}

TEST_CASE("log-probabilities of a merged pass are of the raw row, or of the processed one") {
  for (const bool processed : {false, true}) {
    CAPTURE(processed);
    Models models;
    const auto make = [&](auto& target, auto& draft) {
      return Speculator{TreeVerifier{target, Sampling{}}, ModelDrafter{draft},
                        Cape{.length = 2, .budget = 6}};
    };
    const auto note = [](const auto& run, std::vector<double>& all) {
      for (std::size_t i = 0; i < run.logprobs().size(); ++i) {
        all.push_back(run.logprobs()[i].logprob);
        for (const TokenLogprob& likely : run.logprobs().top(i)) all.push_back(likely.logprob);
      }
    };
    using Run = decltype(make(models.processed_targets[0], models.processed_drafts[0]));
    std::vector<std::unique_ptr<Run>> runs;
    std::vector<PhiloxRandom> rngs;
    std::vector<std::vector<double>> got(kTexts);
    for (std::size_t i = 0; i < kTexts; ++i) {
      runs.emplace_back(new Run(make(models.processed_targets[i], models.processed_drafts[i])));
      rngs.emplace_back(17, static_cast<std::uint32_t>(i));
      runs[i]->verifier().report_logprobs({.top = 3, .processed = processed});
      runs[i]->start(request(static_cast<std::int32_t>(i), 1).prompt);
    }
    const auto pass = [&](ToyBatch& model) {
      std::vector<SlotNodes> nodes;
      std::vector<Run*> waiting;
      for (auto& run : runs)
        if (const PassRequest* want = run->want(); want && want->batch == &model)
          nodes.push_back({want->slot, want->tokens, want->parents}), waiting.push_back(run.get());
      if (nodes.empty()) return false;
      const LogitsView rows = model.extend(nodes);
      std::int32_t from = 0;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        const auto count = static_cast<std::int32_t>(nodes[i].tokens.size());
        waiting[i]->give(rows.part(from, count));
        from += count;
      }
      return true;
    };
    constexpr int kRounds = 12;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kTexts; ++i) runs[i]->begin(rngs[i]);
      while (pass(models.draft)) {
      }
      pass(models.target);
      for (std::size_t i = 0; i < kTexts; ++i) runs[i]->end(), note(*runs[i], got[i]);
    }
    CHECK(models.target.passes == kRounds);
    for (std::size_t i = 0; i < kTexts; ++i) {
      ToyModel target(kVocab, 1, 2.0f, kCapacity), draft(kVocab, 2, 2.0f, kCapacity);
      Processed processed_target{target, std::cref(models.rules[i])},
          processed_draft{draft, std::cref(models.rules[i])};
      auto alone = make(processed_target, processed_draft);
      alone.verifier().report_logprobs({.top = 3, .processed = processed});
      alone.start(request(static_cast<std::int32_t>(i), 1).prompt);
      std::vector<double> want;
      for (int round = 0; round < kRounds; ++round) alone.step(rngs[i]), note(alone, want);
      CHECK(got[i] == want);
      CHECK(want.size() > 4 * kRounds);
    }
  }
}
