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
/// the whole cluster, read them when it calls. Rule::kLaws: it asks for laws, not for maxima; Rule::kDraws: a
/// token is drawn after every row that is read; Rule::kJudges: p and q of guesses matter.
template <class Rule, class Cluster, class Element, class Draft>
class Walk : public TreeWalk<Cluster> {
 public:
  using Base = TreeWalk<Cluster>;
  using Args = VerifyArgs<Element, Draft>;
  using Others = OtherWarps<Cluster>;
  using Scan = RowScan<Others, const ScanSize&>;

  /// 16-byte aligned shared memory of each block of `warps` warps, at least two.
  SPECULA_HD static std::size_t shared_bytes(const ScanSize& size, int max_nodes, int warps) {
    return scan_at(size, max_nodes) + Scan::shared_bytes(size, warps - 1);
  }

  SPECULA_HD Walk(Cluster cluster, const Args& args, int sequence, unsigned char* shared)
      : Base(cluster, args.trees, args.out, args.scan.vocab, args.max_nodes, args.width, sequence),
        shared_(shared),
        args_(args),
        scan_(Others(cluster, &post().barriers), args.scan, shared + scan_at(args.scan, args.max_nodes)) {
    const SamplingParams params = args.target.params ? args.target.params[sequence] : SamplingParams{};
    if (!valid(params)) this->fail(Status::bad_parameters);
    if (cluster.block().rank() == 0) shared_part().params = params;
    cluster.block().warp().sync();  // the others see it behind the first call
  }

  /// All threads: the whole of it.
  SPECULA_HD void run() {
    const auto block = this->cluster_.block();
    if (block.warp_rank() == 0) {
      (Rule::verify)(*this);
      if (block.rank() == 0) post().work = Work::none;
      block.sync();
      scan_.leave();
    } else {
      for (block.sync(); post().work != Work::none; block.sync()) {
        perform();
        block.sync();
      }
      scan_.leave();
    }
  }

  // ---- laws. All that follows is called by the warp that walks.

  /// p after `node`, which is at `depth`; good until another row is read. Cost: one read of its row, and of a
  /// chain's next ones with it. Not ok() after a bad row.
  SPECULA_HD const RowStats& law(NodeId node, int depth) {
    read(node, depth);
    return law_read(node);
  }
  /// First of the largest logits after `node`. Cost and errors as law().
  SPECULA_HD Token argmax(NodeId node, int depth) {
    read(node, depth);
    return law_read(node).point;
  }
  /// The token after `node`, drawn with the row. Cost and errors as law().
  SPECULA_HD Token drawn(NodeId node, int depth) {
    const RowStats& p = law(node, depth);
    if (!this->ok()) return kNoToken;
    return p.point != kNoToken ? p.point : this->emitted(all_drawn()[node - first_]);
  }
  /// The token after `node`, which was read last, from its law.
  SPECULA_HD Token sample(NodeId node, const RowStats& law, int depth) {
    if (law.point != kNoToken) return law.point;
    if (holds_ == Holds::other) have_ = 0;
    read(node, depth);
    const int r = node - first_;
    const Words words = this->sample_words(depth);
    if (!cuts(params())) return this->emitted(scan_.draw(r, row(node), words));
    if (holds_ == Holds::kept) return this->emitted(draw_kept(r, r, row(node), words));
    call(Work::kept, node, 1, 0, [] {});
    return this->emitted(draw_kept(0, r, row(node), words));
  }

  /// p and q of the token of `child` itself, whose parent's law is `law`.
  SPECULA_HD double target_prob(const RowStats& law, NodeId child) const {
    const Token token = this->token(child);
    if (law.point != kNoToken) return token == law.point ? 1.0 : 0.0;
    return prob(guesses()[child].logit, law);
  }
  SPECULA_HD double draft_prob(NodeId child) const { return guesses()[child].draft_prob; }

