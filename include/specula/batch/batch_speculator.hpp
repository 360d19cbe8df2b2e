// SPDX-License-Identifier: MIT
// Many texts at once that join, end, pause and are cancelled: the driver of their rounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/sampling_params.hpp"
#include "specula/base/stats.hpp"
#include "specula/batch/run_pass.hpp"
#include "specula/batch/run_round.hpp"
#include "specula/batch/shared_draft.hpp"
#include "specula/batch/shared_prefix.hpp"
#include "specula/batch/text_request.hpp"
#include "specula/batch/waiting_texts.hpp"
#include "specula/cost/batch_budget.hpp"
#include "specula/model/batched.hpp"
#include "specula/run/limits.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula {

/// Decodes many texts at once, which join, end, pause and are cancelled at any round. `make(slot)` returns
/// the Speculator of a slot, or a std::unique_ptr to its Pipeline, over SlotOf each model; `models` are the
/// models, the target last, the cheapest draft first. A step() is a run_round() of all texts. Models of a
/// Speculator that are no slots run in its own calls, unmerged, and so does a shape whose propose() is no
/// coroutine.
///
///   specula::BatchSpeculator batch{8, [&](std::int32_t slot) {
///     return specula::Speculator{specula::TreeVerifier{targets[slot], specula::Sampling{}},
///                                specula::ModelDrafter{drafts[slot]}, specula::Chain<>{.length = 2}};
///   }, draft, target};
///   batch.join({.prompt = prompt});
///   while (!batch.empty())
///     for (const specula::TextResult& text : batch.step()) ...
///
/// A prompt that begins as another text does, one that has ended in its slot too, is not read again where the
/// models can fork(): several answers to one prompt, or a system prompt, are read once. While that other text
/// is still being read, the new one waits.
///
/// With a shape that depends on nothing but the text so far, and models of which kBatchInvariant is true, a
/// text is bitwise what it is alone, under every rule, also if it pauses. With share() that holds for rules
/// by which the text does not depend on the proposal (greedy, sample-and-match over chosen tokens, shared
/// noise), and all others keep its distribution.
template <class Make, BatchedLanguageModel... Models>
class BatchSpeculator {
  static_assert(sizeof...(Models) > 0, "BatchSpeculator: it needs the models, the target last");

 public:
  using Made = decltype(std::declval<Make&>()(std::int32_t{}));  ///< the pipeline of a slot
  /// The Speculator or Pipeline itself.
  using Run = std::remove_reference_t<decltype(detail::made_rounds(std::declval<Made&>()))>;

  /// As many texts at once as `slots`. Throws std::invalid_argument if a model has fewer, and what `make`
  /// throws.
  BatchSpeculator(std::int32_t slots, Make make, Models&... models) : models_(models...) {
    (expect_slots(slots, models), ...);
    for (std::int32_t slot = 0; slot < slots; ++slot)
      texts_.push_back(std::unique_ptr<Text>(new Text(make, slot)));
    running_.reserve(texts_.size());
    rounds_.emplace(sizes());
  }

  /// From the next step() on, all texts draft from one budget, in the place of CostAware, which would take
  /// the texts' common passes for its own: see BatchRounds. Throws std::invalid_argument as its constructor,
  /// and if the target's passes are not merged (Speculator::batch()), since the budget learns from those.
  void share(BatchBudget budget, double max_stretch = 1e300) {
    for (const auto& text : texts_)
      if (text->run->batch() != &target())
        throw std::invalid_argument(
            std::string("BatchSpeculator::share: the target of slot ") + std::to_string(text->slot) +
            (text->run->batch()
                 ? " is a slot of another model than the last one given"
                 : " runs its own passes, from which a budget in common learns nothing: it is no slot "
                   "of a model of many texts, or its verifier is a PathVerifier"));
    BatchSizes all = sizes();
    for (auto* text : running_) text->run->abandon();  // rounds that wait refer to the old budget
    rounds_.emplace(std::move(all), std::move(budget), max_stretch);
  }
  /// What share() was given, and what it has learned since; null without it.
  const BatchBudget* budget() const { return rounds_->budget(); }

