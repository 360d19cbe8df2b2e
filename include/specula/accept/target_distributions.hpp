// SPDX-License-Identifier: MIT
// The target's distributions after each node of a proposal, computed lazily from its logits, and the residual
// distribution that rejections leave.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/view_guard.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

namespace detail {

/// The residual distribution: starts as p; each rejection makes it norm((weight * p - q)+) with q the
/// distribution of the rejected node given its earlier siblings. Stores no row of V values: weights are
/// computed tile by tile from the raw rows. Allocates in the constructor only.
class Residual {
 public:
  Residual(std::int32_t vocab, std::int32_t max_nodes)
      : vocab_(vocab), masses_(static_cast<std::size_t>(tile_count(vocab))) {
    steps_.reserve(static_cast<std::size_t>(max_nodes));
  }

  /// Restarts from the target's distribution and the masses of its tiles. Without masses, the first rejection
  /// or measured() computes them. (Those of a point mass are ignored.)
  void start(const Distribution& target, std::span<const double> masses) {
    target_ = target;
    steps_.clear();
    total_ = 1;
    measured_ = true;
    if (target.is_point()) {
      std::fill(masses_.begin(), masses_.end(), 0.0);
      masses_[static_cast<std::size_t>(target.point / kTile)] = 1;
    } else if (masses.empty()) {
      measured_ = false;
    } else {
      std::copy(masses.begin(), masses.end(), masses_.begin());
      total_ = merge_tiles(masses_);
    }
  }

  /// A rejection, recorded so that it can be replayed.
  struct Step {
    NodeId node = kNoParent;
    double keep = 1;   // factor on the distribution before
    double total = 1;  // mass that was left
  };
  const Step& last_step() const { return steps_.back(); }
  /// Replays a rejection that left mass. Reads nothing.
  void redo(const TokenTree& tree, const Step& step) {
    tree_ = &tree;
    steps_.push_back(step);
    total_ = step.total;
    measured_ = false;
  }

  /// Subtracts the distribution of `node`; the current distribution is first multiplied by `weight` (1
  /// except in block and traversal verification). Returns the mass that was left, S; where rounding leaves
  /// none, the distribution is unchanged and 0 is returned. Cost: one read of the target's row and of the
  /// draft's; a chosen node reads at most one tile.
  double reject(const TokenTree& tree, NodeId node, double weight = 1) {
    tree_ = &tree;
    const double keep = weight / total_;
    const Distribution& draft = tree.draft_distribution(node);
    if (draft.is_point() && !measured_) {  // the residual is scaled, except for one token
      const double there = keep * (*this)(draft.point);
      const double total = weight - there + std::max(0.0, there - 1);
      if (!(total > 0)) return 0;
      steps_.push_back({node, keep, total});
      return total_ = total;
    }
    steps_.push_back({node, keep, 0});
    if (!measured_) std::fill(masses_.begin(), masses_.end(), 1.0);  // any tile may have mass
    if (draft.is_point()) {                                          // only one tile changes
      for (double& mass : masses_) mass *= keep;
      masses_[static_cast<std::size_t>(draft.point / kTile)] = tile_mass(*this, draft.point / kTile);
    } else if (steps_.size() == 1 && !target_.is_point() && !tree.excludes_siblings(node) &&
               draft.logits.has_logits() && isa() != Isa::reference) {
      first_difference(draft, keep, tree.draft_scale(node));
    } else {
      remeasure();
    }
    measured_ = true;
    const double total = merge_tiles(masses_);
    if (std::isnan(total)) throw StatusError(Status::not_a_number, "a row of the draft holds NaN");
    if (total > 0) return steps_.back().total = total_ = total;
    steps_.pop_back();
    measured_ = false;
    return 0;
  }

  /// *this, with the masses that a draw requires. Cost: as a rejection, unless one has computed them.
  const Residual& measured() {
    while (!measured_) {
      std::fill(masses_.begin(), masses_.end(), 1.0);
      remeasure();
      total_ = merge_tiles(masses_);
      measured_ = total_ > 0 || steps_.empty();
      if (!measured_) steps_.pop_back();  // rounding alone had left mass
    }
    return *this;
  }

  double total() const { return total_; }
  /// Probability of `token` under the residual.
  double prob(Token token) const { return (*this)(token) / total_; }

