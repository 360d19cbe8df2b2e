// SPDX-License-Identifier: MIT
// The record of a run: its text, its last round, its statistics. No policy has a part in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/proposal/proposal_builder.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/proposal/waiters.hpp"

namespace specula {

/// The base of Speculator that does not depend on its policies; a Pipeline shows that of its Speculator.
/// The class that runs the rounds writes it by the protected members.
class RunRecord {
 public:
  RunRecord(const RunRecord&) = delete;  // the last result is stored in the verifier
  RunRecord& operator=(const RunRecord&) = delete;

  /// Prompt and everything generated; the last token is the next round's root.
  Tokens text() const { return text_; }
  std::int32_t vocab_size() const { return tree_.vocab(); }  ///< size V of the vocabulary
  /// The last round's proposal and result, for code that is conditioned on them.
  const TokenTree& proposal() const { return tree_; }
  /// Throws std::logic_error before the first round, and after one that threw.
  const VerifyResult& result() const {
    if (!result_) throw std::logic_error("Speculator::result: no round has ended");
    return *result_;
  }

  /// Tokens of the last round that were emitted: all, until count_emitted() says otherwise; 0 after a round
  /// that threw.
  std::int32_t emitted() const { return emitted_; }
  /// Of the tokens that the last step() returned only the first `n` were emitted, since the text ends there:
  /// removes the others from stats() and logprobs(). They are not new tokens, and a draft token after the
  /// end is neither offered nor accepted, so a draft that is always right keeps an acceptance rate of 1.
  /// stats().proposed, what the target ran, is unchanged. generate() calls it. Throws std::logic_error before
  /// the first round, and std::invalid_argument, having changed nothing, unless 0 <= n <= emitted().
  void count_emitted(std::int32_t n) {
    const VerifyResult& last = result();
    if (n < 0 || n > emitted_)
      throw std::invalid_argument("count_emitted: " + std::to_string(n) + " of " + std::to_string(emitted_) +
                                  " tokens, must be 0 to " + std::to_string(emitted_));
    if (in_stats_) {
      const std::int32_t accepted = last.accepted_count(), reached = accepted + (was_cut_short(last) ? 1 : 0);
      for (std::int32_t d = std::min(n, reached); d < std::min(emitted_, reached); ++d)
        --stats_.offered[static_cast<std::size_t>(d)];
      for (std::int32_t d = n; d < std::min(emitted_, accepted); ++d)
        --stats_.accepted[static_cast<std::size_t>(d)];
      stats_.new_tokens -= emitted_ - n;
    }
    emitted_ = n;
  }

  /// Sums over all rounds since the constructor or reset_stats(). For one request, subtract two copies.
  const Stats& stats() const { return stats_; }
  /// Sets stats() to zero, at any time: the last round no longer counts, and a later count_emitted() removes
  /// nothing from them.
  void reset_stats() {
    stats_.clear();
    in_stats_ = false;
  }
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

  /// The exception itself; null if nothing ended drafting.
  std::exception_ptr draft_failure() const { return failure_; }

  // ---- a round that waits: see Speculator::begin()

  /// Whether a round has begun that neither end() nor abandon() has ended.
  bool in_round() const { return in_round_; }
  /// The pass that the round waits for; null if it has run to its end, or there is none.
  const PassRequest* want() { return builder().waiter() ? &builder().waiter()->request() : nullptr; }
  /// Answers want(), with a row per node, valid until the next call: the round goes on to its next pass or to
  /// its end. It is resumed where Speculator::round() or a shape awaits the rows; those of the target go to
  /// the verifier's end_round(), which asks the rule. Throws std::logic_error if it waits for none.
  void give(const LogitsView& rows) {
    const detail::Stopwatch watch(sums().round_seconds);
    waiter().give(rows);
  }
  /// Answers want() where the pass failed. If it was a draft's, that ends drafting as in step(), and the
  /// round goes on; if the target's, end() throws this. Throws std::logic_error if the round waits for no
  /// pass.
  void fail(std::exception_ptr failure) { waiter().fail(std::move(failure)); }
  /// Whether the round waits for the target's pass over proposal().
  bool proposed() const { return proposed_; }
  /// The draft call that the round waits to make; null if it waits for none.
  const DraftCall* bid() { return builder().bidder() ? &builder().bidder()->call() : nullptr; }
  /// Answers bid(). Throws std::logic_error if the round waits for no answer.
  void grant(bool pays) {
    if (!builder().bidder()) throw std::logic_error("Speculator::grant: the round asks for no draft call");
    const detail::Stopwatch watch(sums().round_seconds);
    builder().bidder()->grant(pays);
  }
  /// Marks, while it lives, that a sink of this run is being called.
  class InSink {
   public:
    /// Sets the flag.
    explicit InSink(bool& flag) : flag_(flag) { flag_ = true; }
    ~InSink() { flag_ = false; }
    InSink(const InSink&) = delete;
    InSink& operator=(const InSink&) = delete;

