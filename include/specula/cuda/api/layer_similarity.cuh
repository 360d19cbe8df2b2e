// SPDX-License-Identifier: MIT
// Layer similarity on the device: the mean cosine of a block's input and output, per layer.
//
// Work: a warp measures tokens one by one, four of a layer at a time; a thread computes one mean.
// Traffic: sums of a token are in registers; two 64-bit integers per sequence and layer are added by atomics.
// Forms: measure_similarity(): one layer; measure_similarity_of_layers(): several layers in one launch.
// Reference: attention_similarity() (cpu/decoder.hpp); tests by the definition:
// tests/cuda/api/layer_similarity.cpp, bench/cuda/helpers.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/layer_similarity.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program helpers).
#pragma once

#include <cmath>
#include <cstdint>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/similarity.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {

/// The sums of which a cosine of x and y is made; a thread's share of a token, or the whole token.
struct CosineSums {
  float xx = 0,  ///< of x * x
      xy = 0,    ///< of x * y
      yy = 0;    ///< of y * y

  /// Adds one element of x and of y.
  SPECULA_HD void add(float x, float y) {
    xx = detail::fused(x, x, xx);
    xy = detail::fused(x, y, xy);
    yy = detail::fused(y, y, yy);
  }
  /// The sums over both parts.
  SPECULA_HD friend CosineSums operator+(CosineSums a, CosineSums b) {
    CosineSums out;
    out.xx = detail::sum(a.xx, b.xx);
    out.xy = detail::sum(a.xy, b.xy);
    out.yy = detail::sum(a.yy, b.yy);
    return out;
  }
  /// 1 where x or y is zero, as specula::cpu::Decoder has it; NaN where one of them is NaN, or so large that
  /// its square is not finite.
  SPECULA_HD float cosine() const {
    if (!detail::is_finite(xx) || !detail::is_finite(yy) || !detail::is_finite(xy))
      return detail::float_of(0x7FC00000u);
    const double lengths = sqrt(static_cast<double>(xx)) * sqrt(static_cast<double>(yy));
    return lengths > 0 ? static_cast<float>(static_cast<double>(xy) / lengths) : 1.0f;
  }
};

namespace detail {
template <class Warp>
SPECULA_HD CosineSums warp_sums(Warp warp, CosineSums mine) {
  mine.xx = reduce(warp, mine.xx, Sum{});
  mine.xy = reduce(warp, mine.xy, Sum{});
  mine.yy = reduce(warp, mine.yy, Sum{});
  return mine;
}
}  // namespace detail

/// The cosine of a token over the lanes of a warp that have a share of it each; all lanes get it. For a
/// residual add of one's own: `mine.add(x, x + attention)` for each element that a thread handles.
template <class Warp>
SPECULA_HD float token_cosine(Warp warp, CosineSums mine) {
  return detail::warp_sums(warp, mine).cosine();
}
/// The same over a block. `scratch`: shared memory for one CosineSums per warp, free again when this returns.
template <class Block>
SPECULA_HD float token_cosine(Block block, CosineSums mine, CosineSums* scratch) {
  mine = detail::warp_sums(block.warp(), mine);
  if (block.warp().rank() == 0) scratch[block.warp_rank()] = mine;
  block.sync();
  mine = scratch[0];
  for (int w = 1; w < block.warp_count(); ++w) mine = mine + scratch[w];
  block.sync();
  return mine.cosine();
}

namespace detail {

constexpr double kCosineUnits = 68719476736.0;  // 2^36: room for 2^27 tokens

SPECULA_HD unsigned long long cosine_units(float cosine) {
  return static_cast<unsigned long long>(static_cast<long long>(static_cast<double>(cosine) * kCosineUnits));
}

/// A thread's buffer of one sequence's cosines before they are added to its sum.
struct CosineTally {
  unsigned long long cosines = 0, tokens = 0;

