// SPDX-License-Identifier: MIT
// Calls from the verifying warp to the other warps of a cluster, which read its rows.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/verify/draft_distributions.cuh"
#include "specula/cuda/detail/verify/residual.cuh"
#include "specula/cuda/detail/verify/row_scan.cuh"
#include "specula/cuda/detail/verify/sequence_state.cuh"
#include "specula/cuda/detail/verify/verifier_memory.cuh"

namespace specula {
namespace cuda {
namespace detail {

template <class Element, class Draft>
struct VerifyArgs {
  Trees trees;
  TargetRows<Element> target;
  Draft draft;
  VerifyResults out;
  int max_nodes, width;
  ScanSize scan;     // its rows: of a chain, in one pass at most
  int odd_rows = 0;  // those of the first pass of odd sequences, if not 0
};

/// In each block the first warp verifies and reads no rows; the others, of the whole cluster, wait until it
/// calls. For the constants of a rule see RuleNeeds.
template <class Rule, class Cluster, class Element, class Draft>
class RowCalls : public SequenceState<Cluster> {
 public:
  using Base = SequenceState<Cluster>;
  using Args = VerifyArgs<Element, Draft>;
  using Others = OtherWarps<Cluster>;
  using Scan = RowScan<Others, const ScanSize&>;
  using Memory = VerifierMemory<Rule::kReadsDraft>;
  static constexpr bool kCuts = Rule::kReadsDistributions && Rule::kTakesCuts;

  /// 16-byte aligned shared memory of each block of `warps` warps, at least two.
  SPECULA_HD static std::size_t shared_bytes(const ScanSize& size, int max_nodes, int warps) {
    return Memory::bytes(size, max_nodes) + Scan::shared_bytes(size, warps - 1);
  }

  SPECULA_HD RowCalls(Cluster cluster, const Args& args, int sequence, unsigned char* shared)
      : Base(cluster, args.trees, args.out, args.scan.vocab, args.max_nodes, args.width, sequence),
        args_(args),
        memory_(shared, args.max_nodes, args.scan.rows),
        scan_(Others(cluster, &memory_.post().barriers), args.scan,
              shared + Memory::bytes(args.scan, args.max_nodes)) {
    const SamplingParams params = args.target.params[sequence];
    this->fail(status_of(params, Rule::kTakesCuts || !Rule::kReadsDistributions));
    if (cluster.block().rank() == 0) memory_.shared_part().params = params;
    cluster.block().warp().sync();  // visible to the others after the first call
  }

 protected:
  /// By the others, until dismiss().
  SPECULA_HD void serve() {
    const auto block = this->cluster_.block();
    for (block.sync(); memory_.post().work != Work::none; block.sync()) {
      perform();
      block.sync();
    }
    scan_.leave();
  }
  /// By the warp that verifies.
  SPECULA_HD void dismiss() {
    const auto block = this->cluster_.block();
    if (block.rank() == 0) memory_.post().work = Work::none;
    block.sync();
    scan_.leave();
  }

  /// By the warp that verifies: has the other warps perform a call, and runs meanwhile() at the same time.
  template <class Meanwhile>
  SPECULA_HD void call(Work work, NodeId first, int rows, int depth, Meanwhile meanwhile) {
    const auto block = this->cluster_.block();
    if (block.rank() == 0) memory_.post() = {work, first, rows, depth, Holds::other, 0, 0, {0, 0}};
    block.sync();
    meanwhile();
    scan_.leave();
    int barriers = 0;
    do {
      this->cluster_.sync();
      ++barriers;
    } while (memory_.post().last_barrier[barriers % 2] != barriers);
    block.sync();
    scan_.table().follow(memory_.post().set);
    holds_ = memory_.post().holds;
    block.warp().sync();  // before the next call is written over this one
  }

  /// By the others.
  SPECULA_HD void perform() {
    const Post& todo = memory_.post();
    const auto block = scan_.cluster().block();
    const NodeId first = todo.first;
    int there = todo.rows;  // padding and its descendants have no row in a map
    if (args_.target.row_of_node)
      for (int r = todo.rows - 1; r > 0; --r)
        if (this->token(first + r) < 0) there = r;
    const auto row_of = [&](int r) { return row(first + (r < there ? r : 0)); };
    const SamplingParams greedy{0.0f, 0, 1.0f, 0.0f};
    const SamplingParams& params = Rule::kReadsDistributions ? memory_.params() : greedy;
    const bool reads = todo.work == Work::rows;
    const bool cut = kCuts && reads && is_cut(params);
    const auto end = [&](int more) {  // tells the warp that verifies how long to wait
      if (block.rank() != 0) return;
      Post& post = memory_.post();
      const int barrier = post.barriers + more;
      post.last_barrier[barrier % 2] = barrier;
    };
    Holds holds = todo.work == Work::residual ? Holds::residual : Holds::other;
    if (!cut) end(1);
    if (reads) {
      const auto draw = [&](int r) {
        if (!Rule::kDraws || scan_.facts(r).distribution.status != Status::ok) return;
        const Words words = this->sample_words(todo.depth + r);
        const Token token = scan_.draw(cut, r, r, row_of(r), words);
        if (block.warp().rank() == 0) memory_.all_drawn()[r] = token;
      };
      scan_.template read<Element>(
          todo.rows, row_of, params, false, [] {},
          [&](int r) {
            if (!cut) draw(r);
          });
      holds = Holds::statistics;
      if constexpr (kCuts)
        if (cut) {
          block.sync();
          bool kept = scan_.template truncate<Element>(todo.rows, row_of, params);
          block.sync();
          if (Rule::kDraws) {
            if (!kept) scan_.template keep<Element>(0, todo.rows, row_of);
            kept = true;
            for (int r = block.warp_rank(); r < todo.rows; r += block.warp_count()) draw(r);
          }
          if (kept) holds = Holds::kept;
          end(1);
          scan_.cluster().sync();
        }
    }
    if constexpr (kCuts && Rule::kReadsDraft)
      if (todo.work == Work::kept) scan_.template keep<Element>(first - first_, 1, row_of);
    if (Rule::kReadsDraft && todo.work == Work::residual) fold().measure(scan_);
    if (reads) first_ = first;
    if (block.rank() == 0) {
      memory_.post().holds = holds;
      memory_.post().set = scan_.table().set();
    }
  }

