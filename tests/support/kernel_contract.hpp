// SPDX-License-Identifier: MIT
// Tests of the numeric contract of row_kernels.hpp. One function per clause; the test of each
// kernel set calls them all.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <specula/distribution/row_kernels.hpp>

#include "random.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

namespace specula_test {

using Tile = std::array<float, 512>;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline Tile random_tile(Random& random, double middle, double spread, double empty = 0) {
  Tile tile;
  for (float& l : tile)
    l = random.bernoulli(empty) ? -kInf : static_cast<float>(middle + random.between(-spread, spread));
  return tile;
}

inline Tile structured_tile(RowKind kind, Random& random) {
  const std::vector<float> row = structured_row(kind, 512, random);
  Tile tile;
  std::copy(row.begin(), row.end(), tile.begin());
  return tile;
}

/// The stated order of summation: 128 columns of 4, each in order, then halved 64, 32, ..., 1; in floats.
inline float ordered_sum(const float* w) {
  std::array<float, 128> columns;
  for (std::size_t j = 0; j < 128; ++j) columns[j] = ((w[j] + w[j + 128]) + w[j + 256]) + w[j + 384];
  for (std::size_t half = 64; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) columns[j] = columns[j] + columns[j + half];
  return columns[0];
}

inline double exact_sum(const float* w) {
  double sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<double>(w[i]);
  return sum;
}

/// Middles of tiles: ordinary logits, a mask on every token, and offsets up to the range of a float.
inline constexpr double kMiddles[] = {0.0, 30.0, -300.0, 1e4, -1e9, -1e10, 3e12, 1e20, -3.3895e38, 3.4e38};

/// Spread of logits around `middle`: `width` over inv_t, or ten floats where these are further apart.
inline double spread_of(double middle, double width, double inv_t) {
  return width == 0 ? 0 : std::max(width / inv_t, std::abs(middle) * 0x1p-20);
}

/// log_z is relative to the tile's largest logit.
inline specula::Distribution distribution_over(const Tile& tile, double inv_t, double log_z,
                                               float min_logit = -kInf) {
  specula::Distribution distribution;
  distribution.logits = tile.data();
  distribution.inv_t = inv_t;
  distribution.log_z = log_z;
  distribution.shift = *std::max_element(tile.begin(), tile.end());
  distribution.min_logit = min_logit;
  return distribution;
}

/// l less the tile's largest logit, in double.
inline double below_largest(const specula::Distribution& distribution, float l) {
  return static_cast<double>(l) - static_cast<double>(distribution.shift);
}

/// log of sum exp(inv_t * (l - largest)), in double.
inline double log_sum(const Tile& tile, double inv_t) {
  const specula::Distribution distribution = distribution_over(tile, inv_t, 0);
  double sum = 0;
  for (const float l : tile) sum += std::exp(inv_t * below_largest(distribution, l));
  return std::log(sum);
}

/// The reference kernels have no minimum exponent, and round neither scales nor units.
inline bool is_fast(const specula::detail::RowKernels& k) {
  return k.stats != specula::detail::ReferenceKernels::stats;
}

/// A weight is within 4e-7 relative of exp(inv_t * (l - shift) - log_z) plus 2.4e-7 times its exponent
/// (0 below 2^-126), and the sum within 1e-6 of the sum of the weights. Returns the worst error
/// relative to the allowed error.
inline double worst_weight_error(const specula::detail::RowKernels& k, const Tile& tile,
                                 const specula::Distribution& distribution) {
  Tile w;
  const double sum = k.fill(tile.data(), specula::detail::Exponent(distribution), w.data());
  double worst = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    const double exponent = distribution.inv_t * below_largest(distribution, tile[i]) - distribution.log_z;
    const double got = static_cast<double>(w[i]);
    const bool tiny = exponent < -126.001 * std::log(2.0) && is_fast(k);
    if (tile[i] < distribution.min_logit || tiny) {
      if (w[i] != 0) worst = std::numeric_limits<double>::infinity();
      continue;
    }
    if (exponent < -125.999 * std::log(2.0)) continue;
    worst = worse(worst, std::abs(got / std::exp(exponent) - 1) / (4e-7 + 2.4e-7 * std::abs(exponent)));
  }
  const double total = exact_sum(w.data());
  return worse(worst, std::abs(sum - total) / (1e-6 * total + 1e-40));  // 1e-40: floats below 2^-126
}

