// Greedy verification on the device: a guess stays iff it is the target's first largest logit.
#pragma once

#include "verify.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The walk of rules that emit a token and go on while it was guessed: token_after(node, depth).
template <class Walk, class TokenAfter>
SPECULA_HD void follow(Walk& walk, TokenAfter token_after) {
  int depth = 0;
  for (NodeId at = 0; at != kNoParent && walk.ok(); ++depth) {
    const Token next = token_after(at, depth);
    if (!walk.ok()) break;
    walk.put(depth, at, next);
    NodeId child = walk.next_child(at, at);
    while (child != kNoParent && walk.token(child) != next) child = walk.next_child(at, child);
    at = child;
  }
  walk.finish(depth);
}

struct GreedyRule {
  template <class Walk>
  SPECULA_HD static void (verify)(Walk& walk) {
    follow(walk, [&](NodeId at, int) { return walk.argmax(at); });
  }
};

}  // namespace detail

#ifdef __CUDACC__

/// See verify_rejection's. Sampling parameters change nothing here, but bad ones are refused there, too.
template <class Element>
cudaError_t make_greedy_plan(VerifyPlan* plan, const VerifyCapacity& capacity, int device) {
  return detail::make_verify_plan<detail::GreedyRule, Element, ChosenDraft>(plan, capacity, device);
}

/// The text of greedy decoding, whatever the target's parameters say and however the proposals were drawn, as
/// specula::Greedy. Coins: none. Cost: one read of a row for each node of the accepted path.
template <class Element>
cudaError_t verify_greedy(const VerifyPlan& plan, const Trees& trees, const TargetRows<Element>& target,
                          const Verdicts& out, cudaStream_t stream) {
  return detail::verify<detail::GreedyRule>(plan, trees, target, ChosenDraft{}, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
