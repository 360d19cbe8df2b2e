// SPDX-License-Identifier: MIT
// Verification of one sequence on a device: the distributions and residuals that the rules in accept/rules/
// work on.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/verify/residual.cuh"
#include "specula/cuda/detail/verify/row_calls.cuh"
#include "specula/cuda/detail/verify/verifier_memory.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Verification of one sequence by `Rule`; see RuleNeeds for the constants of a rule.
template <class Rule, class Cluster, class Element, class Draft>
class SequenceVerifier : public RowCalls<Rule, Cluster, Element, Draft> {
 public:
  using Base = RowCalls<Rule, Cluster, Element, Draft>;
  using Base::Base;

  /// All threads: verifies a sequence.
  SPECULA_HD static void verify_sequence(Cluster cluster, const VerifyArgs<Element, Draft>& args,
                                         int sequence, unsigned char* shared) {
    if (!is_vacant(cluster, args.trees, args.out, args.width, sequence))
      SequenceVerifier(cluster, args, sequence, shared).run();
  }
  SPECULA_HD void run() {
    if (this->cluster_.block().warp_rank() == 0) {
      Rule::decide(*this);
      this->dismiss();
    } else {
      this->serve();
    }
  }

  // ---- distributions. All functions below are called by the warp that verifies.

  /// The first read also checks the proposal. Not ok() if it is no tree.
  SPECULA_HD void check_proposal() { this->read(0, 0); }

  /// p after `node`, which is at `depth`; valid until another row is read. Cost: one read of its row, and of
  /// a chain's next ones with it. Not ok() after a bad row.
  SPECULA_HD const RowStats& distribution(NodeId node, int depth) {
    this->read(node, depth);
    return this->distribution_read(node);
  }
  /// First of the largest logits after `node`. Cost and errors as distribution().
  SPECULA_HD Token argmax(NodeId node, int depth) {
    this->read(node, depth);
    return this->distribution_read(node).point;
  }
  /// The token after `node`, drawn with the row. Cost and errors as distribution().
  SPECULA_HD Token drawn(NodeId node, int depth) {
    const RowStats& p = distribution(node, depth);
    if (!this->ok()) return kNoToken;
    return p.point != kNoToken ? p.point : this->emitted(this->memory_.all_drawn()[node - this->first_]);
  }
  /// The token after `node`, which was read last, from its distribution.
  SPECULA_HD Token sample(NodeId node, const RowStats& distribution, int depth) {
    if (distribution.point != kNoToken) return distribution.point;
    if (this->holds_ != Holds::statistics && this->holds_ != Holds::kept) this->have_ = 0;
    this->read(node, depth);
    const int r = node - this->first_;
    const bool cut = Base::kCuts && this->memory_.params().truncates();
    int kept = r;
    if (cut && this->holds_ != Holds::kept) {
      this->call(Work::kept, node, 1, 0, [] {});
      kept = 0;
    }
    return this->emitted(this->scan_.draw(cut, kept, r, this->row(node), this->sample_words(depth)));
  }

  /// p and q of the token of `child` itself, whose parent's distribution is `distribution`.
  SPECULA_HD double target_prob(const RowStats& distribution, NodeId child) const {
    const Token token = this->token(child);
    if (distribution.point != kNoToken) return token == distribution.point ? 1.0 : 0.0;
    return prob(this->memory_.draft_tokens()[child].logit, distribution);
  }
  SPECULA_HD double draft_prob(NodeId child) const { return this->memory_.draft_tokens()[child].draft_prob; }

