// Rejection with drafts of other forms.
#include <specula/cuda/device/verify_rejection.cuh>

#include "verification.cuh"

namespace specula_bench {

template <class Draft>
cudaError_t DraftKernels<Draft>::plan(device::VerifyPlan* plan, const device::VerifyCapacity& capacity,
                                      int device) {
  return device::make_rejection_plan<float, Draft>(plan, capacity, device);
}
template <class Draft>
cudaError_t DraftKernels<Draft>::run(const device::VerifyPlan& plan, const device::Trees& trees,
                                     const device::TargetRows<float>& target, const Draft& draft,
                                     const device::Verdicts& out, cudaStream_t stream) {
  return device::verify_rejection(plan, trees, target, draft, out, stream);
}

template struct DraftKernels<device::ChosenDraft>;
template struct DraftKernels<device::ProbsDraft>;
template struct DraftKernels<device::SparseDraft>;

}  // namespace specula_bench
