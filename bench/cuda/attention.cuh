// Tree attention as tables of functions, so that its kernels are compiled apart.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include <specula/cuda/device/tree_attention.cuh>

#include "program.cuh"

namespace specula_bench {

namespace device = specula::cuda;

/// One implementation of tree attention, for caches of Stored.
template <class Element, class Stored = Element>
struct AttentionKernels {
  const char* name;
  bool only_hopper;
  std::vector<int> rows;  // packed rows of a block: its variants
  cudaError_t (*make_plan)(device::TreeAttentionPlan*, const device::TreeAttentionCapacity&, int device);
  cudaError_t (*run)(const device::TreeAttentionPlan&, const device::TreeAttentionArgs<Element, Stored>&,
                     void* workspace, cudaStream_t);

  device::TreeAttentionPlan plan(const device::TreeAttentionCapacity& capacity, const Device& device) const {
    device::TreeAttentionPlan out;
    SPECULA_CHECK(make_plan(&out, capacity, device.id));
    return out;
  }
  /// A plan for the variant of `variant_rows`, whichever of them would be chosen.
  device::TreeAttentionPlan plan_of_variant(const device::TreeAttentionCapacity& capacity, int variant_rows,
                                            const Device& device) const {
    device::TreeAttentionPlan out = plan(capacity, device);
    device::TreeAttentionCapacity full = capacity;  // with trees that just fill the variant
    const int group = capacity.query_heads / capacity.kv_heads;
    full.max_nodes = variant_rows / group;
    const device::TreeAttentionPlan variant = plan(full, device);
    if (variant.rows != variant_rows) throw std::runtime_error("a plan did not choose the variant asked for");
    out.rows = variant.rows;
    out.row_tiles = (capacity.max_nodes * group + out.rows - 1) / out.rows;
    out.threads = variant.threads;
    out.shared_bytes = variant.shared_bytes;
    return out;
  }
  /// Whether this can run here; says so where it cannot.
  bool runs_on(const Device& device) const {
    if (!only_hopper || device.has_wgmma()) return true;
    std::printf("| %s | skipped: it needs compute capability 9.0 |\n", name);
    return false;
  }
};
/// tree_attention() and tree_attention_wgmma().
template <class Element, int kHead, class Stored = Element>
AttentionKernels<Element, Stored> mma_kernels();
template <class Element, int kHead, class Stored = Element>
AttentionKernels<Element, Stored> wgmma_kernels();

/// Memory for partial results, its counters zero.
class Workspace {
 public:
  explicit Workspace(const device::TreeAttentionPlan& plan)
      : bytes_(std::max<std::size_t>(256, device::workspace_bytes(plan))) {
    bytes_.fill_bytes(0);
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
