// SPDX-License-Identifier: MIT
// Sampling from rows of logits on the device: tokens, and a draft's tokens with their distributions.
//
// Work: one cluster per row; all of its warps read the row, the first warp of its first block draws.
// Traffic: the row passes through rings of 4 or 8 KB per warp; each block keeps two floats per tile (512
// tokens).
// Forms: by element type; Untruncated<Plan> has no code for cuts. make_scan_plan() chooses cluster and
// threads.
// Reference: distribution/row_scan.hpp, proposal/proposal_builder.hpp; tests/cuda/api/sample.cpp;
// bench/cuda/verification_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/sample_and_verify.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program verification).
#pragma once

#include "specula/cuda/api/scan_plan.cuh"
#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/sampling.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/primitives/thread/philox_random.cuh"
#include "specula/cuda/detail/verify/row_scan.cuh"

namespace specula {
namespace cuda {

/// Plan of sampling rows of `Element`: the maximum number of rows, and draws per row. See Untruncated for
/// kTakesCuts.
template <class Element, bool kTakesCuts = true>
struct SamplePlan {
  int rows = 0,           ///< R, at most, in a call
      draws = 1;          ///< per row
  detail::ScanPlan scan;  ///< how rows are read
};

namespace detail {

template <class Element, bool kTakesCuts>
struct UntruncatedOf<SamplePlan<Element, kTakesCuts>> {
  using Plan = SamplePlan<Element, false>;
};

/// Shared memory of each block of `warps` warps.
template <class Cluster>
SPECULA_HD std::size_t sample_bytes(const ScanSize& size, int warps, int draws) {
  return RowScan<Cluster>::shared_bytes(size, warps) + array_bytes<Token>(draws);
}

/// Draws from row r, whose distribution is known, by one warp: `key` is the first draw's. `drawn` is shared
/// memory for the tokens that later draws exclude.
template <class Cluster, class Element>
SPECULA_HD void draw_row(RowScan<Cluster>& scan, Cluster cluster, const Row<Element>& row,
                         const RowStats& distribution, bool cut, const PhiloxRandom& rng,
                         const RandomKey& key, const SampleArgs<Element>& args, int r, int draws,
                         Token* drawn) {
  const auto warp = cluster.block().warp();
  const bool ok = distribution.status == Status::ok, point = distribution.point != kNoToken;
  const Exponent exponent = point || !ok ? Exponent() : Exponent(distribution);
  int without = 0;  // draws that are excluded from now on
  const auto fill = [&](int first, float(&w)[4]) {
    RowScan<Cluster>::weigh(row, exponent, first, w);
    SPECULA_NO_UNROLL
    for (int d = 0; d < without; ++d) {
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e)
        if (drawn[d] == first + e) w[e] = 0;
    }
  };

