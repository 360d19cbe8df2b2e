// SPDX-License-Identifier: MIT
// A proposal under construction: stores draft rows, draws draft tokens from them, and records how.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/proposal_kind.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/steps.hpp"
#include "specula/distribution/distinct_weights.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/proposal/draft_rows.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/proposal/waiters.hpp"

namespace specula {

class ProposalBuilder;
template <class Rng>
bool review(ProposalBuilder& tree, NodeId node, std::span<const float> row, const SamplingParams& params,
            double lenience, Rng& rng);
namespace detail {
inline bool review_greedy(ProposalBuilder& tree, NodeId node, std::span<const float> row, double lenience);
}  // namespace detail

/// A TokenTree that a shape grows. Nodes are added by draw(), draw_distinct(), draw_shared(), choose() and
/// copy(), so that the record matches the draws, or by record(), where the caller guarantees that. Only
/// review() of review.hpp removes a drawn node, keep() others. Allocates in the constructor, and 4 V bytes at
/// the first top-k or top-p truncation.
class ProposalBuilder : public TokenTree {
 public:
  /// `max_nodes` includes the root. `stored_rows`: the number of nodes that may keep a draft row (V floats, V
  /// / 512 doubles) that children are drawn from; 0 for deterministic proposals. Throws std::invalid_argument
  /// if a size is out of range.
  ProposalBuilder(std::int32_t vocab, std::int32_t max_nodes, std::int32_t stored_rows)
      : TokenTree(vocab, max_nodes),
        scan_(vocab),
        masses_(static_cast<std::size_t>(detail::tile_count(vocab))),
        distinct_masses_(static_cast<std::size_t>(detail::tile_count(vocab))),
        rows_(vocab, checked(stored_rows, max_nodes)),
        lenient_(stored_rows > 0 ? static_cast<std::size_t>(vocab) : 0) {}
  ProposalBuilder(const ProposalBuilder&) = delete;  // its distributions point into its rows
  ProposalBuilder& operator=(const ProposalBuilder&) = delete;
  ProposalBuilder(ProposalBuilder&&) = default;            ///< A moved-from tree is unspecified.
  ProposalBuilder& operator=(ProposalBuilder&&) = delete;  // it would drop drawn tokens

  /// While a lock exists, reset() of its tree throws. The caller of a shape holds one, since a shape that
  /// drops tokens that it has drawn biases the text.
  class ResetLock {
   public:
    /// Locks `tree` until the end of the scope.
    explicit ResetLock(ProposalBuilder& tree) : tree_(tree) { ++tree_.locks_; }
    ~ResetLock() { --tree_.locks_; }
    ResetLock(const ResetLock&) = delete;
    ResetLock& operator=(const ResetLock&) = delete;

   private:
    ProposalBuilder& tree_;
  };

  /// Starts a proposal of at most `limit` nodes under `root`, which is at `position` of the text. Throws,
  /// having changed nothing, std::invalid_argument if the root is outside the vocabulary or the position is
  /// negative or above 2^31 - 1 - capacity(), std::logic_error under a ResetLock or if the tree was moved
  /// from.
  void reset(Token root, std::int32_t position, std::int32_t limit) {
    if (locks_ > 0)
      throw std::logic_error(
          "ProposalBuilder::reset: a shape is proposing, and tokens that it has drawn must not be dropped");
    expect_token("the root", root);
    detail::expect_in("ProposalBuilder::reset: position", position, 0,
                      std::numeric_limits<std::int32_t>::max() - capacity());
    serial_ = 0;
    scanned_ = {};
    rows_.drop(0, size());
    begin(root, position, limit);
  }
  /// The same with capacity() as the limit.
  void reset(Token root, std::int32_t position) { reset(root, position, capacity()); }
  /// Limits this proposal to `nodes` nodes in all.
  void narrow(std::int32_t nodes) { limit_to(nodes); }

