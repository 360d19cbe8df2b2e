// SPDX-License-Identifier: MIT
// Greedy and sample-and-match.
#include <specula/cuda/api/verify_matching.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> greedy_kernels() {
  return matching_kernels<device::detail::GreedyRule, Element>();
}
template <class Element>
RuleKernels<Element> sample_and_match_kernels() {
  return matching_kernels<device::detail::SampleAndMatchRule, Element>();
}

SPECULA_FOR_ELEMENTS(greedy_kernels);
SPECULA_FOR_ELEMENTS(sample_and_match_kernels);

}  // namespace specula_bench
