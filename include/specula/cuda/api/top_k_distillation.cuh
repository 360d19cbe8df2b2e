// SPDX-License-Identifier: MIT
// Top-k distillation loss (HASS) and its gradient on the device, fused from the two rows of logits.
//
// Work: one cluster per row, of up to 8 blocks of 256 threads.
// Traffic: one pass reads the target, one the draft, a third both and writes the gradient.
// Forms: by element types of target, draft and gradient. distillation_cluster() sizes clusters (sm_90 on).
// Reference: tools/train/losses/top_k_distillation.hpp; tests/cuda/api/top_k_distillation.cpp;
// bench/cuda/helpers.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/top_k_distillation.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program helpers).
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/distillation.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/grow/top_k.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/primitives/warp/tile_masses.cuh"
#include "specula/cuda/detail/verify/row_scan.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"

namespace specula {
namespace cuda {

namespace detail {

template <class Target, class Draft, class Gradient>
struct DistillationArgs {
  DistillationRows<Target, Draft, Gradient> rows;
  TopKDistillation loss;
  int vocab;
};

SPECULA_HD void put_rounded(float x, float& out) { out = x; }
template <class Element>
SPECULA_HD void put_rounded(float x, Element& out) {
  out.bits = static_cast<std::uint16_t>(pack(Element{}, x, x));
}

/// Stores four elements of a row from `first` on, a multiple of 4, except those after its end.
template <class Element>
SPECULA_HD void store_four(Element* row, int vocab, int first, const float (&x)[4]) {
  if (first + 4 <= vocab && Row<Element>{row, vocab}.aligned()) {
    Four<Element> four;
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) put_rounded(x[e], four.v[e]);
    *reinterpret_cast<Four<Element>*>(row + first) = four;
  } else {
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e)
      if (first + e < vocab) put_rounded(x[e], row[first + e]);
  }
}

/// One row, processed by a cluster.
template <class Cluster, class Target, class Draft, class Gradient>
class Distillation {
 public:
  using Args = DistillationArgs<Target, Draft, Gradient>;
  using Scan = RowScan<Cluster>;
  using Table = TileTable<Cluster>;
  using Top = TopK<decltype(std::declval<Cluster>().block())>;

  SPECULA_HD static std::size_t shared_bytes(int vocab, int k) {
    return Top::shared_bytes(vocab, k) + Scan::shared_bytes({vocab, 1, 4096}, 8);
  }
  SPECULA_HD Distillation(Cluster cluster, const Args& args, int row, unsigned char* shared)
      : args_(args),
        target_{args.rows.target + row * args.rows.target_stride, args.vocab},
        draft_{args.rows.draft + row * args.rows.draft_stride, args.vocab},
        gradient_(args.rows.gradient ? args.rows.gradient + row * args.rows.gradient_stride : nullptr),
        row_(row),
        likeliest_(cluster.block(), args.vocab, args.loss.k, 0, shared),
        scan_(cluster, {args.vocab, 1, 4096}, shared + Top::shared_bytes(args.vocab, args.loss.k)) {}

  SPECULA_HD void run() {
    const double scale = args_.rows.scale ? static_cast<double>(args_.rows.scale[row_]) : 1.0;
    const double weight = scale * args_.loss.weight, plain = scale * args_.loss.cross_entropy_weight;
    if (!is_finite(static_cast<float>(weight + plain)))  // they are of one sign
      return refuse(Status::bad_parameters);
    const RowStats p = scan_.distribution(target_, SamplingParams{});
    if (p.status != Status::ok) return refuse(p.status);
    likeliest_.find(target_, scan_.table());
    // Before the next pass: after it other blocks may overwrite these with gradients.
    const auto warp = scan_.cluster().block().warp();
    const float mine = draft_logit(warp.rank()), other = draft_logit(warp.rank() + warp.size());
    const RowStats q = scan_.distribution(draft_, SamplingParams{});
    if (q.status != Status::ok) return refuse(q.status);

    Term top = term(warp.rank(), mine, p, q) + term(warp.rank() + warp.size(), other, p, q);
    top.mass = reduce(warp, top.mass, Sum{});
    top.loss = reduce(warp, top.loss, Sum{});
    const double cross_entropy = -differentiate(p, q, plain + weight * top.mass, plain, weight) / kLog2E;
    if (!(cross_entropy < 1e300 && top.loss < 1e300)) return refuse(Status::infinite_loss);
    put(Status::ok, cross_entropy, top.loss);
  }

