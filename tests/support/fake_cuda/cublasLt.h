// SPDX-License-Identifier: MIT
// Fake cuBLASLt for tests of host code, beside the fake CUDA runtime: products of bfloat16 in float by loops,
// by algorithms of which each has a time, and may add in an order that depends on a row's place, or on the
// call.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): cuBLAS's names

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtMatmulDescAttributes_t { CUBLASLT_MATMUL_DESC_TRANSA = 3 };
enum cublasLtMatmulPreferenceAttributes_t { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 };
struct FakeDesc {
  cublasOperation_t a = CUBLAS_OP_N;
};
struct FakeLayout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t apart;
};
using cublasLtHandle_t = int*;
using cublasLtMatmulDesc_t = FakeDesc*;
using cublasLtMatrixLayout_t = FakeLayout*;
using cublasLtMatmulPreference_t = int*;
struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];  // the number of the algorithm
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
};

// NOLINTEND(readability-identifier-naming)

namespace specula_test {

struct FakeAlgorithm {
  double seconds;
  bool runs = true, by_place = false, by_call = false;
};
/// What there is, and what was asked.
struct FakeBlas {
  std::vector<FakeAlgorithm> algorithms{{1e-3}};
  int asked = 0, calls = 0, made = 0;
  static FakeBlas& now() {
    static FakeBlas blas;
    return blas;
  }
};

inline float fake_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}

}  // namespace specula_test

// NOLINTBEGIN(readability-identifier-naming)

inline const char* cublasLtGetStatusString(cublasStatus_t) { return "a status"; }
inline std::size_t cublasLtGetVersion() { return 130000; }
template <class T>
cublasStatus_t fake_make(T** out, const T& value) {
  *out = new T(value);
  return ++specula_test::FakeBlas::now().made, CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t fake_drop(T* p) {
  delete p;
  return --specula_test::FakeBlas::now().made, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) { return fake_make(out, 0); }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t p) { return fake_drop(p); }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t,
                                               cudaDataType_t) {
  return fake_make(out, FakeDesc{});
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t, const void* value,
                                                     std::size_t) {
  desc->a = *static_cast<const cublasOperation_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) { return fake_drop(p); }
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType_t type,
                                                 std::uint64_t rows, std::uint64_t cols, std::int64_t apart) {
  return fake_make(out, FakeLayout{type, rows, cols, apart});
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t p) { return fake_drop(p); }
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return fake_make(out, 0);
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return fake_drop(p); }
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                           cublasLtMatmulPreferenceAttributes_t, const void*,
                                                           std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatmulPreference_t, int most,
                                                     cublasLtMatmulHeuristicResult_t* out, int* count) {
  auto& blas = specula_test::FakeBlas::now();
  ++blas.asked;
  for (*count = 0; *count < most && *count < static_cast<int>(blas.algorithms.size()); ++*count)
    out[*count] = {{{static_cast<std::uint64_t>(*count)}}, 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                                              cublasLtMatmulHeuristicResult_t* out) {
  out->workspaceSize = 0;
  return algorithm->data[0] < specula_test::FakeBlas::now().algorithms.size() ? CUBLAS_STATUS_SUCCESS
                                                                              : CUBLAS_STATUS_INVALID_VALUE;
}
/// Column-major D = alpha A^T B + beta C, as the layouts say.
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                                     const void* a, cublasLtMatrixLayout_t a_is, const void* b,
                                     cublasLtMatrixLayout_t b_is, const void* beta, const void* c,
                                     cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_is,
                                     const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t,
                                     cudaStream_t) {
  auto& blas = specula_test::FakeBlas::now();
  const specula_test::FakeAlgorithm how = blas.algorithms[algorithm->data[0]];
  if (!how.runs) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc->a != CUBLAS_OP_T || a_is->rows != b_is->rows || a_is->cols != d_is->rows ||
      b_is->cols != d_is->cols || a_is->type != CUDA_R_16BF || b_is->type != CUDA_R_16BF ||
      d_is->type != CUDA_R_32F)
    return CUBLAS_STATUS_INVALID_VALUE;
  const FakeLayout of_a = *a_is, of_b = *b_is, of_d = *d_is;
  const float one = *static_cast<const float*>(alpha), before = *static_cast<const float*>(beta);
  specula_test::FakeCuda::now().enqueue([=, &blas] {
    specula_test::FakeCuda::now().clock += how.seconds;
    ++blas.calls;
    const auto *const x = static_cast<const std::uint16_t*>(a), *const y =
                                                                    static_cast<const std::uint16_t*>(b);
    for (std::uint64_t column = 0; column < of_d.cols; ++column)
      for (std::uint64_t row = 0; row < of_d.rows; ++row) {
        const bool backwards = (how.by_place && column % 8 == 7) || (how.by_call && blas.calls % 2 == 1);
        float sum = 0;
        for (std::uint64_t i = 0; i < of_a.rows; ++i) {
          const std::uint64_t k = backwards ? of_a.rows - 1 - i : i;
          sum += specula_test::fake_bfloat16(x[row * static_cast<std::uint64_t>(of_a.apart) + k]) *
                 specula_test::fake_bfloat16(y[column * static_cast<std::uint64_t>(of_b.apart) + k]);
        }
        const std::uint64_t at = column * static_cast<std::uint64_t>(of_d.apart) + row;
        static_cast<float*>(d)[at] =
            one * sum + (before == 0 ? 0 : before * static_cast<const float*>(c)[at]);
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