  /// Of a chain: accepts draft tokens while the uniform draw is below min(1, p / q), one per lane, and puts
  /// them into the verification result. Returns the last accepted node.
  SPECULA_HD NodeId accept_chain() {
    const auto warp = this->cluster_.block().warp();
    NodeId at = 0;
    while (this->is_chain() && this->ok()) {
      this->read(at, at);
      if (!this->ok()) break;
      bool accepted = false;
      if (warp.rank() < this->have_ && at + warp.rank() + 1 < this->size_) {
        const NodeId child = at + warp.rank() + 1;
        const RowStats& p = this->scan_.facts(warp.rank()).distribution;
        if (p.status == Status::ok && this->token(child) >= 0)
          accepted = this->accept(target_prob(p, child) / draft_prob(child), child, child);
      }
      const std::uint32_t stops = ~warp.ballot(accepted);
      const int more = stops == 0 ? this->have_ : smaller(first_lane(stops), this->have_);
      this->put_some(
          at, more, [&](int k) { return at + k; }, [&](int k) { return this->token(at + k + 1); },
          [&](int k) { return log_prob_after(at + k, this->token(at + k + 1)); });
      at += more;
      if (more < this->have_) break;
    }
    return at;
  }

  /// Element i of the path, whose row is among those that were read last or whose state has its distribution,
  /// and the token after it.
  SPECULA_HD void put(int i, NodeId node, Token next) {
    this->put_some(
        i, 1, [&](int) { return node; }, [&](int) { return next; },
        [&](int) { return log_prob_after(node, next); });
  }

  // ---- the residual of p after a node: a fold over its tried children, nothing stored. The distribution of
  // a draft token that was drawn without replacement is its row's, scaled. Its mass at earlier siblings does
  // not matter: a child is rejected only where weight * p < q, and its token then has no residual mass.

  /// Starts from p after `node`; its first `tried` children that are not padding were tried before, as
  /// recorded in their states.
  SPECULA_HD void start_residual(NodeId node, const RowStats& distribution, int tried) {
    const auto warp = this->cluster_.block().warp();
    tried_ = tried;
    forget_residual();
    double total = 1;
    warp.sync();
    int count = 0;
    for (NodeId c = this->next_child(node, node); c != kNoParent; c = this->next_child(node, c), ++count) {
      if (tried > count && this->memory_.all_states()[c].keep > 0)
        total = this->memory_.all_states()[c].total;
      if (warp.rank() != 0) continue;
      if (count >= tried) this->memory_.all_states()[c].keep = 0;
      this->memory_.siblings()[count] = {c, static_cast<float>(this->memory_.all_states()[c].keep),
                                         static_cast<float>(this->memory_.draft_tokens()[c].scale)};
    }
    if (warp.rank() == 0) {
      this->memory_.residual().node = node;
      this->memory_.residual().total = total;
      this->memory_.residual().distribution = distribution;
      if (distribution.point == kNoToken) this->memory_.residual().target = Exponent(distribution);
    }
    warp.sync();
  }

  /// Probability of the token of `child` under the residual.
  SPECULA_HD double residual_prob(NodeId child) const {
    return left_of(this->token(child), target_prob(this->memory_.residual().distribution, child)) /
           this->memory_.residual().total;
  }

  /// Subtracts the distribution of the next child after multiplying the residual by `weight`. Returns the
  /// mass that is left; where rounding leaves none the residual is unchanged, and 0 is returned. Cost: a read
  /// of the target's row and of the draft's; nothing for a chosen child.
  SPECULA_HD double reject(double weight) {
    const double keep = weight / this->memory_.residual().total;
    if (!(keep >= 0x1p-100)) {  // no residual is left, or less than a float can hold
      ++tried_;
      return 0;
    }
    const int child = tried_;
    const DraftToken& draft_token = this->memory_.draft_tokens()[this->memory_.siblings()[child].node];
    double total;
    if (draft_token.point != kNoToken) {  // the whole residual is scaled, except one token
      const double p =
          draft_token.point == this->token(this->memory_.siblings()[child].node)
              ? target_prob(this->memory_.residual().distribution, this->memory_.siblings()[child].node)
              : prob_of(draft_token.point);
      const double there = keep * left_of(draft_token.point, p);
      total = weight - there + (there > 1 ? there - 1 : 0.0);
      ++tried_;
      forget_residual();
    } else {
      record(child, keep, 0);
      ++tried_;
      total = measure();
      if (!(total >= 0)) this->fail(Status::not_a_number);  // a draft's row
    }
    if (!(total > 0)) {
      record(child, 0, 0);
      return 0;
    }
    record(child, keep, total);
    return total;
  }

