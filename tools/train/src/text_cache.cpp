// SPDX-License-Identifier: MIT
#include "text_cache.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "vector_math.hpp"

// Vectors are passed within this file alone, by functions that are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace specula_train {
namespace {

using torch::Tensor;

constexpr auto kBlock = TextCache::kBlock;

using Floats [[gnu::vector_size(64)]] = float;
constexpr std::int64_t kLanes = 16, kVectors = kBlock / kLanes;  // of a block: they stay in registers

[[gnu::always_inline]] inline Floats load_vector(const float* from) {
  Floats x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
[[gnu::always_inline]] inline Floats load_vector(const Half* from) {
  using Halves [[gnu::vector_size(32)]] = std::uint16_t;
  using Words [[gnu::vector_size(64)]] = std::uint32_t;
  Halves x;
  std::memcpy(&x, from, sizeof x);
  return reinterpret_cast<Floats>(__builtin_convertvector(x, Words) << 16);
}

/// out[0, kBlock) += sum over i < count of factors[i] * rows[i * stride + (0 .. kBlock)].
template <class F, class T>
void add_rows(const F* factors, const T* rows, std::int64_t count, std::int64_t stride, float* out) {
  Floats sums[kVectors] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const float factor = load(factors[i]);
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kVectors; ++v)
      sums[v] += factor * load_vector(rows + i * stride + v * kLanes);
  }
  for (std::int64_t v = 0; v < kVectors; ++v)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) out[v * kLanes + lane] += sums[v][lane];
}

/// Weights that sum to 1, in place.
void softmax(float* scores, std::int64_t count) {
  float largest = scores[0];
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, scores[i]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    scores[i] = fast_exp(scores[i] - largest);
    sum += scores[i];
  }
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) scores[i] *= 1 / sum;
}

/// sums += the values of `count` positions by their weights. v (count, size).
template <class T>
void mix(const float* weights, const T* v, std::int64_t size, std::int64_t count, float* sums) {
  if (size % kBlock == 0) {
    for (std::int64_t part = 0; part < size; part += kBlock)
      add_rows(weights, v + part, count, size, sums + part);
    return;
  }
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t i = 0; i < size; ++i) sums[i] += weights[t] * load(v[t * size + i]);
}

}  // namespace

Tensor attend_texts(const Tensor& q, const KeyValues& now, KeyValues& cache, const Tensor& lengths) {
  if (!q.is_cpu()) return plain::attend_texts(q, now, cache, lengths);
  const auto kv_heads = cache.k.size(0), texts = cache.k.size(1), size = cache.k.size(3),
             capacity = cache.v.size(2), group = q.size(1) / texts;
  const auto queries = q.contiguous(), keys = now.k.contiguous(), values = now.v.contiguous();
  auto out = torch::empty_like(queries);
  with_type(q.scalar_type(), [&]<class T>(T) {
    at::parallel_for(0, kv_heads * texts, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> weights(static_cast<std::size_t>(group * capacity)),
          sums(static_cast<std::size_t>(group * size));
      for (auto at = begin; at < end; ++at) {
        const auto head = at / texts, text = at % texts, length = data<std::int64_t>(lengths)[text],
                   seen = length + 1;
        T *k = data<T>(cache.k) + at * size * capacity, *v = data<T>(cache.v) + at * size * capacity;
        for (std::int64_t d = 0; d < size; ++d)
          k[(length / kBlock * size + d) * kBlock + length % kBlock] = data<T>(keys)[at * size + d];
        std::copy_n(data<T>(values) + at * size, size, v + length * size);
        const auto row = [&](std::int64_t g) { return ((head * group + g) * texts + text) * size; };
        std::fill(weights.begin(), weights.end(), 0.0F);
        // Each block is read once, for all queries.
        for (std::int64_t first = 0; first < seen; first += kBlock)
          for (std::int64_t g = 0; g < group; ++g)
            add_rows(data<T>(queries) + row(g), k + first * size, size, kBlock,
                     weights.data() + g * capacity + first);
        for (std::int64_t g = 0; g < group; ++g) softmax(weights.data() + g * capacity, seen);
        std::fill(sums.begin(), sums.end(), 0.0F);
        for (std::int64_t first = 0; first < seen; first += kBlock)
          for (std::int64_t g = 0; g < group; ++g)
            mix(weights.data() + g * capacity + first, v + first * size, size, std::min(kBlock, seen - first),
                sums.data() + g * size);
        for (std::int64_t g = 0; g < group; ++g)
          for (std::int64_t i = 0; i < size; ++i)
            store(data<T>(out)[row(g) + i], sums[static_cast<std::size_t>(g * size + i)]);
      }
    });
  });
  return out;
}

Tensor plain::attend_texts(const Tensor& q, const KeyValues& now, KeyValues& cache, const Tensor& lengths) {
  const auto kv_heads = cache.k.size(0), texts = cache.k.size(1), size = cache.k.size(3),
             group = q.size(1) / texts;
  const auto of = torch::arange(texts, lengths.options()), block = lengths.div(kBlock, "floor");
  cache.k.index_put_(
      {torch::indexing::Slice(), of, block, torch::indexing::Slice(), lengths - block * kBlock},
      now.k.transpose(0, 1));
  cache.v.index_put_({torch::indexing::Slice(), of, lengths}, now.v);
  const auto blocks = lengths.max().item<std::int64_t>() / kBlock + 1, longest = blocks * kBlock;
  const auto by_text =
      q.view({kv_heads, group, texts, size}).transpose(1, 2);  // (kv_heads, texts, group, size)
  const auto scores = torch::matmul(by_text.unsqueeze(2), cache.k.narrow(2, 0, blocks))
                          .transpose(2, 3)
                          .reshape({kv_heads, texts, group, longest})
                          .to(torch::kFloat32);
  const auto hidden = torch::arange(longest, lengths.options()) > lengths.view({1, texts, 1, 1});
  const auto weights =
      torch::softmax(scores.masked_fill(hidden, -std::numeric_limits<float>::infinity()), -1);
  return torch::matmul(weights.to(q.scalar_type()), cache.v.narrow(2, 0, longest))
      .transpose(1, 2)
      .reshape(q.sizes());
}

}  // namespace specula_train