  /// Removes the nodes with kept[node] == 0: (size), of which the root's is not read. Throws
  /// std::logic_error, having changed nothing, if a node was drawn, since a choice among drawn tokens biases
  /// the text, and std::invalid_argument if `kept` has another size or a node is kept whose parent is not.
  void keep(std::span<const std::uint8_t> kept) {
    if (kind() != ProposalKind::deterministic)
      throw std::logic_error("ProposalBuilder::keep: draft tokens were drawn, and must all be verified");
    if (kept.size() != static_cast<std::size_t>(size()))
      throw std::invalid_argument("ProposalBuilder::keep: " + std::to_string(kept.size()) + " flags for " +
                                  std::to_string(size()) + " nodes");
    for (NodeId n = 1; n < size(); ++n)
      if (kept[static_cast<std::size_t>(n)] != 0 && parent(n) != 0 &&
          kept[static_cast<std::size_t>(parent(n))] == 0)
        throw std::invalid_argument("ProposalBuilder::keep: node " + std::to_string(n) +
                                    " without its parent");
    keep_only(kept);
  }

  // ---- waiting

  /// The frames of the round's coroutines.
  StepsArena& steps_arena() { return arena_; }
  /// Whether a shape waits where it asks for rows, as the caller runs the passes; by default it does not.
  bool waits_for_passes() const { return waits_; }
  void wait_for_passes(bool on) { waits_ = on; }  ///< sets that
  /// @cond
  detail::PassWaiter*& waiter() { return waiter_; }
  detail::GrantWaiter*& bidder() { return bidder_; }
  /// @endcond

  // ---- growth

  /// Copies the draft's row after `node` (V logits) into the tree and returns its distribution under
  /// `params`. Throws std::runtime_error naming the node if the row holds NaN or is empty, and
  /// std::invalid_argument if params are out of range, the row has another width, or a token was drawn from
  /// the row already stored (a second row needs the slot of another node).
  Distribution store(NodeId node, std::span<const float> row, const SamplingParams& params) {
    expect_node(node);
    const std::span<float> slot = rows_.slot(node, row);
    expect_unused(slot, node, kNoParent);
    validate(params);
    rows_.made(node, {});
    std::copy(row.begin(), row.end(), slot.begin());
    const Distribution distribution =
        named(node, [&] { return scan_.weights(slot, params, rows_.masses(node)).distribution; });
    rows_.made(node, distribution);
    return distribution;
  }
  /// The same distribution over the caller's row, which is read but not copied: for record(). Requires no
  /// slot.
  Distribution distribution_after(NodeId node, std::span<const float> row, const SamplingParams& params) {
    expect_node(node);
    validate(params);
    scanned_ = {};  // a bad row throws below
    return scanned_ = named(node, [&] { return scan_.weights(row, params, masses_).distribution; });
  }

  /// Adds a child of `parent` drawn from `distribution`, which must remain valid with its row until the
  /// next reset(). Children drawn repeatedly from one distribution are independent of each other (with
  /// replacement). Throws std::invalid_argument naming the parent if a store() has replaced the row of the
  /// distribution, if the node of that row was removed (reset(), review()), or if a distribution that
  /// store() did not make does not sum to 1 (checked when its row is first read).
  template <class Rng>
  NodeId draw(NodeId parent, const Distribution& distribution, Rng& rng) {
    expect_room(parent);
    if (distribution.is_point()) return choose(parent, distribution.point, 1.0f);
    const detail::TokenWeights weights = weights_of(parent, distribution);
    return add(parent, rng.draw(weights, draft_key(parent)), distribution, Kind::drawn);
  }

  /// Adds a child of `parent` drawn from `distribution` without replacement, that is, conditioned on being
  /// none of the existing children. Returns kNoParent and adds nothing if no other token has mass. Throws as
  /// draw().
  template <class Rng>
  NodeId draw_distinct(NodeId parent, const Distribution& distribution, Rng& rng) {
    expect_room(parent);
    if (distribution.is_point())
      return has_child(parent, distribution.point) ? kNoParent : choose(parent, distribution.point, 1.0f);
    const detail::DistinctWeights weights(*this, parent, weights_of(parent, distribution), distinct_masses_);
    if (!(weights.total() > 0)) return kNoParent;
    const Token token = rng.draw(weights, draft_key(parent));
    return add(parent, token, distribution, Kind::distinct, 1.0 / weights.total());
  }

  /// Adds a child of `parent` drawn from `distribution` with the noise of its position, which GumbelCoupling
  /// also uses for the target's token. Throws as draw().
  template <class Rng>
  NodeId draw_shared(NodeId parent, const Distribution& distribution, Rng& rng) {
    expect_room(parent);
    if (distribution.is_point()) return choose(parent, distribution.point, 1.0f);
    const detail::TokenWeights weights = weights_of(parent, distribution);
    return add(parent, rng.draw_by_noise(weights, noise_key(parent)), distribution, Kind::shared);
  }