  /// The token after the residual's node, from the residual. Cost: one tile, and a read of the rows if the
  /// last rejected child was a chosen one.
  SPECULA_HD Token sample_residual(int depth) {
    while (this->holds_ != Holds::residual) {
      const double left = measure();
      if (!(left >= 0)) this->fail(Status::not_a_number);  // a draft's row
      if (!this->ok()) return kNoToken;
      int last = tried_ - 1;
      while (last >= 0 && !(this->memory_.siblings()[last].keep > 0)) --last;
      if (left > 0 || last < 0) break;
      record(last, 0, 0);  // the residual's mass was a rounding error
    }
    const auto left = this->fold();
    return this->emitted(this->scan_.draw_by(true, 0, this->residual_words(depth),
                                             [&](int first, float(&w)[4]) { left.weights(first, w); }));
  }

  // ---- states of nodes

  SPECULA_HD const NodeState& state(NodeId node) const { return this->memory_.all_states()[node]; }
  template <class Change>
  SPECULA_HD void change(NodeId node, Change change) {
    const auto warp = this->cluster_.block().warp();
    warp.sync();
    if (warp.rank() == 0) change(this->memory_.all_states()[node]);
    warp.sync();
  }

 private:
  SPECULA_HD float log_prob_after(NodeId node, Token next) const {
    if constexpr (Rule::kKeepsDistributions)
      return Base::Scan::log_prob_of(this->row(node), next, state(node).distribution);
    else
      return Base::Scan::log_prob_of(this->row(node), next,
                                     this->scan_.facts(node - this->first_).distribution);
  }

  /// By the warp that verifies: measures the residual and returns its mass.
  SPECULA_HD double measure() {
    const auto block = this->cluster_.block();
    block.warp().sync();
    if (block.rank() == 0) this->memory_.residual().tried = tried_;
    this->call(Work::residual, 0, 0, 0, [] {});
    const double left = this->scan_.measured_total();
    if (!(left > 0)) forget_residual();
    return left;
  }
  /// Marks the table as not holding the residual.
  SPECULA_HD void forget_residual() {
    if (this->holds_ == Holds::residual) this->holds_ = Holds::other;
  }
  /// p of any token after the residual's node.
  SPECULA_HD double prob_of(Token token) const {
    const RowStats& distribution = this->memory_.residual().distribution;
    if (distribution.point != kNoToken) return token == distribution.point ? 1.0 : 0.0;
    return prob(this->row(this->memory_.residual().node)[token], distribution);
  }
  /// The residual, not normalised, of a token whose probability was `p`.
  SPECULA_HD double left_of(Token token, double p) const {
    double w = p;
    for (int i = 0; i < tried_; ++i) {
      const NodeId c = this->memory_.siblings()[i].node;
      if (!(this->memory_.siblings()[i].keep > 0)) continue;
      const DraftToken& draft_token = this->memory_.draft_tokens()[c];
      const double q = draft_token.point != kNoToken
                           ? (token == draft_token.point ? 1.0 : 0.0)
                           : draft_token.scale *
                                 prob_in(this->args_.draft, draft_token.row, token, this->args_.scan.vocab);
      const double left = this->memory_.all_states()[c].keep * w - q;
      w = left > 0 ? left : 0.0;
    }
    return w;
  }
  /// The rejection of the i-th child.
  SPECULA_HD void record(int i, double keep, double total) {
    change(this->memory_.siblings()[i].node, [&](NodeState& n) {
      n.keep = keep;
      n.total = total;
      this->memory_.siblings()[i].keep = static_cast<float>(keep);
      if (total > 0) this->memory_.residual().total = total;
    });
  }

  int tried_ = 0;  // children of the residual's node
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
