// The speculative decoding loop: propose, verify, commit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"
#include "specula/run/detail/explain.hpp"
#include "specula/run/limits.hpp"
#include "specula/verify/logprobs.hpp"

namespace specula {

/// A pipeline: a verifier (the target and its rule), a drafter, a shape. Policies are values that reference
/// their models. After the constructor a round allocates nothing. Requires that no other code changes its
/// models during a text; step() detects a change.
///
///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}, {.temperature = 0.8f}},
///                           specula::ModelDrafter{draft}, specula::Chain<>{.length = 4}};
///   specula::PhiloxRandom rng{seed};
///   run.generate(prompt, {.max_new_tokens = 256}, rng, [&](specula::Tokens fresh) { ... });
template <class V, class D, class S>
class Speculator {
  static_assert(
      Verifier<V>,
      "Speculator: its first part is no Verifier: a member is missing or has another type; it is named "
      "below, and specula/policy/concepts.hpp lists them all");
  static_assert(
      Drafter<D>,
      "Speculator: its second part is no Drafter: a member is missing or has another type; it is named "
      "below, and specula/policy/concepts.hpp lists them all");
  static_assert(detail::explain_shape<S, D>());
  static_assert(detail::check_drafter_members<D>() && detail::check_shape_members<S>());
  static_assert(!Verifier<V> || !ProposalShape<S, D> || Lossless<V, S>,
                "Lossless<Verifier, Shape> does not hold: " SPECULA_NOT_LOSSLESS
                " Write accept_lossy(rule) if a text of another distribution is what you want.");

 public:
  /// Prefill runs in chunks that begin at multiples of this number of tokens, so that two prompts with a
  /// common prefix are split alike.
  static constexpr std::int32_t kPrefillChunk = 128;

  /// Empties the models. Throws std::invalid_argument if target and drafter have different vocabularies or
  /// are the same model, or if a field of the shape is out of range (if it has a validate()).
  Speculator(V verifier, D drafter, S shape)
      : verifier_(std::move(verifier)),
        drafter_(std::move(drafter)),
        shape_(detail::validated(std::move(shape))),
        tree_(checked_vocab(verifier_, drafter_), shape_.nodes().most,
              S::kind == ProposalKind::deterministic ? 0 : shape_.nodes().most) {
    forget();
    const std::int32_t nodes = shape_.nodes().most;
    const std::int64_t tokens = std::int64_t{verifier_.room()} + nodes;  // of a text, except the last
    const Sizes sizes{.tokens = static_cast<std::int32_t>(
                          std::min<std::int64_t>(tokens, std::numeric_limits<std::int32_t>::max())),
                      .nodes = nodes};
    verifier_.reserve(sizes);
    if constexpr (Reserves<D>) drafter_.reserve(sizes);
    if constexpr (Reserves<S>) shape_.reserve(sizes);
    text_.reserve(static_cast<std::size_t>(tokens) + 1);
    stats_.offered.resize(at(nodes));
    stats_.accepted.resize(stats_.offered.size());
    stats_.drafters.resize(kDrafters);
  }

  Speculator(const Speculator&) = delete;  // the last result is stored in the verifier
  Speculator& operator=(const Speculator&) = delete;

