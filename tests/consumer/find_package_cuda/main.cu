#include <specula/cuda/device/compact_kv.cuh>
#include <specula/cuda/device/verify_matching.cuh>

int main() { return specula::cuda::GreedyPlan<specula::cuda::BFloat16>{}.verifier.scan.cluster == 1 ? 0 : 1; }
