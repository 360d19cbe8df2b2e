// The laws along a sequence's proposal, read when a rule asks for them.
#pragma once

#include <type_traits>

#include "../detail/host_device.cuh"
#include "../device/trees.cuh"
#include "../group.cuh"
#include "../thread/exponent.cuh"
#include "../types.cuh"
#include "draft_laws.cuh"
#include "residual.cuh"
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
  int max_nodes, width;
  ScanSize scan;  // its rows: of a chain, in one pass at most
};

/// What a walk keeps of a node.
struct NodeNotes {
  RowStats law;   // p after it, once it was read
  double weight;  // the mass that a rule carries to it
  double keep,
      total;  // of its rejection: p was multiplied by `keep`, and `total` was left; keep 0: none
};

/// The walk of `Rule` over one sequence. In each block the first warp walks and reads no rows; the others, of
/// the whole cluster, read them when it calls. Rule::kDraws: a token is drawn after every row that is read;
/// Rule::kJudges: p and q of guesses matter.
template <class Rule, class Cluster, class Element, class Draft>
class Walk : public TreeWalk<Cluster> {
 public:
  using Base = TreeWalk<Cluster>;
  using Args = VerifyArgs<Element, Draft>;
  using Others = OtherWarps<Cluster>;
  using Scan = RowScan<Others>;

  /// 16-byte aligned shared memory of each block of `warps` warps, at least two.
  SPECULA_HD static std::size_t shared_bytes(const ScanSize& size, int max_nodes, int warps) {
    const auto nodes = static_cast<std::size_t>(max_nodes);
    return Scan::shared_bytes(size, warps - 1) + sizeof(Post) + sizeof(Residual) +
           (Rule::kJudges ? nodes * (sizeof(Guess) + sizeof(NodeNotes) + sizeof(Sibling)) : 0) +
           nodes * (sizeof(Token) + sizeof(NodeId)) +
           static_cast<std::size_t>(size.rows) * sizeof(Token);
  }

  SPECULA_HD Walk(Cluster cluster, const Args& args, int sequence, unsigned char* shared)
      : Base(cluster, args.trees, args.out, args.scan.vocab, args.max_nodes, args.width, sequence),
        post_(reinterpret_cast<Post*>(shared)),
        scan_(Others(cluster, &post_->barriers), args.scan, shared + sizeof(Post)),
        args_(args),
        params_(args.target.params ? args.target.params[sequence] : SamplingParams{}) {
    if (!valid(params_)) this->fail(Status::bad_parameters);
    unsigned char* at = shared + sizeof(Post) + Scan::shared_bytes(args.scan, cluster.block().warp_count() - 1);
    const auto take = [&](auto*& to, int count) {  // those of the strictest alignment first
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
      at += sizeof(*to) * static_cast<unsigned>(count);
    };
    take(residual_, 1);
    if (Rule::kJudges) {
      take(guesses_, args.max_nodes);
      take(notes_, args.max_nodes);
      take(siblings_, args.max_nodes);
    }
    take(near_tokens_, args.max_nodes);
    take(near_parents_, args.max_nodes);
    take(drawn_, args.scan.rows);
  }

  /// All threads: the whole of it.
  SPECULA_HD void run() {
    const auto block = this->cluster_.block();
    if (block.warp_rank() == 0) {
      (Rule::verify)(*this);
      if (block.rank() == 0) post_->work = Work::none;
      block.sync();
      scan_.leave();
    } else {
      for (block.sync(); post_->work != Work::none; block.sync()) {
        perform(*post_);
        block.sync();
      }
      scan_.leave();
    }
  }

  // ---- laws. All that follows is called by the warp that walks.

  /// p after `node`, which is at `depth`. Cost: one read of its row, and of a chain's next ones with it. Not
  /// ok() after a bad row.
  SPECULA_HD RowStats law(NodeId node, int depth) {
    read(node, depth, Work::laws);
    return law_read(node);
  }
  /// First of the largest logits after `node`. Cost and errors as law().
  SPECULA_HD Token argmax(NodeId node, int depth) {
    read(node, depth, Work::maxima);
    return law_read(node).point;
  }
  /// The token after `node`, drawn with the row. Cost and errors as law().
  SPECULA_HD Token drawn(NodeId node, int depth) {
    const RowStats p = law(node, depth);
    if (!this->ok()) return kNoToken;
    return p.point != kNoToken ? p.point : this->emitted(drawn_[node - first_]);
  }
  /// The token after `node`, which was read last, from its law.
  SPECULA_HD Token sample(NodeId node, const RowStats& law, int depth) {
    if (law.point != kNoToken) return law.point;
    if (holds_ == Holds::other) have_ = 0;
    read(node, depth, Work::laws);
    const int r = node - first_;
    const Words words = this->sample_words(depth);
    if (!cuts(params_)) return this->emitted(scan_.draw(r, row(node), words));
    if (holds_ == Holds::kept) return this->emitted(draw_kept(r, r, row(node), words));
    call(Work::kept, node, 1, 0, [] {});
    return this->emitted(draw_kept(0, r, row(node), words));
  }