  /// Prefill: makes `prompt` the text, in the target first, then in the drafter, which may be conditioned on
  /// it. The prefix shared with the last text is kept, in multiples of kPrefillChunk, if the target counts
  /// its changes (CountsChanges) and has not changed since. forget() keeps none. Throws
  /// std::invalid_argument, before anything changes, on an empty prompt, a token outside the vocabulary or a
  /// prompt longer than the target can hold. A draft that fails ends drafting, as in step(); this text tries it anew.
  /// Throws std::logic_error if a sink of this Speculator calls it.
  void start(Tokens prompt) {
    expect_no_sink();
    check_prompt(prompt);
    const bool keeps = change_count_ && is_unchanged();  // else a prefix may be another text's by now
    const ChangeCountRecorder recorder(*this);
    const detail::Stopwatch watch(stats_.prefill_seconds);
    const std::vector<Token> next(prompt.begin(), prompt.end());  // the prompt may alias text()
    const auto context = static_cast<std::int32_t>(next.size()) - 1;
    std::int32_t keep = 0;
    while (keeps && keep < context && keep + 1 < static_cast<std::int32_t>(text_.size()) &&
           text_[at(keep)] == next[at(keep)])
      ++keep;
    keep = keep / kPrefillChunk * kPrefillChunk;
    text_.clear();  // if the target throws below, start() must be called again, and starts from nothing
    failure_ = nullptr;
    verifier_.truncate(keep);
    try_draft([&] { drafter_.truncate(keep); });
    for (std::int32_t from = keep; from < context; from += kPrefillChunk) {
      const std::int32_t to = std::min(from + kPrefillChunk, context);
      verifier_.append(Tokens(next).subspan(at(from), at(to - from)));
      if (draft_room(to) > 0) try_draft([&] { drafter_.sync(Tokens(next).first(at(to)), {}); });
    }
    text_.assign(next.begin(), next.end());
    if constexpr (LearnsFromRounds<S>) shape_.reset();
  }

  /// Drops the text, and the prefix that start() could keep: to be called if a model computes something else
  /// since then for the same tokens, and does not count that. Throws std::logic_error if a sink of this
  /// Speculator calls it.
  void forget() {
    expect_no_sink();
    const ChangeCountRecorder recorder(*this);
    text_.clear();
    verifier_.truncate(0);
    drafter_.truncate(0);
  }

  /// One round. Returns the tokens that it added to text(): at least one. Drafts end at the tokens `stop`;
  /// the tokens returned may go on behind them. Throws std::length_error if the target's KV cache is full. If
  /// the target or the rule throws, text() and the committed context are unchanged. (A shape's learn() runs
  /// last: if it throws, text() has the round's tokens.) Throws std::logic_error if other code used the
  /// target or a draft since the last round, as far as a size or a change count shows that: text() is kept,
  /// and start(text()) continues with it; also if a sink of this Speculator calls it.
  ///
  /// A draft that fails ends drafting, not the text: if propose() throws a std::exception that is no
  /// std::logic_error, as it does for a row with NaN, the round verifies what was drawn before, and later
  /// rounds of this text decode plainly, without learn(). The text keeps its distribution, also if the tokens
  /// drawn were the cause. See draft_error().
  template <class C>
  Tokens step(C& rng, Tokens stop = {}) {
    static_assert(detail::explain_random_source<C, S::kind == ProposalKind::shared>());
    expect_no_sink();
    if (text_.empty()) throw std::invalid_argument("Speculator::step: call start() first");
    if (!is_unchanged()) throw_used();
    if (room() < 1)
      throw std::length_error("Speculator::step: the target's context is full, " +
                              std::to_string(text_.size() - 1) + " tokens");
    {
      const ChangeCountRecorder recorder(*this);
      Meter meter(*this);
      const detail::Stopwatch watch(stats_.round_seconds);
      round(rng, stop, meter);
    }
    return Tokens(text_).last(static_cast<std::size_t>(added_));
  }