  // The interface of Rng::draw's weights: weights up to the factor total().
  std::int32_t vocab() const { return vocab_; }
  /// Throws std::logic_error if neither measured() nor a rejection has computed the masses since start().
  std::span<const double> tile_masses() const {
    if (!measured_)
      throw std::logic_error("a draw from a residual whose tiles were not measured: draw from measured()");
    return masses_;
  }
  double operator()(Token token) const {
    double w = target_(token);
    for (const Step& s : steps_) w = std::max(0.0, s.keep * w - tree_->draft_prob(s.node, token));
    return w;
  }
  void fill(std::int32_t tile, float* weights) const {
    std::array<float, kTile> less;
    fill_tile(target_, vocab_, tile, weights);
    for (const Step& s : steps_) {
      const Distribution& draft = tree_->draft_distribution(s.node);
      fill_tile(draft, vocab_, tile, less.data());
      if (tree_->excludes_siblings(s.node))
        for (NodeId c = tree_->first_child(tree_->parent(s.node)); c != s.node; c = tree_->next_sibling(c))
          if (tree_->token(c) / kTile == tile) less[static_cast<std::size_t>(tree_->token(c) % kTile)] = 0;
      kernels().subtract(weights, less.data(), static_cast<float>(s.keep),
                         static_cast<float>(tree_->draft_scale(s.node)));
    }
  }

 private:
  /// Recomputes the masses of the tiles that have any.
  void remeasure() {
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      double& mass = masses_[static_cast<std::size_t>(t)];
      if (mass > 0) mass = tile_mass(*this, t);
    }
  }
  /// Masses after the first rejection, the common case: both rows in one pass, nothing stored.
  void first_difference(const Distribution& draft, double keep, double take) {
    const Exponent p(target_), q(draft);
    std::array<float, kTile> p_padding, q_padding;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      double& mass = masses_[static_cast<std::size_t>(t)];
      if (mass > 0)
        mass = kernels().difference(tile_at(target_.logits, vocab_, t, p_padding), p,
                                    tile_at(draft.logits, vocab_, t, q_padding), q, static_cast<float>(keep),
                                    static_cast<float>(take));
    }
  }

  std::int32_t vocab_;
  Distribution target_;
  const TokenTree* tree_ = nullptr;
  std::vector<Step> steps_;
  std::vector<double> masses_;  // (ceil(V / 512)), if measured_
  double total_ = 1;
  bool measured_ = false;
};

/// The residual that TargetDistributions::residual() hands out; its members are those of Residual. There is
/// one: once another is started, every member throws std::logic_error.
class ResidualView {
 public:
  /// Without a residual: every member throws.
  ResidualView() = default;
  ResidualView(Residual& residual, ViewGuard guard) : residual_(&residual), guard_(guard) {}

  const Residual::Step& last_step() const { return current().last_step(); }
  void redo(const TokenTree& tree, const Residual::Step& step) { current().redo(tree, step); }
  double reject(const TokenTree& tree, NodeId node, double weight = 1) {
    return current().reject(tree, node, weight);
  }
  const ResidualView& measured() {
    current().measured();
    return *this;
  }
  double total() const { return current().total(); }
  double prob(Token token) const { return current().prob(token); }

  std::int32_t vocab() const { return current().vocab(); }
  std::span<const double> tile_masses() const { return current().tile_masses(); }
  double operator()(Token token) const { return current()(token); }
  void fill(std::int32_t tile, float* weights) const { current().fill(tile, weights); }

 private:
  Residual& current() const {
    guard_.expect_valid("a residual", "another was started since");
    return *residual_;
  }
  Residual* residual_ = nullptr;
  ViewGuard guard_;
};

/// The target's rows by node: row i is that of node i, or of the node whose entry in a map is i.
struct NodeRows {
  RowPointer first;
  std::int32_t count, vocab;
  std::ptrdiff_t stride;            // in numbers
  const std::int32_t* row_of_node;  // (nodes); null: the node itself

  NodeRows(RowPointer first_row, std::int32_t rows, std::int32_t width, std::ptrdiff_t apart,
           const std::int32_t* map)
      : first(first_row), count(rows), vocab(width), stride(apart), row_of_node(map) {}

  Row row(NodeId node) const { return {first + (row_of_node ? row_of_node[node] : node) * stride, vocab}; }
};

/// Per-node state of rules that return to a node.
struct NodeState {
  NodeState() = default;
  explicit NodeState(std::uint64_t of) : verification(of) {}

  void keep_read(const Distribution& p) {
    distribution = p;
    has_distribution = true;
  }

