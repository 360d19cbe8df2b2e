// SPDX-License-Identifier: MIT
// Self-speculative decoding by layer skipping: the target drafts for itself without some of its blocks,
// chosen per text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/skipped_blocks.hpp"
#include "specula/policy/concepts.hpp"

namespace specula {

/// Which blocks of a model its draft skips. Counting layers from 1: the attention of layers where its input
/// and output are similar, and both blocks of every `every`-th layer, but nothing in the last `keep_last`.
struct SkipRules {
  double alike = 0.985;        ///< skip attention of at least this mean cosine; above 1: none
  std::int32_t every = 3;      ///< skip both blocks of every n-th layer; 0: none
  std::int32_t keep_last = 2;  ///< layers at the end that are run as a whole
};

/// Sets `out`, sized for the model's layers, from its similarities (layers), or from the other rules alone if
/// `similarity` is empty. Throws std::invalid_argument if a rule is out of range or the sizes differ. Source:
/// Draft on the Fly (2024), algorithm 1 (ADMG).
inline void choose_skipped(std::span<const double> similarity, const SkipRules& rules, SkippedBlocks& out) {
  const std::int32_t layers = out.layers();
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  detail::expect_in("SkipRules::every", rules.every, 0, most);
  detail::expect_in("SkipRules::keep_last", rules.keep_last, 0, most);
  if (std::isnan(rules.alike))
    throw std::invalid_argument("SkipRules::alike is nan, must be a cosine, or above 1 for none");
  if (!similarity.empty() && similarity.size() != out.attention.size())
    throw std::invalid_argument("choose_skipped: " + std::to_string(similarity.size()) +
                                " similarities, the model has " + std::to_string(layers) + " layers");
  out.keep_all();
  for (std::int32_t l = 1; l <= layers - rules.keep_last; ++l) {
    const auto i = static_cast<std::size_t>(l - 1);
    const bool regular = rules.every > 0 && l % rules.every == 0;
    out.mlp[i] = regular;
    out.attention[i] = regular || (!similarity.empty() && similarity[i] >= rules.alike);
  }
}

///   specula::Speculator run{specula::TreeVerifier{model, specula::Sampling{}}, specula::LayerSkip{model},
///                           specula::AdaptiveChain<>{}};
///
/// Drafts with the target itself, without some of its blocks, in the target's own KV cache: no training, and
/// no second cache to keep in sync. The skipped blocks are given, or chosen by rules at the first draft token
/// of a text, from the similarities that the target measured during prefill (a target that does not measure
/// them uses the other rules only). The target's committed slots are never written. Draft nodes share its
/// room for nodes, are never more than the proposal has, and are dropped before verification. Each draft
/// token invalidates views of the target. At most one per target, which is referenced and must outlive the
/// drafter; it is also the verifier's.
///
/// The paper averages over all S tokens of the prompt, since its first token is the target's own, from
/// prefill. Here the mean is over the S - 1 tokens before the root, because the first round drafts before the
/// target has run the root. Waiting for the root's cosine would cost each text one round without draft
/// tokens, and could move the mean by at most 2 / S.
/// **Draws.** Nothing.
/// **Cost.** Per extend() a pass of the target without the skipped blocks. Allocates in the constructor only.
/// **Throws.** std::invalid_argument for rules or blocks out of range, bad nodes, or a shorter context;
/// std::logic_error if the target holds more or fewer tokens than the context.
/// **Source.** Draft on the Fly: Adaptive Self-Speculative Decoding using Cosine Similarity (2024), 3.2.
template <SkipsLayers T>
class LayerSkip {
 public:
  /// Throws std::invalid_argument if a rule is out of range.
  explicit LayerSkip(T& target, const SkipRules& rules = {})
      : target_(&target), rules_(rules), skipped_(target.layers()) {
    choose_skipped({}, rules, skipped_);
    const auto room = static_cast<std::size_t>(target.capacity());
    tokens_.reserve(room), parents_.reserve(room), lacking_.reserve(room);
  }
  LayerSkip(T&&, const SkipRules& = {}) = delete;  // a temporary: the model must outlive this; name it
  /// Skips these blocks in every text. Throws std::invalid_argument unless they are of the target's layers.
  LayerSkip(T& target, SkippedBlocks blocks) : LayerSkip(target) {
    if (blocks.layers() != target.layers() || blocks.mlp.size() != blocks.attention.size())
      throw std::invalid_argument("LayerSkip: blocks of " + std::to_string(blocks.layers()) +
                                  " layers, the target has " + std::to_string(target.layers()));
    skipped_ = std::move(blocks);
    given_ = true;
  }
  LayerSkip(T&&, SkippedBlocks) = delete;  // a temporary: the model must outlive this; name it

  std::int32_t vocab_size() const { return target_->vocab_size(); }  ///< size V of the vocabulary
  std::int32_t capacity() const { return target_->capacity(); }      ///< tokens and nodes that it can hold
  const Usage& usage() const noexcept { return usage_; }             ///< calls, nodes and seconds so far
  /// The blocks skipped in this text, valid after its first draft token; or the given ones.
  const SkippedBlocks& skipped() const { return skipped_; }

