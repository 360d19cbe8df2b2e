// SPDX-License-Identifier: MIT
#include "kernels_attention.cuh"

template specula_bench::AttentionKernels<specula::cuda::Half, 128>
specula_bench::mma_kernels<specula::cuda::Half, 128>();
template specula_bench::AttentionKernels<specula::cuda::Half, 128>
specula_bench::wgmma_kernels<specula::cuda::Half, 128>();
