#include <specula/cuda/device/verify_greedy.cuh>
#include <specula/cuda/device/verify_rejection.cuh>
#include <specula/cuda/device/verify_sample_and_match.cuh>

using namespace specula::cuda;

cudaError_t use(VerifyPlan* plan, const VerifyCapacity& capacity, const Trees& trees, const TargetRows<BFloat16>& target,
                const Verdicts& out) {
  cudaError_t error = make_greedy_plan<BFloat16>(plan, capacity, 0);
  if (!error) error = verify_greedy(*plan, trees, target, out, nullptr);
  if (!error) error = make_sample_and_match_plan<BFloat16>(plan, capacity, 0);
  if (!error) error = verify_sample_and_match(*plan, trees, target, out, nullptr);
  if (!error) error = make_rejection_plan<BFloat16, ChosenDraft>(plan, capacity, 0);
  return error ? error : verify_rejection(*plan, trees, target, ChosenDraft{}, out, nullptr);
}
