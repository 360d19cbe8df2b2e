// SPDX-License-Identifier: MIT
// A bf16 matrix product of cuBLAS on random data: the speed of the tensor cores. A separate program, because
// cuBLAS may be missing.
//
//   gemm ceilings [--out FILE]
#include <cublas_v2.h>

#include <cstdio>

#include "program.cuh"

namespace specula_bench {
namespace {

void measure(const Options&, Report& report) {
  const Stream stream;
  cublasHandle_t handle = nullptr;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cublasCreate failed");
  if (cublasSetStream(handle, stream) != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error("cublasSetStream failed");
  DeviceArray<unsigned char> workspace(std::size_t{64} << 20);  // so that it may be captured
  if (cublasSetWorkspace(handle, workspace.data(), workspace.size()) != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error("cublasSetWorkspace failed");
  for (const int n : {4096, 8192})
    report.part(std::to_string(n), [&](Json& json) {
      const auto size = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
      DeviceArray<specula::cuda::BFloat16> a(size), b(size), c(size);
      fill_normal(a.data(), nullptr, static_cast<std::int64_t>(size), 1, 1);
      fill_normal(b.data(), nullptr, static_cast<std::int64_t>(size), 2, 1);
      const float one = 1, zero = 0;
      const Twice us = time_twice(
          stream, 1,
          [&](int, cudaStream_t) {
            const cublasStatus_t status = cublasGemmEx(
                handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a.data(), CUDA_R_16BF, n, b.data(),
                CUDA_R_16BF, n, &zero, c.data(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
            return status == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
          },
          4, 9);
      const double flops = 2.0 * n * n * n;
      json.field("tflops_first", flops / us.first * 1e-6).field("tflops_second", flops / us.second * 1e-6);
      json.field("spread", us.spread());
      std::printf("| bf16 product of cuBLAS, %d^3, TFLOP/s | %.4g | spread %.2f%% |\n", n,
                  flops / us.slower() * 1e-6, 100 * us.spread());
    });
  cublasDestroy(handle);
}

}  // namespace
}  // namespace specula_bench

int main(int argc, char** argv) {
  return specula_bench::run_section(argc, argv, {{"ceilings", specula_bench::measure}});
}