inline void check_weights(const specula::detail::RowKernels& k) {
  Random random(1);
  double worst = 0;
  for (const double inv_t : {0.1, 0.5, 1.0, 1.25, 3.0, 100.0, 1e4})
    for (const double middle : kMiddles)
      for (const double width : {0.5, 10.0, 80.0, 120.0}) {
        const Tile tile = random_tile(random, middle, spread_of(middle, width, inv_t), 0.05);
        const double log_z = log_sum(tile, inv_t);
        worst = worse(worst, worst_weight_error(k, tile, distribution_over(tile, inv_t, log_z)));
        worst = worse(
            worst, worst_weight_error(
                       k, tile,
                       distribution_over(tile, inv_t, log_z + random.between(0, 90))));  // one of many tiles
        worst = worse(
            worst,
            worst_weight_error(k, tile, distribution_over(tile, inv_t, log_z - 0.5, tile[17])));  // truncated
      }
  for (const RowKind kind : kRowKinds)
    for (const double inv_t : {0.5, 1.0, 3.0}) {
      CAPTURE(name_of(kind));
      const Tile tile = structured_tile(kind, random);
      const double log_z = log_sum(tile, inv_t), top = *std::max_element(tile.begin(), tile.end());
      worst = worse(worst, worst_weight_error(k, tile, distribution_over(tile, inv_t, log_z)));
      for (const float cut : {static_cast<float>(top), tile[300]})
        worst = worse(worst, worst_weight_error(k, tile, distribution_over(tile, inv_t, log_z, cut)));
    }
  MESSAGE("worst weight or sum: " << worst << " of the allowed error");
  CHECK(worst <= 1);
}

inline specula::detail::TileStats stats_of(const specula::detail::RowKernels& k, const float* tile,
                                           double inv_t) {
  specula::detail::TileStats out;
  k.stats(tile, 1, inv_t, &out);
  return out;
}
/// The factor that stats() multiplies logits by.
inline double scale_of(const specula::detail::RowKernels& k, double inv_t) {
  const double scale = inv_t / std::log(2.0);
  return is_fast(k) ? static_cast<double>(static_cast<float>(scale)) : scale;
}

/// 2^(scale * (l - maximum) + rest) summed, within 1e-6 plus what the exponents allow. unit + rest is scale *
/// maximum, and the unit a whole number in the fast kernels.
inline void check_stats(const specula::detail::RowKernels& k) {
  Random random(2);
  double worst = 0;
  const auto check = [&](const Tile& tile, double inv_t) {
    const specula::detail::TileStats stats = stats_of(k, tile.data(), inv_t);
    const double scale = scale_of(k, inv_t), top = static_cast<double>(stats.maximum);
    CHECK(stats.maximum == *std::max_element(tile.begin(), tile.end()));
    const double rest = static_cast<double>(stats.rest);
    CHECK(std::abs(rest) <= 0.5);
    if (is_fast(k)) {
      CHECK(stats.unit == std::round(stats.unit));
      CHECK(std::abs(scale * top - stats.unit - rest) <= 3e-8);
    } else {
      CHECK(stats.unit == doctest::Approx(scale * top).epsilon(1e-15));
    }
    double want = 0, allowed = 0;
    for (const float l : tile) {
      const double w = std::exp2(scale * (static_cast<double>(l) - top) + rest);
      want += w;
      if (l > -kInf) allowed += w * (4e-7 + 2.4e-7 * scale * (top - static_cast<double>(l)));
    }
    const double error = std::abs(stats.sum - want) / (allowed + 1e-6 * want);
    if (error > 1)
      MESSAGE("inv_t " << inv_t << ", logits up to " << top << ": " << error << " of the allowed error");
    worst = worse(worst, error);
  };
  for (const double inv_t : {0.1, 1.0, 3.0, 100.0, 1e4})
    for (const double middle : kMiddles)
      for (const double width : {0.0, 0.5, 10.0, 80.0, 1e6})
        check(random_tile(random, middle, spread_of(middle, width, inv_t), 0.05), inv_t);
  for (const RowKind kind : kRowKinds)
    for (const double inv_t : {0.5, 1.0, 3.0}) {
      CAPTURE(name_of(kind));
      check(structured_tile(kind, random), inv_t);
    }
  CHECK(worst <= 1);
  Tile empty;
  empty.fill(-kInf);
  CHECK(stats_of(k, empty.data(), 1.0).sum == 0);
  CHECK(stats_of(k, empty.data(), 1.0).maximum == -kInf);
  Tile w;
  CHECK(k.fill(empty.data(), specula::detail::Exponent(specula::Distribution{}), w.data()) == 0);
  CHECK(std::count(w.begin(), w.end(), 0.0f) == 512);
}

