// The target's distributions after each node of a proposal, computed from its logits when a rule asks for
// them.
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

/// What rules that come back to a node keep about it.
struct NodeState {
  Distribution distribution;  // p after it, where it was asked for
  double weight = 1;
  NodeId next_child = kNoParent;
  bool has_distribution = false;
  Residual::Step step;  // its own rejection
};

}  // namespace detail

/// Memory that verification works in: O(V / 512 + max_nodes), allocated by the constructor, and V floats,
/// allocated when a top-k or top-p truncation is asked for the first time.
class VerifyWorkspace {
 public:
  /// Throws std::invalid_argument unless vocab >= 1 and max_nodes, which counts the root, is in [1, 2^24).
  VerifyWorkspace(std::int32_t vocab, std::int32_t max_nodes)
      : scan_(checked(vocab, max_nodes)),
        residual_(vocab, max_nodes),
        node_states_(static_cast<std::size_t>(max_nodes)) {}

 private:
  friend class TargetDistributions;
  static std::int32_t checked(std::int32_t vocab, std::int32_t max_nodes) {
    detail::expect_in("VerifyWorkspace: the vocabulary", vocab, 1, std::numeric_limits<std::int32_t>::max());
    detail::expect_in("VerifyWorkspace: max_nodes", max_nodes, 1, detail::kMostNodes);
    return vocab;
  }
  detail::Alive alive_;
  detail::RowScan scan_;
  detail::Residual residual_;
  std::vector<detail::NodeState> node_states_;
};

/// Row i of `rows` is the target's logits after node i. A row is read when its distribution is asked for,
/// once; rows that no distribution is asked of are never read.
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

  /// Throws std::invalid_argument unless there is a row for each node of `tree`, over the same vocabulary,
  /// and room for them in the workspace. Every rule calls this, or check_for(), first.
  void(check)(const TokenTree& tree) const {
    if (tree.size() < 1)
      throw std::invalid_argument("the proposal has no root: TokenTree::reset() comes first");
    const auto nodes = static_cast<std::size_t>(tree.size());
    LogitsView rows = rows_;
    rows.rows = std::min(rows.rows, tree.size());  // those behind are never read
    detail::expect_rows("the target", rows, nodes, tree.vocab(), "for a proposal of");
    if (nodes > work_->node_states_.size())
      throw std::invalid_argument("TargetDistributions: a proposal of " + std::to_string(nodes) +
                                  " nodes, a workspace for " + std::to_string(work_->node_states_.size()));
  }
  /// The same for a rule, named for the message, that looks at the draft's distributions. Throws
  /// std::invalid_argument also if `tree` was drawn with the noise that the target's own tokens are drawn
  /// with, which such a rule must not see, unless it is used within accept_lossy().
  void check_for(const char* rule, const TokenTree& tree) const {
    (check)(tree);
    if (!lossy_ && tree.kind() == ProposalKind::shared)
      throw std::invalid_argument(std::string(rule) +
                                  ": the proposal was drawn with the target's own noise; only rules that do "
                                  "not look at the draft's distributions may judge it, as GumbelCoupling");
  }
  /// The same rows for a rule whose user knows that the text will not be the target's.
  TargetDistributions for_lossy() const {
    TargetDistributions all = *this;
    all.lossy_ = true;
    return all;
  }

  /// p after `node`. Cost: one read of its row. Throws std::runtime_error naming the node if the row is NaN
  /// or empty.
  Distribution operator[](NodeId node) const {
    return named(node, [&] { return work_->scan_.distribution(rows_.row(node), params_); });
  }
  /// The same under other parameters than the target's own. Throws std::invalid_argument if they are out of
  /// range.
  Distribution distribution(NodeId node, const SamplingParams& params) const {
    validate(params);
    return named(node, [&] { return work_->scan_.distribution(rows_.row(node), params); });
  }
  /// First of the largest logits after `node`. Cost and errors as above.
  Token argmax(NodeId node) const {
    return named(node, [&] { return work_->scan_.argmax(rows_.row(node)); });
  }
  /// `distribution`, which is no point mass, as weights for a draw; free if operator[] made it last.
  detail::TokenWeights weights(const Distribution& distribution) const {
    return work_->scan_.weights(distribution);
  }

  /// A token from `distribution`: its point, or a draw at `key`.
  template <class Rng>
  Token sample(const Distribution& distribution, const RandomKey& key, Rng& rng) const {
    return distribution.is_point() ? distribution.point : rng.draw(weights(distribution), key);
  }

  /// p as something that rejections take away from. One at a time: a second call ends the first. Reads
  /// nothing.
  detail::Residual& residual(const Distribution& distribution) const {
    work_->residual_.start(distribution, work_->scan_.masses(distribution));
    return work_->residual_;
  }

  /// A note for each node of `tree`, which passed check(), (N), as the last verification result left it.
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
