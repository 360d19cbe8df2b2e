// SPDX-License-Identifier: MIT
// Tree attention as tables of functions, so that its kernels are compiled separately.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include <specula/cuda/api/tree_attention_plan.cuh>

#include "program.cuh"

namespace specula_bench {

namespace device = specula::cuda;

/// One implementation of tree attention, for caches of Stored.
template <class Element, int kHead, class Stored = Element>
struct AttentionKernels {
  using Plan = device::TreeAttentionPlan<Element, kHead, Stored>;

  const char* name;
  bool only_hopper;
  std::vector<int> rows;  // packed rows of a block: its variants
  cudaError_t (*make_plan)(Plan*, const device::TreeAttentionCapacity&, int device);
  cudaError_t (*run)(const Plan&, const device::TreeAttentionArgs<Element, Stored>&, const device::Workspace&,
                     cudaStream_t);

  Plan plan(const device::TreeAttentionCapacity& capacity, const Device& device) const {
    Plan out;
    SPECULA_CHECK(make_plan(&out, capacity, device.id));
    return out;
  }
  /// Whether the device has room for the variant of `variant_rows`.
  bool has_variant(device::TreeAttentionCapacity capacity, int variant_rows, const Device& device) const {
    capacity.max_nodes = variant_rows / (capacity.query_heads / capacity.kv_heads);
    return plan(capacity, device).rows == variant_rows;
  }
  /// A plan for a given variant, if the device has room for it.
  Plan plan_of_variant(const device::TreeAttentionCapacity& capacity, int variant_rows,
                       const Device& device) const {
    Plan out = plan(capacity, device);
    device::TreeAttentionCapacity full = capacity;  // with trees that exactly fill the variant
    const int group = capacity.query_heads / capacity.kv_heads;
    full.max_nodes = variant_rows / group;
    const Plan variant = plan(full, device);
    if (variant.rows != variant_rows) throw std::runtime_error("a plan did not choose the variant asked for");
    out.rows = variant.rows;
    out.row_tiles = (capacity.max_nodes * group + out.rows - 1) / out.rows;
    out.threads = variant.threads;
    out.shared_bytes = variant.shared_bytes;
    return out;
  }
  /// Whether this can run here; prints a message if not.
  bool runs_on(const Device& device) const {
    if (!only_hopper || device.has_wgmma()) return true;
    std::printf("| %s | skipped: it needs compute capability 9.0 |\n", name);
    return false;
  }
};
/// tree_attention_mma() and tree_attention_wgmma().
template <class Element, int kHead, class Stored = Element>
AttentionKernels<Element, kHead, Stored> mma_kernels();
template <class Element, int kHead, class Stored = Element>
AttentionKernels<Element, kHead, Stored> wgmma_kernels();

/// Memory for partial results, initially NaN, and counters, initially zero. Grows for successive plans.
class Workspace {
 public:
  device::Workspace of(const device::TreeAttentionGeometry& plan) {
    if (device::part_bytes(plan) > part_bytes_) {
      part_bytes_ = device::part_bytes(plan);
      parts_.reserve(part_bytes_);
      parts_.fill_bytes(0xFF);
    }
    if (device::counter_bytes(plan) > counter_bytes_) {
      counter_bytes_ = device::counter_bytes(plan);
      counters_.reserve(counter_bytes_ / sizeof(std::uint32_t));
      counters_.fill_bytes(0);
    }
    return {parts_.data(), part_bytes_, counters_.data(), counter_bytes_};
  }

 private:
  DeviceArray<unsigned char> parts_;
  DeviceArray<std::uint32_t> counters_;
  std::size_t part_bytes_ = 0, counter_bytes_ = 0;
};

/// The sections of the program `attention`.
void check_attention(const Options& options, Report& report);
void check_attention_graphs(const Options& options, Report& report);
void run_attention_bars(const Options& options, Report& report);
void sweep_attention(const Options& options, Report& report);

}  // namespace specula_bench