  /// p and q of the token of `child` itself, whose parent's law is `law`.
  SPECULA_HD double target_prob(const RowStats& law, NodeId child) const {
    const Token token = this->token(child);
    if (law.point != kNoToken) return token == law.point ? 1.0 : 0.0;
    return prob(guesses_[child].logit, law);
  }
  SPECULA_HD double draft_prob(NodeId child) const { return guesses_[child].draft_prob; }

  /// Of a chain: accepts guesses as long as min(1, p / q) says so, and puts them into the verdict; many at
  /// once, a lane each. Returns the node after which none was.
  SPECULA_HD NodeId accept_chain() {
    const auto warp = this->cluster_.block().warp();
    NodeId at = 0;
    while (this->is_chain() && this->ok()) {
      read(at, at, Work::laws);
      if (!this->ok()) break;
      bool accepted = false;
      if (warp.rank() < have_ && at + warp.rank() + 1 < this->size_) {
        const NodeId child = at + warp.rank() + 1;
        const RowStats& p = scan_.facts(warp.rank()).law;
        if (p.status == Status::ok && this->token(child) >= 0)
          accepted = this->accept(target_prob(p, child) / draft_prob(child), child, child);
      }
      const std::uint32_t stops = ~warp.ballot(accepted);
      const int more = stops == 0 ? have_ : smaller(first_lane(stops), have_);
      this->put_some(at, more, [&](int k) { return at + k; }, [&](int k) { return this->token(at + k + 1); });
      at += more;
      if (more < have_) break;
    }
    return at;
  }

  // ---- what rejections leave of p after a node: a fold over its judged children, nothing stored. The law of
  // a guess that was drawn without replacement is taken as its row's, scaled: what it gives to earlier
  // siblings does not matter, since a child is rejected only where weight * p < q, and that leaves nothing of
  // its token.

  /// Begins with p after `node`; the first `judged` children that are not padding were judged before, as the
  /// notes say.
  SPECULA_HD void start_residual(NodeId node, const RowStats& law, int judged) {
    const auto warp = this->cluster_.block().warp();
    law_ = law;
    owner_ = node;
    judged_ = judged;
    total_ = 1;
    measured_ = false;
    warp.sync();
    int count = 0;
    for (NodeId c = this->next_child(node, node); c != kNoParent; c = this->next_child(node, c), ++count) {
      if (count < judged && notes_[c].keep > 0) total_ = notes_[c].total;
      if (warp.rank() != 0) continue;
      if (count >= judged) notes_[c].keep = 0;
      siblings_[count] = {c, static_cast<float>(notes_[c].keep), static_cast<float>(draft_scale(c))};
    }
    if (warp.rank() == 0) {
      residual_->node = node;
      residual_->point = law.point;
      if (law.point == kNoToken) residual_->target = Exponent(law);
    }
    warp.sync();
  }

