// SPDX-License-Identifier: MIT
#include "kernels_drafts.cuh"

template struct specula_bench::DraftKernels<specula::cuda::ProbsDraft>;
