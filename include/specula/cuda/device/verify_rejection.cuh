// Speculative rejection sampling on the device: token-level, recursive over siblings.
#pragma once

#include "specula/cuda/device/verify.cuh"
#include "specula/rules/rejection.hpp"

namespace specula {
namespace cuda {
namespace detail {

struct RejectionRule {
  static constexpr bool kReadsDistributions = true, kDraws = false, kJudges = true;
  static constexpr int kLeastRows = least_rows(false, false);

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::rejection(verifier);
  }
};

}  // namespace detail

template <class Element, class Draft>
using RejectionPlan = VerifyPlan<detail::RejectionRule, Element, Draft>;

#ifdef __CUDACC__

/// A plan for batches of up to the given sizes. Outside of captures, for `device`, which is the current one.
/// Errors: cudaErrorInvalidValue where a capacity is below 1, or a block has less shared memory than needed
/// (at most 8 KB per warp, 16 bytes per 512 tokens of each row that is read in one pass, 124 bytes per node);
/// cudaErrorInvalidDevice where another device is the current one; else the driver's error.
template <class Element, class Draft>
cudaError_t make_rejection_plan(RejectionPlan<Element, Draft>* plan, const VerifyCapacity& capacity,
                                int device) {
  return detail::make_verify_plan(plan, capacity, device);
}

/// Tries children in the order in which they were drawn: accepts x with probability min(1, p(x) / q(x)), else
/// p <- norm((p - q)+); after all are rejected, draws from the residual. As specula::Rejection, with the same
/// uniform draws: on one path token-level speculative sampling (Leviathan et al. 2023; Chen et al. 2023),
/// over siblings SpecInfer's and Sequoia's. Cost: one read of a row for each node of the accepted path, in a
/// chain of some more; a rejection reads the target's row again, which is usually still cached, and the
/// draft's. One launch; nothing is allocated. Errors: cudaErrorInvalidValue for a plan that was not made and
/// for null or misaligned arrays; else the launch's error.
template <class Element, class Draft>
cudaError_t verify_rejection(const RejectionPlan<Element, Draft>& plan, const Trees& trees,
                             const TargetRows<Element>& target, const Draft& draft, const VerifyResults& out,
                             cudaStream_t stream) {
  return (detail::verify)(plan, trees, target, draft, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