/// Positions of the values above a bound, in order. Values equal to the bound and NaN are not above it.
inline void check_above(const specula::detail::RowKernels& k) {
  Random random(9);
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> tile(512 + 16);
    const std::size_t shift = static_cast<std::size_t>(round) % 16;
    for (float& l : tile) {
      l = static_cast<float>(random.between(-4, 4));
      if (random.bernoulli(0.5)) l = std::round(l);
      if (random.bernoulli(0.1)) l = random.bernoulli(0.5) ? -kInf : kInf;
      if (random.bernoulli(0.05)) l = random.bernoulli(0.5) ? kNan : -kNan;
    }
    if (round % 3 == 0) {
      const Tile whole =
          structured_tile(kRowKinds[static_cast<std::size_t>(round / 3) % kRowKinds.size()], random);
      std::copy(whole.begin(), whole.end(), tile.begin() + static_cast<std::ptrdiff_t>(shift));
    }
    const float bounds[] = {static_cast<float>(random.below(7) - 3), tile[shift + 77],
                            static_cast<float>(random.between(-5, 5)), -kInf, kInf};
    for (const float bound : bounds) {
      std::vector<std::int32_t> want, got(512, -1);
      for (std::int32_t i = 0; i < 512; ++i)
        if (tile[shift + static_cast<std::size_t>(i)] > bound) want.push_back(i);
      const std::int32_t count = k.above(tile.data() + shift, bound, got.data());
      wrong += count != static_cast<std::int32_t>(want.size()) ||
               !std::equal(want.begin(), want.end(), got.begin());
    }
  }
  CHECK(wrong == 0);
  Tile tile;
  std::array<std::int32_t, 512> places;
  tile.fill(1);
  CHECK(k.above(tile.data(), 0.5f, places.data()) == 512);
  CHECK(places[511] == 511);
  CHECK(k.above(tile.data(), 1.0f, places.data()) == 0);
  for (std::size_t i = 0; i < 512; ++i) {  // every position
    tile.fill(-kInf);
    tile[i] = 2;
    CHECK(k.above(tile.data(), 1.0f, places.data()) == 1);
    CHECK(places[0] == static_cast<std::int32_t>(i));
  }
}

/// One call over many tiles equals one call per tile.
inline void check_tiles(const specula::detail::RowKernels& k) {
  Random random(8);
  for (const std::int32_t tiles : {1, 2, 3, 9}) {
    std::vector<float> row(static_cast<std::size_t>(tiles) * 512);
    for (float& l : row) l = static_cast<float>(random.between(-20, 20));
    if (tiles == 3) row = structured_row(RowKind::tile_period, tiles * 512, random);
    if (tiles == 9)  // a kind in each tile
      for (std::size_t i = 0; i < 9; ++i)
        std::ranges::copy(structured_tile(kRowKinds[3 * i + 1], random),
                          row.begin() + 512 * static_cast<std::ptrdiff_t>(i));
    if (tiles > 2) std::fill(row.begin() + 512, row.begin() + 1024, -kInf);
    std::vector<specula::detail::TileStats> all(static_cast<std::size_t>(tiles));
    k.stats(row.data(), tiles, 1.7, all.data());
    for (std::size_t t = 0; t < all.size(); ++t) {
      const specula::detail::TileStats one = stats_of(k, row.data() + 512 * t, 1.7);
      CHECK(one.maximum == all[t].maximum);
      CHECK((one.unit == all[t].unit || one.sum == 0));
      CHECK(one.sum == all[t].sum);
    }
    // A bad value in a tile affects the sum of that tile only.
    for (const float bad : {kNan, kInf})
      for (std::size_t at = 0; at < row.size(); at += 97) {
        std::vector<float> broken = row;
        broken[at] = bad;
        std::vector<specula::detail::TileStats> seen(all.size());
        k.stats(broken.data(), tiles, 1.7, seen.data());
        for (std::size_t t = 0; t < all.size(); ++t) REQUIRE(std::isnan(seen[t].sum) == (t == at / 512));
      }
  }
}

