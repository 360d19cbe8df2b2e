// Many texts at once: their rounds, with one pass of each model over all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/sampling_params.hpp"
#include "specula/base/stats.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/cost/batch_budget.hpp"
#include "specula/model/batched.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/run/generate.hpp"
#include "specula/run/limits.hpp"
#include "specula/run/shared_draft.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula {

using TextId = std::uint64_t;  ///< of a text in a batch: from 1 on, never used twice

/// A text that is to be written.
struct TextRequest {
  std::vector<Token> prompt = {};               ///< at least one token
  std::int32_t max_new_tokens = 256;            ///< see Limits
  std::vector<Token> stop = {};                 ///< see Limits
  SamplingParams params = {};                   ///< of this text
  std::uint64_t seed = 0;                       ///< of PhiloxRandom
  std::uint32_t sequence = 0;                   ///< likewise: samples of one prompt need one each
  std::optional<LogprobOptions> logprobs = {};  ///< see TreeVerifier::report_logprobs()
  /// As generate()'s, or empty: called by step() with the tokens of each round.
  std::function<bool(Tokens)> sink = {};
};

/// A text that has ended.
struct TextResult {
  TextId id = 0;                                  ///< that join() returned
  std::vector<Token> tokens = {};                 ///< emitted
  FinishReason reason = FinishReason::cancelled;  ///< why it ended; of no meaning after a failure
  /// What its rule, shape or sink threw, or a bad row; it ended this text alone.
  std::exception_ptr failure = nullptr;
  Stats stats = {};  ///< of this text
};

namespace detail {

// What make(slot) returns: a Speculator, or a pointer to a Pipeline.
template <class Run>
Run& made_rounds(Run& run) {
  return run;
}
template <class Run>
Run& made_rounds(std::unique_ptr<Run>& run) {
  return *run;
}
}  // namespace detail

