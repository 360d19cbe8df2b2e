// SPDX-License-Identifier: MIT
// CUB, which comes with the toolkit, sorts rows: a reference for their best tokens, and a peer of growth.
#pragma once

#include <cuda_bf16.h>

#include <cub/device/device_segmented_radix_sort.cuh>

#include <cstdint>
#include <string>
#include <vector>

#include "gpu.cuh"

namespace specula_bench {

inline std::string cub_version() {
  return "CUB " + std::to_string(CUB_MAJOR_VERSION) + "." + std::to_string(CUB_MINOR_VERSION) + "." +
         std::to_string(CUB_SUBMINOR_VERSION);
}

/// All tokens of rows (R, V), the best first, ties to the lower token. CUB 3.0 has no selection of the best.
class SortedRows {
 public:
  SortedRows(int rows, int vocab)
      : rows_(rows),
        vocab_(vocab),
        keys_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab)),
        tokens_(keys_.size()) {
    std::vector<std::int32_t> tokens, begin;
    for (int r = 0; r < rows; ++r)
      for (int x = 0; x < vocab; ++x) tokens.push_back(x);
    for (int r = 0; r <= rows; ++r) begin.push_back(r * vocab);
    unsorted_.upload(tokens), begin_.upload(begin);
    SPECULA_CHECK(sort(nullptr, nullptr, &bytes_, nullptr));
    memory_.reserve(bytes_);
  }
  cudaError_t sort(const specula::cuda::BFloat16* logits, cudaStream_t stream) {
    return sort(logits, memory_.data(), &bytes_, stream);
  }
  std::vector<std::int32_t> tokens() const { return tokens_.download(); }

 private:
  cudaError_t sort(const specula::cuda::BFloat16* logits, void* memory, std::size_t* bytes,
                   cudaStream_t stream) {
    return cub::DeviceSegmentedRadixSort::SortPairsDescending(
        memory, *bytes, reinterpret_cast<const __nv_bfloat16*>(logits), keys_.data(), unsorted_.data(),
        tokens_.data(), static_cast<std::int64_t>(rows_) * vocab_, rows_, begin_.data(), begin_.data() + 1, 0,
        16, stream);
  }

  int rows_, vocab_;
  DeviceArray<__nv_bfloat16> keys_;
  DeviceArray<std::int32_t> tokens_, unsorted_, begin_;
  DeviceArray<unsigned char> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace specula_bench