 private:
  /// Of one of the likeliest tokens, or of several.
  struct Term {
    double mass, loss;
    SPECULA_HD friend Term operator+(const Term& a, const Term& b) {
      return {a.mass + b.mass, a.loss + b.loss};
    }
  };

  SPECULA_HD float draft_logit(int i) const {
    return i < likeliest_.found() ? draft_[likeliest_.token(i)] : 0.0f;
  }
  SPECULA_HD Term term(int i, float draft, const RowStats& p, const RowStats& q) const {
    if (i >= likeliest_.found()) return {0, 0};
    const double prob = exp(log_prob(likeliest_.logit(i), p));
    if (prob < 0x1p-126) return {0, 0};
    return {prob, -prob * log_prob(draft, q)};
  }

  /// Writes keep * q - take * p, and less `weight` * p for the likeliest, as the gradient; returns the sum of
  /// p * log2(q), which is -infinity or NaN where the loss is infinite.
  SPECULA_HD double differentiate(const RowStats& p, const RowStats& q, double keep, double take,
                                  double weight) {
    const Exponent target(p), draft(q);
    const auto a = static_cast<float>(keep), b = static_cast<float>(take), c = static_cast<float>(weight);
    // The last of the likeliest: other tokens have smaller logits, or the same and a higher index.
    const int last = likeliest_.found() - 1;
    const float least = last >= 0 ? likeliest_.logit(last) : infinity();
    const Token latest = last >= 0 ? likeliest_.token(last) : 0;
    const auto warp = scan_.cluster().block().warp();
    const int lane = warp.rank();
    Table& parts = scan_.table();
    parts.pass([&](int tile) {
      const RawTile<Target> target_raw = load_tile<Order::fours>(lane, target_, tile);
      const RawTile<Draft> draft_raw = load_tile<Order::fours>(lane, draft_, tile);
      float columns[4];
      SPECULA_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int first = tile * kTile + place_of<Order::fours, float>(lane, 4 * k);
        float gradient[4];
        SPECULA_UNROLL
        for (int e = 0; e < 4; ++e) {
          const float x = target_raw[4 * k + e], y = draft_raw[4 * k + e];
          const float prob = target.weight(x);
          const float log_q = fused(difference(y, draft.shift), draft.scale, -draft.offset);
          const float part = prob > 0 ? product(prob, log_q) : 0.0f;
          columns[e] = k == 0 ? part : sum(columns[e], part);
          gradient[e] = fused(a, exp2_fast(log_q), -product(b, prob));
          if (x > least || (x == least && first + e <= latest)) gradient[e] = fused(-c, prob, gradient[e]);
        }
        if (gradient_) store_four(gradient_, args_.vocab, first, gradient);
      }
      return typename Table::Entry{0.0f, sum_of_lanes(warp, sum_of_four(columns))};
    });
    return ordered_sum(warp, parts.tiles(), [&](int t) { return static_cast<double>(parts[t].b); });
  }

