// SPDX-License-Identifier: MIT
// A tile of a row, 512 tokens, in the registers of a warp.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

constexpr int kPerLane = 16;  // tokens of a tile that a lane holds

/// Which tokens of a tile a lane holds: `columns` as a warp reads memory best, 16 bytes per lane at a time;
/// `fours` and `eights` alike, but four or eight tokens whatever the element, so that rows of two elements
/// have the same tokens in a lane; `run` so that lane i's tokens stand between those of lane i - 1 and of
/// lane i + 1.
enum class Order { columns, fours, eights, run };

/// Tokens in 16 bytes.
template <class Element>
constexpr int kWide = 16 / static_cast<int>(sizeof(Element));

/// Place in the tile of the lane's token number i.
template <Order order, class Element>
SPECULA_HD int place_of(int lane, int i) {
  constexpr int kAtOnce = order == Order::run      ? kPerLane
                          : order == Order::fours  ? 4
                          : order == Order::eights ? 8
                                                   : kWide<Element>;
  return i / kAtOnce * (32 * kAtOnce) + lane * kAtOnce + i % kAtOnce;
}

template <class Element>
struct alignas(4 * sizeof(Element)) Four {
  Element v[4];
};

/// A row in memory. Any alignment; at one of four elements, four are read at once, at one of 16 bytes tiles
/// are copied asynchronously, but for a last one that ends within 16 bytes.
template <class Element>
struct Row {
  const Element* data;
  int vocab;

  SPECULA_HD bool aligned(std::size_t bytes = 4 * sizeof(Element)) const {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
  }
  SPECULA_HD float operator[](int token) const { return to_float(data[token]); }
};

/// The logits of four tokens from `first` on, a multiple of 4; -infinity after the end of the row.
template <class Element>
SPECULA_HD void load_four(Row<Element> row, int first, float (&x)[4]) {
  if (first + 4 <= row.vocab && row.aligned()) {
    const Four<Element> raw = *reinterpret_cast<const Four<Element>*>(row.data + first);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) x[e] = to_float(raw.v[e]);
  } else {
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) x[e] = first + e < row.vocab ? row[first + e] : -infinity();
  }
}

SPECULA_HD std::uint32_t word_of(float x) { return bits_of(x); }
template <class Short>
SPECULA_HD std::uint32_t word_of(Short x) {
  return x.bits;
}
SPECULA_HD void element_of(std::uint32_t word, int, float& out) { out = float_of(word); }
template <class Short>
SPECULA_HD void element_of(std::uint32_t word, int place, Short& out) {
  out.bits = static_cast<std::uint16_t>(word >> (16 * place));
}

/// A lane's 16 elements of a tile as raw words in memory order. Using any part of a load waits for it, so the
/// words must not be converted before the tile is needed.
template <class Element>
struct RawTile {
  static constexpr int kInWord = 4 / static_cast<int>(sizeof(Element)), kWords = kPerLane / kInWord;
  std::uint32_t words[kWords];

  SPECULA_HD float operator[](int i) const {
    Element out;
    element_of(words[i / kInWord], i % kInWord, out);
    return to_float(out);
  }
};

/// The lane's part of a tile; -infinity after the end of the row.
template <Order order, class Element>
SPECULA_HD RawTile<Element> load_tile(int lane, Row<Element> row, int tile) {
  using Raw = RawTile<Element>;
  RawTile<Element> out;
  const Element* at = row.data + static_cast<std::int64_t>(tile) * kTile;
  const int left = row.vocab - tile * kTile;
  if (left >= kTile && row.aligned()) {
    SPECULA_UNROLL
    for (int i = 0; i < kPerLane; i += 4) {
      const Four<Element> raw =
          *reinterpret_cast<const Four<Element>*>(at + place_of<order, Element>(lane, i));
      SPECULA_UNROLL
      for (int w = 0; w < 4 / Raw::kInWord; ++w) {
        std::uint32_t word = 0;
        SPECULA_UNROLL
        for (int e = 0; e < Raw::kInWord; ++e) word |= word_of(raw.v[w * Raw::kInWord + e]) << (16 * e);
        out.words[i / Raw::kInWord + w] = word;
      }
    }
  } else {
    SPECULA_UNROLL
    for (int w = 0; w < Raw::kWords; ++w) {
      std::uint32_t word = 0;
      SPECULA_UNROLL
      for (int e = 0; e < Raw::kInWord; ++e) {
        const int place = place_of<order, Element>(lane, w * Raw::kInWord + e);
        // No other lane's element, which may be written in place meanwhile.
        word |= (place < left ? word_of(at[place]) : minus_infinity_word(Element{})) << (16 * e);
      }
      out.words[w] = word;
    }
  }
  return out;
}