/// Decodes many texts at once, which join, end and are cancelled at any round. `make(slot)` returns the
/// Speculator of a slot, or a std::unique_ptr to its Pipeline, over SlotOf each model; `models` are the
/// models, the target last. A round of all has one pass of a draft for as long as any text waits for one,
/// then one of the target. Models of a Speculator that are no slots run in its own calls, unmerged, and so
/// does a shape whose propose() is no coroutine.
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
/// With a shape that depends on nothing but its own text, and models that are BatchInvariant, a text is
/// bitwise what it is alone, under every rule. With share() that holds for rules by which the text does not
/// depend on the proposal (greedy, sample-and-match over chosen tokens, shared noise), and all others keep
/// its distribution.
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
  }

  /// From the next step() on, all texts draft from one budget, in the place of CostAware, which would take
  /// the texts' common passes for its own: see SharedDraft. Throws as its constructor.
  void share(BatchBudget budget, double max_stretch = 1e300) {
    NodeCounts nodes{};
    for (const auto& text : texts_) {
      const NodeCounts own = text->run.nodes();
      nodes.most = std::max(nodes.most, own.most), nodes.drafted = std::max(nodes.drafted, own.held());
    }
    shared_.emplace(std::move(budget), static_cast<std::int32_t>(texts_.size()), nodes, max_stretch);
    writing_.reserve(texts_.size());
  }
  /// What share() was given, and what it has learned since; null without it.
  const BatchBudget* budget() const { return shared_ ? &shared_->budget() : nullptr; }

  /// Queues a text, which begins in the next step() that has a free slot. Throws std::invalid_argument for
  /// limits or parameters out of range; a prompt that does not fit is that text's failure.
  TextId join(TextRequest request) {
    validate(request.params);
    validate(Limits{request.max_new_tokens, request.stop}, std::get<0>(models_).vocab_size());
    queue_.push_back({++last_id_, std::move(request)});
    return last_id_;
  }
  /// Ends a text, also while it is queued; the next step() returns it. False if there is none. Must not be
  /// called by a sink, which returns false instead.
  bool cancel(TextId id) {
    for (auto queued = queue_.begin(); queued != queue_.end(); ++queued)
      if (queued->first == id) {
        ended_.push_back({.id = id});
        queue_.erase(queued);
        return true;
      }
    for (auto& text : texts_)
      if (id != 0 && text->id == id) {
        text->out.reason = FinishReason::cancelled;
        leave(*text, nullptr);
        return true;
      }
    return false;
  }
  /// Whether no text is being written, waits, or has still to be returned.
  bool empty() const { return running() == 0 && queue_.empty() && ended_.empty(); }
  /// Texts that are being written.
  std::int32_t running() const {
    std::int32_t n = 0;
    for (const auto& text : texts_) n += text->id != 0;
    return n;
  }
  /// Texts that wait for a free slot.
  std::int32_t queued() const { return static_cast<std::int32_t>(queue_.size()); }
  /// The tokens of a text that is being written, prompt included; empty if there is none.
  Tokens text(TextId id) const {
    for (const auto& text : texts_)
      if (id != 0 && text->id == id) return text->run.text();
    return {};
  }
  std::int64_t passes() const { return passes_; }  ///< of all models so far

  /// A round of every text, but for those whose prompt is still being read. Returns the texts that have
  /// ended, valid until the next call. Throws what a pass of the target throws: no text has changed then, and
  /// the next step() repeats the round. A failed pass of a draft ends drafting in the texts that waited for
  /// it, as in Speculator::step().
  const std::vector<TextResult>& step() {
    returned_.clear();
    while (enter()) {
    }
    if (shared_) begin_shared();
    for (auto& text : texts_)
      if (text->id && !text->in_round) begin(*text);
    while ((shared_ && shared_->grant()) || run_drafts(std::make_index_sequence<sizeof...(Models) - 1>())) {
    }
    if (shared_) shared_->choose();
    try {
      run_pass(target(), false);
    } catch (...) {
      for (auto& text : texts_)
        if (text->in_round) text->run.abandon(), text->in_round = false;
      throw;
    }
    for (auto& text : texts_)
      if (text->in_round && !text->run.want()) end(*text);
    if (shared_) shared_->end();
    std::swap(returned_, ended_);
    return returned_;
  }

 private:
  struct Text {
    Text(Make& make, std::int32_t s)
        : slot(s), made(make(slot)), run(detail::made_rounds(made)), shared{.run = &run} {}
    std::int32_t slot;
    Made made;
    Run& run;
    TextId id = 0;    // 0: the slot is free
    TextId last = 0;  // that it had
    bool in_round = false;
    TextRequest request;
    Generated out;
    PhiloxRandom rng{0};
    typename SharedDraft<Run>::Text shared;
  };

  template <class M>
  static void expect_slots(std::int32_t slots, const M& model) {
    if (slots < 1 || model.slots() < slots)
      throw std::invalid_argument("BatchSpeculator: " + std::to_string(slots) +
                                  " texts at once, and a model has " + std::to_string(model.slots()) +
                                  " slots");
  }

  /// Calls f(); if that throws, the text ends with it.
  template <class F>
  void guarded(Text& text, F f) {
    try {
      f();
    } catch (...) {
      leave(text, std::current_exception());
    }
  }
  /// The next text begins, in the free slot whose last text it shares the least with: that one, and those
  /// that ended last, may yet be gone on with. False if no text can.
  bool enter() {
    if (queue_.empty() || running() == static_cast<std::int32_t>(texts_.size())) return false;
    const auto next = std::find_if(queue_.begin(), queue_.end(),
                                   [&](const auto& queued) { return !waits(queued.second.prompt); });
    if (next == queue_.end()) return false;
    Text* best = nullptr;
    std::pair<std::int32_t, TextId> least;
    for (auto& text : texts_) {
      if (text->id) continue;
      const std::pair own(common(next->second.prompt, text->run.text()), text->last);
      if (!best || own < least) best = text.get(), least = own;
    }
    Text& text = *best;
    text.id = text.last = next->first;
    text.request = std::move(next->second);
    queue_.erase(next);
    text.out = {};
    text.rng = PhiloxRandom{text.request.seed, text.request.sequence};
    text.shared.draft = {};
    text.run.reset_stats();
    guarded(text, [&] {
      auto& settings = detail::settings_of(text.run);
      settings.set_params(text.request.params);
      if (text.request.logprobs)
        settings.report_logprobs(*text.request.logprobs);
      else
        settings.report_no_logprobs();
      text.run.start(text.request.prompt);
      std::apply([&](auto&... models) { (fork_into(text, models), ...); }, models_);
    });
    return true;
  }
  /// Tokens that two texts begin with.
  static std::int32_t common(Tokens a, Tokens b) {
    return static_cast<std::int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }
  template <class M>
  static std::int32_t computed(const M& model, std::int32_t slot) {
    return model.size(slot) - model.queued(slot);
  }
  /// Whether more than a chunk of the prompt is about to be read for another text.
  bool waits(Tokens prompt) {
    if constexpr (detail::has_fork<std::remove_reference_t<decltype(target())>>())
      for (const auto& other : texts_)
        if (other->id && target().queued(other->slot) > target().chunk() &&
            common(prompt, other->run.text()) > computed(target(), other->slot) + target().chunk())
          return true;
    return false;
  }
  /// Copies what the model has computed for another text that begins alike. A draft may hold tokens that it
  /// drafted where that text has others by now, but not in its prompt.
  template <class M>
  void fork_into([[maybe_unused]] Text& text, [[maybe_unused]] M& model) {
    if constexpr (detail::has_fork<M>()) {
      std::int32_t most = computed(model, text.slot), from = -1;
      for (const auto& other : texts_) {
        if (other.get() == &text) continue;
        std::int32_t tokens = std::min({common(text.run.text(), other->run.text()),
                                        computed(model, other->slot), model.size(text.slot)});
        if (static_cast<const void*>(&model) != &target())
          tokens = std::min(tokens, static_cast<std::int32_t>(other->request.prompt.size()) - 1);
        if (tokens > most) most = tokens, from = other->slot;
      }
      if (from >= 0) model.fork(from, text.slot, most);
    }
  }
  void begin(Text& text) {
    if (text.out.tokens >= text.request.max_new_tokens) return leave(text, nullptr);
    if (text.run.room() < 1) {
      text.out.reason = FinishReason::context_full;
      return leave(text, nullptr);
    }
    guarded(text, [&] {
      if (shared_)
        text.run.begin(text.rng, text.request.stop, shared_->cost_model(), shared_->max_nodes());
      else
        text.run.begin(text.rng, text.request.stop);
      text.in_round = true;
    });
  }
  void end(Text& text) {
    guarded(text, [&] {
      text.in_round = false;
      const Limits limits{text.request.max_new_tokens, text.request.stop};
      const auto sink = [&](Tokens fresh) { return !text.request.sink || text.request.sink(fresh); };
      const std::int32_t before = text.out.tokens;
      const bool ended = detail::emit(text.run, text.run.end(), limits, sink, text.out);
      if (shared_) shared_->ended(text.shared, text.out.tokens - before);
      if (ended) leave(text, nullptr);
    });
  }
  void leave(Text& text, std::exception_ptr failure) {
    if (text.in_round) text.run.abandon(), text.in_round = false;
    const Tokens all = text.run.text();
    const std::size_t from = std::min(text.request.prompt.size(), all.size());
    const Tokens emitted =
        all.subspan(from, std::min(all.size() - from, static_cast<std::size_t>(text.out.tokens)));
    ended_.push_back(
        {text.id, {emitted.begin(), emitted.end()}, text.out.reason, std::move(failure), text.run.stats()});
    if (ended_.back().failure) text.run.forget();
    text.id = 0;
  }

  void begin_shared() {
    writing_.clear();
    std::int32_t count = 0;
    for (std::size_t slot = 0; slot < texts_.size(); ++slot) {
      Text& text = *texts_[slot];
      if (!text.id) continue;
      writing_.push_back(&text.shared);
      count += target().queued(static_cast<std::int32_t>(slot)) <= target().chunk();
    }
    shared_->begin(writing_, count);
  }
  auto& target() { return std::get<sizeof...(Models) - 1>(models_); }

  template <std::size_t... i>
  bool run_drafts(std::index_sequence<i...>) {
    return (run_draft(std::get<i>(models_)) || ...);
  }
  template <class M>
  bool run_draft(M& model) {
    try {
      return run_pass(model, true);
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      for (Text* text : waiting_) text->run.fail(failure);
      return true;
    }
  }
  /// One pass of a model over all texts that wait for it; false if no text gets rows. A text with more queued
  /// tokens than a chunk only gets on with those.
  template <class M>
  bool run_pass(M& model, bool drafts) {
    nodes_.clear(), waiting_.clear();
    std::int32_t queued = 0;
    for (auto& text : texts_) {
      const PassRequest* want = text->in_round ? text->run.want() : nullptr;
      if (!want || want->batch != &model) continue;
      waiting_.push_back(text.get());
      nodes_.push_back({want->slot});
      if (model.queued(want->slot) <= model.chunk())
        nodes_.back().tokens = want->tokens, nodes_.back().parents = want->parents;
      queued += model.queued(want->slot);
    }
    if (nodes_.empty()) return false;
    const double began = clock(model);
    const LogitsView rows = model.extend(nodes_);
    const double seconds = clock(model) - began;
    ++passes_;
    std::int32_t from = 0, texts = 0;  // that get rows
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto count = static_cast<std::int32_t>(nodes_[i].tokens.size());
      if (count == 0) continue;
      waiting_[i]->shared.calls += drafts;
      guarded(*waiting_[i], [&] { waiting_[i]->run.give(rows.part(from, count)); });
      from += count, ++texts;
    }
    if (shared_ && drafts && from > 0) shared_->drafted(from, queued, seconds);
    if (shared_ && !drafts) shared_->verified(texts, from, queued, seconds);
    return from > 0;
  }

  /// The clock of the passes of `nodes_`: the model's own, if it has one for each text.
  template <class M>
  double clock([[maybe_unused]] const M& model) const {
    if constexpr (detail::has_pass_seconds<M>()) {
      double all = 0;
      for (const SlotNodes& own : nodes_) all += model.pass_seconds(own.slot);
      return all;
    }
    return detail::monotonic_seconds();
  }
  std::tuple<Models&...> models_;
  std::vector<std::unique_ptr<Text>> texts_;  // by slot
  std::deque<std::pair<TextId, TextRequest>> queue_;
  std::vector<SlotNodes> nodes_;  // of a pass
  std::vector<Text*> waiting_;    // (nodes_) whose they are
  std::vector<TextResult> ended_, returned_;

  TextId last_id_ = 0;
  std::int64_t passes_ = 0;

  std::optional<SharedDraft<Run>> shared_;
  std::vector<typename SharedDraft<Run>::Text*> writing_;  // texts of the round
};

}  // namespace specula