  Distribution distribution;  // p after the node, if it was read in this verification: has_distribution
  bool has_distribution = false;
  double weight = 1;           // the mass that a rule carries to the node
  double keep = 0, total = 0;  // of its rejection, see Residual::Step; keep 0: no rejection that left mass
  std::uint64_t verification = 0;  // that it belongs to; the workspace numbers them from 1
};

/// The states of a tree's nodes in one verification: one that is left from before is renewed when asked for.
class NodeStates {
 public:
  NodeStates(NodeState* states, std::uint64_t verification) : states_(states), verification_(verification) {}

  NodeState& operator[](NodeId node) const {
    NodeState& state = states_[node];
    if (state.verification != verification_) state = NodeState(verification_);
    return state;
  }

 private:
  NodeState* states_;  // (nodes)
  std::uint64_t verification_;
};

}  // namespace detail

/// Workspace of verification: O(V / 512 + max_nodes) when constructed, V floats at the first top-k or top-p.
class VerifyWorkspace {
 public:
  /// Throws std::invalid_argument unless vocab >= 1 and max_nodes, root included, is in [1, 2^24).
  VerifyWorkspace(std::int32_t vocab, std::int32_t max_nodes)
      : scan_(checked(vocab, max_nodes)),
        masses_(static_cast<std::size_t>(detail::tile_count(vocab))),
        residual_(vocab, max_nodes),
        node_states_(static_cast<std::size_t>(max_nodes)) {}

 private:
  friend class TargetDistributions;
  static std::int32_t checked(std::int32_t vocab, std::int32_t max_nodes) {
    detail::expect_in("VerifyWorkspace: the vocabulary", vocab, 1, std::numeric_limits<std::int32_t>::max());
    detail::expect_in("VerifyWorkspace: max_nodes", max_nodes, 1, detail::kMaxNodes);
    return vocab;
  }
  /// Begins a verification, of other rows: views and states of an earlier one end. Returns its number.
  std::uint64_t begin() {
    forget();
    residuals_.next();
    return ++verifications_;
  }
  Distribution scan(const detail::Row& row, const SamplingParams& params) {
    if (params.greedy()) return scan_.distribution(row, params);  // does not change masses_
    forget();                                                     // scan_ may throw
    return scanned_ = scan_.weights(row, params, masses_).distribution;
  }
  detail::TokenWeights weights(const Distribution& distribution) {
    if (masses_of(distribution).empty()) {
      forget();
      scan_.weights(distribution, masses_);
      scanned_ = distribution;
    }
    return {distribution, scan_.vocab(), masses_, detail::ViewGuard(writes_)};
  }
  void forget() {
    scanned_ = {};
    writes_.next();
  }
  /// Empty unless masses_ belong to `distribution`.
  std::span<const double> masses_of(const Distribution& distribution) const {
    if (!distribution.logits || !(scanned_ == distribution)) return {};
    return masses_;
  }
  detail::RowScan scan_;
  std::vector<double> masses_;  // (ceil(V / 512)) of scanned_
  Distribution scanned_;
  detail::ChangeCount writes_;  // of masses_
  detail::Residual residual_;
  detail::ChangeCount residuals_;  // started
  std::uint64_t verifications_ = 0;
  std::vector<detail::NodeState> node_states_;
};

/// Row i of `rows` is the target's logits after node i. A row is read only when its distribution is
/// requested. What it hands out are values, except weights(), which ends when another row is read,
/// residual(), which ends when another is started, and node_state(); the first two throw std::logic_error
/// when they are used later. One workspace serves one TargetDistributions at a time, and its copies.
class TargetDistributions {
 public:
  /// Throws std::invalid_argument if `params` are out of range or the workspace is for another vocabulary.
  TargetDistributions(LogitsView rows, const SamplingParams& params, VerifyWorkspace& workspace)
      : TargetDistributions(detail::NodeRows(rows.data, rows.rows, rows.vocab, rows.stride, nullptr), params,
                            workspace) {}
  /// @cond
  TargetDistributions(const detail::NodeRows& rows, const SamplingParams& params, VerifyWorkspace& workspace)
      : rows_(rows), params_(params), work_(&workspace) {
    validate(params);
    if (rows.vocab != workspace.scan_.vocab())
      throw std::invalid_argument("TargetDistributions: rows of " + std::to_string(rows.vocab) +
                                  " logits, a workspace for " + std::to_string(workspace.scan_.vocab()));
    verification_ = workspace.begin();
  }
  /// @endcond