  /// Queues a text, which begins in the next step() that has a free slot. Throws std::invalid_argument for
  /// limits or parameters out of range; a prompt that does not fit is that text's failure.
  TextId join(TextRequest request) {
    validate(request.params);
    validate(Limits{request.max_new_tokens, request.stop}, target().vocab_size());
    waiting_.join({.id = last_id_ + 1, .request = std::move(request)});
    return ++last_id_;
  }
  /// Ends a text, also while it is queued or paused; the next step() returns it. False if there is none. Must
  /// not be called by a sink, which returns false instead.
  bool cancel(TextId id) {
    ended_.reserve(ended_.size() + 1);
    if (std::optional<detail::WaitingText> waiting = waiting_.remove(id)) {
      ended_.push_back(
          {.id = id, .stats = std::move(waiting->stats), .logprobs = std::move(waiting->logprobs)});
      if (!waiting->text.empty()) ended_.back().tokens = last(waiting->text, waiting->out.tokens);
      return true;
    }
    Text* const text = find(id);
    if (!text) return false;
    text->out.reason = FinishReason::cancelled;
    leave(*text);
    return true;
  }
  /// Stops a text until resume(): at the end of its round its slot becomes free, and all that models hold of
  /// it is dropped; tokens, draws, statistics and log-probabilities stay. False if there is none. A sink may
  /// call it.
  bool pause(TextId id) {
    if (waiting_.pause(id)) return true;
    Text* const text = find(id);
    if (!text) return false;
    text->pauses = true;
    if (!in_step_) settle();
    return true;
  }
  /// Queues a paused text before all others. Its prompt and text are read again, and it goes on as if it had
  /// not been paused, but for a shape that learns within a text, which begins anew. False if it is not
  /// paused.
  bool resume(TextId id) { return waiting_.resume(id); }
  /// Whether no text is being written, waits for a slot, or has still to be returned. Paused ones do not
  /// count: step() does nothing for them.
  bool empty() const { return running_.empty() && waiting_.queued() == 0 && ended_.empty(); }
  /// Texts that have a slot.
  std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }
  /// Texts that wait for a free slot, or for the end of another text to which they have made room.
  std::int32_t queued() const { return static_cast<std::int32_t>(waiting_.queued()); }
  /// Texts that wait for resume().
  std::int32_t paused() const { return static_cast<std::int32_t>(waiting_.paused()); }
  /// The tokens of a text that has begun and not ended, prompt included; empty if there is none.
  Tokens text(TextId id) const {
    const Text* const text = find(id);
    return text ? text->run->text() : waiting_.text(id);
  }
  /// Log-probabilities of a text's last round, as Speculator::logprobs(); within its sink, of the tokens that
  /// the sink is given. Empty if it has no slot.
  Logprobs logprobs(TextId id) const {
    const Text* const text = find(id);
    return text ? text->run->logprobs() : Logprobs();
  }
  std::int64_t passes() const { return passes_; }  ///< of all models so far

  /// A round of every text, but for those whose prompt is still being read. Returns the texts that have
  /// ended, valid until the next call. Throws what a pass of the target throws: no text has changed then, and
  /// the next step() repeats the round. A failed pass of a draft ends drafting in the texts that waited for
  /// it, as in Speculator::step(). If a pass throws NoRoom, what free slots hold is dropped, then the
  /// youngest text is paused and the pass repeated. Texts paused so are queued before all others, and come
  /// back one by one, as other texts end, or when none is left. A text that does not fit alone fails with
  /// NoRoom.
  const std::vector<TextResult>& step() {
    returned_.clear();
    if (!settled_) settle();  // memory had run out
    while (enter()) {
    }
    in_step_ = true;
    try {
      run_round(running_, *rounds_, [&](const MergedPass& wanted) { return pass(wanted); });
    } catch (...) {
      in_step_ = false;
      settle();
      throw;
    }
    in_step_ = false;
    settle();
    std::swap(returned_, ended_);
    return returned_;
  }

 private:
  struct Text : BatchText<Run> {
    Text(Make& make, std::int32_t s) : slot(s), made(make(slot)) {
      this->run = &detail::made_rounds(made);
      this->sink = [this](Tokens tokens) { return !request.sink || request.sink(tokens); };
    }
    std::int32_t slot;
    Made made;
    TextId id = 0;    // 0: the slot is free
    TextId last = 0;  // that it had
    TextRequest request;
    Stats before;  // of the time before a pause
    LogprobList logprobs;
    bool pauses = false;
  };

  template <class M>
  static void expect_slots(std::int32_t slots, const M& model) {
    if (slots < 1 || model.slots() < slots)
      throw std::invalid_argument("BatchSpeculator: " + std::to_string(slots) +
                                  " texts at once, and a model has " + std::to_string(model.slots()) +
                                  " slots");
  }
  BatchSizes sizes() const {
    BatchSizes all{.texts = static_cast<std::int32_t>(texts_.size())};
    for (const auto& text : texts_) {
      const NodeCounts counts = text->run->nodes();
      all.nodes.most = std::max(all.nodes.most, counts.most),
      all.nodes.drafted = std::max(all.nodes.drafted, counts.held());
    }
    std::apply([&](auto&... models) { (all.drafts.push_back(&models), ...); }, models_);
    all.drafts.pop_back();
    return all;
  }
  static std::vector<Token> last(Tokens text, std::int32_t tokens) {
    const Tokens part = text.last(std::min(text.size(), static_cast<std::size_t>(tokens)));
    return {part.begin(), part.end()};
  }
  Text* find(TextId id) const {
    for (auto* text : running_)
      if (static_cast<Text*>(text)->id == id) return static_cast<Text*>(text);
    return nullptr;
  }

  /// One pass of a round; before a text is paused, free slots give up what they hold.
  PassRows pass(const MergedPass& wanted) {
    try {
      return pass_of(wanted);
    } catch (const NoRoom&) {
      if (!forget_ended()) throw;
    }
    return pass_of(wanted);
  }
  template <std::size_t i = sizeof...(Models) - 1>
  PassRows pass_of(const MergedPass& wanted) {
    if (auto& model = std::get<i>(models_); &model == wanted.model) {
      ++passes_;
      return run_pass(model, wanted);
    }
    if constexpr (i > 0) return pass_of<i - 1>(wanted);
    throw std::logic_error("BatchSpeculator: a text waits for a pass of a model that it was not given");
  }
  /// False if no free slot held anything.
  bool forget_ended() {
    bool any = false;
    for (auto& text : texts_) {
      if (text->id != 0 || text->run->text().empty()) continue;
      text->run->forget();
      any = true;
    }
    return any;
  }

  /// The next text begins, in the free slot whose last text it shares the least with: that one, and those
  /// that ended last, may yet be gone on with. False if no text can.
  bool enter() {
    if (running_.size() == texts_.size()) return false;
    const auto* next = waiting_.next(
        running_.empty(), [&](Tokens prompt) { return detail::is_being_read(target(), texts_, prompt); });
    if (!next) return false;
    Text& text = detail::free_slot(texts_, next->tokens());
    detail::WaitingText waiting = waiting_.take();
    text.id = text.last = waiting.id;
    text.request = std::move(waiting.request);
    text.limits = {text.request.max_new_tokens, text.request.stop};
    text.rng = detail::random_of(text.request, text.id);
    text.drafts = waiting.drafts, text.draft = {}, text.state = TextState::joined;
    text.out = waiting.out, text.fresh = {}, text.failure = nullptr, text.pauses = false;
    text.before = std::move(waiting.stats), text.logprobs = std::move(waiting.logprobs),
    text.kept = std::move(waiting.text);
    text.run->reset_stats();
    const auto younger = [&](const auto* other) { return static_cast<const Text*>(other)->id > text.id; };
    running_.insert(std::find_if(running_.begin(), running_.end(), younger), &text);
    try {
      start(text);
    } catch (...) {
      text.failure = std::current_exception();
      text.state = TextState::failed;
    }
    if (text.state > TextState::writing) settle();
    return true;
  }
  void start(Text& text) {
    if (text.request.enter) text.request.enter(text.slot);
    auto& settings = detail::settings_of(*text.run);
    settings.set_params(text.request.params);
    if (text.request.logprobs)
      settings.report_logprobs(*text.request.logprobs);
    else
      settings.report_no_logprobs();
    const Tokens tokens = text.kept.empty() ? text.request.prompt : text.kept;
    if (!has_room(text, tokens)) return text.state = TextState::paused, void();
    const auto copy = [&](auto& model) {
      const bool drafts = static_cast<const void*>(&model) != &target();
      detail::copy_prefix(model, drafts, text, texts_);
    };
    std::apply([&](auto&... models) { (copy(models), ...); }, models_);
    if (text.request.logprobs)
      text.logprobs.reserve(
          static_cast<std::size_t>(std::min<std::int64_t>(
              text.request.max_new_tokens, std::int64_t{text.out.tokens} + text.run->room() + 1)),
          static_cast<std::size_t>(text.request.logprobs->top));
  }
  /// Prefill, with passes of a draft that reads the target's state. Where these find no room, ended texts
  /// give up theirs, then this one, which goes on without its draft if it is alone: false if it is to pause.
  bool has_room(Text& text, Tokens tokens) {
    for (bool again = true; again;) {
      text.run->reset_stats();
      text.run->start(tokens);
      if (!lacks_room(text.run->draft_failure())) return true;
      again = forget_ended();
    }
    if (running_.size() == 1) return true;
    text.run->reset_stats();  // its draft has not failed
    return false;
  }
  static bool lacks_room(const std::exception_ptr& failure) try {
    if (failure) std::rethrow_exception(failure);
    return false;
  } catch (const NoRoom&) {
    return true;
  } catch (...) {
    return false;
  }

  /// After a round: texts that have ended, failed or paused give up their slots.
  void settle() {
    bool ended = false, pauses = false;
    settled_ = false;
    for (std::size_t i = 0; i < running_.size();) {
      Text& text = *static_cast<Text*>(running_[i]);
      if (!text.fresh.empty() && text.request.logprobs) add_logprobs(text);
      text.fresh = {};
      pauses = pauses || text.pauses || text.state == TextState::paused;
      if (text.state == TextState::ended || text.state == TextState::failed)
        leave(text), ended = true;
      else
        ++i;
    }
    if (pauses) pause_texts();
    if (ended) waiting_.ended();
    settled_ = true;
  }
  void pause_texts() {
    for (std::size_t i = running_.size(); i-- > 0;) {  // the oldest that made room is then queued first
      Text& text = *static_cast<Text*>(running_[i]);
      if (text.state == TextState::paused) {
        give_up(text, text.pauses ? waiting_.add_paused() : waiting_.add_first());
      } else if (text.pauses && (text.run->in_round() || text.run->room() > 0)) {  // else it ends in a round
        text.run->abandon();
        text.kept.assign(text.run->text().begin(), text.run->text().end());
        give_up(text, waiting_.add_paused());
      }
    }
  }
  static void add_logprobs(Text& text) {
    try {
      text.logprobs.add(text.run->logprobs());
    } catch (...) {
      text.state = TextState::failed, text.failure = std::current_exception();
    }
  }
  /// The text goes on later; its slot is free and holds nothing.
  void give_up(Text& text, detail::WaitingText& to) {
    to.id = std::exchange(text.id, 0);
    to.text = std::move(text.kept), to.out = text.out;
    to.drafts = text.drafts && text.run->stats().failed_drafts == 0;
    to.stats = std::move(text.before), to.stats += text.run->stats();
    to.request = std::move(text.request), to.logprobs = std::move(text.logprobs);
    running_.erase(std::find(running_.begin(), running_.end(), &text));
    text.run->forget();
  }
  /// The text ends. What was computed of it stays in its slot, for texts that begin alike, unless it failed.
  void leave(Text& text) {
    text.run->abandon();
    const Tokens all = text.run->text().empty() ? Tokens(text.kept) : text.run->text();
    const std::size_t size = text.request.prompt.size() + static_cast<std::size_t>(text.out.tokens);
    ended_.reserve(ended_.size() + 1);
    TextResult result{text.id, last(all.first(std::min(size, all.size())), text.out.tokens), text.out.reason,
                      text.failure, text.before + text.run->stats()};
    result.logprobs = std::move(text.logprobs);
    ended_.push_back(std::move(result));
    running_.erase(std::find(running_.begin(), running_.end(), &text));
    text.id = 0;
    waiting_.ended();
    if (text.failure) text.run->forget();
  }

  auto& target() const { return std::get<sizeof...(Models) - 1>(models_); }

  std::tuple<Models&...> models_;
  std::vector<std::unique_ptr<Text>> texts_;  // by slot
  std::vector<BatchText<Run>*> running_;      // those with a text, the oldest first
  detail::WaitingTexts waiting_;
  std::vector<TextResult> ended_, returned_;
  bool in_step_ = false, settled_ = true;
  TextId last_id_ = 0;
  std::int64_t passes_ = 0;
  std::optional<BatchRounds<Run>> rounds_;
};

}  // namespace specula
