// A tile of a row, 512 tokens, in the registers of a warp.
#pragma once

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

constexpr int kTile = 512;
constexpr int kPerLane = 16;  // tokens of a tile that a lane holds

SPECULA_HD int tile_count(int vocab) { return ceil_div(vocab, kTile); }

/// Which tokens of a tile a lane holds: four fours, `columns` as a warp reads memory best, `run` so that lane
/// i's tokens stand between those of lane i - 1 and of lane i + 1.
enum class Order { columns, run };

/// Place in the tile of the lane's four number k.
template <Order order>
SPECULA_HD int place_of(int lane, int k) {
  return order == Order::columns ? 128 * k + 4 * lane : kPerLane * lane + 4 * k;
}

template <class Element>
struct alignas(4 * sizeof(Element)) Four {
  Element v[4];
};

/// A row in memory. Any alignment; at one of four elements, four are read at once.
template <class Element>
struct Row {
  const Element* data;
  int vocab;

  SPECULA_HD bool aligned() const {
    return reinterpret_cast<std::uintptr_t>(data) % (4 * sizeof(Element)) == 0;
  }
  SPECULA_HD float operator[](int token) const { return to_float(data[token]); }
};

/// The logits of four tokens from `first` on, a multiple of 4; -infinity beyond the row.
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

/// A lane's 16 elements of a tile as they lie in memory, so that several tiles can be on their way at once.
template <class Element>
struct RawTile {
  Four<Element> fours[4];
};

/// The lane's part of a tile; zeros beyond the row.
template <Order order, class Element>
SPECULA_HD RawTile<Element> load_tile(int lane, Row<Element> row, int tile) {
  RawTile<Element> out;
  const Element* at = row.data + static_cast<std::int64_t>(tile) * kTile;
  const int left = row.vocab - tile * kTile;
  if (left >= kTile && row.aligned()) {
    SPECULA_UNROLL
    for (int k = 0; k < 4; ++k)
      out.fours[k] = *reinterpret_cast<const Four<Element>*>(at + place_of<order>(lane, k));
  } else {
    SPECULA_UNROLL
    for (int k = 0; k < 4; ++k) SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int place = place_of<order>(lane, k) + e;
      // No other lane's element, which may be written in place meanwhile.
      out.fours[k].v[e] = place < left ? at[place] : Element{};
    }
  }
  return out;
}

/// As floats, -infinity beyond the row.
template <Order order, class Element>
SPECULA_HD void unpack(int lane, const RawTile<Element>& raw, Row<Element> row, int tile,
                       float (&x)[kPerLane]) {
  const int left = row.vocab - tile * kTile;
  SPECULA_UNROLL
  for (int k = 0; k < 4; ++k) SPECULA_UNROLL
  for (int e = 0; e < 4; ++e) {
    const bool inside = left >= kTile || place_of<order>(lane, k) + e < left;
    x[4 * k + e] = inside ? to_float(raw.fours[k].v[e]) : -infinity();
  }
}

/// Largest value and the sum of 2^(scale * (l - maximum) + rest), with unit + rest = scale * maximum and the
/// unit the nearest integer: tiles merge by exact powers of two. The product of two floats is exact in a
/// double, so no exponent is above 1/2, however large the logits. The sum of a tile with NaN or +infinity is
/// NaN; that of a tile of -infinity is 0.
struct TileStats {
  float maximum, sum;
};

SPECULA_HD double unit_of(float maximum, float scale) {
  return nearest(static_cast<double>(maximum) * static_cast<double>(scale));
}
SPECULA_HD float rest_of(float maximum, float scale) {
  return static_cast<float>(static_cast<double>(maximum) * static_cast<double>(scale) -
                            unit_of(maximum, scale));
}

/// A tile's sum from the sums of its columns: columns 4 lane .. 4 lane + 3 of 128 in each lane.
template <class Warp>
SPECULA_HD float merge_columns(Warp warp, const float (&columns)[4]) {
  float out = sum(sum(columns[0], columns[2]), sum(columns[1], columns[3]));
  SPECULA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) out = sum(out, warp.shuffle_xor(out, mask));
  return out;
}

/// The tile's sum of what the lanes hold in columns, in one order whatever the device: each column of four,
/// then across the lanes.
template <class Warp>
SPECULA_HD float tile_sum(Warp warp, const float (&w)[kPerLane]) {
  float a[4];
  SPECULA_UNROLL
  for (int e = 0; e < 4; ++e) a[e] = sum(sum(sum(w[e], w[4 + e]), w[8 + e]), w[12 + e]);
  return merge_columns(warp, a);
}

/// The same sum of weights that fill(first, w) gives for four tokens from `first` on.
template <class Warp, class Fill>
SPECULA_HD float tile_sum(Warp warp, int tile, Fill fill) {
  float a[4];
  SPECULA_UNROLL
  for (int k = 0; k < 4; ++k) {
    float w[4];
    fill(tile * kTile + place_of<Order::columns>(warp.rank(), k), w);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) a[e] = k == 0 ? w[e] : sum(a[e], w[e]);
  }
  return merge_columns(warp, a);
}

template <class Warp>
SPECULA_HD float tile_maximum(Warp warp, const float (&x)[kPerLane]) {
  float top = x[0];
  SPECULA_UNROLL
  for (int i = 1; i < kPerLane; ++i) top = max_or_nan(top, x[i]);
  SPECULA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) top = max_or_nan(top, warp.shuffle_xor(top, mask));
  return top;
}

template <class Warp>
SPECULA_HD TileStats tile_stats(Warp warp, const float (&x)[kPerLane], float scale) {
  const float top = tile_maximum(warp, x);
  if (top == -infinity()) return {top, 0.0f};
  const float rest = rest_of(top, scale);
  float w[kPerLane];
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) w[i] = exp2_fast(fused(difference(x[i], top), scale, rest));
  return {top, tile_sum(warp, w)};
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
