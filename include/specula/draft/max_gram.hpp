// SPDX-License-Identifier: MIT
// Max-Gram and prompt lookup (n-gram) drafting: draft tokens copied from the text itself.
#pragma once

#include <algorithm>
#include <array>
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
#include "specula/draft/bigram.hpp"
#include "specula/draft/detail/suffix_automaton.hpp"

namespace specula {

/// Options of MaxGram: the accepted match lengths, and how it copies.
struct MaxGramOptions {
  std::int32_t min_match = 1;  ///< tokens; shorter matches are ignored
  std::int32_t max_match = 0;  ///< tokens; longest suffix that is searched for; 0: no limit
  /// If the occurrence ends at the end of the committed tokens: continue with draft tokens and root.
  bool past_end = false;
  bool learn = true;  ///< confidences from measured acceptance rates, not from priors alone
};

///   specula::Speculator run{verifier, specula::MaxGram{vocab}, specula::Chain<>{.length = 10}};
///
/// Finds the longest suffix of the text, draft tokens included, that occurs in the committed tokens, and
/// predicts the token after its earliest occurrence there; without an occurrence it uses a bigram model, if
/// it has one. After a node that was copied it continues at the same place: the same as searching again,
/// unless an option limits matches or copies past the end. Confidences: per match length, the drafter counts
/// how often the predicted token was right as the text grows. The prompt (the beginning of a text, up to the
/// first extend() or the first sync() without new tokens) is not counted. Counts are kept between texts.
/// **Draws.** Nothing.
/// **Cost.** Amortised O(1) per committed token; per node one look-up if it continues a match, otherwise
/// logarithmic in the context; at most 300 bytes per token. A round allocates nothing after reserve().
/// **Throws.** Constructors: std::invalid_argument for options out of range. sync(), extend(): as Bigram.
/// **Source.** Max-Gram: Chen et al. 2024 (Cascade Speculative Drafting), section 3.3; prompt lookup: Saxena
/// 2023; `past_end`, which neither paper has, drafts a repetitive text to any length.
class MaxGram {
 public:
  /// Proposes nothing without a match. Throws std::invalid_argument unless vocab >= 1, min_match >= 1 and
  /// max_match is 0 or at least min_match.
  explicit MaxGram(std::int32_t vocab, MaxGramOptions options = {}) : vocab_(vocab), options_(options) {
    if (vocab < 1)
      throw std::invalid_argument("MaxGram: the vocabulary has " + std::to_string(vocab) +
                                  " tokens, must be >= 1");
    if (options.min_match < 1)
      throw std::invalid_argument("MaxGramOptions::min_match is " + std::to_string(options.min_match) +
                                  ", must be >= 1");
    if (options.max_match != 0 && options.max_match < options.min_match)
      throw std::invalid_argument("MaxGramOptions::max_match is " + std::to_string(options.max_match) +
                                  ", must be 0 or >= min_match");
    reset_record();
  }
  /// Without a match, proposes the token of `fallback` (or of a BigramTable).
  explicit MaxGram(Bigram fallback, MaxGramOptions options = {}) : MaxGram(fallback.vocab_size(), options) {
    fallback_ = std::move(fallback);
  }
  /// Prompt lookup decoding: matches of at most `ngram` tokens. Requires ngram >= 1.
  static MaxGram prompt_lookup(std::int32_t vocab, std::int32_t ngram = 3) {
    if (ngram < 1)
      throw std::invalid_argument("MaxGram::prompt_lookup: ngram is " + std::to_string(ngram) +
                                  ", must be >= 1");
    return MaxGram(vocab, {.max_match = ngram});
  }

  std::int32_t vocab_size() const { return vocab_; }  ///< size V of the vocabulary
  std::int32_t capacity() const { return std::numeric_limits<std::int32_t>::max(); }  ///< no limit
  const Usage& usage() const noexcept { return usage_; }  ///< calls, nodes and seconds so far

  /// Reserves memory for a text with its proposal.
  void reserve(const Sizes& sizes) {
    corpus_.reserve(sizes.tokens);
    const auto n = static_cast<std::size_t>(std::max(0, sizes.tokens));
    nodes_.reserve(n);
    synced_.reserve(n);
    draft_tokens_.reserve(n);
    confidences_.reserve(n);
    if (fallback_) fallback_->reserve(sizes);
  }

  /// Drops all nodes, and committed tokens from `n` on. O(capacity) if there are such tokens.
  void truncate(std::int32_t n) {
    nodes_.clear();
    tip_ = {};
    synced_.clear();
    judges_ = false;
    if (n >= corpus_.size()) return;
    const std::vector<Token> kept(corpus_.text().begin(), corpus_.text().begin() + std::max(0, n));
    corpus_.clear();
    for (const Token token : kept) corpus_.append(token);
    if (fallback_) fallback_->truncate(n);
    expected_ = options_.learn ? look() : DraftToken{};
  }

  /// See Drafter, and above for cost and exceptions.
  void sync(Tokens context, Tokens draft_tokens) {
    const detail::Stopwatch watch(usage_.seconds);
    const Tokens fresh =
        detail::fresh_tokens("MaxGram::sync", context, draft_tokens, corpus_.text().size(), vocab_);
    nodes_.clear();
    judges_ |= fresh.empty();
    for (const Token token : fresh) commit(token);
    synced_.assign(draft_tokens.begin(), draft_tokens.end());
    tip_ = corpus_.whole();
    for (const Token token : draft_tokens) tip_ = corpus_.advance(tip_, token);
  }

