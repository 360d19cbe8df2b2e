// A sequence's proposal and its verdict: what rules walk over, whatever the rows come from.
#pragma once

#include "../detail/host_device.cuh"
#include "../device/trees.cuh"
#include "../group.cuh"
#include "../thread/coins.cuh"
#include "../types.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// All threads of the cluster walk together and know the same.
template <class Cluster>
class TreeWalk {
 public:
  SPECULA_HD TreeWalk(Cluster cluster, const Trees& trees, const Verdicts& out, int vocab, int max_nodes,
                      int width, int sequence)
      : cluster_(cluster),
        trees_(trees),
        out_(out),
        vocab_(vocab),
        width_(width),
        sequence_(sequence),
        begin_(trees.begin[sequence]),
        size_(trees.begin[sequence + 1] - begin_),
        origin_(trees.position[sequence]) {
    check_size(max_nodes);
  }

  SPECULA_HD bool ok() const { return status_ == Status::ok; }

  // ---- the tree

  SPECULA_HD Token token(NodeId node) const { return trees_.token[begin_ + node]; }
  SPECULA_HD NodeId parent(NodeId node) const {
    return trees_.parent ? trees_.parent[begin_ + node] : node - 1;
  }
  /// The child of `node` that comes after node `after` (`node` itself: the first), or kNoParent. Padding is
  /// skipped.
  SPECULA_HD NodeId next_child(NodeId node, NodeId after) const {
    if (!trees_.parent)
      return after == node && node + 1 < size_ && token(node + 1) >= 0 ? node + 1 : kNoParent;
    const auto warp = cluster_.block().warp();
    for (NodeId first = after + 1; first < size_; first += warp.size()) {
      const NodeId c = first + warp.rank();
      const std::uint32_t is = warp.ballot(c < size_ && parent(c) == node && token(c) >= 0);
      if (is) return first + first_lane(is);
    }
    return kNoParent;
  }

  // ---- coins, at the sites of specula::TokenTree. `depth` is that of the node.

  SPECULA_HD bool accept(double probability, NodeId node, int depth) const {
    return coins().accept(probability,
                          {origin_ + depth, origin_, Stream::accept, static_cast<std::uint32_t>(node)});
  }
  SPECULA_HD Words sample_words(int depth) const {
    return coins().words({origin_ + depth + 1, 0, Stream::sample, 0});
  }
  SPECULA_HD Words residual_words(int depth) const {
    return coins().words({origin_ + depth + 1, origin_, Stream::residual, 0});
  }

  // ---- the verdict

  /// Element i of the path, and the token after it.
  SPECULA_HD void put(int i, NodeId node, Token next) {
    if (i >= width_) {
      status_ = Status::bad_tree;
      return;
    }
    if (!writes()) return;
    const std::int64_t at = static_cast<std::int64_t>(sequence_) * width_ + i;
    out_.path[at] = node;
    out_.token[at] = next;
  }
  /// Ends the verdict after `count` elements; with none of them if something was not ok.
  SPECULA_HD void finish(int count) {
    if (!ok()) count = 0;
    const auto block = cluster_.block();
    block.sync();  // after the puts of thread 0
    if (cluster_.rank() == 0)
      for (int i = count + block.rank(); i < width_; i += block.size()) {
        const std::int64_t at = static_cast<std::int64_t>(sequence_) * width_ + i;
        out_.path[at] = kNoParent;
        out_.token[at] = kNoToken;
      }
    if (writes()) {
      out_.count[sequence_] = count;
      out_.status[sequence_] = status_;
    }
    cluster_.sync();  // no block may leave while another reads its shared memory
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

  Cluster cluster_;
  const Trees& trees_;
  const Verdicts& out_;
  int vocab_, width_, sequence_;
  std::int32_t begin_, size_, origin_;

 private:
  /// Read anew each time: registers are what walks are short of.
  SPECULA_HD Coins coins() const {
    return {trees_.seed[sequence_], trees_.sequence ? trees_.sequence[sequence_] : 0};
  }
  SPECULA_HD bool writes() const { return cluster_.rank() == 0 && cluster_.block().rank() == 0; }
  SPECULA_HD void check_size(int max_nodes) {
    const auto warp = cluster_.block().warp();
    bool bad = size_ < 1 || size_ > max_nodes;
    for (NodeId n = warp.rank(); n < size_ && !bad; n += warp.size())
      bad = token(n) >= vocab_ || (n > 0 ? parent(n) < 0 || parent(n) >= n : parent(n) != kNoParent);
    if (warp.ballot(bad)) status_ = Status::bad_tree;
  }

  Status status_ = Status::ok;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
