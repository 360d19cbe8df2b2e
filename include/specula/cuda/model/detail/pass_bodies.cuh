// SPDX-License-Identifier: MIT
// Kernel bodies of a Llama-family decoder: all that lies between its matrix products and attention.
//
// Work: one block per token; PlaceHeads: one warp per head of a token; SiluProduct: one block per 1,024
// elements of a token.
// Traffic: the residual stream and outputs of products are floats, inputs of products bfloat16.
// Forms: body_kernel<Body>; PlaceHeads<64> or <128> by the head size; launched by Decoder::pass().
// Reference: cpu/decoder.hpp; tests/cuda/model/detail/pass_bodies.cpp, tests/cuda/model/decoder.cpp;
// bench/cuda/model_check.cpp.
// Example: examples/cuda/decode.cpp; its head has the compile lines.
// Check: scripts/gpu --out FOLDER --sections model (program model_check).
#pragma once

#include <cmath>
#include <cstdint>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/paged_kv.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

// A body is launched over blocks() blocks of kThreads threads. Each block calls it with its number and memory
// for a float of each warp.

SPECULA_HD BFloat16 to_bfloat16(float x) { return {static_cast<std::uint16_t>(pack(BFloat16{}, x, 0.0f))}; }

/// The tokens of a pass, those of each sequence in a row, all arrays on the device: none of them is known to
/// the host when a launch is captured. K and V of number i of sequence b go to slot length[b] + earlier[b] +
/// i.
struct PassTokens {
  const Token* token;            // (n)
  const std::int32_t* begin;     // (B + 1)
  const std::int32_t* length;    // (B) tokens in the cache, which all of these see
  const std::int32_t* earlier;   // (B) nodes of the same tree that ran in passes before
  const std::int32_t* position;  // (n) in the text
  int count, sequences;          // n and B; tokens from begin[B] on are padding

  /// A token's sequence and slot; -1 of padding.
  struct Place {
    int sequence;
    std::int32_t slot;
  };
  SPECULA_HD Place place(int t) const {
    if (t >= begin[sequences]) return {-1, -1};
    const int b = sequence_of(begin, sequences, t);
    return {b, length[b] + earlier[b] + t - begin[b]};
  }
};

/// 1 / RMS of a row of `size` floats, the same bits for every row of these numbers.
template <class Block>
SPECULA_HD float inverse_rms(Block block, const float* x, int size, float eps, float* scratch) {
  float squares = 0;
  for (int i = block.rank(); i < size; i += block.size()) squares = fused(x[i], x[i], squares);
  squares = block_reduce(block, squares, Sum{}, scratch);
  return 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
}

/// The input of a product, of a number that was normed or not.
SPECULA_HD BFloat16 normed_number(float x, float scale, const float* weight, int i) {
  return to_bfloat16(weight ? product(product(x, scale), weight[i]) : x);
}

/// A block for each token: the residual stream begins as its embedding, and is normed for the first layer.
struct Embed {
  static constexpr int kThreads = 256;
  PassTokens tokens;
  const BFloat16* embedding;  // (V, size)
  const float* weight;        // (size) of the first norm; null: rounded, not normed
  float* hidden;              // (n, size)
  BFloat16* normed;           // (n, size)
  int size, vocab;
  float eps;

  SPECULA_HD int blocks() const { return tokens.count; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int t, float* scratch) const {
    Token token = tokens.token[t];
    if (token < 0 || token >= vocab) token = 0;
    const std::int64_t at = static_cast<std::int64_t>(t) * size;
    const BFloat16* from = embedding + static_cast<std::int64_t>(token) * size;
    // A thread norms what it wrote itself, so no barrier.
    for (int i = block.rank(); i < size; i += block.size()) hidden[at + i] = to_float(from[i]);
    const float scale = weight ? inverse_rms(block, hidden + at, size, eps, scratch) : 1.0f;
    for (int i = block.rank(); i < size; i += block.size())
      normed[at + i] = normed_number(hidden[at + i], scale, weight, i);
  }
};

/// The features of a target or of a head, by slot: those of sequence b from b * stride on.
struct FeatureRows {
  const BFloat16* data = nullptr;  // rows of the residual stream's width
  std::int64_t stride = 0;
};

/// What a product makes the residual stream of, (n, width): a token's embedding, of a draft that projects its
/// target's; in a feature head followed by the feature of the token before. A block for each token.
struct Gather {
  static constexpr int kThreads = 256;
  PassTokens tokens;
  const BFloat16* embedding;  // (V, size)
  /// (n) where the feature lies; null: there are none. From 0 on: the head's own, in this slot after `base`;
  /// kNoFeature: zeros; below: the target's, of the token at kNoFeature - 1 - from.
  const std::int32_t* from;
  const std::int32_t* base;  // (B) slots before; null: none
  FeatureRows heads, targets;
  BFloat16* out;
  int size, vocab;

  static constexpr std::int32_t kNoFeature = -1;
  /// What stands in `from` for the target's feature of the token at `position`.
  SPECULA_HD static std::int32_t of_target(std::int32_t position) { return kNoFeature - 1 - position; }

