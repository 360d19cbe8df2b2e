// SPDX-License-Identifier: MIT
// SPECULA_HD: compiles one function for the CPU and for CUDA devices. C++17.
#pragma once

#ifdef __CUDACC__
/// Before a function of both the CPU and CUDA devices.
#define SPECULA_HD __host__ __device__ __forceinline__
#else
#define SPECULA_HD inline
#endif
#ifdef __CUDA_ARCH__
/// Before a loop in device code: unrolls it completely.
#define SPECULA_UNROLL _Pragma("unroll")
/// Before a loop in device code: does not unroll it.
#define SPECULA_NO_UNROLL _Pragma("unroll 1")
#else
#define SPECULA_UNROLL
#define SPECULA_NO_UNROLL
#endif
