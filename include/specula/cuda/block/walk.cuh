// One sequence's proposal in the hands of a cluster: what rules walk over. All threads walk together and know
// the same; rows are read when a law is asked for.
#pragma once

#include "../detail/host_device.cuh"
#include "../device/trees.cuh"
#include "../group.cuh"
#include "../thread/coins.cuh"
#include "../thread/exponent.cuh"
#include "../types.cuh"
#include "draft_laws.cuh"
#include "row_scan.cuh"
#include "tree_walk.cuh"

namespace specula {
namespace cuda {
namespace detail {

template <class Element, class Draft>
struct VerifyArgs {
  Trees trees;
  TargetRows<Element> target;
  Draft draft;
  Verdicts out;
  int vocab, max_nodes, width;
};

/// What a walk keeps of a node.
struct NodeNotes {
  RowStats law;        // p after it, where it was asked for
  double weight;       // of traversal
  double keep, total;  // its own rejection: p was multiplied by `keep`, and `total` was left; keep 0: none
};

/// A child of the node whose residual is looked at, as the fold over the rejected ones reads it.
struct Sibling {
  Exponent exponent;  // of its draft's row
  std::int64_t row;
  NodeId node;
  Token point;       // of its law, or kNoToken
  float keep, take;  // left = keep * left - take * q; keep 0: not rejected
};

template <class Cluster, class Element, class Draft>
class Walk : public TreeWalk<Cluster> {
 public:
  using Base = TreeWalk<Cluster>;
  using Scan = RowScan<Cluster>;

  SPECULA_HD static std::size_t shared_bytes(int vocab, int max_nodes) {
    return Scan::shared_bytes(vocab) +
           static_cast<std::size_t>(max_nodes) * (sizeof(NodeNotes) + sizeof(Sibling)) + sizeof(Exponent);
  }

  SPECULA_HD Walk(Cluster cluster, const VerifyArgs<Element, Draft>& args, int sequence,
                  unsigned char* shared)
      : Base(cluster, args.trees, args.out, args.vocab, args.max_nodes, args.width, sequence),
        scan_(cluster, args.vocab, shared),
        args_(args),
        notes_(reinterpret_cast<NodeNotes*>(shared + Scan::shared_bytes(args.vocab))),
        siblings_(reinterpret_cast<Sibling*>(notes_ + args.max_nodes)),
        target_(reinterpret_cast<Exponent*>(siblings_ + args.max_nodes)) {
    if (!valid(params())) this->fail(Status::bad_parameters);
  }

  // ---- laws

  /// p after `node`. Cost: one read of its row. Not ok() after a bad row.
  SPECULA_HD RowStats law(NodeId node) { return law(node, params()); }
  /// First of the largest logits after `node`. Cost and errors as law().
  SPECULA_HD Token argmax(NodeId node) {
    SamplingParams greedy;
    greedy.temperature = 0;
    return law(node, greedy).point;
  }
  SPECULA_HD double target_prob(NodeId node, const RowStats& law, Token token) const {
    if (law.point != kNoToken) return token == law.point ? 1.0 : 0.0;
    return prob(row(node)[token], law);
  }
  /// q: the probability that `node`, given its earlier siblings, would have been `token`.
  SPECULA_HD double draft_prob(NodeId node, Token token) const {
    const std::int64_t row = draft_row(node);
    const Token point = draft_point(node, row);
    if (point != kNoToken) return token == point ? 1.0 : 0.0;
    return draft_scale(node) * prob_in(args_.draft, row, token, args_.vocab);
  }
  /// The token after `node`, from the law that law(node) just returned.
  SPECULA_HD Token sample(NodeId node, const RowStats& law, int depth) {
    return this->emitted(scan_.draw(row(node), law, this->sample_words(depth)));
  }