  SPECULA_HD void refuse(Status status) {
    const auto block = scan_.cluster().block();
    if (gradient_) {
      const float zeros[4] = {};
      const int all = scan_.cluster().size() * block.size();
      for (int four = scan_.cluster().rank() * block.size() + block.rank(); 4 * four < args_.vocab;
           four += all)
        store_four(gradient_, args_.vocab, 4 * four, zeros);
    }
    put(status, 0, 0);
  }
  SPECULA_HD void put(Status status, double cross_entropy, double top_k) {
    if (scan_.cluster().rank() != 0 || scan_.cluster().block().rank() != 0) return;
    args_.rows.loss[2 * static_cast<std::int64_t>(row_)] = static_cast<float>(cross_entropy);
    args_.rows.loss[2 * static_cast<std::int64_t>(row_) + 1] = static_cast<float>(top_k);
    args_.rows.status[row_] = status;
  }

  const Args& args_;
  Row<Target> target_;
  Row<Draft> draft_;
  Gradient* gradient_;
  std::int64_t row_;
  Top likeliest_;
  Scan scan_;
};

#ifdef __CUDACC__

template <class Target, class Draft, class Gradient>
__global__ void __launch_bounds__(256, 2)
    distillation_kernel(const __grid_constant__ DistillationArgs<Target, Draft, Gradient> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  Distillation<DeviceCluster, Target, Draft, Gradient>(cluster, args,
                                                       static_cast<int>(blockIdx.x) / cluster.size(), shared)
      .run();
}

#endif  // __CUDACC__

}  // namespace detail

/// Launch configuration for rows of these elements.
template <class Target, class Draft, class Gradient>
struct DistillationPlan {
  DistillationCapacity capacity;  ///< as given
  TopKDistillation loss;          ///< its weights
  int cluster = 1,                ///< blocks per row
      threads = 256;              ///< per block
  std::size_t shared_bytes = 0;   ///< of a block
};

namespace detail {

/// Whether `plan` was made, and the rows have their arrays and do not overlap.
template <class Target, class Draft, class Gradient>
bool is_distillation(const DistillationPlan<Target, Draft, Gradient>& plan,
                     const DistillationRows<Target, Draft, Gradient>& rows) {
  const int count = plan.capacity.rows, vocab = plan.capacity.vocab;
  return is_distillation(plan.capacity, plan.loss) && plan.shared_bytes > 0 &&
         is_geometry(plan.cluster, plan.threads) && are_apart(count, rows.target_stride, vocab) &&
         are_apart(count, rows.draft_stride, vocab) &&
         (!rows.gradient || are_apart(count, rows.gradient_stride, vocab)) &&
         !any_null({rows.target, rows.draft, rows.loss, rows.status}) &&
         !any_misaligned(rows.target, rows.draft, rows.gradient, rows.scale, rows.loss, rows.status);
}

}  // namespace detail

#ifdef __CUDACC__

namespace detail {

/// Blocks per row: enough to fill the device, and enough that the rows in flight fit in half of its L2 cache.
inline int distillation_cluster(int rows, int vocab, std::size_t row_bytes, int threads, int cache,
                                const DeviceLimits& device) {
  const int blocks = 2 * device.processors, most = ceil_div(tile_count(vocab), threads / 32);
  int cluster = 1;
  while (cluster < 8 && cluster < most &&
         (2 * cluster * static_cast<std::int64_t>(rows) <= blocks ||
          static_cast<std::size_t>(blocks / cluster) * row_bytes > static_cast<std::size_t>(cache) / 2))
    cluster *= 2;
  return cluster;
}

}  // namespace detail

