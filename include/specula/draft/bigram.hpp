// SPDX-License-Identifier: MIT
// Bigram drafter: predicts the most frequent next token from a table or from the committed text, at no model
// cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/draft/detail/pair_map.hpp"

namespace specula {

namespace detail {

/// Throws std::invalid_argument naming the first token, counted from `first`, that is outside the vocabulary.
inline void check_tokens(const std::string& call, Tokens tokens, std::int32_t vocab, std::size_t first = 0) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      throw std::invalid_argument(call + ": token " + std::to_string(first + i) + " is " +
                                  std::to_string(tokens[i]) + ", the vocabulary has " +
                                  std::to_string(vocab) + " tokens");
}

/// The tokens of `context` after its first `known`. Throws std::invalid_argument if the context is shorter
/// than that, or if a new token or a draft token is outside the vocabulary.
inline Tokens fresh_tokens(const std::string& call, Tokens context, Tokens draft_tokens, std::size_t known,
                           std::int32_t vocab) {
  if (context.size() < known)
    throw std::invalid_argument(call + ": a context of " + std::to_string(context.size()) +
                                " tokens after one of " + std::to_string(known) + "; truncate first");
  const Tokens fresh = context.subspan(known);
  check_tokens(call, fresh, vocab, known);
  check_tokens(call, draft_tokens, vocab, context.size());
  return fresh;
}

/// Throws std::invalid_argument unless `tokens` and `parents` describe valid new nodes after `nodes` others.
inline void check_nodes(const std::string& call, Tokens tokens, Nodes parents, std::size_t nodes,
                        std::int32_t vocab) {
  if (tokens.size() != parents.size())
    throw std::invalid_argument(call + ": " + std::to_string(tokens.size()) + " tokens and " +
                                std::to_string(parents.size()) + " parents");
  for (std::size_t i = 0; i < parents.size(); ++i)
    if (parents[i] < kNoParent || parents[i] >= static_cast<std::int64_t>(nodes + i))
      throw std::invalid_argument(call + ": the parent of node " + std::to_string(nodes + i) + " is " +
                                  std::to_string(parents[i]) + ", must be kNoParent or a node before it");
  check_tokens(call, tokens, vocab, nodes);
}

/// Acceptance rate of one kind of draft token: its counts, smoothed by a prior.
struct HitRate {
  double prior = 0.5;
  std::int64_t tries = 0, hits = 0;

  void saw(bool hit) { ++tries, hits += hit; }
  double probability() const {
    constexpr double kWeight = 16;  // tries that the prior counts as
    return (static_cast<double>(hits) + kWeight * prior) / (static_cast<double>(tries) + kWeight);
  }
};

}  // namespace detail

/// Argmax of a bigram model: one next token per token of the vocabulary, kNoToken where there is none.
class BigramTable {
 public:
  /// `next`: (V). Throws std::invalid_argument if empty, or naming the first entry that is out of range.
  explicit BigramTable(std::vector<Token> next) : next_(std::move(next)) {
    if (next_.empty()) throw std::invalid_argument("BigramTable: the vocabulary is empty");
    for (std::size_t i = 0; i < next_.size(); ++i)
      if (next_[i] != kNoToken && (next_[i] < 0 || next_[i] >= vocab_size()))
        throw std::invalid_argument("BigramTable: after token " + std::to_string(i) + " comes " +
                                    std::to_string(next_[i]) + ", the vocabulary has " +
                                    std::to_string(next_.size()) + " tokens");
  }
  /// Size V of the vocabulary.
  std::int32_t vocab_size() const { return static_cast<std::int32_t>(next_.size()); }
  Tokens next() const { return next_; }  ///< (V)
  /// The token after `token`; kNoToken outside the vocabulary, which is empty in a moved-from table.
  Token operator()(Token token) const {
    const auto i = static_cast<std::size_t>(token);
    return i < next_.size() ? next_[i] : kNoToken;
  }

 private:
  std::vector<Token> next_;
};

/// Counts bigrams of documents. Memory: O(distinct pairs).
class BigramCounter {
 public:
  /// Throws std::invalid_argument unless vocab >= 1.
  explicit BigramCounter(std::int32_t vocab) : vocab_(vocab) {
    if (vocab < 1)
      throw std::invalid_argument("BigramCounter: the vocabulary has " + std::to_string(vocab) +
                                  " tokens, must be >= 1");
  }
  /// Counts the pairs inside `document`; no pair spans two documents. Throws std::invalid_argument, before
  /// counting anything, on a token outside the vocabulary.
  void add(Tokens document) {
    detail::check_tokens("BigramCounter::add", document, vocab_);
    for (std::size_t i = 1; i < document.size(); ++i) ++counts_.at(document[i - 1], document[i]);
  }
  /// The most frequent next token per token, ties to the lower one. O(V + pairs).
  BigramTable table() const {
    std::vector<Token> next(static_cast<std::size_t>(vocab_), kNoToken);
    std::vector<std::int64_t> most(next.size(), 0);
    counts_.for_each([&](Token token, Token after, std::int64_t count) {
      const auto i = static_cast<std::size_t>(token);
      if (count > most[i] || (count == most[i] && after < next[i])) most[i] = count, next[i] = after;
    });
    return BigramTable(std::move(next));
  }

 private:
  std::int32_t vocab_;
  detail::PairMap<std::int64_t> counts_;
};