  /// By the warp that verifies: lets the row of `node` be among those that were read last.
  SPECULA_HD void read(NodeId node, int depth) {
    if (!this->ok() || (node >= first_ && node < first_ + have_)) return;
    first_ = node;
    const bool odd = args_.odd_rows > 0 && !has_proposal_ && this->sequence_ % 2 != 0;
    have_ = this->is_chain() ? smaller(odd ? args_.odd_rows : args_.scan.rows, this->size_ - node) : 1;
    call(Work::rows, node, have_, depth, [&] {
      if (!has_proposal_) read_proposal();
    });
  }
  SPECULA_HD const RowStats& distribution_read(NodeId node) {
    const RowStats& out = scan_.facts(this->ok() ? node - first_ : 0).distribution;
    if (this->ok()) this->fail(out.status);
    return out;
  }

  /// While the others read the first rows: checks that the proposal is a tree, and gathers the facts of its
  /// draft tokens. Cost: a chain of four reads for each draft token.
  SPECULA_HD void read_proposal() {
    const auto warp = this->cluster_.block().warp();
    has_proposal_ = true;
    if (!this->is_tree()) {
      this->fail(Status::bad_tree);
      return;
    }
    for (NodeId n = warp.rank(); n < this->size_; n += warp.size()) {
      memory_.near_tokens()[n] = this->token(n);
      memory_.near_parents()[n] = this->parent(n);
    }
    warp.sync();
    this->tokens_ = memory_.near_tokens();
    if (this->parents_) this->parents_ = memory_.near_parents();
    if (!Rule::kReadsDraft) return;
    const std::int64_t rows = row_count(args_.draft);
    bool beyond = false;
    if (!is_chosen(args_.draft) && !rows_of(args_.draft)) roots_before_ = this->roots_before();
    for (NodeId n = 1 + warp.rank(); n < this->size_; n += warp.size()) {
      if (!this->is_there(n)) continue;  // its place in maps is undefined
      const Token token = this->token(n);
      DraftToken draft_token;
      draft_token.row = draft_row(n);
      draft_token.logit = row(this->parent(n))[token];
      draft_token.scale = draft_scale(n);
      if (rows > 0 && draft_token.row >= rows) {
        beyond = true;
        continue;
      }
      draft_token.point =
          is_chosen(args_.draft) || draft_token.row < 0 ? token : point_of(args_.draft, draft_token.row);
      draft_token.draft_prob =
          draft_token.point != kNoToken
              ? (token == draft_token.point ? 1.0 : 0.0)
              : draft_token.scale * prob_in(args_.draft, draft_token.row, token, args_.scan.vocab);
      draft_token.exponent =
          draft_token.point == kNoToken ? exponent_of(args_.draft, draft_token.row) : Exponent();
      memory_.draft_tokens()[n] = draft_token;
    }
    if (warp.ballot(beyond)) this->fail(Status::bad_draft_row);
    warp.sync();
  }

  SPECULA_HD Row<Element> row(NodeId node) const {
    const std::int64_t at = args_.target.row_of_node ? args_.target.row_of_node[this->begin_ + node]
                                                     : static_cast<std::int64_t>(this->begin_) + node;
    return {args_.target.logits + at * args_.target.stride, args_.scan.vocab};
  }
  /// -1: the draft token was chosen.
  SPECULA_HD std::int64_t draft_row(NodeId node) const {
    const std::int32_t* rows = rows_of(args_.draft);
    return rows ? rows[this->begin_ + node]
                : static_cast<std::int64_t>(this->begin_) - roots_before_ + node - 1;
  }
  SPECULA_HD double draft_scale(NodeId node) const {
    const double* scales = scales_of(args_.draft);
    const double scale = scales ? scales[this->begin_ + node] : 0.0;
    return scale > 0 ? scale : 1.0;
  }

  SPECULA_HD auto fold() const {
    return ResidualFold<Element, Draft>(row(memory_.residual().node), args_.draft, memory_.residual(),
                                        memory_.siblings(), memory_.draft_tokens());
  }

  const Args& args_;
  Memory memory_;
  Scan scan_;

  bool has_proposal_ = false;
  int roots_before_ = 0;  // of earlier sequences, if draft tokens have their rows in the order of the batch
  NodeId first_ = 0;      // rows of nodes [first_, first_ + have_) were read last
  int have_ = 0;
  Holds holds_ = Holds::other;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
