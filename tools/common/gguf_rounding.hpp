// SPDX-License-Identifier: MIT
// Rows of floats as GGUF stores them: rounded to F16, BF16 and the blocks of 32 numbers, to the same bits as
// ggml's quantize_row_*_ref (llama.cpp, ggml-quants.c).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include <specula/base/half.hpp>
#include <specula/cpu/detail/panel.hpp>
#include <specula/files/gguf_blocks.hpp>

namespace specula_tools {

namespace detail {

inline void append_half(float value, std::string& out) {
  const std::uint16_t half = specula::detail::round_to_half(value);
  out.push_back(static_cast<char>(half & 0xff)), out.push_back(static_cast<char>(half >> 8));
}

/// A block of 32 numbers of kBits; see expand_nibbles() of specula/files/gguf_blocks.hpp.
template <int kBits, bool kOffset>
void append_nibbles(std::span<const float> block, std::string& out) {
  constexpr int kSteps = 1 << kBits;
  float scale = 0, from = 0, half = 0.5f;
  if (kOffset) {
    const auto [least, most] = std::minmax_element(block.begin(), block.end());
    from = *least, scale = (*most - *least) / (kSteps - 1);
  } else {
    const auto largest = std::max_element(block.begin(), block.end(),
                                          [](float a, float b) { return std::abs(a) < std::abs(b); });
    scale = *largest / (-kSteps / 2), half += kSteps / 2;
  }
  const float inverse = scale != 0 ? 1 / scale : 0;
  std::uint32_t steps[32], fifth = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    steps[i] = static_cast<std::uint32_t>(
        std::min(kSteps - 1, static_cast<int>((block[i] - from) * inverse + half)));
    fifth |= (steps[i] >> 4) << i;
  }
  append_half(scale, out);
  if (kOffset) append_half(from, out);
  if (kBits == 5)
    for (int byte = 0; byte < 4; ++byte) out.push_back(static_cast<char>(fifth >> 8 * byte & 0xff));
  for (std::size_t i = 0; i < 16; ++i)
    out.push_back(static_cast<char>((steps[i] & 15u) | (steps[i + 16] & 15u) << 4));
}

inline void append_q8_0(std::span<const float> block, std::string& out) {
  float largest = 0;
  for (const float weight : block) largest = std::max(largest, std::abs(weight));
  const float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
  append_half(scale, out);
  for (const float weight : block)
    out.push_back(static_cast<char>(static_cast<std::int8_t>(std::round(weight * inverse))));
}

}  // namespace detail

/// Appends a row, which must be whole blocks of the type. Throws std::runtime_error for a number that is not
/// finite or that the type cannot hold.
inline void append_rounded(specula::files::GgufId type, std::span<const float> row, std::string& out) {
  using specula::files::GgufId;
  const float most =
      type == GgufId::f32 || type == GgufId::bf16 ? std::numeric_limits<float>::max() : 65504.0f;
  for (const float weight : row)
    if (!(std::abs(weight) <= most))
      throw std::runtime_error(std::to_string(weight) + ", expected a number of at most " +
                               std::to_string(most));
  if (type == GgufId::f32) {
    out.append(reinterpret_cast<const char*>(row.data()), row.size_bytes());
    return;
  }
  if (type == GgufId::f16) {
    for (const float weight : row) detail::append_half(weight, out);
    return;
  }
  if (type == GgufId::bf16) {
    for (const float weight : row) {
      const std::uint32_t bits = specula::cpu::detail::round_to_bfloat16(weight);
      out.push_back(static_cast<char>(bits >> 16 & 0xff)), out.push_back(static_cast<char>(bits >> 24));
    }
    return;
  }
  for (std::size_t first = 0; first < row.size(); first += 32) {
    const auto block = row.subspan(first, 32);
    if (type == GgufId::q8_0) detail::append_q8_0(block, out);
    if (type == GgufId::q4_0) detail::append_nibbles<4, false>(block, out);
    if (type == GgufId::q4_1) detail::append_nibbles<4, true>(block, out);
    if (type == GgufId::q5_0) detail::append_nibbles<5, false>(block, out);
    if (type == GgufId::q5_1) detail::append_nibbles<5, true>(block, out);
  }
}

}  // namespace specula_tools
