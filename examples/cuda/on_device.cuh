// SPDX-License-Identifier: MIT
// Arrays on the device, for these examples: the host's values, or zeros. Programs this short free nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

template <class T>
T* zeros(std::size_t count) {
  T* out = nullptr;
  cudaMalloc(&out, count * sizeof(T));
  cudaMemset(out, 0, count * sizeof(T));
  return out;
}

template <class T>
T* on_device(const std::vector<T>& from) {
  T* out = nullptr;
  cudaMalloc(&out, from.size() * sizeof(T));
  cudaMemcpy(out, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
  return out;
}

/// Waits for the default stream.
template <class T>
std::vector<T> to_host(const T* from, std::size_t count) {
  std::vector<T> out(count);
  cudaMemcpy(out.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost);
  return out;
}
