// SPDX-License-Identifier: MIT
// The rounds of speculative decoding: propose, verify, commit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/base/steps.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/model/language_model.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"
#include "specula/run/detail/explain.hpp"
#include "specula/run/detail/meter.hpp"
#include "specula/run/generate.hpp"
#include "specula/run/limits.hpp"
#include "specula/run/run_record.hpp"
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
class Speculator : public RunRecord {
  static_assert(
      Verifier<V>,
      "Speculator: its first part is no Verifier: a member is missing or has another type; it is named "
      "below, and specula/policy/concepts.hpp lists them all");
  static_assert(!LanguageModel<D> || Drafter<D>,
                "Speculator: its second part is a model, not a drafter: wrap it: ModelDrafter{draft}");
  static_assert(
      Drafter<D>,
      "Speculator: its second part is no Drafter: a member is missing or has another type; it is named "
      "below, and specula/policy/concepts.hpp lists them all");
  static_assert(detail::explain_shape<S, D>());
  static_assert(detail::check_drafter_members<D>() && detail::check_shape_members<S>() &&
                detail::check_verifier_members<V>());
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
      : RunRecord(checked_vocab(verifier, drafter), detail::validated(shape).nodes().most,
                  S::kind != ProposalKind::deterministic, detail::drafter_count<D>),
        verifier_(std::move(verifier)),
        drafter_(std::move(drafter)),
        shape_(std::move(shape)) {
    forget();
    const std::int32_t nodes = shape_.nodes().most;
    const std::int64_t tokens = std::int64_t{verifier_.room()} + nodes;  // of a text, except the last
    const Sizes sizes{.tokens = static_cast<std::int32_t>(
                          std::min<std::int64_t>(tokens, std::numeric_limits<std::int32_t>::max())),
                      .nodes = nodes};
    verifier_.reserve(sizes);
    if constexpr (Reserves<D>) drafter_.reserve(sizes);
    if constexpr (Reserves<S>) shape_.reserve(sizes);
    reserve_text(static_cast<std::size_t>(tokens) + 1);
  }

  /// Prefill: makes `prompt` the text, in the target first, then in the drafter, which may be conditioned on
  /// it. The prefix shared with the last text is kept, in multiples of kPrefillChunk, if the target counts
  /// its changes (CountsChanges) and has not changed since. forget() keeps none. Throws
  /// std::invalid_argument, before anything changes, on an empty prompt, a token outside the vocabulary or a
  /// prompt longer than the target can hold. A draft that fails ends drafting, as in step(); this text tries
  /// it anew. Throws std::logic_error if a sink of this Speculator calls it.
  void start(Tokens prompt) {
    expect_no_sink();
    expect_no_round();
    check_prompt(prompt);
    set_in_round(false);
    const bool keeps = change_count_ && is_unchanged();  // else a prefix may be another text's by now
    const ChangeCountRecorder recorder(*this);
    const detail::Stopwatch watch(sums().prefill_seconds);
    const std::vector<Token> next(prompt.begin(), prompt.end());  // the prompt may alias text()
    const auto context = static_cast<std::int32_t>(next.size()) - 1;
    std::int32_t keep = 0;
    while (keeps && keep < context && keep + 1 < static_cast<std::int32_t>(text().size()) &&
           text()[at(keep)] == next[at(keep)])
      ++keep;
    keep = keep / kPrefillChunk * kPrefillChunk;
    set_text({});  // if the target throws below, start() must be called again, and starts from nothing
    allow_draft();
    verifier_.truncate(keep);
    try_draft([&] { drafter_.truncate(keep); });
    for (std::int32_t from = keep; from < context; from += kPrefillChunk) {
      const std::int32_t to = std::min(from + kPrefillChunk, context);
      verifier_.append(Tokens(next).subspan(at(from), at(to - from)));
      if (draft_room(to) > 0) try_draft([&] { drafter_.sync(Tokens(next).first(at(to)), {}); });
    }
    set_text(next);
    if constexpr (LearnsFromRounds<S>) shape_.reset();
  }

  /// Drops the text, and the prefix that start() could keep: to be called if a model computes something else
  /// since then for the same tokens, and does not count that. Throws std::logic_error if a sink of this
  /// Speculator calls it.
  void forget() {
    expect_no_sink();
    abandon();
    const ChangeCountRecorder recorder(*this);
    set_text({});
    verifier_.truncate(0);
    drafter_.truncate(0);
  }

