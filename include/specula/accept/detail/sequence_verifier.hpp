// The CPU verifier that the rules in rules/ are run with: a TokenTree and the target's rows.
#pragma once

#include <cstddef>

#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula::detail {

/// The part without distributions: the proposal and its result. Always ok(), since errors are thrown.
class SequenceState {
 public:
  SequenceState(const TokenTree& tree, VerifyResult& out) : tree_(tree), out_(out) { out.clear(); }

  bool ok() const { return true; }
  void check_proposal() const {}
  Token token(NodeId node) const { return tree_.token(node); }
  NodeId parent(NodeId node) const { return tree_.parent(node); }
  NodeId next_child(NodeId node, NodeId after) const {
    return after == node ? tree_.first_child(node) : tree_.next_sibling(after);
  }
  NodeId child_with(NodeId node, Token token) const {
    NodeId c = tree_.first_child(node);
    while (c != kNoParent && tree_.token(c) != token) c = tree_.next_sibling(c);
    return c;
  }

  /// From the first element to the last, or from the last to the first.
  void put(int i, NodeId node, Token next) {
    const auto at = static_cast<std::size_t>(i);
    if (at >= out_.accepted.size()) out_.accepted.resize(at + 1);
    out_.accepted[at] = node;
    if (at + 1 == out_.accepted.size()) out_.next_token = next;
  }
  void finish(int) {}

 protected:
  const TokenTree& tree_;

 private:
  VerifyResult& out_;
};

/// rules/verifier.hpp documents the members. Costs are those of TargetDistributions and Residual.
template <class Rng>
class SequenceVerifier : public SequenceState {
 public:
  /// Requires a tree that passed target.check() or check_for().
  SequenceVerifier(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out)
      : SequenceState(tree, out), target_(target), rng_(rng) {}

  Distribution distribution(NodeId node, int) const { return target_[node]; }
  Token argmax(NodeId node, int) const { return target_.argmax(node); }
  Token drawn(NodeId node, int depth) { return sample(node, target_[node], depth); }
  Token sample(NodeId node, const Distribution& distribution, int) {
    return target_.sample(distribution, tree_.sample_key(node), rng_);
  }
  double target_prob(const Distribution& distribution, NodeId child) const {
    return distribution(tree_.token(child));
  }
  double draft_prob(NodeId child) const { return tree_.draft_prob(child, tree_.token(child)); }
  bool accept(double probability, NodeId node, int) {
    return rng_.accept(probability, tree_.accept_key(node));
  }
  NodeId accept_chain() const { return 0; }

  void start_residual(NodeId node, const Distribution& distribution, int tried) {
    residual_ = &target_.residual(distribution);
    residual_node_ = node;
    next_ = tree_.first_child(node);
    for (; tried > 0; --tried, next_ = tree_.next_sibling(next_))
      if (state(next_).keep > 0) residual_->redo(tree_, {next_, state(next_).keep, state(next_).total});
  }
  double residual_prob(NodeId child) const { return residual_->prob(tree_.token(child)); }
  double reject(double weight) {
    const NodeId child = next_;
    next_ = tree_.next_sibling(child);
    const double left = residual_->reject(tree_, child, weight);
    NodeState& rejected = state_of(child);
    rejected.keep = left > 0 ? residual_->last_step().keep : 0;
    rejected.total = left;
    return left;
  }
  Token sample_residual(int) { return rng_.draw(residual_->measured(), tree_.residual_key(residual_node_)); }

  const NodeState& state(NodeId node) const { return state_of(node); }
  template <class Change>
  void change(NodeId node, Change change) {
    change(state_of(node));
  }

 private:
  NodeState& state_of(NodeId node) const {
    return target_.node_states(tree_)[static_cast<std::size_t>(node)];
  }

  const TargetDistributions& target_;
  Rng& rng_;
  Residual* residual_ = nullptr;
  NodeId residual_node_ = kNoParent, next_ = kNoParent;  // next_: the child that reject() takes next
};

}  // namespace specula::detail
