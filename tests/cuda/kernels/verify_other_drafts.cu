#include <specula/cuda/device/verify_rejection.cuh>

using namespace specula::cuda;

cudaError_t use(VerifyPlan* plan, const VerifyCapacity& capacity, const Trees& trees, const TargetRows<float>& target,
                const ProbsDraft& probs, const SparseDraft& sparse, const Verdicts& out) {
  cudaError_t error = make_rejection_plan<float, ProbsDraft>(plan, capacity, 0);
  if (!error) error = verify_rejection(*plan, trees, target, probs, out, nullptr);
  if (!error) error = make_rejection_plan<float, SparseDraft>(plan, capacity, 0);
  return error ? error : verify_rejection(*plan, trees, target, sparse, out, nullptr);
}