  /// start(), then rounds until a limit is reached, the KV cache is full or the sink returns false; each
  /// round's tokens are passed to sink(Tokens). Returns the number of emitted tokens and the finish reason.
  /// The same random source, passed again, writes the same text again: samples of one prompt need a
  /// `sequence` each, PhiloxRandom{seed, sequence}. text() may hold a few more than were emitted: those that
  /// the last round accepted beyond the limit; stats() do not count them. Throws std::invalid_argument,
  /// before anything changes, for limits out of range. Exceptions of the sink propagate: text() then holds
  /// the tokens that it was given, and those few more if that round was the last; step() and start() can
  /// continue. A sink must not call step(), start(), generate() or forget() of this object: they throw
  /// std::logic_error and change nothing.
  template <class C, class Sink>
  Generated generate(Tokens prompt, const Limits& limits, C&& rng, Sink sink) {
    static_assert(
        detail::explain_random_source<std::remove_reference_t<C>, S::kind == ProposalKind::shared>());
    static_assert(TokenSink<Sink>,
                  "a sink is called with specula::Tokens and returns nothing, or a bool: false cancels");
    validate(limits, tree_.vocab());
    start(prompt);
    std::int32_t emitted = 0;
    while (emitted < limits.max_new_tokens) {
      if (room() < 1) return {emitted, FinishReason::context_full};
      Tokens fresh = step(rng, limits.stop);
      fresh = fresh.first(std::min(fresh.size(), at(limits.max_new_tokens - emitted)));
      const auto stop =
          std::find_first_of(fresh.begin(), fresh.end(), limits.stop.begin(), limits.stop.end());
      const bool stopped = stop != fresh.end();
      if (stopped) fresh = fresh.first(static_cast<std::size_t>(stop - fresh.begin()) + 1);
      count_emitted(static_cast<std::int32_t>(fresh.size()));
      emitted += emitted_;
      bool goes_on = true;
      {
        const InSink inside(in_sink_);
        if constexpr (std::is_void_v<std::invoke_result_t<Sink&, Tokens>>)
          sink(fresh);
        else
          goes_on = sink(fresh);
      }
      if (stopped) return {emitted, FinishReason::stop_token};
      if (!goes_on && emitted < limits.max_new_tokens) return {emitted, FinishReason::cancelled};
    }
    return {emitted, FinishReason::limit};
  }

  /// Of the tokens that the last step() returned only the first `n` were emitted, since the text ends
  /// there: removes the others from stats() and logprobs(). generate() calls it. Throws std::logic_error
  /// before the first round, std::invalid_argument unless 0 <= n <= tokens of that round that still count.
  void count_emitted(std::int32_t n) {
    specula::count_emitted(stats_, tree_, result(), n, emitted_);
    emitted_ = n;
  }

  /// Prompt and everything generated; the last token is the next round's root.
  Tokens text() const { return text_; }
  /// Nodes that still fit in the target's KV cache.
  std::int32_t room() const { return verifier_.room(); }
  /// Sums over all rounds since the constructor or reset_stats(). For one request, subtract two copies.
  const Stats& stats() const { return stats_; }
  /// What ended drafting in this text, as the exception's what(); empty if nothing did. stats().failed_drafts
  /// counts such texts.
  std::string draft_error() const {
    if (!failure_) return {};
    try {
      std::rethrow_exception(failure_);
    } catch (const std::exception& e) {
      return e.what();
    }
  }
  /// Call this between texts only: tokens that count_emitted() removes later must have been counted.
  void reset_stats() { stats_.clear(); }
  /// Log-probabilities of the last round's emitted tokens, in their order, if verifier().report_logprobs()
  /// requested them; also inside generate()'s sink. Empty after a round that threw. Valid until the next
  /// round.
  Logprobs logprobs() const { return result_ ? verifier_.logprobs().first(at(emitted_)) : Logprobs(); }
  /// The last round's proposal and result, for code that is conditioned on them.
  const TokenTree& proposal() const { return tree_; }
  /// Throws std::logic_error before the first round, and after one that threw.
  const VerifyResult& result() const {
    if (!result_) throw std::logic_error("Speculator::result: no round has ended");
    return *result_;
  }
  V& verifier() { return verifier_; }        ///< the verifier
  D& drafter() { return drafter_; }          ///< the drafter
  S& shape() { return shape_; }              ///< the shape; change its fields between texts only
  const S& shape() const { return shape_; }  ///< the shape

