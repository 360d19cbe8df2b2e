// SPDX-License-Identifier: MIT
// A round of many texts, whose passes are merged: for the loop of an engine, and for BatchSpeculator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/batch/run_pass.hpp"
#include "specula/batch/shared_draft.hpp"
#include "specula/cost/batch_budget.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/run/generate.hpp"
#include "specula/run/limits.hpp"

namespace specula {

/// How far a text of run_round() is.
enum class TextState : std::uint8_t {
  joined,   // its start() has been called
  reading,  // a pass has left it without rows: its prompt is read in several
  writing,  // it has emitted tokens
  ended,    // by its limits, its sink or a full context; see BatchText::out
  failed,   // see BatchText::failure
  paused    // it has made room for the others; see BatchText::kept
};

/// A text of run_round(). A round refers to it, so it must stay where it is.
template <class Run, class C = PhiloxRandom>
struct BatchText {
  Run* run = nullptr;  ///< its rounds: a Speculator or a Pipeline, over slots of models; start() was called
  C rng{0};            ///< its uniform draws
  Limits limits = {};  ///< where it ends; `stop` is referenced
  std::function<bool(Tokens)> sink = {};         ///< as generate()'s, or empty
  bool drafts = true;                            ///< false: its rounds draft nothing
  DraftState draft = {};                         ///< what the budget knows of its draft
  TextState state = TextState::joined;           ///< only texts in the first three have rounds
  Generated out = {0, FinishReason::cancelled};  ///< tokens emitted so far, and why it ended
  Tokens fresh = {};                             ///< those of the last run_round(), until its next round
  std::exception_ptr failure = nullptr;          ///< what its rule, shape or sink threw, or a bad row
  /// Of a paused text: prompt and tokens. run->start(kept), with state `joined` and `draft` as at first, goes
  /// on with it as if it had not been paused.
  std::vector<Token> kept = {};
};

/// What BatchRounds must have room for.
struct BatchSizes {
  std::int32_t texts = 1;  ///< of a round, at most
  NodeCounts nodes = {};   ///< of a text's proposal; see Speculator::nodes()
  /// Models of drafts, by their addresses, in the order in which their passes run where texts wait for
  /// several: the cheapest first. Those not named come after these.
  std::vector<const void*> drafts = {};
};

template <class Run, class C = PhiloxRandom>
class BatchRounds;

/// A round of each of `texts`, oldest first. `pass(const MergedPass&)` runs one pass of a model and returns
/// PassRows: run_pass(), or an engine's own. Drafts' passes run until no text waits for one that brings rows,
/// then the target's. With a budget in `rounds`, draft calls are granted and draft tokens verified where that
/// pays over all texts; without, each shape decides alone. Afterwards a text has emitted `fresh` and is
/// `writing`, or has `ended` or `failed`; or its round waits, since its prompt is being read or the pass
/// failed: the next call goes on with it.
///
/// What a rule, a shape or a sink throws, and a bad row, fails that text alone. A draft's pass that throws
/// ends drafting in the texts that waited for it, as in Speculator::step(). If the target's throws, that is
/// rethrown, and no text has changed: the next call repeats their rounds. But if a pass throws NoRoom, the
/// youngest text that waits for one is `paused` (its run forgets all), and the pass is repeated; a text that
/// is left alone fails with it, or goes on without its draft.
///
/// **Throws.** std::invalid_argument for more texts than `rounds` was made for, and with a budget for more
/// nodes, or a text whose target's passes are not merged (Speculator::batch()), since it learns from those;
/// std::logic_error for a text that has ended. Nothing has changed then. **Cost.** Beside the passes O(texts,
/// nodes log nodes); no allocation in a steady round.
template <class Run, class C, class Pass>
void run_round(std::type_identity_t<std::span<BatchText<Run, C>* const>> texts, BatchRounds<Run, C>& rounds,
               Pass&& pass) {
  rounds.begin(texts);
  while (rounds.grant() || rounds.run_draft(pass)) {
  }
  rounds.run_target(pass);
  rounds.end();
}

/// The memory of run_round(), to be kept for all rounds of a batch, and its budget, if there is one. Rounds
/// that wait refer to it.
template <class Run, class C>
class BatchRounds {
 public:
  using Text = BatchText<Run, C>;  ///< a text of these rounds