  SPECULA_HD int blocks() const { return tokens.count; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int t, float*) const {
    const PassTokens::Place place = tokens.place(t);
    if (place.sequence < 0) return;
    Token token = tokens.token[t];
    if (token < 0 || token >= vocab) token = 0;
    const BFloat16* const row = embedding + static_cast<std::int64_t>(token) * size;
    BFloat16* const to = out + static_cast<std::int64_t>(t) * size * (from ? 2 : 1);
    for (int i = block.rank(); i < size; i += block.size()) to[i] = row[i];
    if (!from) return;
    const BFloat16* feature = nullptr;
    if (from[t] >= 0)
      feature = heads.data + place.sequence * heads.stride +
                static_cast<std::int64_t>((base ? base[place.sequence] : 0) + from[t]) * size;
    else if (from[t] != kNoFeature)
      feature = targets.data + place.sequence * targets.stride +
                static_cast<std::int64_t>(of_target(from[t])) * size;
    for (int i = block.rank(); i < size; i += block.size()) to[size + i] = feature ? feature[i] : BFloat16{0};
  }
};

/// Logits of a draft vocabulary, a block for each 1,024 of a row: to where their tokens lie in rows of all
/// tokens, whose other numbers stay.
struct Spread {
  static constexpr int kThreads = 256, kEach = 1024;
  const float* from;           // (rows, size)
  const std::int32_t* tokens;  // (size)
  float* to;                   // (rows, vocab)
  int rows, size, vocab;

  SPECULA_HD int chunks() const { return ceil_div(size, kEach); }
  SPECULA_HD int blocks() const { return rows * chunks(); }
  template <class Block>
  SPECULA_HD void operator()(Block block, int index, float*) const {
    const std::int64_t row = index / chunks();
    const int first = index % chunks() * kEach;
    for (int i = first + block.rank(); i < smaller(first + kEach, size); i += block.size())
      to[row * vocab + tokens[i]] = from[row * size + i];
  }
};

/// A block for each token. The products of attention and MLP add to `hidden` themselves.
struct Norm {
  static constexpr int kThreads = 256;
  float* hidden;        // (n, size)
  const float* bias;    // (size) added to it before; null: none
  const float* weight;  // (size); null: rounded, not normed
  BFloat16* normed;     // (n, size)
  int count, size;
  float eps;

  SPECULA_HD int blocks() const { return count; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int t, float* scratch) const {
    const std::int64_t at = static_cast<std::int64_t>(t) * size;
    if (bias)
      for (int i = block.rank(); i < size; i += block.size()) hidden[at + i] = sum(hidden[at + i], bias[i]);
    const float scale = weight ? inverse_rms(block, hidden + at, size, eps, scratch) : 1.0f;
    for (int i = block.rank(); i < size; i += block.size())
      normed[at + i] = normed_number(hidden[at + i], scale, weight, i);
  }
};

/// The norm before the LM head, a block for each token: rows that are asked for go to the head, and all to
/// the features, by slot.
struct FinalNorm {
  static constexpr int kThreads = 256;
  PassTokens tokens;
  const float* hidden;      // (n, size)
  const float* weight;      // (size); null: rounded, not normed, as a feature head's
  const std::int32_t* row;  // (n) of `normed`; negative: not asked for
  BFloat16* normed;         // (rows, size)
  BFloat16* features;       // (B, capacity, size); null: not kept
  int size, capacity;
  float eps;

  SPECULA_HD int blocks() const { return tokens.count; }
  template <class Block>
  SPECULA_HD void operator()(Block block, int t, float* scratch) const {
    const PassTokens::Place place = tokens.place(t);
    if (place.sequence < 0) return;
    const float* from = hidden + static_cast<std::int64_t>(t) * size;
    BFloat16* const to = row[t] < 0 ? nullptr : normed + static_cast<std::int64_t>(row[t]) * size;
    BFloat16* const kept =
        features && place.slot >= 0 && place.slot < capacity
            ? features + (static_cast<std::int64_t>(place.sequence) * capacity + place.slot) * size
            : nullptr;
    const float scale = weight ? inverse_rms(block, from, size, eps, scratch) : 1.0f;
    for (int i = block.rank(); i < size; i += block.size()) {
      const BFloat16 x = normed_number(from[i], scale, weight, i);
      if (to) to[i] = x;
      if (kept) kept[i] = x;
    }
  }
};

/// A warp for each head of each token: biases, norms of queries and keys, rotation. Queries go to where
/// attention reads them, keys and values into the cache.
template <int kHead>
struct PlaceHeads {
  static constexpr int kThreads = 256, kPairs = kHead / 64;
  PassTokens tokens;
  const float* qkv;                    // (n, Hq + 2 Hkv, D)
  const float* bias;                   // (Hq + 2 Hkv, D); null: none
  const float *query_norm, *key_norm;  // (D); null: none
  const float *cosine, *sine;          // (positions, D / 2)
  BFloat16* q;                         // (n, Hq, D)
  PagedKv<BFloat16> kv;
  Divisor page_size;
  int query_heads, kv_heads, positions;
  int norm_size;  // numbers of a head that are no padding
  float eps;

