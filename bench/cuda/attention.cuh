// Tree attention as a table of functions, so that its kernels are compiled apart.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include <specula/cuda/device/tree_attention.cuh>

#include "gpu.cuh"

namespace specula_bench {

namespace device = specula::cuda;

template <class Element, int kHead>
struct AttentionKernels {
  static cudaError_t plan(device::TreeAttentionPlan*, const device::TreeAttentionCapacity&, int device);
  static cudaError_t run(const device::TreeAttentionPlan&, const device::TreeAttentionArgs<Element>&,
                         void* workspace, cudaStream_t);
  /// Makes `plan` one of the variant with `rows` packed rows a block: 16, 32, 64 or 128.
  static cudaError_t force_rows(device::TreeAttentionPlan* plan, int rows);
};

/// Memory for partial results, its counters zero.
class Workspace {
 public:
  explicit Workspace(const device::TreeAttentionPlan& plan)
      : bytes_(std::max<std::size_t>(256, device::workspace_bytes(plan))) {
    bytes_.fill_bytes(0);
    SPECULA_CHECK(cudaDeviceSynchronize());
  }
  void* data() const { return bytes_.data(); }

 private:
  DeviceArray<unsigned char> bytes_;
};

/// The sections of the program `attention`.
void check_attention(const Options& options, Report& report);
void check_attention_graphs(const Options& options, Report& report);
void run_attention_bars(const Options& options, Report& report);
void sweep_attention(const Options& options, Report& report);

}  // namespace specula_bench