/// 16 bytes of a row.
struct alignas(16) Wide {
  std::uint32_t words[4];
};
/// Whether a row is read 16 bytes at a time to its end.
template <class Element>
SPECULA_HD bool is_wide(Row<Element> row) {
  return row.vocab % kWide<Element> == 0 && row.aligned(16);
}
template <class Element>
SPECULA_HD constexpr Wide nothing_wide() {
  const std::uint32_t one = minus_infinity_word(Element{}),
                      word = RawTile<Element>::kInWord == 2 ? one << 16 | one : one;
  return {{word, word, word, word}};
}

/// The lane's part, by columns, of a tile of such a row; -infinity after its end. Without a branch, so that
/// several loads may be in flight at once.
template <class Element>
SPECULA_HD RawTile<Element> load_wide(int lane, Row<Element> row, int tile) {
  RawTile<Element> out;
  SPECULA_UNROLL
  for (int c = 0; c < RawTile<Element>::kWords / 4; ++c) {
    const int at = tile * kTile + place_of<Order::columns, Element>(lane, c * kWide<Element>);
    Wide chunk = nothing_wide<Element>();
    if (at < row.vocab) chunk = *reinterpret_cast<const Wide*>(row.data + at);
    SPECULA_UNROLL
    for (int w = 0; w < 4; ++w) out.words[4 * c + w] = chunk.words[w];
  }
  return out;
}

/// As floats.
template <class Element>
SPECULA_HD void unpack(const RawTile<Element>& raw, float (&x)[kPerLane]) {
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) x[i] = raw[i];
}

// ---- statistics

/// The exponent of 2 that a tile's, or a row's, weights are relative to: the integer nearest to scale *
/// maximum, so that tiles merge by exact powers of two.
constexpr float kPlain = 0x1p22f;  // below it floats find that integer well enough
SPECULA_HD bool is_plain(float maximum, float scale) {
  const float scaled = product(maximum, scale);
  return scaled < kPlain && scaled > -kPlain;
}
SPECULA_HD double unit_of(float maximum, float scale) {
  const float scaled = product(maximum, scale);
  if (scaled < kPlain && scaled > -kPlain) return static_cast<double>(nearest(scaled));
  return nearest(static_cast<double>(maximum) * static_cast<double>(scale));
}
/// scale * maximum - unit, within [-3/4, 3/4]: the product of two floats is exact in a double.
SPECULA_HD float rest_of(float maximum, float scale) {
  return static_cast<float>(static_cast<double>(maximum) * static_cast<double>(scale) -
                            unit_of(maximum, scale));
}

/// Largest value and the sum of 2^(scale * l - unit). A tile with NaN has it for its maximum; the sum of a
/// tile of -infinity is 0.
struct TileStats {
  float maximum, sum;
};

/// The weights of a tile's logits relative to its unit: one fused operation each, except where logits are so
/// large that floats cannot hold the unit.
struct TileWeights {
  float scale, shift, rest;