  // ---- what rejections leave of p after a node: a fold over its judged children, nothing stored. The law of
  // a guess that was drawn without replacement is taken as its row's, scaled: what it gives to earlier
  // siblings does not matter, since a child is rejected only where weight * p < q, and that leaves nothing of
  // its token.

  /// Begins with p after `node`; the first `judged` children that are not padding were judged before, as the
  /// notes say.
  SPECULA_HD void start_residual(NodeId node, const RowStats& law, int judged) {
    const Cluster cluster = scan_.cluster();
    owner_ = node;
    law_ = law;
    judged_ = judged;
    total_ = 1;
    measured_ = false;
    const bool writes = cluster.block().rank() == 0;
    cluster.block().sync();
    if (writes && law.point == kNoToken) *target_ = Exponent(law);
    int count = 0;
    for (NodeId c = this->next_child(node, node); c != kNoParent; c = this->next_child(node, c), ++count) {
      if (!writes) continue;
      if (count >= judged) notes_[c].keep = 0;
      Sibling& s = siblings_[count];
      s.node = c;
      s.row = draft_row(c);
      s.point = draft_point(c, s.row);
      if (s.point == kNoToken) s.exponent = exponent_of(args_.draft, s.row);
      s.keep = static_cast<float>(notes_[c].keep);
      s.take = static_cast<float>(draft_scale(c));
    }
    cluster.block().sync();
    for (int i = 0; i < judged; ++i)
      if (siblings_[i].keep > 0) total_ = notes_[siblings_[i].node].total;
  }

  /// Probability of `token` under what is left.
  SPECULA_HD double residual_prob(Token token) const {
    double w = target_prob(owner_, law_, token);
    for (int i = 0; i < judged_; ++i) {
      const NodeId c = siblings_[i].node;
      if (!(siblings_[i].keep > 0)) continue;
      const double left = notes_[c].keep * w - draft_prob(c, token);
      w = left > 0 ? left : 0.0;
    }
    return w / total_;
  }

  /// Takes the law of the next child away, `weight` being what the law before is multiplied by. Returns the
  /// mass that was left; where rounding leaves none the law stays as it was, and 0 is returned. Cost: a read
  /// of the target's row and of the draft's; nothing for a chosen one.
  SPECULA_HD double reject(double weight) {
    const double keep = weight / total_;
    if (!(keep >= 0x1p-100)) {  // nothing is left of nothing, nor of what a float could not hold
      ++judged_;
      return 0;
    }
    const int child = judged_;
    const Token point = siblings_[child].point;
    double total;
    if (point != kNoToken) {  // all that is left is scaled, but for one token
      const double there = keep * residual_prob(point) * total_;
      total = weight - there + (there > 1 ? there - 1 : 0.0);
      ++judged_;
      measured_ = false;
    } else {
      note(child, keep, 0);
      ++judged_;
      total = measure();
      if (!(total >= 0)) this->fail(Status::not_a_number);  // a draft's row
      measured_ = total > 0;
    }
    if (!(total > 0)) {
      note(child, 0, 0);
      return 0;
    }
    note(child, keep, total);
    return total_ = total;
  }

  /// The token after the residual's node, from what is left. Cost: one tile, and a read of the rows if the
  /// last rejected child was a chosen one.
  SPECULA_HD Token sample_residual(int depth) {
    while (!measured_) {
      measured_ = measure() > 0;
      int last = judged_ - 1;
      while (last >= 0 && !(siblings_[last].keep > 0)) --last;
      if (measured_ || last < 0) break;
      note(last, 0, 0);  // rounding said that something was left
    }
    const Words words = this->residual_words(depth);
    const int tile = scan_.pick_tile(coin(words.x));
    if (tile < 0) return this->emitted(kNoToken);
    return this->emitted(draw_inside(scan_.cluster().block().warp(), tile, coin(words.y),
                                     [&](int first, float(&w)[4]) { residual_weights(first, w); }));
  }

  // ---- notes