  SPECULA_HD void add(float cosine) {
    const bool bad = is_nan(cosine);
    cosines += bad ? 0 : cosine_units(cosine);
    tokens += bad ? (1ull << 32) + 1 : 1;
  }
  SPECULA_HD void add_to(SimilaritySum* sum) const {
    atomic_add(&sum->cosines, cosines);
    atomic_add(&sum->tokens, tokens);
  }
};

/// 16 bytes of a row.
template <class Element>
struct alignas(16) Sixteen {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(Element));
  Element v[kSize];
};

/// A lane's share of a token. Every fourth element of its 16 bytes has a sum of its own: always the same
/// elements, so that neither alignment nor the launch matters.
template <class Warp, class Element>
SPECULA_HD CosineSums lane_sums(Warp warp, const Element* x, const Element* y, int hidden) {
  using Vector = Sixteen<Element>;
  constexpr int kAtOnce = 4;
  const bool aligned = (reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y)) % 16 == 0;
  const int step = warp.size() * Vector::kSize;
  CosineSums sums[4];
  for (int begin = warp.rank() * Vector::kSize; begin < hidden; begin += kAtOnce * step) {
    Vector a[kAtOnce], b[kAtOnce];
    SPECULA_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * step;
      if (aligned && at + Vector::kSize <= hidden) {
        a[i] = *reinterpret_cast<const Vector*>(x + at);
        b[i] = *reinterpret_cast<const Vector*>(y + at);
      } else {
        SPECULA_UNROLL
        for (int e = 0; e < Vector::kSize; ++e) {
          a[i].v[e] = at + e < hidden ? x[at + e] : Element{};
          b[i].v[e] = at + e < hidden ? y[at + e] : Element{};
        }
      }
    }
    SPECULA_UNROLL
    for (int i = 0; i < kAtOnce; ++i) SPECULA_UNROLL
    for (int e = 0; e < Vector::kSize; ++e) sums[e % 4].add(to_float(a[i].v[e]), to_float(b[i].v[e]));
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/// The residual stream around the blocks of several layers, or of one.
template <class Element>
struct StreamsOfLayers {
  const Element *const *before, *const *after;
  SPECULA_HD const Element* x(int layer) const { return before[layer]; }
  SPECULA_HD const Element* y(int layer) const { return after[layer]; }
};
template <class Element>
struct StreamsOfLayer {
  const Element *before, *after;
  SPECULA_HD const Element* x(int) const { return before; }
  SPECULA_HD const Element* y(int) const { return after; }
};

}  // namespace detail

/// The cosine of x and y, (hidden) each, by a warp; all lanes get it. Within 1e-6 of exact arithmetic for
/// 16,384 elements. Cost: one read of both, a load for 16 bytes where both are aligned to that, else one for
/// each element.
template <class Warp, class Element>
SPECULA_HD float token_cosine(Warp warp, const Element* x, const Element* y, int hidden) {
  return token_cosine(warp, detail::lane_sums(warp, x, y, hidden));
}
/// Adds a token's cosine to its sequence's and layer's sum; called by one thread.
SPECULA_HD void record_cosine(SimilaritySum* sum, float cosine) {
  detail::CosineTally tally;
  tally.add(cosine);
  tally.add_to(sum);
}

/// Launch configuration of the calls.
struct SimilarityPlan {
  SimilarityCapacity capacity;  ///< as given
  int blocks = 0,               ///< of a launch
      threads = 256;            ///< per block
};