  /// Adds a draft token that the caller's own sampler drew from `distribution`, as a child of `parent`.
  /// Requires what no rule can check:
  ///   - the token was drawn from `distribution` itself, temperature, truncation and penalties included;
  ///   - by random numbers that nothing else uses: neither the target's tokens nor the rule's uniform
  ///     draws;
  ///   - children of one parent were drawn independently of each other, and are recorded in drawing order,
  ///     none left out, each with the same Distribution (so that KSeq recognises it as one);
  ///   - the row of `distribution` is unchanged until verification.
  ///
  /// Cost: reads the row once, unless it is stored in the tree or is the caller's row that was read last (by
  /// distribution_after() or for a sibling). Throws as draw(), and std::invalid_argument if the token is
  /// outside the vocabulary or has probability 0 under `distribution`.
  NodeId record(NodeId parent, Token token, const Distribution& distribution) {
    expect_recordable("ProposalBuilder::record", parent, token, distribution);
    if (distribution.is_point()) return choose(parent, token, 1.0f);
    weights_of(parent, distribution);
    return add(parent, token, distribution, Kind::drawn);
  }
  /// The same for children drawn without replacement: each from `distribution` conditioned on being none of
  /// the earlier children of `parent`. Throws also if the token is one of those. Returns kNoParent and adds
  /// nothing if they left no mass, as draw_distinct() does: masses are sums of floats, so a sampler in double
  /// precision may still find a token.
  NodeId record_distinct(NodeId parent, Token token, const Distribution& distribution) {
    expect_recordable("ProposalBuilder::record_distinct", parent, token, distribution);
    if (has_child(parent, token))
      throw std::invalid_argument("ProposalBuilder::record_distinct: token " + std::to_string(token) +
                                  " is a child of node " + std::to_string(parent) + " already");
    if (distribution.is_point()) return choose(parent, token, 1.0f);
    const detail::DistinctWeights weights(*this, parent, weights_of(parent, distribution), distinct_masses_);
    if (!(weights.total() > 0)) return kNoParent;
    return add(parent, token, distribution, Kind::distinct, 1.0 / weights.total());
  }

  /// Adds `token` as a child of `parent`; no uniform draw is made for it. Which token is chosen may depend on
  /// what was drawn before it. `confidence` is the draft's probability of it, for shapes and for display; no
  /// exact rule reads it. Siblings may share a token: exact rules (but KSeq) accept the first, so nodes below
  /// the others are never reached.
  NodeId choose(NodeId parent, Token token, float confidence) {
    return add_point(parent, token, confidence, Kind::chosen);
  }
  /// The same for a draft token of a drafter without rows; reviews verify it with lenience 1.
  NodeId copy(NodeId parent, Token token, float confidence) {
    return add_point(parent, token, confidence, Kind::copied);
  }

  /// First of the largest logits of the draft's row after `node`, with its softmax probability: what a
  /// greedy shape chooses. Throws as store().
  Top top(NodeId node, std::span<const float> row) {
    return named(node, [&] { return scan_.top(row); });
  }
  /// The out.size() largest logits of the draft's row after `node`, best first, ties to the lower token,
  /// with their softmax probabilities. Returns how many are above -infinity. Cost: one read of the row.
  /// Throws as top().
  std::int32_t top_k(NodeId node, std::span<const float> row, std::span<Top> out) {
    return named(node, [&] { return scan_.top_k(row, out); });
  }

 private:
  template <class Rng>
  friend bool review(ProposalBuilder&, NodeId, std::span<const float>, const SamplingParams&, double, Rng&);
  friend bool detail::review_greedy(ProposalBuilder&, NodeId, std::span<const float>, double);