  /// One round. Returns the tokens that it added to text(): at least one. Drafts end at the tokens `stop`;
  /// the tokens returned may go on after them. Throws std::length_error if the target's KV cache is full. If
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
    begin(rng, stop, nullptr, std::numeric_limits<std::int32_t>::max(), false);
    return end();
  }

  // step() for callers that merge the passes of many texts' models:
  //
  //   run.begin(rng);
  //   while (const PassRequest* pass = run.want()) run.give(rows);  // what the model says to pass->tokens
  //   Tokens fresh = run.end();
  //
  // Models that are no slots of a batch (SlotOf) run within these calls, unmerged. With a cost model
  // that is shared, a round also waits before each call of its draft: bid() and grant().

  /// Begins a round, which references its arguments until its end, and runs to its first pass or bid. The
  /// shape asks `cost_model`, if there is one, and proposes at most `max_nodes` nodes, the root included:
  /// with 1 it is not called, and does not learn. Throws, before anything runs, as step() where that does so,
  /// and std::logic_error if a round has begun and not ended.
  template <class C>
  void begin(C& rng, Tokens stop = {}, CostModel* cost_model = nullptr,
             std::int32_t max_nodes = std::numeric_limits<std::int32_t>::max()) {
    begin(rng, stop, cost_model, max_nodes, true);
  }
  /// Leaves nodes out of the proposal() of a round that waits for the target's pass: see
  /// ProposalBuilder::keep(). Throws as that, and std::logic_error if the round waits for something else.
  void keep(std::span<const std::uint8_t> kept) requires(S::kind == ProposalKind::deterministic &&
                                                         MergesRounds<V>) {
    if (!proposed())
      throw std::logic_error("Speculator::keep: the round does not wait for the target's pass");
    builder().keep(kept);
    waiter().change(verifier_.begin_round(builder()));
  }
  /// Ends the round: throws and returns as step(). Throws std::logic_error if it still waits for a pass, or
  /// if none has begun since the last end().
  Tokens end() {
    if (!in_round()) throw std::logic_error("Speculator::end: no round has begun");
    if (!running_.done()) throw std::logic_error("Speculator::end: the round waits for a pass");
    Steps ended = std::move(running_);
    set_in_round(false), set_proposed(false);
    ended.rethrow();
    return text().last(result().accepted.size());
  }
  /// Drops a round that waits: text() and the committed context are as before it.
  void abandon() {
    running_ = {};
    set_in_round(false), set_proposed(false);
  }

  /// specula::generate() of this object: start(), then rounds until one of the limits, with a sink for each
  /// round's tokens.
  template <class C, class Sink>
  Generated generate(Tokens prompt, const Limits& limits, C&& rng, Sink sink) {
    return specula::generate(*this, prompt, limits, rng, std::move(sink));
  }

  /// @cond
  // What is no prompt: the compiler says why.
  template <class T, class C, class Sink>
  Generated generate(std::initializer_list<T>, const Limits&, C&&, Sink) {
    static_assert(sizeof(Sink) == 0, SPECULA_BRACES_AS_PROMPT);
    return {};
  }
  template <detail::OtherTokens P, class C, class Sink>
  Generated generate(const P&, const Limits&, C&&, Sink) {
    static_assert(sizeof(P) == 0, SPECULA_OTHER_TOKENS);
    return {};
  }
  template <class T>
  void start(std::initializer_list<T>) {
    static_assert(sizeof(T) == 0, SPECULA_BRACES_AS_PROMPT);
  }
  template <detail::OtherTokens P>
  void start(const P&) {
    static_assert(sizeof(P) == 0, SPECULA_OTHER_TOKENS);
  }
  /// @endcond

  NodeCounts nodes() const { return shape_.nodes(); }       ///< how large the shape's proposals get
  static constexpr ProposalKind kind() { return S::kind; }  ///< how its draft tokens are drawn
  /// Nodes that still fit in the target's KV cache.
  std::int32_t room() const { return verifier_.room(); }
  /// The address of the model of many texts of which the target is a slot, so that its passes are merged;
  /// null if the verifier runs them itself, as a PathVerifier does.
  const void* batch() const {
    if constexpr (MergesRounds<V>) return verifier_.batch();
    return nullptr;
  }
  /// Log-probabilities of the last round's emitted tokens, in their order, if verifier().report_logprobs()
  /// requested them; also inside generate()'s sink. Empty after a round that threw. Valid until the next
  /// round.
  Logprobs logprobs() const { return emitted() > 0 ? verifier_.logprobs().first(at(emitted())) : Logprobs(); }
  V& verifier() { return verifier_; }              ///< the verifier
  const V& verifier() const { return verifier_; }  ///< the verifier
  D& drafter() { return drafter_; }                ///< the drafter
  S& shape() { return shape_; }                    ///< the shape; change its fields between texts only
  const S& shape() const { return shape_; }        ///< the shape

 private:
  using Meter = detail::Meter<V, D>;

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

  /// Nodes that a proposal after `context` tokens may have, as far as the drafter is concerned; 0 after a
  /// failure.
  std::int32_t draft_room(std::int32_t context) const {
    if (draft_failed()) return 0;
    if constexpr (HasMembers<D>) return drafter_.room(context);
    return drafter_.capacity() - context;
  }
  /// Calls the drafter; if that fails, ends drafting for this text.
  template <class F>
  void try_draft(F draft) {
    if (std::exception_ptr failure = detail::failure_of(draft)) fail_draft(std::move(failure));
  }

  bool is_unchanged() const {
    return static_cast<std::size_t>(verifier_.size()) + 1 == text().size() &&
           std::optional<std::uint64_t>(verifier_.change_count()) == change_count_;
  }
  [[noreturn]] void throw_used() const {
    throw std::logic_error("Speculator::step: the target holds " + std::to_string(verifier_.size()) +
                           " tokens, this text has " + std::to_string(text().size() - 1) +
                           " before its last one. Either the model's truncate() or commit() leaves a wrong "
                           "size(), or it was called since the last round: by another Speculator over the "
                           "same model or by hand, or its weights or settings changed, or a commit() that "
                           "threw left it so. start() begins anew");
  }

  void expect_no_round() const {
    if (!running_.done()) throw std::logic_error("Speculator: a round waits for a pass; give() or abandon()");
  }
  /// With `waits` false the round runs to its end.
  template <class C>
  void begin(C& rng, Tokens stop, CostModel* cost_model, std::int32_t max_nodes, bool waits) {
    static_assert(detail::explain_random_source<C, S::kind == ProposalKind::shared>());
    expect_no_sink();
    expect_no_round();
    if (in_round()) throw std::logic_error("Speculator: a round has begun; end() or abandon() it");
    if (text().empty()) throw std::invalid_argument("Speculator::step: call start() first");
    if (!is_unchanged()) throw_used();
    if (room() < 1)
      throw std::length_error("Speculator::step: the target's context is full, " +
                              std::to_string(text().size() - 1) + " tokens");
    const detail::Stopwatch watch(sums().round_seconds);
    builder().wait_for_passes(waits);
    set_proposed(false);
    running_ = round(builder(), rng, stop, cost_model, max_nodes);
    set_in_round(true);
    running_.advance();
  }

  /// A round; `tree` is builder(), which has the memory of the frame.
  template <class C>
  SPECULA_STEPS round(ProposalBuilder& tree, C& rng, Tokens stop, CostModel* cost_model,
                      std::int32_t max_nodes) {
    const ChangeCountRecorder recorder(*this);
    Meter meter(verifier_, drafter_, sums());
    const Tokens context = text().first(text().size() - 1);
    const std::int32_t fits = begin_proposal(tree, context, max_nodes);
    const bool asks = fits > 1;
    if (asks) {
      const ProposalBuilder::ResetLock lock(tree);
      const ProposeContext now{context, verifier_.params(), fits, cost_model, stop};
      // What was drawn before a failure stays: to draw anew biases the text if a drawn token was the cause.
      if (std::exception_ptr failure =
              co_await detail::Failure(specula::propose(shape_, drafter_, now, tree, rng)))
        fail_draft(std::move(failure));
    }
    if (tree.size() > 1 && !covers(S::kind, tree.kind()))
      throw std::logic_error("Speculator: the shape drew its proposal in another way than its kind declares");
    if constexpr (MergesRounds<V>) {
      const PassRequest request = tree.waits_for_passes() ? verifier_.begin_round(tree) : PassRequest();
      if (request.batch) {
        detail::PassWaiter pass(tree.waiter(), request);
        set_proposed(true);
        const LogitsView rows = co_await pass;
        set_proposed(false);
        finish(verifier_.end_round(tree, rows, rng), meter, asks);
        co_return;
      }
    }
    finish(verifier_.run_round(tree, rng), meter, asks);
  }
  /// Begins the proposal; returns the nodes that it may have.
  std::int32_t begin_proposal(ProposalBuilder& tree, Tokens context, std::int32_t max_nodes) {
    const auto size = static_cast<std::int32_t>(context.size());
    const std::int32_t fits =
        std::min({shape_.nodes().most, verifier_.room(), std::max(1, draft_room(size)), max_nodes});
    begin_round();
    tree.reset(text().back(), size, fits);
    return fits;
  }
  /// What the verifier has committed becomes text. The shape learns from it if it was asked to propose.
  void finish(const VerifyResult& result, Meter& meter, [[maybe_unused]] bool asked) {
    add_round(result);
    const Timing spent = meter.book();
    sums().untimed_rounds += spent.target.calls > 0 && !(spent.target.seconds > 0) ? 1 : 0;
    if constexpr (LearnsFromRounds<S>)
      if (asked && !draft_failed()) shape_.learn(proposal(), result, spent);
  }

  void check_prompt(Tokens prompt) const {
    if (prompt.empty())
      throw std::invalid_argument("Speculator::start: the prompt is empty; it needs at least one token");
    for (std::size_t i = 0; i < prompt.size(); ++i)
      if (prompt[i] < 0 || prompt[i] >= vocab_size())
        throw std::invalid_argument("Speculator::start: prompt token " + std::to_string(i) + " is " +
                                    std::to_string(prompt[i]) + ", the vocabulary has " +
                                    std::to_string(vocab_size()) + " tokens");
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
  static std::size_t at(std::int32_t n) { return static_cast<std::size_t>(n); }

  V verifier_;
  D drafter_;
  S shape_;
  std::optional<std::uint64_t> change_count_;  // the target's, when the last call ended, if it counts
  Steps running_;                              // of begin(); last, since it refers to all others
};

}  // namespace specula