namespace detail {

template <class Streams>
struct SimilarityArgs {
  Streams streams;
  SimilarityTokens tokens;
  SimilaritySum* sums;  // (B, L)
  SimilarityCapacity capacity;
};

constexpr int kTokensAtOnce = 4;  // of a warp, in sequence, before it updates the sums

/// The share of block `index` of `count`.
template <class Block, class Streams>
SPECULA_HD void measure_similarity(Block block, int index, int count, const SimilarityArgs<Streams>& args) {
  const auto warp = block.warp();
  const SimilarityCapacity& size = args.capacity;
  const SimilarityTokens& where = args.tokens;
  const int rows = larger(0, smaller(where.begin[size.sequences], size.tokens));
  const std::int64_t units = ceil_div(rows, kTokensAtOnce), all = units * where.layers;
  const std::int64_t step = static_cast<std::int64_t>(count) * block.warp_count();
  for (std::int64_t unit = static_cast<std::int64_t>(index) * block.warp_count() + block.warp_rank();
       unit < all; unit += step) {
    const int layer = static_cast<int>(unit / units);
    const int begin = static_cast<int>(unit % units) * kTokensAtOnce;
    const auto* x = args.streams.x(layer);
    const auto* y = args.streams.y(layer);
    CosineTally tally;
    int owner = -1;
    const auto flush = [&] {
      if (owner >= 0 && warp.rank() == 0)
        tally.add_to(args.sums + static_cast<std::int64_t>(owner) * size.layers + where.first_layer + layer);
    };
    for (int token = begin; token < smaller(rows, begin + kTokensAtOnce); ++token) {
      const int sequence = sequence_of(where.begin, size.sequences, token);
      if (sequence != owner) {
        flush();
        tally = {};
        owner = sequence;
      }
      if (sequence >= 0)
        tally.add(
            token_cosine(warp, x + token * where.before_stride, y + token * where.after_stride, size.hidden));
    }
    flush();
  }
}

/// The mean of one sequence at one layer.
SPECULA_HD float mean_cosine(const SimilaritySum& sum) {
  const auto count = static_cast<std::uint32_t>(sum.tokens),
             bad = static_cast<std::uint32_t>(sum.tokens >> 32);
  if (count == 0 || bad > 0) return float_of(0x7FC00000u);
  return static_cast<float>(static_cast<double>(static_cast<long long>(sum.cosines)) / kCosineUnits / count);
}
SPECULA_HD void similarity_mean(std::int64_t i, int layers, SimilaritySum* sums, float* out,
                                const std::int32_t* ended) {
  out[i] = mean_cosine(sums[i]);
  if (ended && ended[i / layers] != 0) sums[i] = {0, 0};
}

/// Whether `plan` was made, and a call has its arrays, rows that do not overlap, and layers of the plan's.
template <class Stream>
bool is_similarity(const SimilarityPlan& plan, const Stream* before, const Stream* after,
                   const SimilarityTokens& tokens, const SimilaritySum* sums) {
  const SimilarityCapacity& size = plan.capacity;
  return is_similarity(size) && plan.blocks >= 1 && is_geometry(1, plan.threads) && tokens.first_layer >= 0 &&
         tokens.layers >= 0 && tokens.first_layer <= size.layers - tokens.layers &&
         are_apart(size.tokens, tokens.before_stride, size.hidden) &&
         are_apart(size.tokens, tokens.after_stride, size.hidden) &&
         !any_null({before, after, tokens.begin, sums}) && !any_misaligned(before, after, tokens.begin, sums);
}
inline bool is_similarity(const SimilarityPlan& plan, const SimilaritySum* sums, const float* out,
                          const std::int32_t* ended) {
  return is_similarity(plan.capacity) && !any_null({sums, out}) && !any_misaligned(sums, out, ended);
}

#ifdef __CUDACC__

template <class Streams>
__global__ void __launch_bounds__(256)
    similarity_kernel(const __grid_constant__ SimilarityArgs<Streams> args) {
  measure_similarity(DeviceBlock{}, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), args);
}
template <class Sum>  // a template so that several translation units may have it
__global__ void __launch_bounds__(256)
    similarity_mean_kernel(std::int64_t all, int layers, Sum* sums, float* out, const std::int32_t* ended) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i < all) similarity_mean(i, layers, sums, out, ended);
}

template <class Streams>
cudaError_t measure_similarity(const SimilarityPlan& plan, const Streams& streams,
                               const SimilarityTokens& tokens, SimilaritySum* sums, cudaStream_t stream) {
  if (!is_similarity(plan, streams.before, streams.after, tokens, sums)) return cudaErrorInvalidValue;
  if (tokens.layers == 0) return cudaSuccess;
  const SimilarityArgs<Streams> args{streams, tokens, sums, plan.capacity};
  return launch(similarity_kernel<Streams>, plan.blocks, 1, plan.threads, 0, stream, args);
}

#endif  // __CUDACC__

}  // namespace detail

#ifdef __CUDACC__

