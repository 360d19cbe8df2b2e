// SPDX-License-Identifier: MIT
#include <specula/cuda/api/compact_kv.cuh>
#include <specula/cuda/api/verify_matching.cuh>

int main() { return specula::cuda::GreedyPlan<specula::cuda::BFloat16>{}.verifier.scan.cluster == 1 ? 0 : 1; }
