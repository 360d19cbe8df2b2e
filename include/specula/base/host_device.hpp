// SPECULA_HD: compiles one function for the CPU and for CUDA devices. C++17.
#pragma once

#ifdef __CUDACC__
#define SPECULA_HD __host__ __device__ __forceinline__
#else
#define SPECULA_HD inline
#endif
// Before a loop in device code: unrolls it completely, or not at all.
#ifdef __CUDA_ARCH__
#define SPECULA_UNROLL _Pragma("unroll")
#define SPECULA_NO_UNROLL _Pragma("unroll 1")
#else
#define SPECULA_UNROLL
#define SPECULA_NO_UNROLL
#endif
