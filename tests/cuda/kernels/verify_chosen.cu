#include <specula/cuda/device/verify_greedy.cuh>
#include <specula/cuda/device/verify_rejection.cuh>
#include <specula/cuda/device/verify_sample_and_match.cuh>

using namespace specula::cuda;

struct Plans {
  GreedyPlan<BFloat16> greedy;
  SampleAndMatchPlan<BFloat16> match;
  RejectionPlan<BFloat16, ChosenDraft> rejection;
};

cudaError_t use(Plans* plans, const VerifyCapacity& capacity, const Trees& trees,
                const TargetRows<BFloat16>& target, const VerifyResults& out, const Workspace& workspace) {
  cudaError_t error = make_greedy_plan(&plans->greedy, capacity, 0);
  if (!error) error = verify_greedy(plans->greedy, trees, target, out, workspace, nullptr);
  if (!error) error = make_sample_and_match_plan(&plans->match, capacity, 0);
  if (!error) error = verify_sample_and_match(plans->match, trees, target, out, workspace, nullptr);
  if (!error) error = make_rejection_plan(&plans->rejection, capacity, 0);
  return error ? error : verify_rejection(plans->rejection, trees, target, ChosenDraft{}, out, nullptr);
}