  /// Each shape decides alone what it drafts. Throws std::invalid_argument unless there is at least one text.
  explicit BatchRounds(BatchSizes sizes) : sizes_(std::move(sizes)) {
    if (sizes_.texts < 1)
      throw std::invalid_argument("BatchSizes::texts is " + std::to_string(sizes_.texts) +
                                  ", must be at least 1");
    const auto texts = static_cast<std::size_t>(sizes_.texts);
    texts_.reserve(texts), waiting_.reserve(texts), nodes_.reserve(texts);
    ran_.reserve(texts + sizes_.drafts.size()), calls_.reserve(texts);
  }
  /// All texts draft from one budget. A round with draft tokens takes at most `max_stretch` times as long as
  /// a plain one, by what is known of the costs, so that texts that gain nothing wait no longer. Throws
  /// std::invalid_argument unless max_stretch >= 1, and if the texts' nodes are more than 2^31 - 1.
  BatchRounds(BatchSizes sizes, BatchBudget budget, double max_stretch = 1e300)
      : BatchRounds(std::move(sizes)) {
    shared_.emplace(std::move(budget), sizes_.texts, sizes_.nodes, max_stretch);
  }
  BatchRounds(const BatchRounds&) = delete;
  BatchRounds& operator=(const BatchRounds&) = delete;

  /// The budget, and what it has learned; null if there is none.
  const BatchBudget* budget() const { return shared_ ? &shared_->budget() : nullptr; }

 private:
  template <class R, class D, class Pass>
  friend void run_round(std::type_identity_t<std::span<BatchText<R, D>* const>>, BatchRounds<R, D>&, Pass&&);

  void begin(std::span<Text* const> texts) {
    if (texts.size() > static_cast<std::size_t>(sizes_.texts))
      throw std::invalid_argument("run_round: " + std::to_string(texts.size()) +
                                  " texts, BatchSizes::texts is " + std::to_string(sizes_.texts));
    for (const Text* text : texts) refuse_ended(*text);
    texts_.clear(), ran_.clear(), prompts_ = 0;
    std::int32_t count = 0;  // that get rows of the target, as far as is known
    for (Text* text : texts) {
      text->fresh = {};
      if (!text->run->in_round() && has_ended(*text)) continue;
      texts_.push_back(text);
      count += text->state != TextState::reading, prompts_ += text->state != TextState::writing;
    }
    if (prompts_ > 0) calls_.assign(texts_.size(), 0);
    if (shared_) shared_->begin(texts_, count);
    for (Text* text : texts_)
      if (!text->run->in_round()) guarded(*text, [&] { begin(*text); });
  }
  void refuse_ended(const Text& text) const {
    if (text.state > TextState::writing)
      throw std::logic_error("run_round: a text has ended, failed or was paused, and has no further rounds");
    if (!shared_) return;
    if (!text.run->batch())
      throw std::invalid_argument(
          "run_round: a text's target runs its own passes, from which a budget in common learns nothing: it "
          "is no slot of a model of many texts, or its verifier is a PathVerifier");
    if (const std::int32_t most = text.run->nodes().most; most > sizes_.nodes.most)
      throw std::invalid_argument("run_round: a shape's proposals have up to " + std::to_string(most) +
                                  " nodes, BatchSizes::nodes says " + std::to_string(sizes_.nodes.most));
  }
  static bool has_ended(Text& text) {
    const bool limit = text.out.tokens >= text.limits.max_new_tokens;
    if (!limit && text.run->room() >= 1) return false;
    text.out.reason = limit ? FinishReason::limit : FinishReason::context_full;
    text.state = TextState::ended;
    return true;
  }
  void begin(Text& text) {
    CostModel* const costs = shared_ ? shared_->cost_model() : nullptr;
    std::int32_t nodes = std::numeric_limits<std::int32_t>::max();
    if (shared_) nodes = shared_->max_nodes();
    text.run->begin(text.rng, text.limits.stop, costs, text.drafts ? nodes : 1);
  }
  bool grant() { return shared_ && shared_->grant(); }