  static std::int32_t checked(std::int32_t stored_rows, std::int32_t max_nodes) {
    detail::expect_in("ProposalBuilder: stored_rows", stored_rows, 0, max_nodes);
    return stored_rows;
  }
  template <class F>
  static std::invoke_result_t<F> named(NodeId node, F f) {
    try {
      return f();
    } catch (const std::runtime_error& e) {
      throw std::runtime_error("the draft's row after node " + std::to_string(node) + ": " + e.what());
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument("the draft's row after node " + std::to_string(node) + ": " + e.what());
    }
  }
  /// Throws if a node other than `but` was drawn from the row in `slot`, the slot of `node`. Only later nodes
  /// can be: a row is stored after its node was added, and dropped with it.
  void expect_unused(std::span<float> slot, NodeId node, NodeId but) const {
    for (NodeId n = node + 1; n < size(); ++n)
      if (n != but && draft_distribution(n).logits == slot.data())
        throw std::invalid_argument("ProposalBuilder: the row of node " + std::to_string(node) +
                                    " cannot be replaced: node " + std::to_string(n) + " was drawn from it");
  }
  void expect_recordable(const char* call, NodeId parent, Token token,
                         const Distribution& distribution) const {
    expect_room(parent);
    expect_token("token", token);
    if (!distribution.is_point() && !distribution.logits) return;  // weights_of() throws
    if (!(distribution(token) > 0))
      throw std::invalid_argument(std::string(call) + ": token " + std::to_string(token) + " after node " +
                                  std::to_string(parent) + " has probability " +
                                  detail::number(distribution(token)) +
                                  " under its distribution, which must be above 0");
  }
  /// The weights of `distribution`, for a child of `parent`. Requires that it is no point mass. The sum of a
  /// distribution over a row of the caller is checked when the row is read.
  detail::TokenWeights weights_of(NodeId parent, const Distribution& distribution) {
    if (!distribution.logits)
      throw std::invalid_argument("ProposalBuilder: a distribution for node " + std::to_string(parent) +
                                  " has no row");
    if (const NodeId node = rows_.node_of(distribution); node != kNoParent) {
      if (rows_.distribution(node) == distribution) return {distribution, vocab(), rows_.masses(node)};
      throw std::invalid_argument("ProposalBuilder: a distribution for node " + std::to_string(parent) +
                                  " is over a row that store() has replaced, or its node is gone");
    }
    if (!(scanned_ == distribution)) {
      scanned_ = {};
      double sum = 0;
      scan_.weights(distribution, masses_);
      for (const double mass : masses_) sum += mass;
      if (!(std::abs(sum - 1) < 1e-3))
        throw std::invalid_argument("ProposalBuilder: the distribution after node " + std::to_string(parent) +
                                    " adds up to " + detail::number(sum) +
                                    ", must be 1: is its row one of log-probabilities?");
      scanned_ = distribution;
    }
    return {distribution, vocab(), masses_};
  }
  NodeId add(NodeId parent, Token token, const Distribution& distribution, Kind kind, double scale = 1) {
    count(kind, 1);
    return push(token, parent,
                {.distribution = distribution,
                 .scale = scale,
                 .confidence = static_cast<float>(distribution(token)),
                 .kind = kind});
  }
  NodeId add_point(NodeId parent, Token token, float confidence, Kind kind) {
    expect_room(parent);
    expect_token("token", token);
    count(kind, 1);
    return push(token, parent,
                {.distribution = Distribution::at(token), .confidence = confidence, .kind = kind});
  }
  /// Removes `node` of a chain and all nodes after it, with the distributions of their rows.
  void drop(NodeId node) {
    rows_.drop(node, size());
    cut(node);
  }
  RandomKey draft_key(NodeId parent) { return review_key(parent, RandomStream::draft); }
  RandomKey review_key(NodeId parent, RandomStream stream) {
    return {position(parent) + 1, origin(), stream, serial_++};
  }
  StepsArena arena_;
  detail::PassWaiter* waiter_ = nullptr;   // in a frame of the arena
  detail::GrantWaiter* bidder_ = nullptr;  // likewise
  bool waits_ = false;
  std::uint32_t serial_ = 0;  // of the round's uniform draws
  std::int32_t locks_ = 0;
  detail::RowScan scan_;
  std::vector<double> masses_;           // (ceil(V / 512)) of scanned_
  Distribution scanned_;                 // over a row of the caller, the last one read in this proposal
  std::vector<double> distinct_masses_;  // (ceil(V / 512))
  detail::DraftRows rows_;               // slot: the node whose children are drawn from it
  std::vector<float> lenient_;           // (V), if rows are stored: a row before it is copied into a slot
};

}  // namespace specula
