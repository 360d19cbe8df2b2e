// Traversal verification on the device: from the leaves to the root. Block verification is its case of one
// path.
#pragma once

#include "verify.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// specula::Traversal, step by step; see there for what the steps are.
struct TraversalRule {
  static constexpr bool kLaws = true, kDraws = false, kJudges = true;
  static constexpr int kLeastRows = least_rows(false, true);

  template <class Walk>
  SPECULA_HD static void(verify)(Walk& walk) {
    NodeId owner = kNoParent;  // whose residual the walk holds
    int depth = 0;             // of `at`
    const auto enter = [&](NodeId node, double weight) {
      walk.change(node, [&](NodeNotes& n) {
        n.weight = weight;
        n.keep = 0;
      });
    };
    // What is left of p after `node` before its child `next` is judged (kNoParent: behind all).
    const auto left_after = [&](NodeId node, NodeId next) {
      if (owner == node) return;
      int judged = 0;
      for (NodeId c = walk.next_child(node, node); c != next && c != kNoParent; c = walk.next_child(node, c))
        ++judged;
      walk.start_residual(node, walk.notes(node).law, judged);
      owner = node;
    };
    const auto reject = [&](NodeId parent, NodeId child) {
      left_after(parent, child);
      const double weight = walk.notes(parent).weight, kept = walk.reject(weight);
      const double after = kept > 0 ? kept / (kept + (1 - weight)) : 0;
      walk.change(parent, [&](NodeNotes& n) { n.weight = after; });
    };
    NodeId at = 0, from = 0;  // the children of `at` from `from` on are not tried yet
    NodeId last = kNoParent;  // the child of `at` that was tried and is not rejected in its books yet
    walk.law(0, 0);           // before it is needed: with it the proposal is looked at
    enter(0, 1);
    while (walk.ok()) {
      const NodeId child = walk.next_child(at, from);
      // Behind its children a node is accepted by its weight, or given up. What the weight becomes with the
      // last rejection is no more than it was, so a coin that is above already needs no row.
      const auto goes = [&] {
        return child == kNoParent && at != 0 && !walk.accept(walk.notes(at).weight, at, depth);
      };
      bool up = goes();
      if (!up && last != kNoParent) {
        reject(at, last);
        up = goes();
      }
      if (up) {
        last = from = at;
        at = walk.parent(at);
        --depth;
        continue;
      }
      const bool first = from == at;
      if (first) {
        const RowStats& law = walk.law(at, depth);
        walk.change(at, [&](NodeNotes& n) { n.law = law; });
        if (!walk.ok()) break;
      }
      if (child == kNoParent) break;
      if (!first) left_after(at, child);
      const double target_prob =
          first ? walk.target_prob(walk.notes(at).law, child) : walk.residual_prob(child);
      const double ratio = walk.notes(at).weight * target_prob / walk.draft_prob(child);
      enter(child, ratio >= 1 ? 1.0 : ratio > 0 ? ratio : 0.0);  // 0 / 0 is 0
      if (walk.notes(child).weight > 0) {
        at = from = child;
        ++depth;
        last = kNoParent;
      } else {
        from = last = child;
      }
    }
    if (!walk.ok()) {
      walk.finish(0);
      return;
    }
    Token next = kNoToken;
    if (walk.next_child(at, at) == kNoParent) {
      next = walk.sample(at, walk.notes(at).law, depth);
    } else {
      left_after(at, kNoParent);
      next = walk.sample_residual(depth);
    }
    NodeId node = at;
    for (int i = depth; i >= 0 && walk.ok(); --i) {
      walk.put(i, node, next);
      next = walk.token(node);
      node = walk.parent(node);
    }
    walk.finish(depth + 1);
  }
};

}  // namespace detail

template <class Element, class Draft>
using TraversalPlan = VerifyPlan<detail::TraversalRule, Element, Draft>;

#ifdef __CUDACC__

/// See verify_rejection's.
template <class Element, class Draft>
cudaError_t make_traversal_plan(TraversalPlan<Element, Draft>* plan, const VerifyCapacity& capacity,
                                int device) {
  return detail::make_verify_plan(plan, capacity, device);
}

/// No path is given up before its end was tried: specula::Traversal, with the same coins (Weng et al. 2025).
/// Cost: one read of a row for each inner node on the way to the first leaf accepted, of a chain of all; a
/// rejection reads its parent's row and the draft's again (chosen nodes: one logit). Errors as
/// verify_rejection().
template <class Element, class Draft>
cudaError_t verify_traversal(const TraversalPlan<Element, Draft>& plan, const Trees& trees,
                             const TargetRows<Element>& target, const Draft& draft, const Verdicts& out,
                             cudaStream_t stream) {
  return (detail::verify)(plan, trees, target, draft, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
