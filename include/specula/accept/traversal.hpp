// Traversal verification: verifies a token tree from the leaves to the root.
#pragma once

#include <algorithm>

#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// A node carries a weight P, the root's being 1; its child c gets P_c = min(1, P p(c) / q(c)). Descends to
/// the leaves first: a leaf is accepted with its weight. If all nodes below a node were rejected: after
/// each rejected child S = sum (P p - q)+, p <- norm((P p - q)+), P <- S / (S + 1 - P) with 0 / 0 = 0;
/// finally the node itself is accepted with the resulting P, and the next token is drawn from the resulting
/// p. q is the child's distribution given its earlier siblings, so the target's distribution is kept with
/// and without replacement and for mixed siblings. On one path it is block verification.
///
/// The shape of the tree may depend on what was drawn before, anywhere in it: once a subtree is rejected,
/// what remains of p and P carries no information about the tokens in it.
///
/// Cost: one row read per inner node on the way to the first accepted leaf; a rejection reads its parent's
/// row and the draft's again (chosen nodes: one logit). Uniform draws: one `accept` per node tried whose
/// weight is not 0, then one `residual` or, after a leaf, `sample`. Source: Weng et al. 2025 (traversal
/// verification), on one path Sun et al. 2024 (block verification).
struct Traversal {
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Traversal", tree);
    out.clear();
    const std::span<detail::NodeState> node_states = target.node_states(tree);
    const auto state = [&](NodeId node) -> detail::NodeState& {
      return node_states[static_cast<std::size_t>(node)];
    };

    // The residual of p after `owner`, once one of its children was rejected.
    detail::Residual* left = nullptr;
    NodeId owner = kNoParent;
    const auto left_after = [&](NodeId node) -> detail::Residual& {
      if (owner == node) return *left;
      left = &target.residual(state(node).distribution);
      tree.children(node, [&](NodeId c) {
        if (c == state(node).next_child) return false;  // not verified yet
        if (state(c).step.node == c) left->redo(tree, state(c).step);
        return true;
      });
      owner = node;
      return *left;
    };
    const auto enter = [&](NodeId node, double weight) {
      state(node) = {.distribution = {}, .weight = weight, .next_child = tree.first_child(node), .step = {}};
    };
    const auto reject = [&](NodeId parent, NodeId child) {
      detail::Residual& rest = left_after(parent);
      double& weight = state(parent).weight;
      const double kept = rest.reject(tree, child, weight);
      if (kept > 0) state(child).step = rest.last_step();
      weight = kept > 0 ? kept / (kept + (1 - weight)) : 0;
    };

    // Whether `node` is accepted after all its children were tried and rejected, `last` being the last. Its
    // weight with that rejection is at most its weight before, so a uniform draw above the latter needs no
    // row.
    const auto stays = [&](NodeId node, NodeId last) {
      if (node != 0 && !rng.accept(state(node).weight, tree.accept_key(node))) return false;
      if (last == kNoParent) return true;
      reject(node, last);
      return node == 0 || rng.accept(state(node).weight, tree.accept_key(node));
    };

    // `last`: the child of `at` that was tried and whose rejection is not recorded yet
    NodeId at = 0, last = kNoParent;
    enter(0, 1);
    for (;;) {
      detail::NodeState& here = state(at);
      const NodeId child = here.next_child;
      if (child != kNoParent) {
        if (last != kNoParent) reject(at, last);
        const bool first = !here.has_distribution;
        if (first) here.distribution = target[at], here.has_distribution = true;
        const Token token = tree.token(child);
        const double target_prob = first ? here.distribution(token) : left_after(at).prob(token);
        enter(child, std::min(1.0, here.weight * target_prob / tree.draft_prob(child, token)));
        here.next_child = tree.next_sibling(child);
        const bool possible = state(child).weight > 0;
        at = possible ? child : at;
        last = possible ? kNoParent : child;
      } else if (stays(at, last)) {
        break;
      } else {
        last = at;
        at = tree.parent(at);
      }
    }

    out.accepted.clear();
    for (NodeId n = at; n != kNoParent; n = tree.parent(n)) out.accepted.push_back(n);
    std::reverse(out.accepted.begin(), out.accepted.end());
    if (tree.first_child(at) == kNoParent)
      out.next_token = target.sample(target[at], tree.sample_key(at), rng);
    else
      out.next_token = rng.draw(left_after(at).measured(), tree.residual_key(at));
  }
};

}  // namespace specula
