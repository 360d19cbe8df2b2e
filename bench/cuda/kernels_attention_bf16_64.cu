// SPDX-License-Identifier: MIT
#include "kernels_attention.cuh"

template specula_bench::AttentionKernels<specula::cuda::BFloat16, 64>
specula_bench::mma_kernels<specula::cuda::BFloat16, 64>();
template specula_bench::AttentionKernels<specula::cuda::BFloat16, 64>
specula_bench::wgmma_kernels<specula::cuda::BFloat16, 64>();
