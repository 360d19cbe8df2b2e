// Traversal verification on the device: from the leaves to the root. On one path it is block verification.
#pragma once

#include "specula/cuda/device/verify.cuh"
#include "specula/rules/traversal.hpp"

namespace specula {
namespace cuda {
namespace detail {

struct TraversalRule {
  static constexpr bool kReadsDistributions = true, kDraws = false, kJudges = true;
  static constexpr int kLeastRows = least_rows(false, true);

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::traversal(verifier);
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

/// Rejects a path only after its end was tried: specula::Traversal, with the same uniform draws (Weng et al.
/// 2025). Cost: one read of a row for each inner node on the way to the first accepted leaf, in a chain of
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
