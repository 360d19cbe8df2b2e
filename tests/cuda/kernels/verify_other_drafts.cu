// SPDX-License-Identifier: MIT
#include <specula/cuda/api/verify.cuh>

using namespace specula::cuda;

cudaError_t use(RejectionPlan<float, ProbsDraft>* dense, RejectionPlan<float, SparseDraft>* few,
                const VerifyCapacity& capacity, const Trees& trees, const TargetRows<float>& target,
                const ProbsDraft& probs, const SparseDraft& sparse, const VerifyResults& out) {
  cudaError_t error = make_verify_plan(dense, capacity, 0);
  if (!error) error = verify_trees(*dense, trees, target, probs, out, nullptr);
  if (!error) error = make_verify_plan(few, capacity, 0);
  return error ? error : verify_trees(*few, trees, target, sparse, out, nullptr);
}
