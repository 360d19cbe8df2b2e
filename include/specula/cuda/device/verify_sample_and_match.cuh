// Sample-and-match on the device: draw from the target; go on while a guess is what was drawn.
#pragma once

#include "verify_greedy.cuh"

namespace specula {
namespace cuda {
namespace detail {

struct SampleAndMatchRule {
  template <class Walk>
  SPECULA_HD static void (verify)(Walk& walk) {
    follow(walk, [&](NodeId at, int depth) {
      const RowStats law = walk.law(at);
      return walk.ok() ? walk.sample(at, law, depth) : kNoToken;
    });
  }
};

}  // namespace detail

#ifdef __CUDACC__

template <class Element>
cudaError_t make_sample_and_match_plan(VerifyPlan* plan, const VerifyCapacity& capacity, int device) {
  return detail::make_verify_plan<detail::SampleAndMatchRule, Element, ChosenDraft>(plan, capacity, device);
}

/// The target's law for every proposal, as specula::SampleAndMatch: it never looks at q, and for
/// deterministic proposals no rule accepts more. Same seed, same text as plain sampling with sample(). Cost:
/// one read of a row for each node of the accepted path. Coins: one `sample` a token.
template <class Element>
cudaError_t verify_sample_and_match(const VerifyPlan& plan, const Trees& trees,
                                    const TargetRows<Element>& target, const Verdicts& out,
                                    cudaStream_t stream) {
  return detail::verify<detail::SampleAndMatchRule>(plan, trees, target, ChosenDraft{}, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
