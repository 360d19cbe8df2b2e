// SPDX-License-Identifier: MIT
// Rows of logits with structure, beside the random ones of random.hpp: what a fault in a lane, at a border of
// tiles, in an order of summation or in a comparison of floats would show in, and random rows hide.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "random.hpp"

namespace specula_test {

enum class RowKind : std::uint8_t {
  flat,
  ascending,
  descending,
  steep,         // each logit one below the one before
  lane_period,   // repeats after 16 tokens
  tile_period,   // repeats after 512: all tiles are equal
  tile_steps,    // one value per tile
  one_lane,      // of 16 has nearly all mass
  one_tile,      // of 512 has nearly all mass
  last_part,     // the last tile, which may be a partial one, has nearly all mass
  last_token,    // has nearly all mass
  first_token,   // has nearly all mass
  one_alone,     // all others are -infinity
  last_alone,    // the same, and it is the last
  signed_zeros,  // the largest logits are +0 and -0
  empty_blocks,  // runs of -infinity, some over whole tiles
  empty_lanes,   // lanes of -infinity
  masked,        // most tokens at -1e9
  denormals,     // logits below the smallest normal float
  offset_1e6,    // where neighbouring floats are 1/16 apart
  offset_1e28,   // where they are far apart: ties, or one token alone
  offset_minus_1e30,
  plateaus,      // runs of equal logits
  many_largest,  // a tenth of all tokens share the largest logit
  two_values,    // 0 and log 2: the sums are whole numbers
  halves,        // 1, 2, 4, ... tokens of weight 1, 1/2, 1/4, ...: ties at thresholds of top-p and min-p
  wide,          // from -90 to 90
};
inline constexpr std::array kRowKinds = {RowKind::flat,         RowKind::ascending,
                                         RowKind::descending,   RowKind::steep,
                                         RowKind::lane_period,  RowKind::tile_period,
                                         RowKind::tile_steps,   RowKind::one_lane,
                                         RowKind::one_tile,     RowKind::last_part,
                                         RowKind::last_token,   RowKind::first_token,
                                         RowKind::one_alone,    RowKind::last_alone,
                                         RowKind::signed_zeros, RowKind::empty_blocks,
                                         RowKind::empty_lanes,  RowKind::masked,
                                         RowKind::denormals,    RowKind::offset_1e6,
                                         RowKind::offset_1e28,  RowKind::offset_minus_1e30,
                                         RowKind::plateaus,     RowKind::many_largest,
                                         RowKind::two_values,   RowKind::halves,
                                         RowKind::wide};

inline const char* name_of(RowKind kind) {
  constexpr std::array names = {"flat",         "ascending",
                                "descending",   "steep",
                                "lane_period",  "tile_period",
                                "tile_steps",   "one_lane",
                                "one_tile",     "last_part",
                                "last_token",   "first_token",
                                "one_alone",    "last_alone",
                                "signed_zeros", "empty_blocks",
                                "empty_lanes",  "masked",
                                "denormals",    "offset_1e6",
                                "offset_1e28",  "offset_minus_1e30",
                                "plateaus",     "many_largest",
                                "two_values",   "halves",
                                "wide"};
  static_assert(names.size() == kRowKinds.size());
  return names[static_cast<std::size_t>(kind)];
}

/// Whether large numbers, which a temperature, a difference or a type of 16 bits would not bear, are part of
/// it.
inline bool is_large(RowKind kind) {
  return kind == RowKind::masked || kind == RowKind::offset_1e6 || kind == RowKind::offset_1e28 ||
         kind == RowKind::offset_minus_1e30;
}

/// A row of that kind: at least one logit is finite, none is NaN or +infinity.
inline std::vector<float> structured_row(RowKind kind, std::int32_t vocab, Random& random) {
  constexpr float kMinus = -std::numeric_limits<float>::infinity();
  const auto size = static_cast<std::size_t>(vocab);
  std::vector<float> row(size);
  const auto fill = [&](auto value) {
    for (std::size_t i = 0; i < size; ++i) row[i] = static_cast<float>(value(i));
  };
  const auto ordinary = [&](std::size_t) { return random.between(-2, 2); };
  const auto pick = [&] { return static_cast<std::size_t>(random.below(vocab)); };
  // The tokens for which `in` holds are 30 above the others.
  const auto mass_in = [&](auto in) {
    fill([&](std::size_t i) { return random.between(-2, 2) + (in(i) ? 15 : -15); });
  };
  const auto period = [&](std::size_t length) {
    std::vector<double> values;
    for (std::size_t i = 0; i < length; ++i) values.push_back(random.between(-4, 4));
    fill([&](std::size_t i) { return values[i % length]; });
  };
  // A few floats from `around` downwards.
  const auto floats_at = [&](float around) {
    fill([&](std::size_t) {
      float l = around;
      for (int n = random.below(4); n > 0; --n) l = std::nextafter(l, kMinus);
      return l;
    });
  };
  const std::size_t tile = pick() / 512, lane = static_cast<std::size_t>(random.below(std::min(vocab, 16)));
  const std::size_t tiles = (size + 511) / 512;
  switch (kind) {
    case RowKind::flat:
      fill([&, l = random.between(-9, 9)](std::size_t) { return l; });
      break;
    case RowKind::ascending:
      fill(ordinary), std::sort(row.begin(), row.end());
      break;
    case RowKind::descending:
      fill(ordinary), std::sort(row.rbegin(), row.rend());
      break;
    case RowKind::steep:
      fill([&](std::size_t i) { return -static_cast<double>(i); });
      break;
    case RowKind::lane_period:
      period(16);
      break;
    case RowKind::tile_period:
      period(512);
      break;
    case RowKind::tile_steps: {
      std::vector<double> values;
      for (std::size_t t = 0; t < tiles; ++t) values.push_back(random.between(-4, 4));
      fill([&](std::size_t i) { return values[i / 512]; });
      break;
    }
    case RowKind::one_lane:
      mass_in([&](std::size_t i) { return i % 16 == lane; });
      break;
    case RowKind::one_tile:
      mass_in([&](std::size_t i) { return i / 512 == tile; });
      break;
    case RowKind::last_part:
      mass_in([&](std::size_t i) { return i / 512 == tiles - 1; });
      break;
    case RowKind::last_token:
      mass_in([&](std::size_t i) { return i + 1 == size; });
      break;
    case RowKind::first_token:
      mass_in([&](std::size_t i) { return i == 0; });
      break;
    case RowKind::one_alone:
      fill([&](std::size_t) { return kMinus; }), row[pick()] = 1.5f;
      break;
    case RowKind::last_alone:
      fill([&](std::size_t) { return kMinus; }), row.back() = -2.5f;
      break;
    case RowKind::signed_zeros:
      fill([&](std::size_t) { return random.bernoulli(0.5) ? 0.0 : random.bernoulli(0.5) ? -0.0 : -1.0; });
      row[pick()] = random.bernoulli(0.5) ? 0.0f : -0.0f;
      break;
    case RowKind::empty_blocks:
      fill(ordinary);
      for (std::size_t i = 0; i < size;) {
        const auto length = static_cast<std::size_t>(1 + random.below(vocab < 100 ? 5 : 700));
        if (random.bernoulli(0.5))
          std::fill(row.begin() + static_cast<std::ptrdiff_t>(i),
                    row.begin() + static_cast<std::ptrdiff_t>(std::min(size, i + length)), kMinus);
        i += length;
      }
      row[pick()] = 0.5f;
      break;
    case RowKind::empty_lanes:
      fill([&](std::size_t i) {
        return (i + lane) % 4 != 0 && i % 16 != lane ? static_cast<double>(kMinus) : random.between(-2, 2);
      });
      row[std::min(lane, size - 1)] = 0.5f;
      break;
    case RowKind::masked:
      fill([&](std::size_t) { return random.bernoulli(0.8) ? -1e9 : random.between(-2, 2); });
      row[pick()] = 0.5f;
      break;
    case RowKind::denormals:
      fill([&](std::size_t) { return (random.below(2001) - 1000) * 1e-42; });
      break;
    case RowKind::offset_1e6:
      fill([&](std::size_t) { return 1e6 + random.between(-2, 2); });
      break;
    case RowKind::offset_1e28:
      floats_at(1e28f);
      break;
    case RowKind::offset_minus_1e30:
      floats_at(-1e30f);
      break;
    case RowKind::plateaus: {
      double level = 0;
      fill([&](std::size_t) { return random.bernoulli(0.1) ? level = random.below(7) - 3 : level; });
      break;
    }
    case RowKind::many_largest:
      fill([&](std::size_t) { return random.bernoulli(0.1) ? 3.0 : random.between(-2, 2); });
      row[pick()] = 3;
      break;
    case RowKind::two_values:
      fill([&](std::size_t) { return random.bernoulli(0.5) ? std::log(2.0) : 0.0; });
      break;
    case RowKind::halves:
      fill([&](std::size_t i) { return -std::floor(std::log2(static_cast<double>(i + 1))) * std::log(2.0); });
      if (random.bernoulli(0.5)) std::reverse(row.begin(), row.end());
      break;
    case RowKind::wide:
      fill([&](std::size_t) { return random.between(-90, 90); });
      break;
  }
  return row;
}

/// The weights of such a row: the largest is 1.
inline std::vector<float> structured_weights(RowKind kind, std::int32_t vocab, Random& random) {
  std::vector<float> row = structured_row(kind, vocab, random);
  const float top = *std::max_element(row.begin(), row.end());
  for (float& l : row) l = l - top > -87 ? std::exp(l - top) : 0.0f;
  return row;
}

/// A row of any kind in two of five calls, else random.row() of these arguments. Without `large`, of those
/// kinds that are not large.
inline std::vector<float> mixed_row(Random& random, std::int32_t vocab, double spread, double ties = 0,
                                    double empty = 0, bool large = true) {
  if (!random.bernoulli(0.4)) return random.row(vocab, spread, ties, empty);
  RowKind kind =
      kRowKinds[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(kRowKinds.size())))];
  if (!large && is_large(kind)) kind = RowKind::halves;
  return structured_row(kind, vocab, random);
}

}  // namespace specula_test
