// Sample-and-match on the device: draw from the target; go on while a guess is what was drawn.
#pragma once

#include "verify_greedy.cuh"

namespace specula {
namespace cuda {
namespace detail {

struct SampleAndMatchRule {
  static constexpr bool kLaws = true, kDraws = true, kJudges = false;
  static constexpr int kLeastRows = least_rows(false, false);

  template <class Walk>
  SPECULA_HD static void(verify)(Walk& walk) {
    follow(walk, [&](NodeId at, int depth) { return walk.drawn(at, depth); });
  }
};

}  // namespace detail

template <class Element>
using SampleAndMatchPlan = FollowPlan<detail::SampleAndMatchRule, Element>;

#ifdef __CUDACC__

/// See verify_rejection's.
template <class Element>
cudaError_t make_sample_and_match_plan(SampleAndMatchPlan<Element>* plan, const VerifyCapacity& capacity,
                                       int device) {
  return detail::make_follow_plan(plan, capacity, device);
}

/// The target's law for every proposal, as specula::SampleAndMatch: it never looks at q, and for
/// deterministic proposals no rule accepts more. Same seed, same text as plain sampling with sample(). Cost
/// and errors as verify_greedy(); coins: one `sample` a token.
template <class Element>
cudaError_t verify_sample_and_match(const SampleAndMatchPlan<Element>& plan, const Trees& trees,
                                    const TargetRows<Element>& target, const Verdicts& out,
                                    const Workspace& workspace, cudaStream_t stream) {
  return detail::verify_following(plan, trees, target, out, workspace, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
