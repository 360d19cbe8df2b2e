// SPDX-License-Identifier: MIT
// Launch configuration of row scans: blocks, threads, and rows per pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

template <class Plan>
struct UntruncatedOf;

}  // namespace detail

/// A plan's type without truncation, as Untruncated<SamplePlan<BFloat16>>: its kernel has no code for top-k,
/// top-p and min-p, about half of the instructions, and a row or sequence whose parameters truncate gets
/// Status::truncation_is_not_planned. For sampling plans and those of verification; the same bits.
template <class Plan>
using Untruncated = typename detail::UntruncatedOf<Plan>::Plan;

namespace detail {

/// Size of a scan: `problems` rows or sequences at the same time, each of which reads at most `most_rows`
/// rows of `vocab` elements in one pass, and gains by at least `least_rows` whatever is decided.
struct ScanTask {
  int problems, vocab;
  std::size_t element_bytes;
  int most_rows, least_rows;
};

/// Device limits: multiprocessors, shared memory of a block and of a multiprocessor, clusters.
struct ScanDevice {
  int processors;
  std::size_t block_bytes, processor_bytes;
  bool clusters;
};

struct ScanPlan {
  ScanSize size;
  int cluster = 1, threads = 512;
  std::size_t shared_bytes = 0;  // of a block
};

/// Whether a plan was made, and can be launched. With a verifying warp, a block needs at least one more warp
/// to read.
inline bool is_plan(const ScanPlan& plan, bool has_verifier_warp) {
  return plan.shared_bytes > 0 && is_geometry(plan.cluster, plan.threads) &&
         plan.threads >= (has_verifier_warp ? 64 : 32);
}

/// Rows that are read ahead cost their bytes where they are not needed, a pass costs its latency: about 5 us,
/// in which an H100 reads 15 MB (112 KB per multiprocessor). That is the amount to read ahead.
inline int rows_in_a_pass(const ScanTask& task, int processors) {
  const std::int64_t row =
      static_cast<std::int64_t>(task.problems) * task.vocab * static_cast<std::int64_t>(task.element_bytes);
  const std::int64_t ahead = static_cast<std::int64_t>(processors) * (112 << 10) / row;
  const auto rows = static_cast<int>(smaller<std::int64_t>(1 + ahead, kMaxRows));
  return smaller(larger(rows, task.least_rows), smaller(task.most_rows, kMaxRows));
}

/// Blocks of at most `threads` threads that share a multiprocessor (one of 512, two of 256, so that one reads
/// while the other decides), in the largest clusters that one wave of them holds by these limits.
/// `bytes(size, warps)` is the shared memory of a block. Returns the blocks of a wave; 0 where a block does
/// not fit.
template <class Bytes>
int plan_scan(const ScanTask& task, const ScanDevice& device, int threads, Bytes bytes, ScanPlan* out) {
  constexpr std::size_t kReserved = 1024;  // of a multiprocessor, for each block
  ScanPlan plan;
  for (; threads >= 128; threads /= 2)
    for (const int ring : {8192, 4096})
      for (int rows = rows_in_a_pass(task, device.processors); rows >= 1;
           rows = rows > 2 ? rows / 2 : rows - 1) {
        plan.size.vocab = task.vocab;
        plan.size.rows = rows;
        plan.size.ring_bytes = ring;
        plan.threads = threads;
        plan.shared_bytes = bytes(plan.size, threads / 32);
        if (plan.shared_bytes > device.block_bytes) continue;
        const auto fit = static_cast<int>(device.processor_bytes / (plan.shared_bytes + kReserved));
        const int resident = larger(1, smaller(fit, 512 / threads));
        // Two smaller ones are better than one.
        if (resident < 512 / threads && (ring > 4096 || rows > larger(1, task.least_rows))) continue;
        const int blocks = resident * device.processors,
                  most = ceil_div(tile_count(task.vocab), threads / 32);
        while (device.clusters && plan.cluster < 16 && plan.cluster < most &&
               2 * plan.cluster * static_cast<std::int64_t>(task.problems) <= blocks)
          plan.cluster *= 2;
        *out = plan;
        return blocks;
      }
  return 0;
}

#ifdef __CUDACC__

/// plan_scan() for `kernel` on `device`, which is the current one, and prepares the kernel for it. Outside of
/// captures. cudaErrorInvalidValue where a block has too little shared memory; cudaErrorInvalidDevice where
/// another device is the current one.
template <class Kernel, class Bytes>
cudaError_t make_scan_plan(Kernel* kernel, const ScanTask& task, int device, Bytes bytes, ScanPlan* out) {
  cudaError_t error = check_current(device);
  DeviceLimits limits;
  if (error == cudaSuccess) error = device_limits(device, &limits);
  int processor_bytes = 0;
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processor_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  bool clusters = false;
  if (error == cudaSuccess) error = has_clusters(kernel, &clusters);
  if (error != cudaSuccess) return error;
  const ScanDevice what{limits.processors, static_cast<std::size_t>(limits.shared_bytes),
                        static_cast<std::size_t>(processor_bytes), clusters};
  ScanPlan best;
  double least = 0;
  int least_waves = 0;
  for (const int threads : {512, 256}) {
    ScanPlan plan;
    const int blocks = plan_scan(task, what, threads, bytes, &plan);
    if (blocks == 0) continue;
    error = prepare(kernel, plan.shared_bytes, &plan.cluster);
    if (error == cudaSuccess)
      error = fit_cluster(kernel, task.problems, plan.threads, plan.shared_bytes, &plan.cluster);
    if (error != cudaSuccess) return error;
    // A pass takes as long as what one warp reads in it. Of equals on an H200: one wave took 0.9 of the time
    // of two; blocks spread over more multiprocessors 0.97, but 1.13 where they had to share them.
    const int waves = plan.cluster > 1 ? 1 : ceil_div(task.problems, blocks);
    const double time =
        static_cast<double>(waves) / smaller(plan.cluster * plan.threads / 32, tile_count(task.vocab));
    const bool spread = plan.cluster * task.problems <= limits.processors;
    if (best.shared_bytes == 0 || time < least || (time == least && (spread || waves < least_waves)))
      best = plan, least = time, least_waves = waves;
  }
  if (best.shared_bytes == 0) return cudaErrorInvalidValue;
  *out = best;
  return error;
}

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