   private:
    bool& flag_;
  };
  /// For generate(): until its end start(), step() and forget() throw std::logic_error.
  InSink enter_sink() { return InSink(in_sink_); }

 protected:
  /// Proposals of at most `max_nodes` nodes, which keep draft rows if `stores_rows`; statistics of `drafters`
  /// drafters. Throws std::invalid_argument if a size is out of range.
  RunRecord(std::int32_t vocab, std::int32_t max_nodes, bool stores_rows, std::size_t drafters)
      : tree_(vocab, max_nodes, stores_rows ? max_nodes : 0) {
    stats_.offered.resize(static_cast<std::size_t>(max_nodes));
    stats_.accepted.resize(stats_.offered.size());
    stats_.drafters.resize(drafters);
  }
  ~RunRecord() = default;

  /// Throws std::logic_error within a sink.
  void expect_no_sink() const {
    if (in_sink_)
      throw std::logic_error("Speculator: its own sink called step(), start(), generate() or forget()");
  }
  /// The text, so that a round does not allocate.
  void reserve_text(std::size_t tokens) { text_.reserve(tokens); }
  void set_text(Tokens text) { text_.assign(text.begin(), text.end()); }  ///< must not be text() itself
  /// Throws std::logic_error if the round waits for no pass.
  detail::PassWaiter& waiter() {
    if (!builder().waiter()) throw std::logic_error("Speculator: the round waits for no pass");
    return *builder().waiter();
  }
  ProposalBuilder& builder() { return tree_; }               ///< the proposal, to be written
  Stats& sums() { return stats_; }                           ///< the statistics, to be written
  void set_proposed(bool waits) { proposed_ = waits; }       ///< see proposed()
  void set_in_round(bool on) { in_round_ = on; }             ///< see in_round()
  bool draft_failed() const { return failure_ != nullptr; }  ///< in this text
  void allow_draft() { failure_ = nullptr; }                 ///< in a new text
  /// Drafting ends, for this text.
  void fail_draft(std::exception_ptr failure) {
    failure_ = std::move(failure);
    ++stats_.failed_drafts;
  }

  /// Until add_round() there is no result.
  void begin_round() {
    result_ = nullptr;
    emitted_ = 0;
  }
  /// Adds the round of proposal() and `result`, which is referenced, to text and statistics.
  void add_round(const VerifyResult& result) {
    result_ = &result;
    for (std::size_t i = 1; i < result.accepted.size(); ++i) text_.push_back(tree_.token(result.accepted[i]));
    text_.push_back(result.next_token);
    emitted_ = static_cast<std::int32_t>(result.accepted.size());
    in_stats_ = true;
    ++stats_.rounds;
    stats_.new_tokens += emitted_;
    stats_.proposed += tree_.size() - 1;
    const auto depth = static_cast<std::size_t>(result.accepted_count());
    for (std::size_t d = 0; d < depth; ++d) ++stats_.offered[d], ++stats_.accepted[d];
    if (was_cut_short(result)) ++stats_.offered[depth];
  }

 private:
  /// Whether the proposal goes on after the accepted path.
  bool was_cut_short(const VerifyResult& result) const {
    return tree_.first_child(result.accepted.back()) != kNoParent;
  }

  ProposalBuilder tree_;
  std::vector<Token> text_;
  const VerifyResult* result_ = nullptr;
  std::int32_t emitted_ = 0;
  bool in_stats_ = false;  // the last round
  bool in_sink_ = false;
  bool proposed_ = false;
  bool in_round_ = false;
  std::exception_ptr failure_;  // what ended drafting in this text
  Stats stats_;
};

}  // namespace specula
