// SPDX-License-Identifier: MIT
// Functions for loops that the compiler vectorises: branch-free, and always inlined, since a call would
// prevent vectorisation.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace specula_train {

/// A bfloat16. c10's own type checks for NaN when it rounds, which prevents vectorisation.
struct Half {
  std::uint16_t bits;
};
[[gnu::always_inline]] inline float load(float x) { return x; }
[[gnu::always_inline]] inline float load(Half x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
[[gnu::always_inline]] inline void store(float& to, float x) { to = x; }
[[gnu::always_inline]] inline void store(Half& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);  // to nearest, ties to even
  to.bits = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// exp(x) within 2e-7 relative for x in [-87, 87]; beyond, the value at the end of that range.
[[gnu::always_inline]] inline float fast_exp(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  x = std::min(std::max(x, -87.0F), 87.0F);
  const float whole = (x * 1.44269504F + kRound) - kRound;
  const float rest = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float series = 1.9875691500e-4F;
  series = series * rest + 1.3981999507e-3F;
  series = series * rest + 8.3334519073e-3F;
  series = series * rest + 4.1665795894e-2F;
  series = series * rest + 1.6666665459e-1F;
  series = series * rest + 5.0000001201e-1F;
  series = series * rest * rest + rest + 1.0F;
  const auto power = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) + 127) << 23;
  return series * std::bit_cast<float>(power);
}

/// The elements of a contiguous tensor.
template <class T>
T* data(const torch::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

/// Calls f(T{}) with the type of the tensors' elements.
template <class F>
void with_type(torch::ScalarType dtype, F f) {
  if (dtype == torch::kBFloat16) {
    f(Half{});
  } else {
    TORCH_CHECK(dtype == torch::kFloat32, "expected float32 or bfloat16");
    f(0.0F);
  }
}

constexpr std::int64_t kGrain = 16;  // rows a thread takes at least

}  // namespace specula_train
