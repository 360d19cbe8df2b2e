#include "kernels_attention.cuh"

template struct specula_bench::AttentionKernels<specula::cuda::Half, 128>;