/// NaN and infinities are detected at every position of the tile.
inline void check_special_values(const specula::detail::RowKernels& k) {
  Random random(3);
  const Tile plain = random_tile(random, 0, 5);
  int missed = 0, wrong = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    Tile tile = plain;
    tile[i] = kNan;
    missed += !std::isnan(k.maximum(tile.data())) + !std::isnan(stats_of(k, tile.data(), 1.0).sum);
    tile[(i + 131) % 512] = kInf;
    missed += !std::isnan(k.maximum(tile.data()));
    tile[i] = -kNan;
    missed += !std::isnan(k.maximum(tile.data()));
    tile = plain;
    tile[i] = kInf;
    missed += k.maximum(tile.data()) != kInf || !std::isnan(stats_of(k, tile.data(), 1.0).sum);
    tile[i] = 6;
    wrong += k.maximum(tile.data()) != 6.0f;
    tile.fill(-kInf);
    tile[i] = -3;
    wrong +=
        k.maximum(tile.data()) != -3.0f || std::abs(stats_of(k, tile.data(), std::log(2.0)).sum - 1) > 2e-7;
    Tile w;
    // A NaN among the weights makes their sum NaN, never 0.
    tile[i] = kNan;
    missed += !std::isnan(stats_of(k, tile.data(), 1.0).sum);
    missed += !std::isnan(k.fill(tile.data(), specula::detail::Exponent(specula::Distribution{}), w.data()));
  }
  CHECK(missed == 0);
  CHECK(wrong == 0);
}

/// subtract() within the rounding of floats, and never below zero.
inline void check_subtract(const specula::detail::RowKernels& k) {
  Random random(4);
  int bad = 0;
  for (int round = 0; round < 100; ++round) {
    Tile w, less;
    for (float& x : w) x = static_cast<float>(random.uniform() * random.uniform());
    if (round % 2 == 0) {
      const Tile tile =
          structured_tile(kRowKinds[static_cast<std::size_t>(round / 2) % kRowKinds.size()], random);
      const float top = *std::max_element(tile.begin(), tile.end());
      for (std::size_t i = 0; i < 512; ++i)  // as fill() has them: none below 2^-126
        w[i] = tile[i] - top > -87 ? std::exp(tile[i] - top) : 0;
    }
    for (std::size_t i = 0; i < 512; ++i)
      less[i] =
          random.bernoulli(0.3) ? 0.0f : static_cast<float>(static_cast<double>(w[i]) * random.between(0, 2));
    const float keep = static_cast<float>(random.between(1, 4)),
                take = static_cast<float>(random.between(0.5, 4));
    Tile out = w;
    const double sum = k.subtract(out.data(), less.data(), keep, take);
    for (std::size_t i = 0; i < 512; ++i) {
      const double a = static_cast<double>(keep) * static_cast<double>(w[i]),
                   b = static_cast<double>(take) * static_cast<double>(less[i]);
      bad += !(out[i] >= 0) ||
             std::abs(static_cast<double>(out[i]) - std::max(0.0, a - b)) > 1.5e-7 * (a + b) + 1e-44;
    }
    bad += !(std::abs(sum - exact_sum(out.data())) <= 1e-6 * exact_sum(out.data()) + 1e-44);
    Tile nothing = w;  // w - w
    bad += k.subtract(nothing.data(), w.data(), 1, 1) != 0;
  }
  CHECK(bad == 0);
}

