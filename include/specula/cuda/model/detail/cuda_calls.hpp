// SPDX-License-Identifier: MIT
// The CUDA runtime and cuBLASLt with exceptions: errors, events, captured launches. For nvcc.
#pragma once

#include "specula/cuda/model/device.hpp"

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <string>

namespace specula::cuda::detail {

inline void expect(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next launch would report it again
  throw DeviceError(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}
inline void expect(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  cudaGetLastError();
  throw DeviceError(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
}

/// An event of a stream.
class Event {
 public:
  Event() { expect(cudaEventCreate(&it_), "an event"); }
  ~Event() { cudaEventDestroy(it_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { expect(cudaEventRecord(it_, stream), "an event"); }
  /// Waits for this one.
  float milliseconds_since(const Event& begin) const {
    float out = 0;
    expect(cudaEventSynchronize(it_), "the device's work");
    expect(cudaEventElapsedTime(&out, begin.it_, it_), "a time");
    return out;
  }

 private:
  cudaEvent_t it_ = nullptr;
};

/// What enqueue() launches into a stream, as a graph. The caller destroys it.
template <class F>
cudaGraphExec_t captured(cudaStream_t stream, F enqueue) {
  expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  expect(cudaStreamEndCapture(stream, &graph), "a capture");
  cudaGraphExec_t out = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&out, graph, 0);
  cudaGraphDestroy(graph);
  expect(made, "a graph");
  return out;
}

}  // namespace specula::cuda::detail

#endif
