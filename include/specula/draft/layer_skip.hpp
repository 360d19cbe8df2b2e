// The target as its own draft: some of its blocks left out, chosen anew for every text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../concepts.hpp"
#include "../skipped_blocks.hpp"
#include "../stats.hpp"

namespace specula {

/// Which blocks of a model its draft leaves out. Counting layers from 1: attention where its input and output
/// are alike, and attention and MLP of every `every`-th layer, but none of the last `keep_last` layers.
struct SkipRules {
  double alike = 0.985;        // attention whose mean cosine is at least so much; above 1: none
  std::int32_t every = 3;      // 0: none
  std::int32_t keep_last = 2;  // 0: these rules may leave out any
};

/// Sets `out`, which is made for the model's layers, from its similarities (layers), or from the other rules
/// alone where there are none. Throws std::invalid_argument for rules out of range or other sizes. Source:
/// Draft on the Fly (2024), algorithm 1 (ADMG).
inline void choose_skipped(std::span<const double> similarity, const SkipRules& rules, SkippedBlocks& out) {
  const std::int32_t layers = out.layers();
  if (rules.every < 0 || rules.keep_last < 0)
    throw std::invalid_argument("SkipRules: every and keep_last must not be negative");
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

/// Drafts with the target itself through a part of its blocks, in the target's own cache: nothing is trained,
/// and there is no second cache to keep in step. What is left out is chosen when the first guess of a text is
/// made, from the similarities that the target measured while it read the prompt (a target that does not
/// measure has the other rules only). The target's committed slots are never written; nodes of a draft are
/// forgotten before it verifies.
///
///   specula::Speculator run{specula::TreeVerifier{target, specula::Sampling{}}, specula::LayerSkip{target},
///                           specula::AdaptiveChain<>{}};
///
/// The target is referenced and must outlive the drafter; it is also the verifier's. Allocates in the
/// constructor only. Source: Draft on the Fly: Adaptive Self-Speculative Decoding using Cosine Similarity
/// (2024).
template <SkipsLayers T>
class LayerSkip {
 public:
  /// Throws std::invalid_argument for rules out of range.
  explicit LayerSkip(T& target, const SkipRules& rules = {})
      : target_(&target), rules_(rules), skipped_(target.layers()) {
    choose_skipped({}, rules, skipped_);
    const auto room = static_cast<std::size_t>(target.capacity());
    tokens_.reserve(room), parents_.reserve(room), ids_.reserve(room);
  }
  LayerSkip(T&&, const SkipRules& = {}) = delete;

  std::int32_t vocab_size() const { return target_->vocab_size(); }
  std::int32_t capacity() const { return target_->capacity(); }
  const Usage& usage() const { return usage_; }
  /// What it leaves out of this text, once a guess was made.
  const SkippedBlocks& skipped() const { return skipped_; }

  /// Forgets speculation; the text changes from position `n` on. The target is the verifier's to truncate.
  void truncate(std::int32_t n) {
    known_ = std::min(n, known_);
    chosen_ = false;
    forget_nodes();
  }

  /// `context` must extend the last one and be what the target holds now; what was drafted behind the same
  /// one and is now the guess stays. Throws, having changed nothing, std::invalid_argument on a shorter
  /// context and std::logic_error where the target holds more or fewer tokens. Cost: O(guess * nodes); a pass
  /// of the draft over what of the guess was not drafted.
  void sync(Tokens context, Tokens guess) {
    if (context.size() < static_cast<std::size_t>(known_))
      throw std::invalid_argument("LayerSkip::sync: a context of " + std::to_string(context.size()) +
                                  " tokens after one of " + std::to_string(known_) + "; truncate first");
    if (static_cast<std::size_t>(target_->size()) != context.size())
      throw std::logic_error("LayerSkip::sync: a context of " + std::to_string(context.size()) +
                             " tokens, but the target holds " + std::to_string(target_->size()) +
                             "; bring the target there first");
    const auto known = static_cast<std::int32_t>(context.size());
    if (known != known_ || target_->node_count() != size()) forget_nodes();
    known_ = known;
    ids_.clear();
    base_ = kNoParent;
    std::size_t found = 0;
    for (NodeId hit; found < guess.size() && (hit = child(base_, guess[found])) != kNoParent; ++found)
      base_ = hit;
    const std::size_t lacking = guess.size() - found;
    if (lacking == 0) return;
    const NodeId first = size();
    for (std::size_t i = 0; i < lacking; ++i)
      add(guess[found + i], i ? first + static_cast<NodeId>(i) - 1 : base_);
    run(lacking);
    base_ = size() - 1;
  }

  /// Rows after new nodes; see Drafter. Cost: a pass of the target without what is left out; for the first
  /// guess of a text also what the target's append() left waiting.
  RowsView extend(Tokens tokens, Nodes parents) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const NodeId parent = parents[i];
      if (parent != kNoParent && (parent < 0 || static_cast<std::size_t>(parent) >= ids_.size()))
        throw std::invalid_argument("LayerSkip::extend: parent " + std::to_string(parent) + " of " +
                                    std::to_string(ids_.size()) + " nodes");
      ids_.push_back(size());
      add(tokens[i], parent == kNoParent ? base_ : ids_[static_cast<std::size_t>(parent)]);
    }
    ++usage_.calls;
    return run(tokens.size());
  }

 private:
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  NodeId child(NodeId parent, Token token) const {
    for (std::size_t c = 0; c < tokens_.size(); ++c)
      if (parents_[c] == parent && tokens_[c] == token) return static_cast<NodeId>(c);
    return kNoParent;
  }
  void add(Token token, NodeId parent) {
    tokens_.push_back(token);
    parents_.push_back(parent);
  }
  void forget_nodes() {
    tokens_.clear();
    parents_.clear();
  }

  /// The last `count` nodes, through the blocks that stay.
  RowsView run(std::size_t count) {
    const detail::Stopwatch watch(usage_.seconds);
    if (!chosen_) {
      if (target_->node_count() > 0) target_->truncate(target_->size());
      if constexpr (MeasuresSimilarity<T>) choose_skipped(target_->similarity(), rules_, skipped_);
      chosen_ = true;
    }
    try {
      const RowsView rows =
          target_->extend_skipping(Tokens(tokens_).last(count), Nodes(parents_).last(count), skipped_);
      usage_.nodes += static_cast<std::int64_t>(count);
      usage_.layers += static_cast<double>(count) * (skipped_.layers() - 0.5 * skipped_.count());
      return rows;
    } catch (...) {  // the next sync() finds that the target lacks them
      tokens_.resize(tokens_.size() - count), parents_.resize(tokens_.size());
      throw;
    }
  }

  T* target_;
  SkipRules rules_;
  SkippedBlocks skipped_;
  bool chosen_ = false;        // skipped_ is of this text
  std::int32_t known_ = 0;     // tokens of the context
  std::vector<Token> tokens_;  // the target's nodes
  std::vector<NodeId> parents_;
  std::vector<NodeId> ids_;  // of the nodes since the last sync, for the target
  NodeId base_ = kNoParent;  // the end of the guess, for the target
  Usage usage_;
};

}  // namespace specula
