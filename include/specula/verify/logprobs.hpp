// SPDX-License-Identifier: MIT
// Log-probabilities of emitted tokens and of the likeliest ones, from the rows that verification has read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/accept/target_distributions.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/model/view_guard.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

/// The log-probabilities reported per emitted token.
struct LogprobOptions {
  std::int32_t top = 0;  ///< number of likeliest tokens besides the emitted one; 0 to V. Should be small: a
                         ///< row may cost up to V * top
  /// Under the distribution that is sampled from: the verifier's parameters, and a processor's row. Else
  /// under the softmax of the model's own row (KeepsRawRows): temperature 1, no truncation, no processor.
  bool processed = false;
};

/// A token and the natural logarithm of its probability; -infinity where the distribution excludes it.
struct TokenLogprob {
  Token token = kNoToken;                                     ///< kNoToken: none
  double logprob = -std::numeric_limits<double>::infinity();  ///< in nats
};

/// The log-probabilities of a round's tokens, in the order of step(). Not owned; valid until the next round.
/// After that every member throws std::logic_error.
class Logprobs {
 public:
  Logprobs() = default;
  /// `entries` (tokens, 1 + top): the emitted token, then the likeliest. `guard` is of their memory; none: it
  /// is not written again while this is used.
  Logprobs(std::span<const TokenLogprob> entries, std::size_t top, detail::ViewGuard guard = {})
      : entries_(entries), width_(1 + top), guard_(guard) {}

  std::size_t size() const { return current().size() / width_; }  ///< emitted tokens
  /// The i-th token.
  const TokenLogprob& operator[](std::size_t i) const { return current()[i * width_]; }
  /// The likeliest tokens at the i-th token's position, best first, ties to the lower token. Fewer than
  /// requested if fewer logits are above -infinity.
  std::span<const TokenLogprob> top(std::size_t i) const {
    const auto all = current().subspan(i * width_ + 1, width_ - 1);
    const auto end = std::find_if(all.begin(), all.end(), [](const auto& t) { return t.token == kNoToken; });
    return all.first(static_cast<std::size_t>(end - all.begin()));
  }
  /// The log-probabilities of the first `tokens` tokens, or of all if there are fewer.
  Logprobs first(std::size_t tokens) const {
    return {current().first(std::min(tokens, size()) * width_), width_ - 1, guard_};
  }

 private:
  friend class LogprobList;
  std::span<const TokenLogprob> current() const {
    guard_.expect_current("a view of log-probabilities", "another round was run since");
    return entries_;
  }
  std::span<const TokenLogprob> entries_;
  std::size_t width_ = 1;
  detail::ViewGuard guard_;
};

/// Log-probabilities that are copied, so that they stay: those of a text, round by round.
class LogprobList {
 public:
  /// Adds those of a round. Throws std::invalid_argument if it reports another number of likeliest tokens
  /// than those before it.
  void add(const Logprobs& round) {
    if (round.size() == 0) return;
    if (!entries_.empty() && round.width_ != width_)
      throw std::invalid_argument("LogprobList::add: " + std::to_string(round.width_ - 1) +
                                  " likeliest tokens after " + std::to_string(width_ - 1));
    width_ = round.width_;
    const std::span<const TokenLogprob> fresh = round.current();
    entries_.insert(entries_.end(), fresh.begin(), fresh.end());
  }
  /// Memory for so many tokens with `top` likeliest ones each.
  void reserve(std::size_t tokens, std::size_t top) { entries_.reserve(tokens * (1 + top)); }
  /// All of them, valid until the next add().
  Logprobs view() const { return {entries_, width_ - 1}; }

  std::size_t size() const { return view().size(); }                                ///< tokens
  const TokenLogprob& operator[](std::size_t i) const { return view()[i]; }         ///< see Logprobs
  std::span<const TokenLogprob> top(std::size_t i) const { return view().top(i); }  ///< see Logprobs

 private:
  std::vector<TokenLogprob> entries_;  // (tokens, width_)
  std::size_t width_ = 1;
};

namespace detail {

/// Computes and stores the log-probabilities of a round. Allocates in the constructor and in reserve()
/// only.
class LogprobRecorder {
 public:
  /// Throws std::invalid_argument unless 0 <= options.top <= vocab.
  LogprobRecorder(const LogprobOptions& options, std::int32_t vocab) : options_(options), scan_(vocab) {
    expect_in("LogprobOptions::top", options.top, 0, vocab);
    likeliest_.resize(static_cast<std::size_t>(options.top));
  }

  void reserve(std::size_t tokens) { entries_.reserve(tokens * (1 + likeliest_.size())); }
  void clear() {
    entries_.clear();
    writes_.next();
  }
  Logprobs view() const { return {entries_, likeliest_.size(), ViewGuard(writes_)}; }

  const LogprobOptions& options() const { return options_; }

  /// `rows` are the rows of `distributions`. Cost: one row read per token of the result, two with likeliest
  /// tokens, and up to V * top to order those.
  void record(const TargetDistributions& distributions, const LogitsView& rows, const TokenTree& tree,
              const VerifyResult& result) {
    clear();
    const SamplingParams params = options_.processed ? distributions.params() : SamplingParams{};
    for (std::size_t i = 0; i < result.accepted.size(); ++i) {
      const NodeId node = result.accepted[i];
      const Distribution distribution = distributions.distribution(node, params);
      const auto add = [&](Token token) { entries_.push_back({token, log_prob(distribution, token)}); };
      add(i + 1 < result.accepted.size() ? tree.token(result.accepted[i + 1]) : result.next_token);
      const auto found = static_cast<std::size_t>(scan_.top_k(rows.row(node), likeliest_));
      for (const Top& top : std::span(likeliest_).first(found)) add(top.token);
      entries_.resize(entries_.size() + likeliest_.size() - found);
    }
  }

 private:
  LogprobOptions options_;
  RowScan scan_;
  std::vector<Top> likeliest_;         // (top)
  std::vector<TokenLogprob> entries_;  // (tokens, 1 + top)
  ChangeCount writes_;                 // of entries_
};

}  // namespace detail
}  // namespace specula
