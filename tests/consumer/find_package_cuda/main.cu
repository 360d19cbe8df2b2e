#include <specula/cuda/device/compact_kv.cuh>
#include <specula/cuda/device/verify_greedy.cuh>

int main() { return specula::cuda::VerifyPlan{}.cluster == 1 ? 0 : 1; }
