// Max-Gram and prompt lookup: draft tokens copied from the text itself.
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

#include "specula/base/alive.hpp"
#include "specula/base/stopwatch.hpp"
#include "specula/draft/bigram.hpp"
#include "specula/draft/detail/suffix_automaton.hpp"
#include "specula/rows.hpp"
#include "specula/stats.hpp"

namespace specula {

/// Which matches count.
struct MaxGramOptions {
  std::int32_t min_match = 1;  // tokens; a shorter match is none
  std::int32_t max_match = 0;  // longest suffix that is looked for; 0: any
  // where the occurrence ends the committed tokens: copy on from draft tokens and root
  bool past_end = false;
  bool learn = true;  // confidences from how draft tokens fared, not from priors alone
};

/// Finds the longest suffix of the text, draft tokens included, that occurs in the committed tokens, and
/// predicts the token after its earliest occurrence there; where there is none, what a bigram model says, if
/// it has one. A draft token that is taken up is copied on from there: the same as searching again, unless an
/// option cuts matches short or copies past the end. Max-Gram is section 3.3 of Chen et al. 2024 (Cascade
/// Speculative Drafting); prompt lookup is Saxena 2023. With `past_end`, which neither has, a text that
/// repeats itself is drafted as far as one asks.
///
///   specula::Speculator run{verifier, specula::MaxGram{table}, specula::Chain<>{.length = 10}};
///
/// Confidences: per match length, the drafter counts how often the predicted token was right as the text
/// grows. The prompt (the beginning of a text, up to the first extend() or the first sync() without new
/// tokens) is not counted. Counts are kept from text to text. Cost: amortised O(1) per committed token; per
/// node one look-up where it continues a match, otherwise logarithmic in the context; at most 300 bytes per
/// token. A round allocates nothing after reserve().
class MaxGram {
 public:
  /// Draft tokens nothing where nothing matches. Throws std::invalid_argument unless vocab >= 1, min_match >=
  /// 1 and max_match is 0 or at least min_match.
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
  /// Where nothing matches, what `fallback` (or a BigramTable) says.
  explicit MaxGram(Bigram fallback, MaxGramOptions options = {}) : MaxGram(fallback.vocab_size(), options) {
    fallback_ = std::move(fallback);
  }
  /// Prompt lookup decoding: matches of at most `ngram` tokens.
  static MaxGram prompt_lookup(std::int32_t vocab, std::int32_t ngram = 3) {
    if (ngram < 1)
      throw std::invalid_argument("MaxGram::prompt_lookup: ngram is " + std::to_string(ngram) +
                                  ", must be >= 1");
    return MaxGram(vocab, {.max_match = ngram});
  }

  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t capacity() const { return std::numeric_limits<std::int32_t>::max(); }
  const Usage& usage() const { return usage_; }

  /// Makes room for a text and a proposal of `tokens` tokens.
  void reserve(std::int32_t tokens) {
    corpus_.reserve(tokens);
    const auto n = static_cast<std::size_t>(std::max(0, tokens));
    nodes_.reserve(n);
    synced_.reserve(n);
    draft_tokens_.reserve(n);
    confidences_.reserve(n);
    if (fallback_) fallback_->reserve(tokens);
  }

  /// Forgets speculation, and committed tokens from `n` on. O(room), unless there are none.
  void truncate(std::int32_t n) {
    alive_.expect("MaxGram");
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

  /// See Drafter. O(new tokens) in the mean over a text, and a look-up a draft token. Throws
  /// std::invalid_argument, having changed nothing, on a context shorter than the last one, or a new token or
  /// draft token outside the vocabulary.
  void sync(Tokens context, Tokens draft_tokens) {
    alive_.expect("MaxGram");
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

  /// See Drafter. Throws std::invalid_argument, having changed nothing, on a token outside the vocabulary or
  /// a parent that is not there.
  PointMasses extend(Tokens tokens, Nodes parents) {
    alive_.expect("MaxGram");
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

  /// Forgets how draft tokens fared.
  void reset_record() {
    for (std::size_t kind = 0; kind < kKinds; ++kind) record_[kind] = {.prior = kPriors[kind]};
    if (fallback_) fallback_->reset_record();
  }
  /// Look-ups in the corpus so far: what rounds cost, whatever the machine.
  std::int64_t steps() const { return corpus_.steps(); }

 private:
  using Match = detail::SuffixAutomaton::Match;
  static constexpr std::int32_t kNowhere = std::numeric_limits<std::int32_t>::max();

  /// Kinds of draft tokens: the bigram model's, then by the least length of their match.
  static constexpr std::size_t kKinds = 8;
  static constexpr std::array<std::int32_t, kKinds> kLengths = {0, 1, 2, 3, 5, 8, 12, 20};
  static constexpr std::array<double, kKinds> kPriors = {0.4, 0.4, 0.55, 0.65, 0.77, 0.85, 0.9, 0.96};

  struct Source {
    std::int32_t from = kNowhere;  // where the token to copy stands in the text
    std::int32_t length = 0;       // of the match before it
  };
  struct Node {
    Match match = {};  // longest suffix of the text up to this node that occurs
    Token token = kNoToken;
    NodeId parent = kNoParent;
    std::int32_t depth = 0;
    Source source = {};
    Token copied = kNoToken;  // its draft token, if that was copied
  };
  struct DraftToken {
    Token token = kNoToken;
    std::size_t kind = 0;
  };

  /// The token at `place` of the text that the last node ends: committed, drafted, or a node.
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
  /// The draft tokens after `token` where nothing is copied.
  DraftToken instead(Token token) const { return {fallback_ ? (*fallback_)(token) : kNoToken, 0}; }
  /// What would be drafted if the last committed token were the root.
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
  detail::Alive alive_;
  Usage usage_;
};

}  // namespace specula