  double total = 1;  // mass that is not excluded
  for (int d = 0; d < draws; ++d) {
    Token token = kNoToken;
    if (ok && point) {
      token = args.distinct && d > 0 ? kNoToken : distribution.point;
    } else if (ok && total > 0) {
      const Words words =
          rng.words({key.position, key.origin, key.stream, key.index + static_cast<std::uint32_t>(d)});
      token = scan.draw_by(cut || without > 0, 0, words, fill);
    }
    const auto at = [&](std::int64_t stride) { return r * (stride ? stride : std::int64_t{draws}) + d; };
    if (warp.rank() == 0) {
      args.token[at(args.token_stride)] = token;
      if (args.prob)
        args.prob[at(args.prob_stride)] = token == kNoToken ? 0.0f
                                          : point           ? 1.0f
                                                  : static_cast<float>(prob(row[token], distribution));
      if (args.scale) args.scale[at(args.scale_stride)] = token == kNoToken ? 0.0 : 1.0 / total;
    }
    if (!args.distinct || point || d + 1 == draws) continue;
    if (token == kNoToken) {
      total = 0;
      continue;
    }
    if (!cut && without == 0) scan.measure_distribution();
    if (warp.rank() == 0) drawn[d] = token;
    warp.sync();
    without = d + 1;
    scan.measure_tile(token / kTile, fill);
    total = scan.measured_total();
  }
  if (args.stats && warp.rank() == 0)
    args.stats[r * (args.stats_stride ? args.stats_stride : std::int64_t{1})] = distribution;
}

/// One row by one cluster: all of it reads, one warp draws.
template <bool kTakesCuts = true, class Cluster, class Element>
SPECULA_HD void sample_row(Cluster cluster, int r, unsigned char* shared, const SampleArgs<Element>& args,
                           const ScanSize& size, int draws) {
  if (!is_live(r, args.row_count)) return;
  const auto block = cluster.block();
  const int b = args.sequence_of_row ? args.sequence_of_row[r] : r;
  const SamplingParams params = args.params[b];
  const Row<Element> row{args.logits + r * args.stride, size.vocab};
  PhiloxRandom rng{};
  RandomKey key{};
  const auto read_key = [&] {
    rng = {args.seed[b], args.sequence ? args.sequence[b] : 0};
    key = {args.position[r], args.origin ? args.origin[r] : 0, args.stream, args.index ? args.index[r] : 0};
  };
  read_key();  // before any wait: hides its latency
  RowScan<Cluster> scan(cluster, size, shared);
  Token* const drawn =
      reinterpret_cast<Token*>(shared + RowScan<Cluster>::shared_bytes(size, block.warp_count()));
  end_array(drawn, draws);
  RowStats distribution{0, 0, params.temperature, 0, kNoToken, status_of(params, kTakesCuts)};
  const bool runs = distribution.status == Status::ok, cut = kTakesCuts && is_cut(params);
  if (runs) {
    const auto row_of = [&](int) { return row; };
    scan.template read<Element>(
        1, row_of, params, false, [] {}, [](int) {});
    if constexpr (kTakesCuts)
      if (cut) {
        block.sync();
        const bool kept = scan.template truncate<Element>(1, row_of, params);
        read_key();  // again: a cut has no registers left to keep it
        block.sync();
        if (!kept) scan.template keep<Element>(0, 1, row_of);
      }
  } else {
    scan.leave();
  }
  if (cluster.rank() != 0 || block.warp_rank() != 0) return;
  if (runs) distribution = scan.facts(0).distribution;
  draw_row(scan, cluster, row, distribution, cut, rng, key, args, r, draws, drawn);
}

#ifdef __CUDACC__
template <class Element, bool kTakesCuts = true>
__global__ void __launch_bounds__(512, 1)
    sample_kernel(const __grid_constant__ SampleArgs<Element> args, const ScanSize size, int draws) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  sample_row<kTakesCuts>(cluster, static_cast<int>(blockIdx.x) / cluster.size(), shared, args, size, draws);
}
#endif

/// Host-side checks of the arguments.
template <class Element, bool kTakesCuts>
bool valid_args(const SampleArgs<Element>& a, const SamplePlan<Element, kTakesCuts>& plan) {
  const auto fits = [&](std::int64_t stride, int length) {
    return stride == 0 || are_apart(plan.rows, stride, length);
  };
  return plan.rows >= 1 && is_plan(plan.scan, false) && !any_null({a.logits, a.seed, a.position, a.token}) &&
         !any_misaligned(a.logits, a.seed, a.position, a.sequence_of_row, a.sequence, a.origin, a.index,
                         a.row_count, a.token, a.stats, a.prob, a.scale) &&
         is_aligned(a.params) && fits(a.token_stride, plan.draws) && fits(a.prob_stride, plan.draws) &&
         fits(a.scale_stride, plan.draws) && fits(a.stats_stride, 1);
}

}  // namespace detail

#ifdef __CUDACC__

/// Outside of captures, for `device`, which is the current one. Errors: cudaErrorInvalidValue where a
/// capacity is below 1, or the vocabulary needs more shared memory than a block has; cudaErrorInvalidDevice
/// where another device is the current one; else the driver's error.
template <class Element, bool kTakesCuts>
cudaError_t make_sample_plan(SamplePlan<Element, kTakesCuts>* plan, int rows, int draws, int vocab,
                             int device) {
  if (rows < 1 || draws < 1 || vocab < 1) return cudaErrorInvalidValue;
  SamplePlan<Element, kTakesCuts> out;
  out.rows = rows;
  out.draws = draws;
  const cudaError_t error = detail::make_scan_plan(
      detail::sample_kernel<Element, kTakesCuts>, detail::ScanTask{rows, vocab, sizeof(Element), 1, 1},
      device,
      [&](const detail::ScanSize& size, int warps) {
        return detail::sample_bytes<DeviceCluster>(size, warps, draws);
      },
      &out.scan);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// Draws plan.draws tokens of each row, with the uniform draws and the truncation of the CPU's
/// specula::PhiloxRandom and SamplingParams: the same seed gives the same text, whatever the batch, the slot
/// and the device. One launch. Cost: one read of each row, and one tile per draw; a cut reads again the tiles
/// that reach its threshold. Errors: cudaErrorInvalidValue for a plan that was not made, null or misaligned
/// arrays, and strides with which rows of outputs overlap; else the launch's error.
/// @code
/// SamplePlan<BFloat16> plan;  // once
/// make_sample_plan(&plan, rows, /*draws*/ 1, vocab, device);
/// SampleArgs<BFloat16> args{};
/// args.logits = logits, args.stride = vocab;
/// args.seed = seed, args.params = params, args.position = position;
/// args.token = token, args.stats = row_stats;
/// sample(plan, args, stream);
/// @endcode
template <class Element, bool kTakesCuts>
cudaError_t sample(const SamplePlan<Element, kTakesCuts>& plan, const SampleArgs<Element>& args,
                   cudaStream_t stream) {
  if (!detail::valid_args(args, plan)) return cudaErrorInvalidValue;
  return detail::launch(detail::sample_kernel<Element, kTakesCuts>, plan.rows, plan.scan.cluster,
                        plan.scan.threads, plan.scan.shared_bytes, stream, args, plan.scan.size, plan.draws);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
