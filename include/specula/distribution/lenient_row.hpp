// SPDX-License-Identifier: MIT
// Lenient rejection sampling in a review: the exact distribution of the resulting draft token, as logits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/distribution/row_math.hpp"

namespace specula::detail {

/// Natural logarithm of a weight, -infinity for 0: within 1e-6 plus 2e-7 relative for normal floats, about
/// -87 or less for smaller ones. Branch-free, so that loops over it vectorise.
inline float log_weight(float weight) {
  const auto bits = std::bit_cast<std::uint32_t>(weight);
  // 0x3F3504F3 is sqrt(1/2): the mantissa will be in [sqrt(1/2), sqrt(2))
  const std::uint32_t shifted = bits - 0x3F3504F3u;
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  const float m = std::bit_cast<float>((shifted & 0x007FFFFFu) + 0x3F3504F3u);
  const float s = (m - 1.0f) / (m + 1.0f), t = s * s;  // log m = 2 artanh s
  const float log = 2.0f * s * (1.0f + t * (1.0f / 3 + t * (1.0f / 5 + t * (1.0f / 7))));
  const float sum = exponent * 0.69314718f + log;
  return weight > 0.0f ? sum : -std::numeric_limits<float>::infinity();
}

/// A token x drawn from q (`draft`) is accepted if a uniform draw is below lenience * p(x) / q(x);
/// otherwise it is redrawn from norm((p - q / lenience)+), p being the reviewer's distribution. With l the
/// lenience, its distribution then is
///
///   q_eff(x) = min(q(x), l p(x)) + (1 - beta) / (1 - beta / l) * (p(x) - q(x) / l)+
///   beta     = sum_y min(q(y), l p(y)).
///
/// Writes log q_eff (V) and returns true; returns false if no token can be rejected, since then q_eff is q.
/// Rounding is harmless: a caller that tests the token against this float row, as review() does, gives it
/// exactly the distribution of this row. Cost: one or two reads of both rows. Source: Cascade Speculative
/// Drafting, section 3.1, made exact.
inline bool lenient_row(const Distribution& draft, const Distribution& reviewer, double lenience,
                        std::span<float> out) {
  const auto vocab = static_cast<std::int32_t>(out.size());
  const auto l = static_cast<float>(lenience);
  std::array<float, kTile> padding, q, p;
  const auto fill = [&](std::int32_t tile) {
    kernels().fill(tile_at(draft.logits, vocab, tile, padding), Exponent(draft), q.data());
    kernels().fill(tile_at(reviewer.logits, vocab, tile, padding), Exponent(reviewer), p.data());
  };
  double beta = 0;
  for (std::int32_t tile = 0; tile < tile_count(vocab); ++tile) {
    fill(tile);
    std::array<float, 16> sums{};
    for (std::size_t i = 0; i < kTile; i += sums.size())
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += std::min(q[i + j], l * p[i + j]);
    for (const float sum : sums) beta += static_cast<double>(sum);
  }
  if (beta > 1 - 1e-6) return false;  // 1 up to rounding
  const auto share = static_cast<float>((1 - beta) / (1 - beta / lenience));
  for (std::int32_t tile = 0; tile < tile_count(vocab); ++tile) {
    fill(tile);
    for (std::size_t i = 0; i < kTile; ++i) {
      const float more = p[i] - q[i] / l;
      q[i] = log_weight(std::min(q[i], l * p[i]) + share * (more > 0.0f ? more : 0.0f));
    }
    const std::int32_t begin = tile * kTile;
    std::copy_n(q.begin(), std::min(kTile, vocab - begin), out.begin() + begin);
  }
  return true;
}

}  // namespace specula::detail
