// SPDX-License-Identifier: MIT
#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/api/verify_matching.cuh>

using namespace specula::cuda;

struct Plans {
  GreedyPlan<BFloat16> greedy;
  SampleAndMatchPlan<BFloat16> match;
  RejectionPlan<BFloat16, ChosenDraft> rejection;
};

cudaError_t use(Plans* plans, const VerifyCapacity& capacity, const Trees& trees,
                const TargetRows<BFloat16>& target, const VerifyResults& out, const Workspace& workspace) {
  cudaError_t error = make_verify_plan(&plans->greedy, capacity, 0);
  if (!error) error = verify_trees(plans->greedy, trees, target, out, workspace, nullptr);
  if (!error) error = make_verify_plan(&plans->match, capacity, 0);
  if (!error) error = verify_trees(plans->match, trees, target, out, workspace, nullptr);
  if (!error) error = make_verify_plan(&plans->rejection, capacity, 0);
  return error ? error : verify_trees(plans->rejection, trees, target, ChosenDraft{}, out, nullptr);
}