  SPECULA_HD TileWeights(float maximum, float scale_of)
      : scale(scale_of),
        shift(is_plain(maximum, scale_of) ? 0.0f : maximum),
        rest(is_plain(maximum, scale_of) ? -nearest(product(maximum, scale_of))
                                         : rest_of(maximum, scale_of)) {}
  SPECULA_HD bool plain() const { return shift == 0.0f; }
  SPECULA_HD float operator()(float x) const {
    return exp2_fast(fused(plain() ? x : difference(x, shift), scale, rest));
  }
};

/// A tile's sum from the lanes' sums, in one order for every launch.
template <class Warp>
SPECULA_HD float sum_of_lanes(Warp warp, float mine) {
  SPECULA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) mine = sum(mine, warp.shuffle_xor(mine, mask));
  return mine;
}
SPECULA_HD float sum_of_four(const float (&a)[4]) { return sum(sum(a[0], a[2]), sum(a[1], a[3])); }

/// The tile's sum of f(i) over the lane's 16 tokens, and over the lanes.
template <class Warp, class F>
SPECULA_HD float tile_sum_of(Warp warp, F f) {
  float a[4];
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) {
    const float w = f(i);
    a[i % 4] = i < 4 ? w : sum(a[i % 4], w);
  }
  return sum_of_lanes(warp, sum_of_four(a));
}

/// The same sum of weights that fill(first, w) gives for four tokens from `first` on.
template <class Warp, class Fill>
SPECULA_HD float tile_sum(Warp warp, int tile, Fill fill) {
  float a[4];
  SPECULA_UNROLL
  for (int k = 0; k < 4; ++k) {
    float w[4];
    fill(tile * kTile + place_of<Order::fours, float>(warp.rank(), 4 * k), w);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) a[e] = k == 0 ? w[e] : sum(a[e], w[e]);
  }
  return sum_of_lanes(warp, sum_of_four(a));
}

/// The largest of the lane's elements, NaN if one is NaN; 16-bit ones are compared in pairs.
template <class Element>
SPECULA_HD float largest_of(const RawTile<Element>& raw) {
  std::uint32_t top = raw.words[0];
  SPECULA_UNROLL
  for (int w = 1; w < RawTile<Element>::kWords; ++w) top = max_of_words(Element{}, top, raw.words[w]);
  Element parts[RawTile<Element>::kInWord];
  SPECULA_UNROLL
  for (int e = 0; e < RawTile<Element>::kInWord; ++e) element_of(top, e, parts[e]);
  float out = to_float(parts[0]);
  SPECULA_UNROLL
  for (int e = 1; e < RawTile<Element>::kInWord; ++e) out = max_or_nan(out, to_float(parts[e]));
  return out;
}
/// The largest of the lanes' values, NaN if one is NaN.
template <class Warp>
SPECULA_HD float warp_maximum(Warp warp, float x) {
  return of_key(warp.largest(is_nan(x) ? ~0u : key_of(x)));
}

template <class Warp, class Element>
SPECULA_HD TileStats tile_stats(Warp warp, const RawTile<Element>& raw, float scale) {
  const float top = warp_maximum(warp, largest_of(raw));
  if (top == -infinity()) return {top, 0.0f};
  const TileWeights weight(top, scale);
  if (weight.plain())
    return {top, tile_sum_of(warp, [&](int i) { return exp2_fast(fused(raw[i], scale, weight.rest)); })};
  return {top, tile_sum_of(warp, [&](int i) { return weight(raw[i]); })};
}

/// Largest value, and the place in the tile of the first that has it.
struct TileTop {
  float maximum;
  int place;
};
template <class Warp, class Element>
SPECULA_HD TileTop tile_top(Warp warp, const RawTile<Element>& raw) {
  const float top = warp_maximum(warp, largest_of(raw));
  std::uint32_t after = 0;  // places from the end, so that the largest is the first
  SPECULA_UNROLL
  for (int i = kPerLane - 1; i >= 0; --i)
    if (raw[i] == top)
      after = static_cast<std::uint32_t>(kTile - place_of<Order::columns, Element>(warp.rank(), i));
  return {top, kTile - static_cast<int>(warp.largest(after))};
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