  /// Of a chain: accepts guesses as long as min(1, p / q) says so, and puts them into the verdict; many at
  /// once, a lane each. Returns the node after which none was.
  SPECULA_HD NodeId accept_chain() {
    const auto warp = this->cluster_.block().warp();
    NodeId at = 0;
    while (this->is_chain() && this->ok()) {
      read(at, at);
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
      this->put_some(
          at, more, [&](int k) { return at + k; }, [&](int k) { return this->token(at + k + 1); });
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
    judged_ = judged;
    measured_ = false;
    double total = 1;
    warp.sync();
    int count = 0;
    for (NodeId c = this->next_child(node, node); c != kNoParent; c = this->next_child(node, c), ++count) {
      if (count < judged && all_notes()[c].keep > 0) total = all_notes()[c].total;
      if (warp.rank() != 0) continue;
      if (count >= judged) all_notes()[c].keep = 0;
      siblings()[count] = {c, static_cast<float>(all_notes()[c].keep),
                           static_cast<float>(guesses()[c].scale)};
    }
    if (warp.rank() == 0) {
      residual().node = node;
      residual().total = total;
      residual().law = law;
      if (law.point == kNoToken) residual().target = Exponent(law);
    }
    warp.sync();
  }

  /// Probability of the token of `child` under what is left.
  SPECULA_HD double residual_prob(NodeId child) const {
    return left_of(this->token(child), target_prob(residual().law, child)) / residual().total;
  }

  /// Takes the law of the next child away, `weight` being what the law before is multiplied by. Returns the
  /// mass that was left; where rounding leaves none the law stays as it was, and 0 is returned. Cost: a read
  /// of the target's row and of the draft's; nothing for a chosen one.
  SPECULA_HD double reject(double weight) {
    const double keep = weight / residual().total;
    if (!(keep >= 0x1p-100)) {  // nothing is left of nothing, nor of what a float could not hold
      ++judged_;
      return 0;
    }
    const int child = judged_;
    const Guess& guess = guesses()[siblings()[child].node];
    double total;
    if (guess.point != kNoToken) {  // all that is left is scaled, but for one token
      const double p = guess.point == this->token(siblings()[child].node)
                           ? target_prob(residual().law, siblings()[child].node)
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
    return total;
  }

  /// The token after the residual's node, from what is left. Cost: one tile, and a read of the rows if the
  /// last rejected child was a chosen one.
  SPECULA_HD Token sample_residual(int depth) {
    while (!measured_) {
      const double left = measure();
      if (!(left >= 0)) this->fail(Status::not_a_number);  // a draft's row
      if (!this->ok()) return kNoToken;
      measured_ = left > 0;
      int last = judged_ - 1;
      while (last >= 0 && !(siblings()[last].keep > 0)) --last;
      if (measured_ || last < 0) break;
      note(last, 0, 0);  // rounding said that something was left
    }
    const auto left = fold();
    return this->emitted(scan_.draw_measured(this->residual_words(depth),
                                             [&](int first, float(&w)[4]) { left.weights(first, w); }));
  }

  // ---- notes

  SPECULA_HD const NodeNotes& notes(NodeId node) const { return all_notes()[node]; }
  template <class Change>
  SPECULA_HD void change(NodeId node, Change change) {
    const auto warp = this->cluster_.block().warp();
    warp.sync();
    if (warp.rank() == 0) change(all_notes()[node]);
    warp.sync();
  }

 private:
  enum class Work : std::int32_t { none, rows, kept, residual };
  /// What the tiles' table is of: the rows that were read last, what their cuts keep of them, or other
  /// things.
  enum class Holds : std::int32_t { statistics, kept, other };
  /// What the others are to do: with rows of `rows` nodes from `first` on, at `depth`; and what they did.
  struct alignas(16) Post {
    Work work;
    NodeId first;
    int rows, depth;
    Holds holds;
    int set;              // of the table
    int barriers;         // of the cluster, so far
    int last_barrier[2];  // its number, in the place that is even or odd as it is: while one is read, who is
                          // a barrier ahead may write the other
  };

  /// By the warp that walks: has the others perform something, and does meanwhile() at the same time.
  template <class Meanwhile>
  SPECULA_HD void call(Work work, NodeId first, int rows, int depth, Meanwhile meanwhile) {
    const auto block = this->cluster_.block();
    if (block.rank() == 0) post() = {work, first, rows, depth, Holds::other, 0, 0, {0, 0}};
    block.sync();
    measured_ = false;
    meanwhile();
    scan_.leave();
    int barriers = 0;
    do {
      this->cluster_.sync();
      ++barriers;
    } while (post().last_barrier[barriers % 2] != barriers);
    block.sync();
    scan_.table().follow(post().set);
    holds_ = post().holds;
    block.warp().sync();  // before the next call is written over this one
  }

  /// By the others.
  SPECULA_HD void perform() {
    const Post& todo = post();
    const auto block = scan_.cluster().block();
    const NodeId first = todo.first;
    int there = todo.rows;  // what is padding has no row in a map, and what is below it
    if (args_.target.row_of_node)
      for (int r = todo.rows - 1; r > 0; --r)
        if (this->token(first + r) < 0) there = r;
    const auto row_of = [&](int r) { return row(first + (r < there ? r : 0)); };
    const SamplingParams greedy{0.0f, 0, 1.0f, 0.0f};
    const SamplingParams& params = Rule::kLaws ? this->params() : greedy;
    const bool reads = todo.work == Work::rows;
    const bool cut = Rule::kLaws && reads && params.temperature != 0.0f && cuts(params);
    const auto end = [&](int barrier) {  // tells the warp that walks how long to wait
      if (block.rank() == 0) post().last_barrier[barrier % 2] = barrier;
    };
    Holds holds = Holds::other;
    if (!cut) end(1);
    if (reads) {
      const auto draw = [&](int r) {
        if (!Rule::kDraws || scan_.facts(r).law.status != Status::ok) return;
        const Words words = this->sample_words(todo.depth + r);
        const Token token = cut ? draw_kept(r, r, row_of(r), words) : scan_.draw(r, row_of(r), words);
        if (block.warp().rank() == 0) all_drawn()[r] = token;
      };
      scan_.template read<Element>(
          todo.rows, row_of, params, false, [] {},
          [&](int r) {
            if (!cut) draw(r);
          });
      holds = Holds::statistics;
      if (Rule::kLaws && cut) {
        block.sync();
        bool kept = scan_.template cut<Element>(todo.rows, row_of, params);
        block.sync();
        if (Rule::kDraws) {
          if (!kept) scan_.template keep<Element>(0, todo.rows, row_of);
          kept = true;
          for (int r = block.warp_rank(); r < todo.rows; r += block.warp_count()) draw(r);
        }
        if (kept) holds = Holds::kept;
        end(post().barriers + 1);
        scan_.cluster().sync();
      }
    }
    if (Rule::kJudges && todo.work == Work::kept) scan_.template keep<Element>(first - first_, 1, row_of);
    if (Rule::kJudges && todo.work == Work::residual) fold().measure(scan_);
    if (reads) first_ = first;
    if (block.rank() == 0) {
      post().holds = holds;
      post().set = scan_.table().set();
    }
  }

  /// By the warp that walks: lets the row of `node` be among those that were read last.
  SPECULA_HD void read(NodeId node, int depth) {
    if (!this->ok() || (node >= first_ && node < first_ + have_)) return;
    first_ = node;
    have_ = this->is_chain() ? smaller(args_.scan.rows, this->size_ - node) : 1;
    call(Work::rows, node, have_, depth, [&] {
      if (!looked_) look();
    });
  }
  SPECULA_HD const RowStats& law_read(NodeId node) {
    const RowStats& out = scan_.facts(this->ok() ? node - first_ : 0).law;
    if (this->ok()) this->fail(out.status);
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
    for (NodeId n = warp.rank(); n < this->size_; n += warp.size()) {
      near_tokens()[n] = this->token(n);
      near_parents()[n] = this->parent(n);
    }
    warp.sync();
    this->tokens_ = near_tokens();
    if (this->parents_) this->parents_ = near_parents();
    if (!Rule::kJudges) return;
    const std::int64_t rows = row_count(args_.draft);
    bool beyond = false;
    for (NodeId n = 1 + warp.rank(); n < this->size_; n += warp.size()) {
      if (!this->is_there(n)) continue;  // its place in maps may hold anything
      const Token token = this->token(n);
      Guess guess;
      guess.row = draft_row(n);
      guess.logit = row(this->parent(n))[token];
      guess.scale = draft_scale(n);
      if (rows > 0 && guess.row >= rows) {
        beyond = true;
        continue;
      }
      guess.point = is_chosen(args_.draft) || guess.row < 0 ? token : point_of(args_.draft, guess.row);
      guess.draft_prob = guess.point != kNoToken
                             ? (token == guess.point ? 1.0 : 0.0)
                             : guess.scale * prob_in(args_.draft, guess.row, token, args_.scan.vocab);
      guess.exponent = guess.point == kNoToken ? exponent_of(args_.draft, guess.row) : Exponent();
      guesses()[n] = guess;
    }
    if (warp.ballot(beyond)) this->fail(Status::bad_draft_row);
    warp.sync();
  }

  SPECULA_HD Row<Element> row(NodeId node) const {
    const std::int64_t at = args_.target.row_of_node ? args_.target.row_of_node[this->begin_ + node]
                                                     : static_cast<std::int64_t>(this->begin_) + node;
    return {args_.target.logits + at * args_.target.stride, args_.scan.vocab};
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

  /// By a warp: draws from `row`, whose facts are those of row r, and of which a cut keeps what the entries
  /// of row `kept` say.
  SPECULA_HD Token draw_kept(int kept, int r, Row<Element> row, Words words) const {
    const Exponent exponent(scan_.facts(r).law);
    return scan_.draw_measured(
        words, [&](int first, float(&w)[4]) { Scan::weigh(row, exponent, first, w); }, kept);
  }

  // ---- the residual

  SPECULA_HD auto fold() const {
    return ResidualFold<Element, Draft>(row(residual().node), args_.draft, residual(), siblings(), guesses());
  }
  /// By the warp that walks: measures what is left; the mass.
  SPECULA_HD double measure() {
    const auto block = this->cluster_.block();
    block.warp().sync();
    if (block.rank() == 0) residual().judged = judged_;
    call(Work::residual, 0, 0, 0, [] {});
    return scan_.measured_total();
  }
  /// p of any token after the residual's node.
  SPECULA_HD double prob_of(Token token) const {
    const RowStats& law = residual().law;
    if (law.point != kNoToken) return token == law.point ? 1.0 : 0.0;
    return prob(row(residual().node)[token], law);
  }
  /// What is left, not normalised, of a token whose probability was `p`.
  SPECULA_HD double left_of(Token token, double p) const {
    double w = p;
    for (int i = 0; i < judged_; ++i) {
      const NodeId c = siblings()[i].node;
      if (!(siblings()[i].keep > 0)) continue;
      const Guess& guess = guesses()[c];
      const double q = guess.point != kNoToken
                           ? (token == guess.point ? 1.0 : 0.0)
                           : guess.scale * prob_in(args_.draft, guess.row, token, args_.scan.vocab);
      const double left = all_notes()[c].keep * w - q;
      w = left > 0 ? left : 0.0;
    }
    return w;
  }
  /// The rejection of the i-th child.
  SPECULA_HD void note(int i, double keep, double total) {
    change(siblings()[i].node, [&](NodeNotes& n) {
      n.keep = keep;
      n.total = total;
      siblings()[i].keep = static_cast<float>(keep);
      if (total > 0) residual().total = total;
    });
  }

  // ---- shared memory. Addresses are found anew each time: registers are what walks are short of.

  struct alignas(16) SharedPart {
    Post post;
    Residual residual;
    SamplingParams params;
  };
  static constexpr std::size_t kGuessesAt = sizeof(SharedPart);
  /// Behind arrays of max_nodes, those of the strictest alignment first.
  SPECULA_HD static std::size_t notes_at(int max_nodes) {
    return kGuessesAt + static_cast<std::size_t>(Rule::kJudges ? max_nodes : 0) * sizeof(Guess);
  }
  SPECULA_HD static std::size_t siblings_at(int max_nodes) {
    return notes_at(max_nodes) + static_cast<std::size_t>(Rule::kJudges ? max_nodes : 0) * sizeof(NodeNotes);
  }
  SPECULA_HD static std::size_t tokens_at(int max_nodes) {
    return siblings_at(max_nodes) + static_cast<std::size_t>(Rule::kJudges ? max_nodes : 0) * sizeof(Sibling);
  }
  SPECULA_HD static std::size_t parents_at(int max_nodes) {
    return tokens_at(max_nodes) + static_cast<std::size_t>(max_nodes) * sizeof(Token);
  }
  SPECULA_HD static std::size_t drawn_at(int max_nodes) {
    return parents_at(max_nodes) + static_cast<std::size_t>(max_nodes) * sizeof(NodeId);
  }
  SPECULA_HD static std::size_t scan_at(const ScanSize& size, int max_nodes) {
    return round_up(drawn_at(max_nodes) + static_cast<std::size_t>(size.rows) * sizeof(Token),
                    std::size_t{16});
  }
  SPECULA_HD SharedPart& shared_part() const { return *reinterpret_cast<SharedPart*>(shared_); }
  SPECULA_HD Post& post() const { return shared_part().post; }
  SPECULA_HD Residual& residual() const { return shared_part().residual; }
  SPECULA_HD const SamplingParams& params() const { return shared_part().params; }
  /// (max_nodes) Of nodes that are neither root nor padding.
  SPECULA_HD Guess* guesses() const { return reinterpret_cast<Guess*>(shared_ + kGuessesAt); }
  /// (max_nodes)
  SPECULA_HD NodeNotes* all_notes() const {
    return reinterpret_cast<NodeNotes*>(shared_ + notes_at(args_.max_nodes));
  }
  /// (max_nodes) The children of the residual's node, in order.
  SPECULA_HD Sibling* siblings() const {
    return reinterpret_cast<Sibling*>(shared_ + siblings_at(args_.max_nodes));
  }
  /// (max_nodes) The proposal.
  SPECULA_HD Token* near_tokens() const {
    return reinterpret_cast<Token*>(shared_ + tokens_at(args_.max_nodes));
  }
  SPECULA_HD NodeId* near_parents() const {
    return reinterpret_cast<NodeId*>(shared_ + parents_at(args_.max_nodes));
  }
  /// (rows) The tokens after the rows that were read last.
  SPECULA_HD Token* all_drawn() const {
    return reinterpret_cast<Token*>(shared_ + drawn_at(args_.max_nodes));
  }

  unsigned char* shared_;
  const Args& args_;
  Scan scan_;

  bool looked_ = false;  // at the proposal
  NodeId first_ = 0;     // rows of nodes [first_, first_ + have_) were read last
  int have_ = 0;
  Holds holds_ = Holds::other;

  // Of the residual, known to the warp that walks.
  int judged_ = 0;
  bool measured_ = false;  // the tiles' masses are those of what is left
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