/// Outside of captures. Errors: cudaErrorInvalidValue where a capacity is below 1, cudaErrorInvalidDevice
/// where `device` is not the current one, else the driver's error.
inline cudaError_t make_similarity_plan(SimilarityPlan* plan, const SimilarityCapacity& capacity,
                                        int device) {
  if (!detail::is_similarity(capacity)) return cudaErrorInvalidValue;
  detail::DeviceLimits limits;
  cudaError_t error = detail::check_current(device);
  if (error == cudaSuccess) error = detail::device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  plan->capacity = capacity;
  const std::int64_t warps =
      static_cast<std::int64_t>(detail::ceil_div(capacity.tokens, detail::kTokensAtOnce)) * capacity.layers;
  plan->blocks = static_cast<int>(detail::smaller<std::int64_t>(
      8 * limits.processors, detail::ceil_div<std::int64_t>(warps, plan->threads / 32)));
  return cudaSuccess;
}

/// Adds the tokens of a call to the sums, (B, L), of its layers: for each token the cosine between the
/// residual stream `before` a block and `after` it, (T, hidden) each. The sums of a prompt must be zero
/// before its first token; a prompt that is read in chunks has one call for each. The CPU counterpart is
/// specula::attention_similarity(). Cost: one read of both streams, one launch. Errors: cudaErrorInvalidValue
/// where layers are not among the plan's, an array is null or misaligned, or rows overlap; else the launch's
/// error. Source: the skipping rules of Metel et al. 2024 (Draft on the Fly).
/// @code
/// SimilarityPlan plan;  // once
/// make_similarity_plan(&plan, SimilarityCapacity{tokens, sequences, layers, hidden}, device);
/// // in prefill, after the attention of a layer; or after the last, if the streams of all layers are kept
/// measure_similarity(plan, before, after, SimilarityTokens{begin, hidden, hidden, layer}, sums, stream);
/// const SimilarityTokens of_all{begin, hidden, hidden, 0, layers};
/// measure_similarity_of_layers(plan, befores, afters, of_all, sums, stream);
/// similarity_means(plan, sums, means, ended, stream);
/// @endcode
template <class Element>
cudaError_t measure_similarity(const SimilarityPlan& plan, const Element* before, const Element* after,
                               SimilarityTokens tokens, SimilaritySum* sums, cudaStream_t stream) {
  if (tokens.layers != 1) return cudaErrorInvalidValue;
  return detail::measure_similarity(plan, detail::StreamsOfLayer<Element>{before, after}, tokens, sums,
                                    stream);
}
/// The same for all of tokens.layers at once, where each layer's streams are kept: `before` and `after`,
/// (layers), are device arrays of pointers to (T, hidden).
template <class Element>
cudaError_t measure_similarity_of_layers(const SimilarityPlan& plan, const Element* const* before,
                                         const Element* const* after, const SimilarityTokens& tokens,
                                         SimilaritySum* sums, cudaStream_t stream) {
  return detail::measure_similarity(plan, detail::StreamsOfLayers<Element>{before, after}, tokens, sums,
                                    stream);
}

/// The means: out (B, L), each within 1e-6 of exact arithmetic; NaN where there was no token, or one whose
/// cosine is NaN. Sums of sequences b with ended[b] != 0 become zero: ready for the next prompt in that
/// place. `ended`, (B) on the device, may be null: no sum is reset. Errors: cudaErrorInvalidValue where
/// another array is null, or one is misaligned; else the launch's error.
inline cudaError_t similarity_means(const SimilarityPlan& plan, SimilaritySum* sums, float* out,
                                    const std::int32_t* ended, cudaStream_t stream) {
  if (!detail::is_similarity(plan, sums, out, ended)) return cudaErrorInvalidValue;
  const std::int64_t all = static_cast<std::int64_t>(plan.capacity.sequences) * plan.capacity.layers;
  return detail::launch(detail::similarity_mean_kernel<SimilaritySum>,
                        static_cast<int>(detail::ceil_div<std::int64_t>(all, 256)), 1, 256, 0, stream, all,
                        plan.capacity.layers, sums, out, ended);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