 private:
  static constexpr std::size_t kDrafters = [] {
    if constexpr (HasMembers<D>) return D::kMembers;
    return std::size_t{1};
  }();

  /// Adds the models' usage of a round to the statistics, also when the round throws.
  class Meter {
   public:
    explicit Meter(Speculator& run) : run_(run), target_(run.verifier_.usage()), drafters_(run.drafters()) {}
    ~Meter() {
      if (!booked_) book();
    }
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;

    /// Once, at the end of the round; returns what the round took.
    Timing book() noexcept {
      Timing round{run_.verifier_.usage() - target_, {}};
      run_.stats_.target += round.target;
      const std::array<Usage, kDrafters> now = run_.drafters();
      for (std::size_t i = 0; i < kDrafters; ++i) {
        const Usage spent = now[i] - drafters_[i];
        run_.stats_.drafters[i] += spent;
        round.draft += spent;
      }
      run_.stats_.draft += round.draft;
      booked_ = true;
      return round;
    }

   private:
    Speculator& run_;
    Usage target_;
    std::array<Usage, kDrafters> drafters_;
    bool booked_ = false;
  };

  /// Records, on destruction, the change count at which this Speculator left the target. If change_count()
  /// throws, none is recorded, and the next step() treats the target as changed.
  class ChangeCountRecorder {
   public:
    explicit ChangeCountRecorder(Speculator& run) : run_(run) {}
    ~ChangeCountRecorder() {
      try {
        run_.change_count_ = run_.verifier_.change_count();
      } catch (...) {
      }
    }
    ChangeCountRecorder(const ChangeCountRecorder&) = delete;
    ChangeCountRecorder& operator=(const ChangeCountRecorder&) = delete;

   private:
    Speculator& run_;
  };

  /// Sets a flag during its lifetime.
  struct InSink {
    explicit InSink(bool& flag) : now(flag) { now = true; }
    ~InSink() { now = false; }
    InSink(const InSink&) = delete;
    InSink& operator=(const InSink&) = delete;
    bool& now;
  };
  void expect_no_sink() const {
    if (in_sink_)
      throw std::logic_error("Speculator: its own sink called step(), start(), generate() or forget()");
  }

  /// Nodes that a proposal after `context` tokens may have, as far as the drafter is concerned; 0 after a
  /// failure.
  std::int32_t draft_room(std::int32_t context) const {
    if (failure_) return 0;
    if constexpr (HasMembers<D>) return drafter_.room(context);
    return drafter_.capacity() - context;
  }
  /// Calls the drafter; if that fails, ends drafting for this text.
  template <class F>
  void try_draft(F draft) {
    if (std::exception_ptr failure = detail::failure_of(draft)) {
      failure_ = std::move(failure);
      ++stats_.failed_drafts;
    }
  }

  bool is_unchanged() const {
    return static_cast<std::size_t>(verifier_.size()) + 1 == text_.size() &&
           std::optional<std::uint64_t>(verifier_.change_count()) == change_count_;
  }
  [[noreturn]] void throw_used() const {
    throw std::logic_error("Speculator::step: the target holds " + std::to_string(verifier_.size()) +
                           " tokens, this text has " + std::to_string(text_.size() - 1) +
                           " before its last one; it was called since the last round: by another Speculator over the same model or "
                           "by hand, or its weights or settings changed, or a commit() that threw left it "
                           "so. start() begins anew");
  }

