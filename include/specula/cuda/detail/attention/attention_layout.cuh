// SPDX-License-Identifier: MIT
// Tree attention layout: packed GQA rows, key ranges and masks, splits of the keys, merging of partial
// softmaxes.
#pragma once

#include "specula/cuda/args/divisor.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

constexpr int kTileKeys = 64;  // keys that a block reads at once

/// Query heads that share a KV head are rows of one product: row = node * group + head of the group.
struct PackedRow {
  int node, head;
};
SPECULA_HD PackedRow packed_row(int row, const Divisor& group) {
  const int node = group.divide(&row);
  return {node, row};
}

/// The keys of a sequence: slots [0, prefix) are committed, [prefix, end) hold its tree. Keys below `load`
/// are masked in every row, keys in [clear, prefix) are visible to every row. Both follow from the window.
struct KeyRange {
  int load, clear, prefix, end;
};

/// `low` and `high`: least and greatest position of the sequence's nodes. Window 0: off.
SPECULA_HD KeyRange key_range(int prefix, int end, int window, int low, int high) {
  KeyRange out{0, 0, prefix, end};
  if (window > 0) {
    const std::int64_t load = static_cast<std::int64_t>(low) - window + 1;
    const std::int64_t clear = static_cast<std::int64_t>(high) - window + 1;
    out.load = static_cast<int>(smaller<std::int64_t>(larger<std::int64_t>(load, 0), prefix));
    out.clear = static_cast<int>(smaller<std::int64_t>(larger<std::int64_t>(clear, 0), prefix));
  }
  return out;
}

/// Tiles [begin, end) of kTileKeys keys that are visible to every row, so no mask is read.
struct PlainTiles {
  int begin, end;
};
SPECULA_HD PlainTiles plain_tiles(const KeyRange& keys) {
  return {ceil_div(larger(keys.clear, keys.load), kTileKeys), keys.prefix / kTileKeys};
}

/// Bits [0, n) of a word; none for n below 0, all for n above its size.
SPECULA_HD std::uint64_t bits_below(std::int64_t n) {
  return n <= 0 ? 0 : n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

/// One row's view of the keys.
struct RowView {
  const std::uint64_t* mask;     // (words) of its node
  const std::int32_t* position;  // of the tree's nodes; only with a window
  int words;
  std::int32_t at, origin;  // position of the row, and what is added to `position`
  int window;

  /// Bit i: whether key `key` + i is visible, for 64 keys. Committed keys are limited by the window and the
  /// range, tree keys by the mask as well.
  SPECULA_HD std::uint64_t sees(int key, const KeyRange& keys) const {
    const std::int64_t from = window > 0 ? static_cast<std::int64_t>(at) - window + 1 : 0;  // position
    const std::int64_t first = larger<std::int64_t>(from, keys.load);
    const std::uint64_t committed = bits_below(keys.prefix - key) & ~bits_below(first - key);
    if (keys.end - key <= 0 || keys.prefix - key >= 64) return committed;
    // The mask's bits from node `node` on, out of two words.
    const int node = key - keys.prefix, shift = node & 63, word = (node - shift) / 64;
    std::uint64_t tree = word_at(word) >> shift;
    if (shift != 0) tree |= word_at(word + 1) << (64 - shift);
    tree &= bits_below(keys.end - key) & ~bits_below(-static_cast<std::int64_t>(node));
    if (window > 0) {
      for (int i = node < 0 ? -node : 0; i < 64 && tree >> i != 0; ++i)
        if ((tree >> i & 1) != 0 && static_cast<std::int64_t>(origin) + position[node + i] < from)
          tree &= ~(std::uint64_t{1} << i);
    }
    return committed | tree;
  }

 private:
  SPECULA_HD std::uint64_t word_at(int word) const { return word >= 0 && word < words ? mask[word] : 0; }
};

/// Products of q and k as exponents of 2: log2(e) * scale * s, or with a cap log2(e) * cap * tanh(scale * s /
/// cap), computed as cap - 2 cap / (e^2x + 1): within 1e-6 of the cap.
struct ScoreMap {
  float factor, cap;

  ScoreMap() = default;
  ScoreMap(float scale, float softcap)
      : factor(softcap > 0 ? static_cast<float>(2 * kLog2E * static_cast<double>(scale) /
                                                static_cast<double>(softcap))
                           : static_cast<float>(kLog2E * static_cast<double>(scale))),
        cap(softcap > 0 ? static_cast<float>(kLog2E * static_cast<double>(softcap)) : 0.0f) {}

  SPECULA_HD float plain(float s) const { return product(s, factor); }
  SPECULA_HD float capped(float s) const {
    const float e = sum(exp2_fast(product(s, factor)), 1.0f);
#ifdef __CUDA_ARCH__
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(e));
#else
    const float inverse = 1.0f / e;
#endif
    return fused(-2.0f * cap, inverse, cap);
  }
};

/// The larger one; the other one if one is NaN.
SPECULA_HD float maximum(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return std::fmax(a, b);
#endif
}

/// Initial maximum of exponents: finite, so that no difference of two is NaN, and below every real one.
constexpr float kLowest = -1e30f;

/// Softmax over a subset of the keys: greatest exponent, sum of the weights, weighted sums of 4 columns of V.
struct Part {
  float maximum, sum;
  float o[4];
};

/// Merges the parts get(0) .. get(count - 1), always in this order; top(i) is get(i).maximum.
template <class Top, class Get>
SPECULA_HD Part merge_parts(int count, Top top, Get get) {
  Part out{kLowest, 0, {0, 0, 0, 0}};
  for (int i = 0; i < count; ++i) out.maximum = maximum(out.maximum, top(i));
  for (int i = 0; i < count; ++i) {
    const Part part = get(i);
    const float weight = exp2_fast(difference(part.maximum, out.maximum));
    out.sum = fused(weight, part.sum, out.sum);
    SPECULA_UNROLL
    for (int c = 0; c < 4; ++c) out.o[c] = fused(weight, part.o[c], out.o[c]);
  }
  return out;
}

/// How `tiles` tiles are split: split i takes `each` of them from i * each on, the last split all the rest.
struct Splits {
  int used, each;

  SPECULA_HD int begin(int i) const { return i * each; }
  SPECULA_HD int end(int i, int tiles) const { return i + 1 == used ? tiles : (i + 1) * each; }
};

/// At most `most` splits. `fixed` > 0: `fixed` tiles per split whatever `most` is, except that split number
/// `most` takes all the rest; otherwise equal splits of at least `least` tiles.
SPECULA_HD Splits split_tiles(int tiles, int most, int fixed, int least) {
  Splits out{1, larger(tiles, 1)};
  if (tiles <= 0) return out;
  if (fixed > 0)
    out.each = fixed;
  else
    out.each = ceil_div(tiles, larger(1, smaller(most, tiles / larger(least, 1))));
  out.used = smaller(larger(most, 1), ceil_div(tiles, out.each));
  return out;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