  /// Drops all nodes; the text changes from position `n` on. The verifier truncates the target.
  void truncate(std::int32_t n) {
    known_ = std::min(n, known_);
    chosen_ = false;
    forget_nodes();
  }

  /// Requires that `context` extends the last one and is what the target holds now. Nodes are kept if they
  /// are a prefix of the draft tokens; the remaining draft tokens run with the next extend(). Throws as said
  /// above, and changes nothing. Cost: O(draft tokens).
  void sync(Tokens context, Tokens draft_tokens) {
    if (context.size() < static_cast<std::size_t>(known_))
      throw std::invalid_argument("LayerSkip::sync: a context of " + std::to_string(context.size()) +
                                  " tokens after one of " + std::to_string(known_) + "; truncate first");
    if (static_cast<std::size_t>(target_->size()) != context.size())
      throw std::logic_error("LayerSkip::sync: a context of " + std::to_string(context.size()) +
                             " tokens, but the target holds " + std::to_string(target_->size()) +
                             "; bring the target there first");
    const auto known = static_cast<std::int32_t>(context.size());
    // The target was used since: by the verifier, or by a call that threw before it ran.
    if (known != known_ || target_->node_count() != size()) forget_nodes();
    known_ = known;
    if (!begins(draft_tokens)) forget_nodes();
    lacking_.assign(draft_tokens.begin() + size(), draft_tokens.end());
    drafted_ = static_cast<std::int32_t>(draft_tokens.size());
  }

  /// Rows after new nodes; see Drafter. Throws std::invalid_argument, and changes nothing, for a bad parent
  /// or other numbers of tokens and parents; throws also unless the target returns one row per node. For the
  /// first draft token of a text the pass also runs the target's pending append()ed tokens.
  LogitsView extend(Tokens tokens, Nodes parents) {
    if (parents.size() != tokens.size())
      throw std::invalid_argument("LayerSkip::extend: " + std::to_string(parents.size()) + " parents for " +
                                  std::to_string(tokens.size()) + " tokens");
    const auto made = static_cast<std::size_t>(size()) + lacking_.size() - static_cast<std::size_t>(drafted_);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (parents[i] != kNoParent && (parents[i] < 0 || static_cast<std::size_t>(parents[i]) >= made + i))
        throw std::invalid_argument("LayerSkip::extend: parent " + std::to_string(parents[i]) + " of " +
                                    std::to_string(made + i) + " nodes");
    const detail::PassWatch<T> watch(*target_, usage_);
    if (!chosen_ && !given_) {
      choose_skipped(target_->attention_similarity(), rules_, skipped_);
      chosen_ = true;
    }
    if (size() == 0 && target_->node_count() > 0) target_->truncate(target_->size());
    const std::size_t before = tokens_.size();
    const auto add = [&](Token token, NodeId parent) {
      tokens_.push_back(token);
      parents_.push_back(parent);
    };
    // The draft tokens are a chain at the start of the target's nodes; nodes since sync() follow, offset by
    // its length.
    for (const Token token : lacking_) add(token, size() - 1);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      add(tokens[i], (parents[i] == kNoParent ? -1 : parents[i]) + drafted_);
    LogitsView rows;
    try {
      rows = target_->extend_skipping(Tokens(tokens_).subspan(before), Nodes(parents_).subspan(before),
                                      skipped_);
    } catch (...) {
      tokens_.resize(before), parents_.resize(before);
      throw;
    }
    detail::expect_rows("LayerSkip::extend: the target", rows, lacking_.size() + tokens.size(), vocab_size());
    rows.data += static_cast<std::ptrdiff_t>(lacking_.size()) * rows.stride;
    rows.rows = static_cast<std::int32_t>(tokens.size());
    lacking_.clear();
    ++usage_.calls;
    usage_.nodes += rows.rows;
    usage_.layers += rows.rows * (skipped_.layers() - 0.5 * skipped_.count());
    return rows;
  }

 private:
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Whether the nodes are a chain and a prefix of the draft tokens.
  bool begins(Tokens draft_tokens) const {
    if (draft_tokens.size() < tokens_.size()) return false;
    for (std::int32_t n = 0; n < size(); ++n) {
      const auto i = static_cast<std::size_t>(n);
      if (tokens_[i] != draft_tokens[i] || parents_[i] != n - 1) return false;
    }
    return true;
  }
  void forget_nodes() {
    tokens_.clear(), parents_.clear(), lacking_.clear();
    drafted_ = 0;
  }

  T* target_;
  SkipRules rules_;
  SkippedBlocks skipped_;
  bool given_ = false;         // skipped_ is fixed for all texts
  bool chosen_ = false;        // skipped_ is set for this text
  std::int32_t known_ = 0;     // tokens of the context
  std::vector<Token> tokens_;  // the target's nodes: the draft tokens, then the nodes since the last sync
  std::vector<NodeId> parents_;
  std::vector<Token> lacking_;  // last draft tokens, not run yet
  std::int32_t drafted_ = 0;    // number of draft tokens at the last sync
  Usage usage_;
};

}  // namespace specula