  template <class C>
  void round(C& rng, Tokens stop, Meter& meter) {
    const Tokens context = Tokens(text_).first(text_.size() - 1);
    const auto size = static_cast<std::int32_t>(context.size());
    const std::int32_t fits =
        std::min({shape_.nodes().most, verifier_.room(), std::max(1, draft_room(size))});
    result_ = nullptr;
    tree_.reset(text_.back(), size, fits);
    if (fits > 1) {
      const ProposalBuilder::ResetLock lock(tree_);
      const ProposeContext now{context, verifier_.params(), fits, nullptr, stop};
      // What was drawn before a failure stays: to draw anew biases the text if a drawn token was the cause.
      try_draft([&] { shape_.propose(drafter_, now, tree_, rng); });
    }
    if (tree_.size() > 1 && !covers(S::kind, tree_.kind()))
      throw std::logic_error("Speculator: the shape drew its proposal in another way than its kind declares");
    result_ = &verifier_.run_round(tree_, rng);
    added_ = static_cast<std::int32_t>(result_->accepted.size());
    for (std::size_t i = 1; i < result_->accepted.size(); ++i)
      text_.push_back(tree_.token(result_->accepted[i]));
    text_.push_back(result_->next_token);
    record();
    const Timing spent = meter.book();
    if constexpr (LearnsFromRounds<S>)
      if (!failure_) shape_.learn(tree_, *result_, spent);
  }

  void record() {
    ++stats_.rounds;
    stats_.new_tokens += added_;
    emitted_ = added_;
    stats_.proposed += tree_.size() - 1;
    const auto depth = static_cast<std::size_t>(result_->accepted_count());
    for (std::size_t d = 0; d < depth; ++d) ++stats_.offered[d], ++stats_.accepted[d];
    if (tree_.first_child(result_->accepted.back()) != kNoParent) ++stats_.offered[depth];
  }

  void check_prompt(Tokens prompt) const {
    if (prompt.empty())
      throw std::invalid_argument("Speculator::start: the prompt is empty; it needs at least one token");
    for (std::size_t i = 0; i < prompt.size(); ++i)
      if (prompt[i] < 0 || prompt[i] >= tree_.vocab())
        throw std::invalid_argument("Speculator::start: prompt token " + std::to_string(i) + " is " +
                                    std::to_string(prompt[i]) + ", the vocabulary has " +
                                    std::to_string(tree_.vocab()) + " tokens");
    const auto capacity = static_cast<std::size_t>(verifier_.size() + std::max(0, verifier_.room()));
    if (prompt.size() > capacity)
      throw std::invalid_argument("Speculator::start: the prompt has " + std::to_string(prompt.size()) +
                                  " tokens, the target holds " + std::to_string(capacity));
  }
  static std::int32_t checked_vocab(const V& verifier, const D& drafter) {
    if (verifier.vocab_size() != drafter.vocab_size())
      throw std::invalid_argument("Speculator: the target's vocabulary has " +
                                  std::to_string(verifier.vocab_size()) + " tokens, the drafter's " +
                                  std::to_string(drafter.vocab_size()));
    if (detail::works_in(drafter, verifier.cache_id()))
      throw std::invalid_argument(
          "Speculator: the same model is target and draft; a model holds one text, so the drafter needs "
          "one of its own (LayerSkip drafts in the target's cache)");
    return verifier.vocab_size();
  }
  std::array<Usage, kDrafters> drafters() const noexcept {
    std::array<Usage, kDrafters> all;
    for (std::size_t i = 0; i < kDrafters; ++i) {
      if constexpr (HasMembers<D>)
        all[i] = drafter_.usage(i);
      else if constexpr (ReportsUsage<D>)
        all[i] = drafter_.usage();
    }
    return all;
  }
  static std::size_t at(std::int32_t n) { return static_cast<std::size_t>(n); }

  V verifier_;
  D drafter_;
  S shape_;
  ProposalBuilder tree_;
  std::vector<Token> text_;
  const VerifyResult* result_ = nullptr;
  std::int32_t added_ = 0;                     // tokens of the last round
  std::int32_t emitted_ = 0;                   // those of them that count
  std::optional<std::uint64_t> change_count_;  // the target's, when the last call ended, if it counts
  std::exception_ptr failure_;                 // what ended drafting in this text
  bool in_sink_ = false;
  Stats stats_;
};

}  // namespace specula