/// A plan for R rows. Outside of captures. Errors: cudaErrorInvalidValue where a
/// capacity is below 1, k is outside [0, 64], a weight is negative or not finite, or a block has not the
/// shared memory that it needs (at most 48 bytes for 512 tokens of the vocabulary, 8 (k + 3)^2, and 42,000);
/// cudaErrorInvalidDevice where `device` is not the current one; else the driver's error.
template <class Target, class Draft, class Gradient>
cudaError_t make_distillation_plan(DistillationPlan<Target, Draft, Gradient>* plan,
                                   const DistillationCapacity& capacity, const TopKDistillation& loss,
                                   int device) {
  if (!detail::is_distillation(capacity, loss)) return cudaErrorInvalidValue;
  detail::DeviceLimits limits;
  cudaError_t error = detail::check_current(device);
  if (error == cudaSuccess) error = detail::device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  int cache = 0;
  error = cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device);
  if (error != cudaSuccess) return error;
  const auto kernel = detail::distillation_kernel<Target, Draft, Gradient>;
  bool clusters = false;
  error = detail::has_clusters(kernel, &clusters);
  if (error != cudaSuccess) return error;
  DistillationPlan<Target, Draft, Gradient> out;
  out.capacity = capacity;
  out.loss = loss;
  out.shared_bytes =
      detail::Distillation<DeviceCluster, Target, Draft, Gradient>::shared_bytes(capacity.vocab, loss.k);
  if (clusters && limits.version >= 90)
    out.cluster = detail::distillation_cluster(
        capacity.rows, capacity.vocab,
        static_cast<std::size_t>(capacity.vocab) * (sizeof(Target) + sizeof(Draft)), out.threads, cache,
        limits);
  if (out.shared_bytes > static_cast<std::size_t>(limits.shared_bytes)) return cudaErrorInvalidValue;
  error = detail::prepare(kernel, out.shared_bytes, out.cluster);
  if (error == cudaSuccess)
    error = detail::fit_cluster(kernel, 1, out.threads, out.shared_bytes, &out.cluster);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// For each row, with p and q the softmaxes of its target's and draft's logits,
///
///   cross entropy = -sum over all tokens of p log q,    top-k part = the same over the k likeliest of p,
///
/// and the gradient of their weighted sum by the draft's logits, times the row's scale: (cross_entropy_weight
/// + weight * P) q - cross_entropy_weight * p - weight * p [x among the k], P being the sum of p over the k.
/// Ties among the k go to the lower token. A target's logit may be -infinity, then the draft's may be so too;
/// elsewhere the loss is infinite: a status, as are NaN, +infinity, rows without a finite logit, and a scale
/// that is not finite.
///
/// Cost: two reads of each row, and a third one of no more than k tiles of the target's; a write of the
/// gradient; one launch, with a cluster per row. Errors: cudaErrorInvalidValue where an array is null
/// (`gradient` and `scale` may be) or misaligned, or rows overlap; else the launch's error. Source: HASS
/// (Zhang et al. 2024), section 3.1.
/// **Range.** Logits up to 100; a probability below 2^-126 counts as 0.
/// **Error.** Of a loss 2e-6, relative, plus 5e-7; of a gradient, before it is rounded, 1e-6 of its
/// scale times the sum of both weights.
/// **Bits.** Independent of the batch and of the launch.
/// @code
/// DistillationPlan<BFloat16, BFloat16, BFloat16> plan;  // once
/// make_distillation_plan(&plan, {rows, vocab}, TopKDistillation{/*k*/ 10, /*weight*/ 1, 0.1}, device);
/// const DistillationRows<BFloat16, BFloat16, BFloat16> batch{  // the gradient overwrites the draft's logits
///     target_logits, vocab, draft_logits, vocab, draft_logits, vocab, scale, loss, status};
/// top_k_distillation(plan, batch, stream);
/// @endcode
template <class Target, class Draft, class Gradient>
cudaError_t top_k_distillation(const DistillationPlan<Target, Draft, Gradient>& plan,
                               const DistillationRows<Target, Draft, Gradient>& rows, cudaStream_t stream) {
  if (!detail::is_distillation(plan, rows)) return cudaErrorInvalidValue;
  const detail::DistillationArgs<Target, Draft, Gradient> args{rows, plan.loss, plan.capacity.vocab};
  return detail::launch(detail::distillation_kernel<Target, Draft, Gradient>, plan.capacity.rows,
                        plan.cluster, plan.threads, plan.shared_bytes, stream, args);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