/// cross() is the difference of the weights of fill(), within a float's rounding; its sum is within 1e-6
/// plus the allowed error of the weights. Where p is 0, q may be 0 too; elsewhere that is -infinity.
inline void check_cross(const specula::detail::RowKernels& k) {
  using specula::detail::Exponent;
  Random random(10);
  double worst = 0, worst_sum = 0;
  for (const double inv_t : {0.5, 1.0, 3.0})
    for (const double middle : {0.0, -300.0, 1e4, -1e10, 3.4e38})
      for (const double width : {0.5, 10.0, 80.0})
        for (int round = 0; round < 4; ++round) {
          const Tile target =
              random_tile(random, middle, spread_of(middle, width, inv_t), round == 1 ? 0.3 : 0);
          Tile draft = random_tile(random, -middle, spread_of(middle, width, inv_t));
          const Exponent e(distribution_over(target, inv_t, log_sum(target, inv_t) + round)),
              f(distribution_over(draft, inv_t, log_sum(draft, inv_t) + 2 * round));
          Tile p, q, out;
          k.fill(target.data(), e, p.data());
          for (std::size_t i = 0; i < 512; ++i)
            if (p[i] == 0 && target[i] == -kInf && i % 2 == 0) draft[i] = -kInf;
          k.fill(draft.data(), f, q.data());
          const float keep = static_cast<float>(random.between(0, 3)),
                      take = static_cast<float>(random.between(0, 3));
          const double sum = k.cross(target.data(), e, draft.data(), f, keep, take, out.data());
          double want = 0, allowed = 0;
          for (std::size_t i = 0; i < 512; ++i) {
            const double a = static_cast<double>(keep) * static_cast<double>(q[i]),
                         b = static_cast<double>(take) * static_cast<double>(p[i]);
            worst =
                worse(worst, std::abs(static_cast<double>(out[i]) - (a - b)) / (1.5e-7 * (a + b) + 1e-37));
            const double log_p = inv_t * below_largest(e.distribution, target[i]) - e.distribution.log_z;
            if (!(log_p > -126 * std::log(2.0))) continue;
            const double log_q = inv_t * below_largest(f.distribution, draft[i]) - f.distribution.log_z;
            want += std::exp(log_p) * log_q / std::log(2.0);
            allowed += std::exp(log_p) * std::abs(log_q) / std::log(2.0) * (1e-6 + 2.4e-7 * std::abs(log_p));
          }
          worst_sum = worse(worst_sum, std::abs(sum - want) / (allowed + 1e-6));
          Tile in_place = draft;
          CHECK(k.cross(target.data(), e, in_place.data(), f, keep, take, in_place.data()) == sum);
          CHECK(in_place == out);
        }
  CHECK(worst <= 1);
  CHECK(worst_sum <= 1);
  // At every position of the tile.
  const Tile row = random_tile(random, 0, 3);
  const Exponent e(distribution_over(row, 1, log_sum(row, 1)));
  int wrong = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    Tile target = row, draft = row, out;
    draft[i] = -kInf;
    wrong += k.cross(target.data(), e, draft.data(), e, 1, 1, out.data()) !=
             -std::numeric_limits<double>::infinity();
    wrong += !(out[i] < 0);
    target[i] = -kInf;
    wrong += !std::isfinite(k.cross(target.data(), e, draft.data(), e, 1, 1, out.data()));
    wrong += out[i] != 0;
    target[i] = kNan;
    wrong += !std::isnan(k.cross(target.data(), e, row.data(), e, 1, 1, out.data())) + !std::isnan(out[i]);
    draft[i] = kNan;
    wrong += !std::isnan(k.cross(row.data(), e, draft.data(), e, 1, 1, out.data())) + !std::isnan(out[i]);
  }
  CHECK(wrong == 0);
}

/// Sums are bitwise those of the stored weights in the stated order.
inline void check_order(const specula::detail::RowKernels& k) {
  Random random(5);
  int other = 0;
  for (int round = 0; round < 50; ++round) {
    const Tile tile = random_tile(random, 0, 10);
    Tile w;
    const double filled =
        k.fill(tile.data(), specula::detail::Exponent(distribution_over(tile, 1.3, 9)), w.data());
    other += filled != static_cast<double>(ordered_sum(w.data()));
    Tile less = w;
    std::reverse(less.begin(), less.end());
    const double left = k.subtract(w.data(), less.data(), 1.5f, 0.75f);
    other += left != static_cast<double>(ordered_sum(w.data()));
  }
  CHECK(other == 0);
}

/// Rows of any alignment.
inline void check_alignment(const specula::detail::RowKernels& k) {
  Random random(6);
  const Tile tile = random_tile(random, 0, 5);
  std::vector<float> in(512 + 16), out(512 + 16);
  Tile w;
  const specula::detail::Exponent e(distribution_over(tile, 1, 5));
  const double sum = k.fill(tile.data(), e, w.data());
  Tile c;
  const double crossed = k.cross(tile.data(), e, tile.data(), e, 1, 2, c.data());
  for (std::size_t shift = 0; shift < 16; ++shift) {
    std::copy(tile.begin(), tile.end(), in.begin() + static_cast<std::ptrdiff_t>(shift));
    CHECK(k.maximum(in.data() + shift) == k.maximum(tile.data()));
    CHECK(stats_of(k, in.data() + shift, 1).sum == stats_of(k, tile.data(), 1).sum);
    CHECK(k.fill(in.data() + shift, e, out.data() + shift) == sum);
    CHECK(std::equal(w.begin(), w.end(), out.begin() + static_cast<std::ptrdiff_t>(shift)));
    CHECK(k.cross(in.data() + shift, e, in.data() + shift, e, 1, 2, out.data() + shift) == crossed);
    CHECK(std::equal(c.begin(), c.end(), out.begin() + static_cast<std::ptrdiff_t>(shift)));
  }
}

