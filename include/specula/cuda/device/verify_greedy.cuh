// Greedy verification on the device: a draft token is accepted iff it is the target's first largest logit.
#pragma once

#include "specula/cuda/device/verify_nodes.cuh"
#include "specula/rules/matching.hpp"

namespace specula {
namespace cuda {
namespace detail {

struct GreedyRule {
  static constexpr bool kReadsDistributions = false, kDraws = false, kJudges = false;
  static constexpr int kLeastRows = least_rows(true, false);

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::greedy(verifier);
  }
};

}  // namespace detail

template <class Element>
using GreedyPlan = MatchingPlan<detail::GreedyRule, Element>;

#ifdef __CUDACC__

/// See verify_rejection's. Sampling parameters change nothing here, but bad ones are refused there, too.
template <class Element>
cudaError_t make_greedy_plan(GreedyPlan<Element>* plan, const VerifyCapacity& capacity, int device) {
  return detail::make_matching_plan(plan, capacity, device);
}

/// The text of greedy decoding, for any sampling parameters and any proposals, as specula::Greedy. Uniform
/// draws: none. Cost: one read of a row for each node of the accepted path; of all nodes where the plan says
/// so, whose workspace is then needed. Errors: cudaErrorInvalidValue for null or misaligned arrays, and for a
/// workspace that is too small; else the launch's error.
template <class Element>
cudaError_t verify_greedy(const GreedyPlan<Element>& plan, const Trees& trees,
                          const TargetRows<Element>& target, const VerifyResults& out,
                          const Workspace& workspace, cudaStream_t stream) {
  return detail::verify_matching(plan, trees, target, out, workspace, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