  SPECULA_HD int heads() const { return query_heads + 2 * kv_heads; }
  SPECULA_HD int blocks() const { return ceil_div(tokens.count * heads(), kThreads / 32); }
  template <class Block>
  SPECULA_HD void operator()(Block block, int index, float*) const {
    const int item = index * (kThreads / 32) + block.warp_rank();
    if (item < tokens.count * heads()) place(block.warp(), item / heads(), item % heads());
  }

 private:
  template <class Warp>
  SPECULA_HD void place(Warp warp, int t, int head) const {
    const PassTokens::Place at = tokens.place(t);
    if (at.sequence < 0) return;
    const float* from = qkv + (static_cast<std::int64_t>(t) * heads() + head) * kHead;
    const bool is_query = head < query_heads, is_value = head >= query_heads + kv_heads;
    float low[kPairs], high[kPairs];
    SPECULA_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const int i = warp.rank() + 32 * p;
      low[p] = from[i], high[p] = from[i + kHead / 2];
      if (bias) {
        low[p] = sum(low[p], bias[head * kHead + i]);
        high[p] = sum(high[p], bias[head * kHead + i + kHead / 2]);
      }
    }
    if (!is_value) {
      const float* weight = is_query ? query_norm : key_norm;
      if (weight) norm(warp, weight, low, high);
      rotate(warp, tokens.position[t], low, high);
    }
    BFloat16* to;
    if (is_query) {
      to = q + (static_cast<std::int64_t>(t) * query_heads + head) * kHead;
    } else {
      const int h = (head - query_heads) % kv_heads;
      const PageSpan span = page_span(kv, at.sequence);
      const std::uint32_t slot = static_cast<std::uint32_t>(at.slot);
      if (slot >= static_cast<std::uint32_t>(span.count) * page_size.by) return;  // a full cache
      to = const_cast<BFloat16*>(row_at(is_value ? kv.v : kv.k, span, page_size, kv.page_count, slot, h));
    }
    SPECULA_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const int i = warp.rank() + 32 * p;
      to[i] = to_bfloat16(low[p]), to[i + kHead / 2] = to_bfloat16(high[p]);
    }
  }

  template <class Warp>
  SPECULA_HD void norm(Warp warp, const float* weight, float (&low)[kPairs], float (&high)[kPairs]) const {
    float squares = 0;
    SPECULA_UNROLL
    for (int p = 0; p < kPairs; ++p) squares = fused(low[p], low[p], fused(high[p], high[p], squares));
    squares = reduce(warp, squares, Sum{});
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(norm_size) + eps);
    SPECULA_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      low[p] = product(product(low[p], scale), weight[warp.rank() + 32 * p]);
      high[p] = product(product(high[p], scale), weight[warp.rank() + 32 * p + kHead / 2]);
    }
  }

  template <class Warp>
  SPECULA_HD void rotate(Warp warp, std::int32_t position, float (&low)[kPairs],
                         float (&high)[kPairs]) const {
    const std::int64_t row =
        static_cast<std::int64_t>(smaller(larger(position, 0), positions - 1)) * (kHead / 2);
    SPECULA_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const float c = cosine[row + warp.rank() + 32 * p], s = sine[row + warp.rank() + 32 * p];
      const float a = low[p], b = high[p];
      low[p] = difference(product(a, c), product(b, s));
      high[p] = sum(product(b, c), product(a, s));
    }
  }
};

/// gate / (1 + e^-gate) * up.
struct SiluProduct {
  static constexpr int kThreads = 256, kEach = 1024;  // elements of a block
  const float* gate_up;                               // (n, 2, size)
  BFloat16* out;                                      // (n, size)
  int count, size;

  SPECULA_HD int chunks() const { return ceil_div(size, kEach); }
  SPECULA_HD int blocks() const { return count * chunks(); }
  template <class Block>
  SPECULA_HD void operator()(Block block, int index, float*) const {
    const std::int64_t t = index / chunks();
    const int first = index % chunks() * kEach;
    const float *gate = gate_up + t * 2 * size, *up = gate + size;
    for (int i = first + block.rank(); i < smaller(first + kEach, size); i += block.size()) {
      const float e = exp2_fast(product(static_cast<float>(-kLog2E), gate[i]));
      out[t * size + i] = to_bfloat16(product(gate[i] / sum(1.0f, e), up[i]));
    }
  }
};

#ifdef __CUDACC__
template <class Body>
__global__ void __launch_bounds__(Body::kThreads) body_kernel(const __grid_constant__ Body body) {
  __shared__ float scratch[Body::kThreads / 32];
  body(DeviceBlock{}, static_cast<int>(blockIdx.x), scratch);
}
#endif

}  // namespace detail
}  // namespace cuda
}  // namespace specula
