// Sample-and-match verification on the device: a draft token is accepted iff it equals the target's sample.
#pragma once

#include "specula/cuda/device/verify_greedy.cuh"
#include "specula/rules/matching.hpp"

namespace specula {
namespace cuda {
namespace detail {

struct SampleAndMatchRule {
  static constexpr bool kReadsDistributions = true, kDraws = true, kJudges = false;
  static constexpr int kLeastRows = least_rows(false, false);

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::sample_and_match(verifier);
  }
};

}  // namespace detail

template <class Element>
using SampleAndMatchPlan = MatchingPlan<detail::SampleAndMatchRule, Element>;

#ifdef __CUDACC__

/// See verify_rejection's.
template <class Element>
cudaError_t make_sample_and_match_plan(SampleAndMatchPlan<Element>* plan, const VerifyCapacity& capacity,
                                       int device) {
  return detail::make_matching_plan(plan, capacity, device);
}

/// Samples from the target for every proposal, as specula::SampleAndMatch: it never reads q, and for
/// deterministic proposals no rule accepts more. With the same seed the text is that of plain sampling with
/// sample(). Cost and errors as verify_greedy(); uniform draws: one `sample` per token.
template <class Element>
cudaError_t verify_sample_and_match(const SampleAndMatchPlan<Element>& plan, const Trees& trees,
                                    const TargetRows<Element>& target, const VerifyResults& out,
                                    const Workspace& workspace, cudaStream_t stream) {
  return detail::verify_matching(plan, trees, target, out, workspace, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
