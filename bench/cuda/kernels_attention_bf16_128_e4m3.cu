// SPDX-License-Identifier: MIT
#include "kernels_attention.cuh"

namespace sc = specula::cuda;

template specula_bench::AttentionKernels<sc::BFloat16, 128, sc::Float8E4M3>
specula_bench::mma_kernels<sc::BFloat16, 128, sc::Float8E4M3>();
template specula_bench::AttentionKernels<sc::BFloat16, 128, sc::Float8E4M3>
specula_bench::wgmma_kernels<sc::BFloat16, 128, sc::Float8E4M3>();