  /// See Drafter, and above for exceptions.
  PointMasses extend(Tokens tokens, Nodes parents) {
    const detail::Stopwatch watch(usage_.seconds);
    detail::check_nodes("MaxGram::extend", tokens, parents, nodes_.size(), vocab_);
    judges_ = true;
    const std::int32_t end = options_.past_end ? kNowhere : corpus_.size();
    draft_tokens_.clear();
    confidences_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Node* parent = parents[i] == kNoParent ? nullptr : &nodes_[static_cast<std::size_t>(parents[i])];
      Node node{.match = corpus_.advance(parent ? parent->match : tip_, tokens[i]),
                .token = tokens[i],
                .parent = parents[i],
                .depth = parent ? parent->depth + 1 : 0};
      if (parent && parent->copied == tokens[i])
        node.source = {parent->source.from + 1, parent->source.length + 1};
      if (node.source.from >= end) node.source = source_of(node.match);
      nodes_.push_back(node);
      DraftToken draft_token = instead(tokens[i]);
      if (node.source.from < end) {
        draft_token = {text_at(node.source.from), kind(node.source.length)};
        nodes_.back().copied = draft_token.token;
      }
      draft_tokens_.push_back(draft_token.token);
      confidences_.push_back(
          draft_token.token == kNoToken ? 0.0f : static_cast<float>(record_[draft_token.kind].probability()));
    }
    ++usage_.calls;
    usage_.nodes += static_cast<std::int64_t>(tokens.size());
    return {draft_tokens_, confidences_};
  }

  /// Resets the acceptance counts.
  void reset_record() {
    for (std::size_t kind = 0; kind < kKinds; ++kind) record_[kind] = {.prior = kPriors[kind]};
    if (fallback_) fallback_->reset_record();
  }
  /// Number of look-ups in the corpus so far: a machine-independent cost of the rounds.
  std::int64_t steps() const { return corpus_.steps(); }

 private:
  using Match = detail::SuffixAutomaton::Match;
  static constexpr std::int32_t kNowhere = std::numeric_limits<std::int32_t>::max();

  /// Kinds of draft tokens: the bigram model's, then by minimum length of the match.
  static constexpr std::size_t kKinds = 8;
  static constexpr std::array<std::int32_t, kKinds> kLengths = {0, 1, 2, 3, 5, 8, 12, 20};
  static constexpr std::array<double, kKinds> kPriors = {0.4, 0.4, 0.55, 0.65, 0.77, 0.85, 0.9, 0.96};

  struct Source {
    std::int32_t from = kNowhere;  // position in the text of the token to copy
    std::int32_t length = 0;       // of the match before it
  };
  struct Node {
    Match match = {};  // longest suffix of the text up to this node that occurs in the corpus
    Token token = kNoToken;
    NodeId parent = kNoParent;
    std::int32_t depth = 0;
    Source source = {};
    Token copied = kNoToken;  // the draft token after it, if that was copied
  };
  struct DraftToken {
    Token token = kNoToken;
    std::size_t kind = 0;
  };

  /// The token at `place` of the text up to the last node: a committed token, draft token or node.
  Token text_at(std::int32_t place) const {
    auto i = static_cast<std::size_t>(place);
    if (i < corpus_.text().size()) return corpus_.text()[i];
    i -= corpus_.text().size();
    if (i < synced_.size()) return synced_[i];
    const Node* node = &nodes_.back();
    while (static_cast<std::size_t>(node->depth) > i - synced_.size())
      node = &nodes_[static_cast<std::size_t>(node->parent)];
    return node->token;
  }
  static std::size_t kind(std::int32_t length) {
    const auto longer = std::upper_bound(kLengths.begin() + 1, kLengths.end(), length);
    return static_cast<std::size_t>(longer - kLengths.begin()) - 1;
  }

  Source source_of(Match match) {
    if (options_.max_match > 0) match = corpus_.shorten(match, options_.max_match);
    if (match.length < options_.min_match) return {};
    return {corpus_.after(match), match.length};
  }
  /// The draft token after `token` if none can be copied.
  DraftToken instead(Token token) const { return {fallback_ ? (*fallback_)(token) : kNoToken, 0}; }
  /// The draft token if the last committed token were the root.
  DraftToken look() {
    if (corpus_.size() == 0) return {};
    const std::int32_t root = corpus_.size() - 1;
    const Tokens text = corpus_.text();
    const Source source = source_of(corpus_.repeated());
    if (source.from < root || (options_.past_end && source.from == root))
      return {text[static_cast<std::size_t>(source.from)], kind(source.length)};
    return instead(text.back());
  }
  void commit(Token token) {
    if (judges_ && expected_.token != kNoToken) record_[expected_.kind].saw(expected_.token == token);
    corpus_.append(token);
    if (fallback_) fallback_->append(token);
    if (options_.learn) expected_ = look();
  }

  std::int32_t vocab_;
  MaxGramOptions options_;
  std::optional<Bigram> fallback_;
  detail::SuffixAutomaton corpus_;  // committed tokens
  Match tip_;                       // longest suffix of context and draft tokens
  std::vector<Token> synced_;
  std::vector<Node> nodes_;  // since the last sync
  std::vector<Token> draft_tokens_;
  std::vector<float> confidences_;
  std::array<detail::HitRate, kKinds> record_;
  DraftToken expected_;  // for the next committed token
  bool judges_ = false;  // the prompt is over
  Usage usage_;
};

}  // namespace specula