/// Two kernel sets give the same bits.
inline void check_same_bits(const specula::detail::RowKernels& a, const specula::detail::RowKernels& b) {
  Random random(7);
  int differ = 0;
  const auto same = [](const Tile& x, const Tile& y) {
    return std::equal(x.begin(), x.end(), y.begin(), [](float p, float q) {
      return std::bit_cast<std::uint32_t>(p) == std::bit_cast<std::uint32_t>(q);
    });
  };
  for (const double inv_t : {0.3, 1.0, 7.0, 1e4})
    for (const double middle : kMiddles)
      for (const double width : {1.0, 20.0, 130.0})
        for (int round = 0; round < 5; ++round) {
          Tile tile = random_tile(random, middle, spread_of(middle, width, inv_t), 0.1);
          if (round == 3) std::fill(tile.begin() + 100, tile.begin() + 300, -1e10f);  // a mask
          const double log_z = log_sum(tile, inv_t) + round;
          const specula::detail::Exponent e(
              distribution_over(tile, inv_t, log_z, round == 4 ? tile[3] : -kInf));
          Tile wa, wb;
          differ += a.maximum(tile.data()) != b.maximum(tile.data());
          differ += stats_of(a, tile.data(), inv_t).sum != stats_of(b, tile.data(), inv_t).sum;
          differ += stats_of(a, tile.data(), inv_t).unit != stats_of(b, tile.data(), inv_t).unit;
          differ += stats_of(a, tile.data(), inv_t).rest != stats_of(b, tile.data(), inv_t).rest;
          differ += a.fill(tile.data(), e, wa.data()) != b.fill(tile.data(), e, wb.data());
          differ += !same(wa, wb);
          Tile less = wa;
          std::reverse(less.begin(), less.end());
          differ += a.subtract(wa.data(), less.data(), 1.25f, 0.9f) !=
                    b.subtract(wb.data(), less.data(), 1.25f, 0.9f);
          differ += !same(wa, wb);
          Tile other = tile;
          std::reverse(other.begin(), other.end());
          differ += a.cross(tile.data(), e, other.data(), e, 1.25f, 0.9f, wa.data()) !=
                    b.cross(tile.data(), e, other.data(), e, 1.25f, 0.9f, wb.data());
          differ += !same(wa, wb);
        }
  CHECK(differ == 0);
}

/// sum() is that of subtract(), NaN included; what is subtracted keeps NaN, too.
inline void check_sum(const specula::detail::RowKernels& k) {
  Random random(31);
  int bad = 0;
  for (int round = 0; round < 200; ++round) {
    Tile weights, zero{};
    for (float& w : weights) w = random.bernoulli(0.3) ? 0 : static_cast<float>(random.between(0, 1));
    Tile copy = weights;
    bad += k.sum(weights.data()) != k.subtract(copy.data(), zero.data(), 1, 0);
    const auto at = static_cast<std::size_t>(random.below(specula::detail::kTile));
    weights[at] = std::numeric_limits<float>::quiet_NaN();
    copy = weights;
    bad += !std::isnan(k.sum(weights.data())) || !std::isnan(k.subtract(copy.data(), zero.data(), 1, 0));
    copy = zero;
    bad += !std::isnan(k.subtract(copy.data(), weights.data(), 1, 1));
  }
  CHECK(bad == 0);
}

/// Every number of 16 bits as a float.
inline void check_widen(const specula::detail::RowKernels& k) {
  using namespace specula::detail;
  int bad = 0;
  std::array<std::uint16_t, kTile + 1> bits;
  Tile halves, uppers;
  const auto same = [](float a, float b) {
    return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  for (int first = 0; first < 65536; first += kTile) {
    for (int i = 0; i < kTile; ++i)
      bits[static_cast<std::size_t>(i) + 1] = static_cast<std::uint16_t>(first + i);
    k.widen_half(bits.data() + 1, halves.data());
    k.widen_bfloat16(bits.data() + 1, uppers.data());
    for (std::size_t i = 0; i < halves.size(); ++i)
      bad += !same(halves[i], half_to_float(bits[i + 1])) + !same(uppers[i], bfloat16_to_float(bits[i + 1]));
  }
  CHECK(bad == 0);
}

inline void check_contract(const specula::detail::RowKernels& kernels) {
  check_weights(kernels);
  check_stats(kernels);
  check_tiles(kernels);
  check_special_values(kernels);
  check_subtract(kernels);
  check_sum(kernels);
  check_widen(kernels);
  check_cross(kernels);
  check_alignment(kernels);
  check_above(kernels);
}

}  // namespace specula_test
