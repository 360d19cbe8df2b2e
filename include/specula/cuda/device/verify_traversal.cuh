// Traversal verification on the device: from the leaves to the root. Block verification is its case of one
// path.
#pragma once

#include "specula/cuda/device/verify.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// specula::Traversal, step by step; see there for what the steps are.
struct TraversalRule {
  static constexpr bool kReadsDistributions = true, kDraws = false, kJudges = true;
  static constexpr int kLeastRows = least_rows(false, true);

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    NodeId owner = kNoParent;  // whose residual the verifier holds
    int depth = 0;             // of `at`
    const auto enter = [&](NodeId node, double weight) {
      verifier.change(node, [&](NodeState& n) {
        n.weight = weight;
        n.keep = 0;
      });
    };
    // What is left of p after `node` before its child `next` is judged (kNoParent: behind all).
    const auto left_after = [&](NodeId node, NodeId next) {
      if (owner == node) return;
      int judged = 0;
      for (NodeId c = verifier.next_child(node, node); c != next && c != kNoParent;
           c = verifier.next_child(node, c))
        ++judged;
      verifier.start_residual(node, verifier.state(node).distribution, judged);
      owner = node;
    };
    const auto reject = [&](NodeId parent, NodeId child) {
      left_after(parent, child);
      const double weight = verifier.state(parent).weight, kept = verifier.reject(weight);
      const double after = kept > 0 ? kept / (kept + (1 - weight)) : 0;
      verifier.change(parent, [&](NodeState& n) { n.weight = after; });
    };
    NodeId at = 0, from = 0;      // the children of `at` from `from` on are not tried yet
    NodeId last = kNoParent;      // the child of `at` that was tried and is not rejected in its books yet
    verifier.distribution(0, 0);  // before it is needed: with it the proposal is looked at
    enter(0, 1);
    while (verifier.ok()) {
      const NodeId child = verifier.next_child(at, from);
      // Behind its children a node is accepted by its weight, or given up. What the weight becomes with the
      // last rejection is no more than it was, so a uniform draw that is above already needs no row.
      const auto goes = [&] {
        return child == kNoParent && at != 0 && !verifier.accept(verifier.state(at).weight, at, depth);
      };
      bool up = goes();
      if (!up && last != kNoParent) {
        reject(at, last);
        up = goes();
      }
      if (up) {
        last = from = at;
        at = verifier.parent(at);
        --depth;
        continue;
      }
      const bool first = from == at;
      if (first) {
        const RowStats& distribution = verifier.distribution(at, depth);
        verifier.change(at, [&](NodeState& n) { n.distribution = distribution; });
        if (!verifier.ok()) break;
      }
      if (child == kNoParent) break;
      if (!first) left_after(at, child);
      const double target_prob = first ? verifier.target_prob(verifier.state(at).distribution, child)
                                       : verifier.residual_prob(child);
      const double ratio = verifier.state(at).weight * target_prob / verifier.draft_prob(child);
      enter(child, ratio >= 1 ? 1.0 : ratio > 0 ? ratio : 0.0);  // 0 / 0 is 0
      if (verifier.state(child).weight > 0) {
        at = from = child;
        ++depth;
        last = kNoParent;
      } else {
        from = last = child;
      }
    }
    if (!verifier.ok()) {
      verifier.finish(0);
      return;
    }
    Token next = kNoToken;
    if (verifier.next_child(at, at) == kNoParent) {
      next = verifier.sample(at, verifier.state(at).distribution, depth);
    } else {
      left_after(at, kNoParent);
      next = verifier.sample_residual(depth);
    }
    NodeId node = at;
    for (int i = depth; i >= 0 && verifier.ok(); --i) {
      verifier.put(i, node, next);
      next = verifier.token(node);
      node = verifier.parent(node);
    }
    verifier.finish(depth + 1);
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

/// No path is given up before its end was tried: specula::Traversal, with the same uniform draws (Weng et al.
/// 2025). Cost: one read of a row for each inner node on the way to the first leaf accepted, of a chain of
/// all; a rejection reads its parent's row and the draft's again (chosen nodes: one logit). Errors as
/// verify_rejection().
template <class Element, class Draft>
cudaError_t verify_traversal(const TraversalPlan<Element, Draft>& plan, const Trees& trees,
                             const TargetRows<Element>& target, const Draft& draft, const VerifyResults& out,
                             cudaStream_t stream) {
  return (detail::verify)(plan, trees, target, draft, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