  /// Probability of the token of `child` under what is left.
  SPECULA_HD double residual_prob(NodeId child) const {
    return left_of(this->token(child), target_prob(law_, child)) / total_;
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
    const Guess& guess = guesses_[siblings_[child].node];
    double total;
    if (guess.point != kNoToken) {  // all that is left is scaled, but for one token
      const double p = guess.point == this->token(siblings_[child].node)
                           ? target_prob(law_, siblings_[child].node)
                           : prob_of(guess.point);
      const double there = keep * left_of(guess.point, p);
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
    const auto left = fold();
    return this->emitted(scan_.draw_measured(this->residual_words(depth),
                                             [&](int first, float(&w)[4]) { left.weights(first, w); }));
  }

  // ---- notes

  SPECULA_HD const NodeNotes& notes(NodeId node) const { return notes_[node]; }
  template <class Change>
  SPECULA_HD void change(NodeId node, Change change) {
    const auto warp = this->cluster_.block().warp();
    warp.sync();
    if (warp.rank() == 0) change(notes_[node]);
    warp.sync();
  }

 private:
  enum class Work : std::int32_t { none, laws, maxima, kept, residual };
  /// What the tiles' table is of: the rows that were read last, what their cuts keep of them, or other things.
  enum class Holds : std::int32_t { statistics, kept, other };
  /// What the others are to do: with rows of `rows` nodes from `first` on, at `depth`; and what they did.
  struct alignas(16) Post {
    Work work;
    NodeId first;
    int rows, depth;
    Holds holds;
    int set;           // of the table
    int barriers;      // of the cluster, so far
    int last_barrier;  // 0: not known yet
  };

  /// By the warp that walks: has the others perform something, and does meanwhile() at the same time.
  template <class Meanwhile>
  SPECULA_HD void call(Work work, NodeId first, int rows, int depth, Meanwhile meanwhile) {
    const auto block = this->cluster_.block();
    if (block.rank() == 0) *post_ = {work, first, rows, depth, Holds::other, 0, 0, 0};
    block.sync();
    meanwhile();
    scan_.leave();
    int barriers = 0;
    do {
      this->cluster_.sync();
      ++barriers;
    } while (post_->last_barrier != barriers);
    block.sync();
    scan_.table().follow(post_->set);
    holds_ = post_->holds;
    block.warp().sync();  // before the next call is written over this one
  }

  /// By the others.
  SPECULA_HD void perform(const Post post) {
    const auto block = scan_.cluster().block();
    const auto row_of = [&](int r) { return row_ahead(post.first, r); };
    SamplingParams params = params_;
    if (post.work == Work::maxima) params.temperature = 0;
    const bool reads = post.work == Work::laws || post.work == Work::maxima;
    const bool cut = reads && params.temperature != 0.0f && cuts(params);
    const auto end = [&](int barrier) {  // tells the warp that walks how long to wait
      if (block.rank() == 0) post_->last_barrier = barrier;
    };
    Holds holds = Holds::other;
    if (!cut) end(1);
    if (reads) {
      const auto draw = [&](int r) {
        if (!Rule::kDraws || scan_.facts(r).law.status != Status::ok) return;
        const Words words = this->sample_words(post.depth + r);
        const Token token = cut ? draw_kept(r, r, row_of(r), words) : scan_.draw(r, row_of(r), words);
        if (block.warp().rank() == 0) drawn_[r] = token;
      };
      scan_.template read<Element>(post.rows, row_of, params, false, [] {}, [&](int r) {
        if (!cut) draw(r);
      });
      holds = Holds::statistics;
      if (cut) {
        block.sync();
        bool kept = scan_.template cut<Element>(post.rows, row_of, params);
        block.sync();
        if (Rule::kDraws) {
          if (!kept) scan_.template keep<Element>(0, post.rows, row_of);
          kept = true;
          for (int r = block.warp_rank(); r < post.rows; r += block.warp_count()) draw(r);
        }
        if (kept) holds = Holds::kept;
        end(post_->barriers + 1);
        scan_.cluster().sync();
      }
    }
    if (Rule::kJudges && post.work == Work::kept)
      scan_.template keep<Element>(post.first - first_, 1, row_of);
    if (Rule::kJudges && post.work == Work::residual) fold().measure(scan_);
    if (reads) first_ = post.first;
    if (block.rank() == 0) {
      post_->holds = holds;
      post_->set = scan_.table().set();
    }
  }

  /// By the warp that walks: lets the row of `node` be among those that were read last.
  SPECULA_HD void read(NodeId node, int depth, Work work) {
    if (!this->ok() || (node >= first_ && node < first_ + have_)) return;
    first_ = node;
    have_ = this->is_chain() ? smaller(args_.scan.rows, this->size_ - node) : 1;
    call(work, node, have_, depth, [&] {
      if (!looked_) look();
    });
  }
  SPECULA_HD RowStats law_read(NodeId node) {
    if (!this->ok()) return {};
    const RowStats out = scan_.facts(node - first_).law;
    this->fail(out.status);
    return out;
  }

  /// While the others read the first rows: is the proposal a tree, and what is known of its guesses before
  /// anything is decided. Cost: a chain of four reads for each guess.
  SPECULA_HD void look() {
    const auto warp = this->cluster_.block().warp();
    looked_ = true;
    if (!this->is_tree()) {
      this->fail(Status::bad_tree);
      return;
    }
    const std::int64_t rows = row_count(args_.draft);
    if (Rule::kJudges && rows > 0) {
      bool beyond = false;
      for (NodeId n = 1 + warp.rank(); n < this->size_; n += warp.size())
        beyond = beyond || (this->token(n) >= 0 && draft_row(n) >= rows);
      if (warp.ballot(beyond)) {
        this->fail(Status::bad_draft_row);
        return;
      }
    }
    for (NodeId n = warp.rank(); n < this->size_; n += warp.size()) {
      const Token token = this->token(n);
      near_tokens_[n] = token;
      near_parents_[n] = this->parent(n);
      if (!Rule::kJudges || n == 0 || token < 0) continue;
      Guess guess;
      guess.row = draft_row(n);
      guess.logit = row(this->parent(n))[token];
      guess.point = is_chosen(args_.draft) || guess.row < 0 ? token : point_of(args_.draft, guess.row);
      guess.exponent = guess.point == kNoToken ? exponent_of(args_.draft, guess.row) : Exponent();
      guess.draft_prob = guess.point != kNoToken
                             ? (token == guess.point ? 1.0 : 0.0)
                             : draft_scale(n) * prob_in(args_.draft, guess.row, token, args_.scan.vocab);
      guesses_[n] = guess;
    }
    warp.sync();
    this->tokens_ = near_tokens_;
    if (this->parents_) this->parents_ = near_parents_;
  }

  SPECULA_HD Row<Element> row(NodeId node) const {
    const std::int64_t at = args_.target.row_of_node ? args_.target.row_of_node[this->begin_ + node]
                                                     : static_cast<std::int64_t>(this->begin_) + node;
    return {args_.target.logits + at * args_.target.stride, args_.scan.vocab};
  }
  /// The row of first + r, but where that is padding, which has no row in a map.
  SPECULA_HD Row<Element> row_ahead(NodeId first, int r) const {
    return row(r > 0 && args_.target.row_of_node && this->token(first + r) < 0 ? first : first + r);
  }
  /// -1: the guess was chosen.
  SPECULA_HD std::int64_t draft_row(NodeId node) const {
    const std::int32_t* rows = rows_of(args_.draft);
    return rows ? rows[this->begin_ + node]
                : static_cast<std::int64_t>(this->begin_) - this->sequence_ + node - 1;
  }
  SPECULA_HD double draft_scale(NodeId node) const {
    const double* scales = scales_of(args_.draft);
    const double scale = scales ? scales[this->begin_ + node] : 0.0;
    return scale > 0 ? scale : 1.0;
  }

  /// By a warp: draws from `row`, whose facts are those of row r, and of which a cut keeps what the entries of
  /// row `kept` say.
  SPECULA_HD Token draw_kept(int kept, int r, Row<Element> row, Words words) const {
    const Exponent exponent(scan_.facts(r).law);
    return scan_.draw_measured(
        words, [&](int first, float(&w)[4]) { Scan::weigh(row, exponent, first, w); }, kept);
  }

  // ---- the residual

  SPECULA_HD auto fold() const {
    return ResidualFold<Element, Draft>(row(residual_->node), args_.draft, *residual_, siblings_, guesses_);
  }
  /// By the warp that walks: measures what is left; the mass.
  SPECULA_HD double measure() {
    const auto block = this->cluster_.block();
    block.warp().sync();
    if (block.rank() == 0) residual_->judged = judged_;
    call(Work::residual, 0, 0, 0, [] {});
    return scan_.measured_total();
  }
  /// p of any token after the residual's node.
  SPECULA_HD double prob_of(Token token) const {
    if (law_.point != kNoToken) return token == law_.point ? 1.0 : 0.0;
    return prob(row(owner_)[token], law_);
  }
  /// What is left, not normalised, of a token whose probability was `p`.
  SPECULA_HD double left_of(Token token, double p) const {
    double w = p;
    for (int i = 0; i < judged_; ++i) {
      const NodeId c = siblings_[i].node;
      if (!(siblings_[i].keep > 0)) continue;
      const Guess& guess = guesses_[c];
      const double q = guess.point != kNoToken
                           ? (token == guess.point ? 1.0 : 0.0)
                           : draft_scale(c) * prob_in(args_.draft, guess.row, token, args_.scan.vocab);
      const double left = notes_[c].keep * w - q;
      w = left > 0 ? left : 0.0;
    }
    return w;
  }
  /// The rejection of the i-th child.
  SPECULA_HD void note(int i, double keep, double total) {
    change(siblings_[i].node, [&](NodeNotes& n) {
      n.keep = keep;
      n.total = total;
      siblings_[i].keep = static_cast<float>(keep);
    });
  }

  Post* post_;
  Scan scan_;
  const Args& args_;
  SamplingParams params_;
  Residual* residual_;
  Guess* guesses_ = nullptr;      // (max_nodes) of nodes that are neither root nor padding
  NodeNotes* notes_ = nullptr;    // (max_nodes)
  Sibling* siblings_ = nullptr;   // (max_nodes) the children of the residual's node, in order
  Token* near_tokens_;            // (max_nodes)
  NodeId* near_parents_;          // (max_nodes)
  Token* drawn_;                  // (rows) the tokens after the rows that were read last

  bool looked_ = false;  // at the proposal
  NodeId first_ = 0;  // rows of nodes [first_, first_ + have_) were read last
  int have_ = 0;
  Holds holds_ = Holds::other;

  // Of the residual, known to the warp that walks.
  NodeId owner_ = kNoParent;
  RowStats law_{};
  int judged_ = 0;
  double total_ = 1;
  bool measured_ = false;  // the tiles' masses are those of what is left
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
