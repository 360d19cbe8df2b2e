// Rejection sampling on the device, recursively over siblings.
#pragma once

#include "verify.cuh"

namespace specula {
namespace cuda {
namespace detail {

struct RejectionRule {
  template <class Walk>
  SPECULA_HD static void (verify)(Walk& walk) {
    int depth = 0;
    for (NodeId at = 0; at != kNoParent && walk.ok(); ++depth) {
      const NodeId from = at;
      const RowStats law = walk.law(from);
      if (!walk.ok()) break;
      bool rejected = false;
      at = kNoParent;
      for (NodeId c = walk.next_child(from, from); c != kNoParent; c = walk.next_child(from, c)) {
        const Token token = walk.token(c);
        const double target_prob = rejected ? walk.residual_prob(token) : walk.target_prob(from, law, token);
        if (walk.accept(target_prob / walk.draft_prob(c, token), c, depth + 1)) {
          at = c;
          break;
        }
        if (!rejected) walk.start_residual(from, law, 0);
        rejected = true;
        walk.reject(1);
      }
      if (!walk.ok()) break;
      if (at != kNoParent)
        walk.put(depth, from, walk.token(at));
      else
        walk.put(depth, from, rejected ? walk.sample_residual(depth) : walk.sample(from, law, depth));
    }
    walk.finish(depth);
  }
};

}  // namespace detail

#ifdef __CUDACC__

/// A plan for batches of up to the given sizes. Outside of captures. Errors: cudaErrorInvalidValue where a
/// capacity is below 1, or a block has not the shared memory that it needs (about 16 bytes for 512 tokens of
/// the vocabulary and 96 a node); else what the driver says.
template <class Element, class Draft>
cudaError_t make_rejection_plan(VerifyPlan* plan, const VerifyCapacity& capacity, int device) {
  return detail::make_verify_plan<detail::RejectionRule, Element, Draft>(plan, capacity, device);
}

/// Children in the order of their drawing: accept x with probability min(1, p(x) / q(x)), else p <- norm((p -
/// q)+) and on to the next; when none stays, draw from what is left of p. As specula::Rejection, with the
/// same coins: on one path token-level speculative sampling (Leviathan et al. 2023; Chen et al. 2023), over
/// siblings SpecInfer's and Sequoia's. Cost: one read of a row for each node of the accepted path; a
/// rejection reads the target's row again, which the cache should still hold, and the draft's. One launch; nothing is allocated.
template <class Element, class Draft>
cudaError_t verify_rejection(const VerifyPlan& plan, const Trees& trees, const TargetRows<Element>& target,
                             const Draft& draft, const Verdicts& out, cudaStream_t stream) {
  return detail::verify<detail::RejectionRule>(plan, trees, target, draft, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
