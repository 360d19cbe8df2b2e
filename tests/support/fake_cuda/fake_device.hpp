// SPDX-License-Identifier: MIT
// CudaDevice over the fake CUDA runtime and cuBLASLt: g++ and clang compile what nvcc does.
#pragma once

#include <cublasLt.h>  // the fake one

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"  // of kernels for Hopper alone
#pragma GCC diagnostic ignored "-Wshadow"            // of shared memory, which is a global here
#include <specula/cuda/model/compile_cuda_device.hpp>
#pragma GCC diagnostic pop

// Shared memory of kernels, which do not run here, by the names of their declarations.
unsigned char fake_shared_memory[3] asm("_ZN7specula4cuda6detail13shared_memoryE");
unsigned char fake_wgmma_memory[3] asm("_ZN7specula4cuda6detail12wgmma_memoryE");
unsigned char fake_compact_memory[3] asm("_ZN7specula4cuda6detail6sharedE");