  /// A pass of a draft that brings rows; false if there is none.
  template <class Pass>
  bool run_draft(Pass& pass) {
    try {
      for (const void* model : sizes_.drafts)
        if (run(model, false, pass) > 0) return true;
      const void* const model = another(false, sizes_.drafts);
      return model && run(model, false, pass) > 0;
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      for (const std::size_t i : waiting_)
        if (texts_[i]->run->want()) texts_[i]->run->fail(failure);
      return true;
    }
  }
  template <class Pass>
  void run_target(Pass& pass) {
    if (shared_) shared_->choose();
    ran_.clear();
    try {
      while (const void* model = another(true, ran_)) {
        run(model, true, pass);
        if (waiting_.size() == texts_.size()) break;
        ran_.push_back(model);
      }
    } catch (...) {
      for (Text* text : texts_)
        if (text->run->want()) text->run->abandon();
      throw;
    }
  }
  void end() {
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (texts_[i]->run->in_round() && !texts_[i]->run->want()) guarded(*texts_[i], [&] { end(i); });
    if (shared_) shared_->end();
  }
  void end(std::size_t i) {
    Text& text = *texts_[i];
    const auto sink = [&](Tokens fresh) { return !text.sink || text.sink(fresh); };
    const std::int32_t before = text.out.tokens;
    const Tokens all = text.run->end();
    const bool ended = detail::emit(*text.run, all, text.limits, sink, text.out);
    text.fresh = all.first(static_cast<std::size_t>(text.run->emitted()));
    text.state = ended ? TextState::ended : TextState::writing;
    if (shared_) shared_->ended(i, text.out.tokens - before);
  }

  /// Calls f(); if that throws, the text fails with it.
  template <class F>
  static void guarded(Text& text, F f) {
    try {
      f();
    } catch (...) {
      text.run->abandon();
      text.failure = std::current_exception();
      text.state = TextState::failed;
    }
  }

