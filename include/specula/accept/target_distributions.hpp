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

#include "specula/accept/detail/residual.hpp"
#include "specula/base/alive.hpp"
#include "specula/base/fields.hpp"
#include "specula/distribution/row_scan.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rows.hpp"
#include "specula/sampling_params.hpp"

namespace specula {

namespace detail {

/// Per-node state of rules that return to a node.
struct NodeState {
  Distribution distribution;  // p after the node, if has_distribution
  bool has_distribution = false;
  double weight = 1;           // the mass that a rule carries to the node
  double keep = 0, total = 0;  // of its rejection, see Residual::Step; keep 0: no rejection that left mass
};

}  // namespace detail

/// Workspace of verification: O(V / 512 + max_nodes), allocated by the constructor, and V floats, allocated
/// at the first top-k or top-p truncation.
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
    detail::expect_in("VerifyWorkspace: max_nodes", max_nodes, 1, detail::kMostNodes);
    return vocab;
  }
  Distribution scan(std::span<const float> row, const SamplingParams& params) {
    if (params.greedy()) return scan_.distribution(row, params);  // does not change masses_
    scanned_ = {};                                                // in case scan_ throws
    return scanned_ = scan_.weights(row, params, masses_).distribution;
  }
  void measure(const Distribution& distribution) {
    scan_.weights(distribution, masses_);
    scanned_ = distribution;
  }
  /// Empty unless masses_ belong to `distribution`.
  std::span<const double> masses_of(const Distribution& distribution) const {
    if (!distribution.logits || !(scanned_ == distribution)) return {};
    return masses_;
  }

  detail::Alive alive_;
  detail::RowScan scan_;
  std::vector<double> masses_;  // (ceil(V / 512)) of scanned_
  Distribution scanned_;
  detail::Residual residual_;
  std::vector<detail::NodeState> node_states_;
};

/// Row i of `rows` is the target's logits after node i. A row is read only when its distribution is
/// requested.
class TargetDistributions {
 public:
  /// Throws std::invalid_argument if `params` are out of range or the workspace is for another vocabulary,
  /// and std::logic_error if the workspace was moved from.
  TargetDistributions(LogitsView rows, const SamplingParams& params, VerifyWorkspace& workspace)
      : rows_(rows), params_(params), work_(&workspace) {
    validate(params);
    workspace.alive_.expect("VerifyWorkspace");
    if (rows.vocab != workspace.scan_.vocab())
      throw std::invalid_argument("TargetDistributions: rows of " + std::to_string(rows.vocab) +
                                  " logits, a workspace for " + std::to_string(workspace.scan_.vocab()));
  }

  /// Throws std::invalid_argument unless there is a row per node of `tree`, over the same vocabulary, and
  /// room for them in the workspace. Every rule calls this, or check_for(), first.
  void(check)(const TokenTree& tree) const {
    if (tree.size() < 1)
      throw std::invalid_argument("the proposal has no root: call ProposalBuilder::reset() first");
    const auto nodes = static_cast<std::size_t>(tree.size());
    LogitsView rows = rows_;
    rows.rows = std::min(rows.rows, tree.size());  // later rows are never read
    detail::expect_rows("the target", rows, nodes, tree.vocab(), "for a proposal of");
    if (nodes > work_->node_states_.size())
      throw std::invalid_argument("TargetDistributions: a proposal of " + std::to_string(nodes) +
                                  " nodes, a workspace for " + std::to_string(work_->node_states_.size()));
  }
  /// The same for a rule, named for the message, that reads the draft's distributions. Also throws
  /// std::invalid_argument if `tree` was drawn with the noise that draws the target's own tokens, which such
  /// a rule must not be given, unless it is used within accept_lossy().
  void check_for(const char* rule, const TokenTree& tree) const {
    (check)(tree);
    if (!lossy_ && tree.kind() == ProposalKind::shared)
      throw std::invalid_argument(std::string(rule) +
                                  ": the proposal was drawn with the target's own noise; only rules that do "
                                  "not look at the draft's distributions may judge it, as GumbelCoupling");
  }
  /// The same rows for a rule within accept_lossy().
  TargetDistributions for_lossy() const {
    TargetDistributions all = *this;
    all.lossy_ = true;
    return all;
  }

  /// p after `node`. Cost: one row read. Throws std::runtime_error naming the node if the row holds NaN or
  /// is empty.
  Distribution operator[](NodeId node) const {
    return named(node, [&] { return work_->scan(rows_.row(node), params_); });
  }
  /// The same under other parameters than the target's own. Throws std::invalid_argument if they are out of
  /// range.
  Distribution distribution(NodeId node, const SamplingParams& params) const {
    validate(params);
    return named(node, [&] { return work_->scan(rows_.row(node), params); });
  }
  /// First of the largest logits after `node`. Cost and errors as above.
  Token argmax(NodeId node) const {
    return named(node, [&] { return work_->scan_.argmax(rows_.row(node)); });
  }
  /// `distribution`, which must be no point mass, as weights for a draw; free if operator[] returned it last.
  detail::TokenWeights weights(const Distribution& distribution) const {
    if (work_->masses_of(distribution).empty()) work_->measure(distribution);
    return {distribution, work_->scan_.vocab(), work_->masses_};
  }

  /// A token from `distribution`: its point, or a draw at `key`.
  template <class Rng>
  Token sample(const Distribution& distribution, const RandomKey& key, Rng& rng) const {
    return distribution.is_point() ? distribution.point : rng.draw(weights(distribution), key);
  }

  /// The residual of p, from which rejections subtract. One at a time: a second call ends the first. Reads
  /// nothing.
  detail::Residual& residual(const Distribution& distribution) const {
    work_->residual_.start(distribution, work_->masses_of(distribution));
    return work_->residual_;
  }

  /// The states (N) of the nodes of `tree`, as of the last verification. Requires that `tree` passed check().
  std::span<detail::NodeState> node_states(const TokenTree& tree) const {
    return std::span(work_->node_states_).first(static_cast<std::size_t>(tree.size()));
  }

  const SamplingParams& params() const { return params_; }

 private:
  template <class F>
  static std::invoke_result_t<F> named(NodeId node, F f) {
    try {
      return f();
    } catch (const std::runtime_error& e) {
      throw std::runtime_error("the target's row after node " + std::to_string(node) + ": " + e.what());
    }
  }

  LogitsView rows_;
  SamplingParams params_;
  VerifyWorkspace* work_;
  bool lossy_ = false;
};

}  // namespace specula
