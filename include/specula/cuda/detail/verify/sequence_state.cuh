// SPDX-License-Identifier: MIT
// A sequence's proposal and its verification result: the state that verification rules work on.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/philox_random.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Ends a verification result after `count` elements. By a warp.
template <class Warp>
SPECULA_HD void end_result(Warp warp, const VerifyResults& out, int width, int sequence, int count,
                           Status status) {
  for (int i = count + warp.rank(); i < width; i += warp.size()) {
    const std::int64_t at = static_cast<std::int64_t>(sequence) * width + i;
    out.accepted[at] = kNoParent;
    out.token[at] = kNoToken;
    if (out.log_prob) out.log_prob[at] = 0;
  }
  if (warp.rank() == 0) {
    out.count[sequence] = count;
    out.status[sequence] = status;
  }
}

/// Whether there is nothing to verify: beyond the batch's sequences, or an empty slot, whose result is then
/// written by the first warp of a cluster that `writes`. All threads.
template <class Cluster>
SPECULA_HD bool is_vacant(Cluster cluster, const Trees& trees, const VerifyResults& out, int width,
                          int sequence, bool writes = true) {
  if (!is_live(sequence, trees.sequence_count)) return true;
  if (trees.begin[sequence + 1] != trees.begin[sequence]) return false;
  if (writes && cluster.rank() == 0 && cluster.block().warp_rank() == 0)
    end_result(cluster.block().warp(), out, width, sequence, 0, Status::ok);
  return true;
}

/// One warp of each block verifies, all with the same state; that of the cluster's first block writes.
template <class Cluster>
class SequenceState {
 public:
  SPECULA_HD SequenceState(Cluster cluster, const Trees& trees, const VerifyResults& out, int vocab,
                           int max_nodes, int width, int sequence)
      : cluster_(cluster),
        trees_(trees),
        out_(out),
        vocab_(vocab),
        width_(width),
        sequence_(sequence),
        begin_(trees.begin[sequence]),
        size_(trees.begin[sequence + 1] - begin_),
        origin_(trees.position[sequence]),
        tokens_(trees.token + begin_),
        parents_(trees.parent ? trees.parent + begin_ : nullptr),
        rng_{trees.seed[sequence], trees.sequence ? trees.sequence[sequence] : 0} {
    if (size_ < 1 || size_ > max_nodes) status_ = Status::bad_tree;
  }

  SPECULA_HD bool ok() const { return status_ == Status::ok; }

  // ---- the tree

  SPECULA_HD bool is_chain() const { return !parents_; }
  SPECULA_HD Token token(NodeId node) const { return tokens_[node]; }
  SPECULA_HD NodeId parent(NodeId node) const { return parents_ ? parents_[node] : node - 1; }
  /// Whether neither a node nor any of its ancestors is padding; false if the proposal is no tree.
  SPECULA_HD bool is_there(NodeId node) const {
    for (NodeId above = 0; node > 0; node = above) {
      above = parent(node);
      if (token(node) < 0 || above < 0 || above >= node) return false;
    }
    return true;
  }
  /// The child of `node` that comes after node `after` (`node` itself: the first), or kNoParent. Padding is
  /// skipped.
  SPECULA_HD NodeId next_child(NodeId node, NodeId after) const {
    return next(
        after, [&](NodeId c) { return parent(c) == node && token(c) >= 0; }, node);
  }
  /// The first child of `node` that is `wanted`, or kNoParent.
  SPECULA_HD NodeId child_with(NodeId node, Token wanted) const {
    return next(
        node, [&](NodeId c) { return parent(c) == node && token(c) == wanted; }, node);
  }

  // ---- uniform draws, at the keys of specula::TokenTree. `depth` is that of the node.

  SPECULA_HD bool accept(double probability, NodeId node, int depth) const {
    return rng_.accept(probability, specula::detail::accept_key(origin_, depth, node));
  }
  SPECULA_HD Words sample_words(int depth) const {
    return rng_.words(specula::detail::sample_key(origin_, depth));
  }
  SPECULA_HD Words residual_words(int depth) const {
    return rng_.words(specula::detail::residual_key(origin_, depth));
  }

  // ---- the verification result

  /// Elements i to i + count - 1 of the path, the tokens after them, and their log-probabilities: node(k),
  /// next(k) and log_prob(k), the last where it is wanted and the token is one.
  template <class Node, class Next, class LogProb>
  SPECULA_HD void put_some(int i, int count, Node node, Next next, LogProb log_prob) {
    if (i + count > width_) {
      status_ = Status::bad_tree;
      return;
    }
    const auto warp = cluster_.block().warp();
    if (cluster_.rank() != 0) return;
    for (int k = warp.rank(); k < count; k += warp.size()) {
      const std::int64_t at = static_cast<std::int64_t>(sequence_) * width_ + i + k;
      out_.accepted[at] = node(k);
      out_.token[at] = next(k);
      if (out_.log_prob) out_.log_prob[at] = next(k) >= 0 ? log_prob(k) : 0.0f;
    }
  }
  /// Ends the verification result after `count` elements; with none of them if something was not ok.
  SPECULA_HD void finish(int count) {
    if (!ok()) count = 0;
    if (cluster_.rank() != 0) return;
    const auto warp = cluster_.block().warp();
    warp.sync();  // after the puts of other lanes
    end_result(warp, out_, width_, sequence_, count, status_);
  }

 protected:
  SPECULA_HD void fail(Status status) {
    if (status != Status::ok) status_ = status;
  }
  /// `token`, which a draw found.
  SPECULA_HD Token emitted(Token token) {
    if (token == kNoToken) status_ = Status::empty_row;
    return token;
  }
  /// Roots of the sequences before this one: those that are no empty slots. Cost: two reads for each.
  SPECULA_HD int roots_before() const {
    const auto warp = cluster_.block().warp();
    int out = 0;
    for (int first = 0; first < sequence_; first += warp.size()) {
      const int b = first + warp.rank();
      out += count_lanes(warp.ballot(b < sequence_ && trees_.begin[b + 1] > trees_.begin[b]));
    }
    return out;
  }
  /// Whether tokens and parents make a tree. Of a tree that has not too many nodes.
  SPECULA_HD bool is_tree() const {
    const auto warp = cluster_.block().warp();
    bool bad = false;
    for (NodeId n = warp.rank(); n < size_; n += warp.size())
      bad = bad || token(n) >= vocab_ || (n > 0 ? parent(n) < 0 || parent(n) >= n : parent(n) != kNoParent);
    return warp.ballot(bad) == 0;
  }

  Cluster cluster_;
  const Trees& trees_;
  const VerifyResults& out_;
  int vocab_, width_, sequence_;
  std::int32_t begin_, size_, origin_;
  const Token* tokens_;    // (size_) those of the batch, or a copy in shared memory
  const NodeId* parents_;  // the same; null: a chain

 private:
  /// The first node after `after` for which is(node) is true; in a chain only the one after `parent` can be a
  /// child.
  template <class Is>
  SPECULA_HD NodeId next(NodeId after, Is is, NodeId parent) const {
    if (!parents_) return after == parent && parent + 1 < size_ && is(parent + 1) ? parent + 1 : kNoParent;
    const auto warp = cluster_.block().warp();
    for (NodeId first = after + 1; first < size_; first += warp.size()) {
      const NodeId c = first + warp.rank();
      const std::uint32_t found = warp.ballot(c < size_ && is(c));
      if (found) return first + first_lane(found);
    }
    return kNoParent;
  }

  PhiloxRandom rng_;
  Status status_ = Status::ok;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
