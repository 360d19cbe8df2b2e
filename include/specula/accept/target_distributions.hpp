// SPDX-License-Identifier: MIT
// The target's distributions after each node of a proposal, computed lazily from its logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "specula/accept/residual.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/view_guard.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

namespace detail {

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

/// rule.decide(tree, target, rng, out) after the checks that every rule needs: callers of a rule must call
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