  /// A model, in no list of `known` ones, that a text waits for, as its draft or its target; null: none.
  const void* another(bool verifies, std::span<const void* const> known) const {
    for (const Text* text : texts_)
      if (const PassRequest* want = text->run->want(); want && text->run->proposed() == verifies)
        if (std::find(known.begin(), known.end(), want->batch) == known.end()) return want->batch;
    return nullptr;
  }
  /// Collects what texts want of a model, first those that are being written; false if none wants anything.
  bool collect(const void* model, bool verifies, bool again) {
    waiting_.clear(), nodes_.clear();
    std::size_t prompts = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const PassRequest* want = texts_[i]->run->want();
      if (!want || want->batch != model || texts_[i]->run->proposed() != verifies) continue;
      if (texts_[i]->state != TextState::writing) {
        ++prompts;
        continue;
      }
      waiting_.push_back(i);
      const SlotNodes slot_nodes{want->slot, want->tokens, want->parents};
      nodes_.push_back(slot_nodes);
    }
    written_ = nodes_.size();
    if (prompts > 0) collect_prompts(model, verifies, again);
    return !nodes_.empty();
  }
  void collect_prompts(const void* model, bool verifies, bool again) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const PassRequest* want = texts_[i]->run->want();
      if (!want || want->batch != model || texts_[i]->run->proposed() != verifies) continue;
      if (texts_[i]->state == TextState::writing) continue;
      waiting_.push_back(i);
      nodes_.push_back({want->slot});
      if (!again || calls_[i] != 0)
        nodes_.back().tokens = want->tokens, nodes_.back().parents = want->parents;
    }
  }
  /// One pass of a model over all texts that wait for it; returns how many rows it gave.
  template <class Pass>
  std::int32_t run(const void* model, bool verifies, Pass& pass) {
    // A prompt that got its first rows in a later pass of the draft would add passes to the round.
    const bool again = prompts_ > 0 && prompts_ < texts_.size() && !verifies &&
                       std::find(ran_.begin(), ran_.end(), model) != ran_.end();
    if (prompts_ > 0 && !verifies && !again) ran_.push_back(model);
    if (!collect(model, verifies, again)) return 0;
    const PassRows got = merged(model, verifies, again, pass);
    std::size_t wanted = 0;
    for (const SlotNodes& slot_nodes : nodes_) wanted += slot_nodes.tokens.size();
    if (static_cast<std::size_t>(got.rows.rows) != wanted) throw_rows(got.rows.rows, wanted);
    const bool all = nodes_.size() == waiting_.size();
    std::int32_t from = 0, texts = 0;
    auto next = nodes_.begin();
    for (const std::size_t i : waiting_) {
      Text& text = *texts_[i];
      std::int32_t count = 0;
      if (all || (next != nodes_.end() && next->slot == text.run->want()->slot))
        count = static_cast<std::int32_t>(next++->tokens.size());
      if (count == 0) {
        if (text.state == TextState::joined) text.state = TextState::reading;
        continue;
      }
      if (shared_ && !verifies) shared_->called(i);
      if (prompts_ > 0) calls_[i] = 1;
      guarded(text, [&] { text.run->give(got.rows.part(from, count)); });
      from += count, ++texts;
    }
    if (shared_ && !verifies && from > 0) shared_->drafted(from, got.queued, got.seconds);
    if (shared_ && verifies) shared_->verified(texts, from, got.queued, got.seconds);
    return from;
  }
  /// The pass, repeated while texts make room for it.
  template <class Pass>
  PassRows merged(const void* model, bool verifies, bool again, Pass& pass) {
    while (true) {
      try {
        return pass(MergedPass{model, nodes_, written_, prompts_ < texts_.size()});
      } catch (const NoRoom&) {
        if (!make_room(verifies)) throw;
      }
      if (!collect(model, verifies, again)) return {};
    }
  }
  [[noreturn]] static void throw_rows(std::int32_t rows, std::size_t wanted) {
    throw std::invalid_argument("run_round: the pass gave " + std::to_string(rows) + " rows for " +
                                std::to_string(wanted) + " nodes");
  }
  /// After NoRoom: pauses the youngest text that waits for a pass, if there are several; one that is alone
  /// fails. False if it is to go on without its draft.
  bool make_room(bool verifies) {
    Text* youngest = nullptr;
    std::int32_t count = 0;
    for (Text* text : texts_)
      if (text->run->want()) youngest = text, ++count;
    if (count < 2) {
      if (!verifies) return false;
      guarded(*youngest, [] { throw; });
      return true;
    }
    guarded(*youngest, [&] {
      youngest->kept.assign(youngest->run->text().begin(), youngest->run->text().end());
      youngest->run->forget();  // and the round
      youngest->state = TextState::paused;
    });
    return true;
  }

  BatchSizes sizes_;
  std::optional<detail::SharedDraft<Text>> shared_;
  std::vector<Text*> texts_;          // of the round
  std::vector<const void*> ran_;      // models that have run in it, if that matters
  std::vector<std::size_t> waiting_;  // texts that wait for one of them
  std::vector<std::uint8_t> calls_;   // (texts_) whether a draft gave rows in it, if prompts are read
  std::vector<SlotNodes> nodes_;      // what these want; the pass may leave some out
  std::size_t written_ = 0;           // see MergedPass
  std::size_t prompts_ = 0;           // texts of the round that are not being written
};

}  // namespace specula