  /// Throws std::invalid_argument unless there is a row per node of `tree`, over the same vocabulary, and
  /// room for them in the workspace. Reading a row is unchecked: decide_checked() calls this before a rule.
  void expect_fits(const TokenTree& tree) const {
    if (tree.size() < 1)
      throw std::invalid_argument("the proposal has no root: call ProposalBuilder::reset() first");
    const auto nodes = static_cast<std::size_t>(tree.size());
    const std::int32_t rows = std::min(rows_.count, tree.size());  // later rows are never read
    detail::expect_rows("the target", {nullptr, rows, rows_.vocab, rows_.stride}, nodes, tree.vocab(),
                        "for a proposal of");
    if (nodes > work_->node_states_.size())
      throw std::invalid_argument("TargetDistributions: a proposal of " + std::to_string(nodes) +
                                  " nodes, a workspace for " + std::to_string(work_->node_states_.size()));
  }

  /// p after `node`, a value. Cost: one row read, which ends weights(). Throws std::runtime_error naming the
  /// node if the row holds NaN or is empty.
  Distribution operator[](NodeId node) const {
    const Distribution p = named(node, [&] { return work_->scan(rows_.row(node), params_); });
    if (static_cast<std::size_t>(node) < work_->node_states_.size()) node_states()[node].keep_read(p);
    return p;
  }
  /// The same under other parameters than the target's. Throws std::invalid_argument if out of range.
  Distribution distribution(NodeId node, const SamplingParams& params) const {
    validate(params);
    return named(node, [&] { return work_->scan(rows_.row(node), params); });
  }
  /// First of the largest logits after `node`. Cost and errors as above.
  Token argmax(NodeId node) const {
    return named(node, [&] { return work_->scan_.argmax(rows_.row(node)); });
  }
  /// `distribution`, which must be no point mass, as weights for a draw. They are a view of the workspace,
  /// which the next row that is read overwrites (operator[], distribution(), weights() or sample() of another
  /// distribution): used after that, they throw std::logic_error. Cost: none if operator[] or distribution()
  /// returned it last, else a row read.
  detail::TokenWeights weights(const Distribution& distribution) const {
    return work_->weights(distribution);
  }

  /// A token from `distribution`: its point, or a draw at `key`.
  template <class Rng>
  Token sample(const Distribution& distribution, const RandomKey& key, Rng& rng) const {
    return distribution.is_point() ? distribution.point : rng.draw(weights(distribution), key);
  }

  /// The residual of p, from which rejections subtract; a second call ends the first residual. Reads nothing.
  detail::ResidualView residual(const Distribution& distribution) const {
    work_->residual_.start(distribution, work_->masses_of(distribution));
    work_->residuals_.next();
    return {work_->residual_, detail::ViewGuard(work_->residuals_)};
  }

  /// The states of the nodes of a tree that passed expect_fits(), new in each verification.
  detail::NodeStates node_states() const { return {work_->node_states_.data(), verification_}; }

  const SamplingParams& params() const { return params_; }  ///< of the text

 private:
  template <class F>
  static std::invoke_result_t<F> named(NodeId node, F f) {
    try {
      return f();
    } catch (const detail::StatusError& e) {
      throw detail::StatusError(e.status(),
                                "the target's row after node " + std::to_string(node) + ": " + e.what());
    }
  }

  detail::NodeRows rows_;
  SamplingParams params_;
  VerifyWorkspace* work_;
  std::uint64_t verification_ = 0;  // its number in the workspace
};

/// rule.decide(tree, target, rng, out) after the checks that every rule needs: whoever calls a rule must call
/// this. Throws std::invalid_argument unless target.expect_fits(tree), and if `tree` was drawn with the noise
/// that draws the target's own tokens and the rule is not lossless for that, since it reads the draft's
/// distributions; within accept_lossy() it is. Otherwise what the rule throws. Cost: the rule's, and a few
/// comparisons.
template <class Rule, class Rng>
void decide_checked(const Rule& rule, const TokenTree& tree, const TargetDistributions& target, Rng& rng,
                    VerifyResult& out) {
  target.expect_fits(tree);
  if (tree.kind() == ProposalKind::shared && !Rule::lossless_for(ProposalKind::shared))
    throw std::invalid_argument(
        "the proposal was drawn with the target's own noise; only rules that do not look at the draft's "
        "distributions may judge it, as GumbelCoupling");
  rule.decide(tree, target, rng, out);
}

}  // namespace specula
