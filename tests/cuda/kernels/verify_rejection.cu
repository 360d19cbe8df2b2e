#include <specula/cuda/device/verify_rejection.cuh>

using namespace specula::cuda;

cudaError_t use(VerifyPlan* plan, const VerifyCapacity& capacity, const Trees& trees, const TargetRows<BFloat16>& target,
                const LogitsDraft<BFloat16>& draft, const Verdicts& out) {
  const cudaError_t error = make_rejection_plan<BFloat16, LogitsDraft<BFloat16>>(plan, capacity, 0);
  return error ? error : verify_rejection(*plan, trees, target, draft, out, nullptr);
}