///   specula::Bigram drafter = specula::Bigram::online(vocab);
///
/// Predicts the next token from the last one alone: from a table, from the pairs of the committed text, or
/// from both. Of the text's pairs it takes the most frequent, ties to the one seen last. Confidence: the
/// acceptance rate of such draft tokens so far, earlier texts included. A prompt (the beginning of a text, up
/// to the first extend() or the first sync() without new tokens) is not counted.
/// **Draws.** Nothing.
/// **Cost.** O(new tokens + draft tokens + nodes). A round allocates nothing after reserve().
/// **Throws.** sync(), extend(): std::invalid_argument, and change nothing, if the context is shorter than
/// the last one, a token is outside the vocabulary, or a parent does not exist.
/// **Source.** Chen et al. 2024, to which Max-Gram there falls back.
class Bigram {
 public:
  /// Predicts from `table` alone.
  Bigram(BigramTable table)
      : vocab_(table.vocab_size()), table_(std::move(table)) {}  // NOLINT: a table is a model

  /// Learns from the committed text alone. Throws std::invalid_argument unless vocab >= 1.
  static Bigram online(std::int32_t vocab) {
    if (vocab < 1)
      throw std::invalid_argument("Bigram::online: the vocabulary has " + std::to_string(vocab) +
                                  " tokens, must be >= 1");
    return Bigram(vocab);
  }
  /// Learns from the committed text; uses `table` for tokens not seen there.
  static Bigram online(BigramTable table) {
    Bigram both(table.vocab_size());
    both.table_ = std::move(table);
    return both;
  }

  std::int32_t vocab_size() const { return vocab_; }  ///< size V of the vocabulary
  std::int32_t capacity() const { return std::numeric_limits<std::int32_t>::max(); }  ///< no limit
  const Usage& usage() const noexcept { return usage_; }  ///< calls, nodes and seconds so far

  /// Reserves memory for a text with its proposal.
  void reserve(const Sizes& sizes) {
    const auto n = static_cast<std::size_t>(std::max(0, sizes.tokens));
    text_.reserve(n);
    draft_tokens_.reserve(n);
    confidences_.reserve(n);
    if (!best_.empty()) counts_.reserve(n);
  }

  /// Forgets committed tokens from `n` on. O(reserved size) if it learns from the text.
  void truncate(std::int32_t n) {
    nodes_ = 0;
    judges_ = false;
    const auto keep = static_cast<std::size_t>(std::max(0, n));
    if (keep >= text_.size()) return;
    if (!best_.empty()) {
      counts_.clear();
      for (const Token token : text_) best_[index(token)] = {};
      for (std::size_t i = 1; i < keep; ++i) count(text_[i - 1], text_[i]);
    }
    text_.resize(keep);
  }

  /// See Drafter, and above for cost and exceptions.
  void sync(Tokens context, Tokens draft_tokens) {
    const detail::Stopwatch watch(usage_.seconds);
    const Tokens fresh = detail::fresh_tokens("Bigram::sync", context, draft_tokens, text_.size(), vocab_);
    nodes_ = 0;
    judges_ |= fresh.empty();
    for (const Token token : fresh) append(token);
  }

  /// See Drafter, and above for exceptions.
  PointMasses extend(Tokens tokens, Nodes parents) {
    const detail::Stopwatch watch(usage_.seconds);
    detail::check_nodes("Bigram::extend", tokens, parents, nodes_, vocab_);
    nodes_ += tokens.size();
    judges_ = true;
    draft_tokens_.clear();
    confidences_.clear();
    for (const Token token : tokens) {
      const Token draft_token = (*this)(token);
      draft_tokens_.push_back(draft_token);
      confidences_.push_back(draft_token == kNoToken ? 0.0f : static_cast<float>(rate(token).probability()));
    }
    ++usage_.calls;
    usage_.nodes += static_cast<std::int64_t>(tokens.size());
    return {draft_tokens_, confidences_};
  }

  /// The draft token after `token`, which must be in the vocabulary.
  Token operator()(Token token) const {
    if (knows(token)) return best_[index(token)].next;
    return table_ ? (*table_)(token) : kNoToken;
  }
  /// Commits one more token, which must be in the vocabulary.
  void append(Token token) {
    if (!text_.empty()) {
      const Token before = text_.back(), draft_token = (*this)(before);
      if (judges_ && draft_token != kNoToken) rate(before).saw(draft_token == token);
      if (!best_.empty()) count(before, token);
    }
    text_.push_back(token);
  }
  /// Resets the acceptance counts.
  void reset_record() { seen_rate_ = table_rate_ = {.prior = kPrior}; }

 private:
  static constexpr double kPrior = 0.4;
  struct Best {
    Token next = kNoToken;
    std::int32_t count = 0;
  };

  explicit Bigram(std::int32_t vocab) : vocab_(vocab), best_(static_cast<std::size_t>(vocab)) {}

  static std::size_t index(Token token) { return static_cast<std::size_t>(token); }
  bool knows(Token token) const { return !best_.empty() && best_[index(token)].next != kNoToken; }
  detail::HitRate& rate(Token before) { return knows(before) ? seen_rate_ : table_rate_; }
  void count(Token token, Token next) {
    const std::int32_t count = ++counts_.at(token, next);
    Best& best = best_[index(token)];
    if (count >= best.count) best = {next, count};
  }

  std::int32_t vocab_;
  std::optional<BigramTable> table_;
  std::vector<Best> best_;  // (V); empty: does not learn from the text
  detail::PairMap<std::int32_t> counts_;
  std::vector<Token> text_;  // committed
  std::size_t nodes_ = 0;    // since the last sync
  bool judges_ = false;      // the prompt is over
  std::vector<Token> draft_tokens_;
  std::vector<float> confidences_;
  detail::HitRate seen_rate_{.prior = kPrior}, table_rate_{.prior = kPrior};
  Usage usage_;
};

}  // namespace specula