  SPECULA_HD const NodeNotes& notes(NodeId node) const { return notes_[node]; }
  /// Changes a node's notes; every thread of the block sees them then.
  template <class Change>
  SPECULA_HD void change(NodeId node, Change change) {
    const auto block = scan_.cluster().block();
    block.sync();
    if (block.rank() == 0) change(notes_[node]);
    block.sync();
  }

 private:
  SPECULA_HD SamplingParams params() const {
    return args_.target.params ? args_.target.params[this->sequence_] : SamplingParams{};
  }
  SPECULA_HD RowStats law(NodeId node, const SamplingParams& params) {
    measured_ = false;  // the table is this row's now
    const RowStats out = scan_.law(row(node), params);
    this->fail(out.status);
    return out;
  }
  SPECULA_HD Row<Element> row(NodeId node) const {
    const std::int64_t at = args_.target.row_of_node ? args_.target.row_of_node[this->begin_ + node]
                                                     : static_cast<std::int64_t>(this->begin_) + node;
    return {args_.target.logits + at * args_.target.stride, args_.vocab};
  }
  /// -1: the guess was chosen.
  SPECULA_HD std::int64_t draft_row(NodeId node) const {
    const std::int32_t* rows = rows_of(args_.draft);
    return rows ? rows[this->begin_ + node]
                : static_cast<std::int64_t>(this->begin_) - this->sequence_ + node - 1;
  }
  SPECULA_HD Token draft_point(NodeId node, std::int64_t row) const {
    return is_chosen(args_.draft) || row < 0 ? this->token(node) : point_of(args_.draft, row);
  }
  SPECULA_HD static constexpr bool is_chosen(const ChosenDraft&) { return true; }
  template <class D>
  SPECULA_HD static constexpr bool is_chosen(const D&) {
    return false;
  }
  SPECULA_HD double draft_scale(NodeId node) const {
    const double* scales = scales_of(args_.draft);
    const double scale = scales ? scales[this->begin_ + node] : 0.0;
    return scale > 0 ? scale : 1.0;
  }

  /// The rejection of the i-th child.
  SPECULA_HD void note(int i, double keep, double total) {
    change(siblings_[i].node, [&](NodeNotes& n) {
      n.keep = keep;
      n.total = total;
      siblings_[i].keep = static_cast<float>(keep);
    });
  }

  /// What is left, not normalised, of four tokens from `first` on.
  SPECULA_HD void residual_weights(int first, float (&w)[4]) const {
    if (law_.point != kNoToken) {
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e) w[e] = first + e == law_.point ? 1.0f : 0.0f;
    } else {
      load_four(row(owner_), first, w);
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e) w[e] = target_->weight(w[e]);
    }
    float q[4];
    std::int64_t held = -1;  // the row that q holds
    for (int j = 0; j < judged_; ++j) {
      const Sibling& s = siblings_[j];
      if (!(s.keep > 0)) continue;
      if (s.point == kNoToken && s.row != held) {
        fill_from(args_.draft, s.exponent, s.row, args_.vocab, first, q);
        held = s.row;
      }
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float less = s.point != kNoToken ? (first + e == s.point ? 1.0f : 0.0f) : product(s.take, q[e]);
        w[e] = positive(difference(product(s.keep, w[e]), less));
      }
    }
  }
  SPECULA_HD static float positive(float x) { return x <= 0 ? 0.0f : x; }  // NaN stays

  SPECULA_HD double measure() {
    return scan_.measure([&](int first, float(&w)[4]) { residual_weights(first, w); });
  }

  Scan scan_;
  const VerifyArgs<Element, Draft>& args_;
  NodeNotes* notes_;   // (max_nodes)
  Sibling* siblings_;  // (max_nodes) the children of owner_, in order
  Exponent* target_;   // of p after owner_

  NodeId owner_ = kNoParent;
  RowStats law_{};
  int judged_ = 0;
  double total_ = 1;
  bool measured_ = false;  // the tiles' masses are those of what is left
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
