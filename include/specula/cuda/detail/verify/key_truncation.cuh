// SPDX-License-Identifier: MIT
// Truncation threshold of 16-bit logits: one histogram of the keys below the largest, for several rows at
// once.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"
#include "specula/cuda/detail/verify/truncation.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// 16-bit logits have few values, so one read counts how often each occurs. A key's mass is its count times
/// its weight, an integer, and the thresholds and kept masses follow without another read of the row. Keys
/// far below the largest have no counter: Cut finds thresholds that lie there.
template <class Cluster, class Element>
class KeyTruncation {
 public:
  using Entry = TileEntry;
  static constexpr int kWindow = 2048;  // keys; an octave of bfloat16 has 128, one of half 1,024

  struct Found {
    float min_logit;
    bool inside;  // whether the window was wide enough; else the other members have no meaning
    double kept;  // mass of the kept tokens, that of the largest logit being 1
  };

  /// Shared memory per row in each block: its counts in this block, and in the whole cluster.
  SPECULA_HD static constexpr std::size_t row_bytes() { return 2 * sizeof(std::uint32_t) * kWindow + 16; }

  /// `shared`: of `bytes`, at least row_bytes(), at the same place in every block.
  SPECULA_HD KeyTruncation(Cluster cluster, unsigned char* shared, std::size_t bytes)
      : cluster_(cluster),
        at_once_(static_cast<int>(bytes / row_bytes())),
        shared_(reinterpret_cast<std::uint32_t*>(shared)) {}

  /// All threads of the cluster. `stats`: the tiles' maxima of rows that follow each other; top(r) is row r's
  /// largest logit and log_z(r) the log of its mass relative to that, both of no meaning for rows that are
  /// not good(r). found(r, Found) is called by one warp of each block. Cost: one read of the tiles that
  /// matter, two barriers of the cluster for as many rows as the shared memory holds.
  template <class RowOf, class Good, class Top, class LogZ, class Take>
  SPECULA_HD void find(int rows, RowOf row_of, const Entry* stats, const SamplingParams& params, Good good,
                       Top top, LogZ log_z, Take found) {
    const auto block = cluster_.block();
    for (int first = 0; first < rows; first += at_once_) {
      const int n = smaller(at_once_, rows - first);
      for (int r = block.warp_rank(); r < n; r += block.warp_count()) {
        const int matter = good(first + r) ? keys_that_matter(params, top(first + r), log_z(first + r),
                                                              row_of(first + r).vocab)
                                           : 0;
        if (block.warp().rank() == 0) keys()[r] = matter;
      }
      for (int i = block.rank(); i < n * kWindow; i += block.size()) counts()[i] = 0;
      block.sync();
      count(
          n, [&](int r) { return row_of(first + r); }, stats + first * tile_count(row_of(0).vocab),
          [&](int r) { return top(first + r); });
      cluster_.sync();
      merge(n);
      cluster_.sync();
      for (int r = block.warp_rank(); r < n; r += block.warp_count())
        if (good(first + r))
          found(first + r, search(r, params, top(first + r), log_z(first + r), row_of(first + r).vocab));
    }
  }

 private:
  /// (at_once, kWindow) counts of this block, and of the cluster; and the number of counted keys of a row,
  /// (at_once).
  SPECULA_HD std::uint32_t* counts() const { return shared_; }
  SPECULA_HD std::uint32_t* merged() const { return shared_ + at_once_ * kWindow; }
  SPECULA_HD int* keys() const { return reinterpret_cast<int*>(shared_ + 2 * at_once_ * kWindow); }

  SPECULA_HD static bool by_count(const SamplingParams& params, int vocab) {
    return params.top_k > 0 && params.top_k < vocab;
  }

  /// How many keys from the largest on can be at or above the threshold: min-p's is known, and top-p does not
  /// need tokens so light that a whole vocabulary of them weighs at most 1 - top-p.
  SPECULA_HD static int keys_that_matter(const SamplingParams& params, float top, double log_z, int vocab) {
    float least = min_p_logit(params, top);
    if (!by_count(params, vocab) && params.top_p < 1.0f) {
      const double share = (1.0 - static_cast<double>(params.top_p)) * 0.999;
      least = larger(
          least, static_cast<float>(static_cast<double>(top) +
                                    static_cast<double>(params.temperature) * (log(share / vocab) + log_z)));
    }
    const std::uint32_t high = short_key<Element>(top), none = short_key<Element>(-infinity()),
                        low = larger(short_key<Element>(smaller(least, top)), none + 1);
    return static_cast<int>(smaller(high - low, static_cast<std::uint32_t>(kWindow - 1))) + 1;
  }

  template <class RowOf, class Top>
  SPECULA_HD void count(int rows, RowOf row_of, const Entry* stats, Top top) {
    const auto block = cluster_.block();
    const int lane = block.warp().rank();
    const int tiles = tile_count(row_of(0).vocab), all = rows * tiles;
    const int step = cluster_.size() * block.warp_count();
    const auto keys_of = [&](int r) { return static_cast<std::uint32_t>(keys()[r]); };
    const auto next = [&](int i) {  // the first from there on that matters
      while (i < all &&
             short_key<Element>(top(i / tiles)) - short_key<Element>(stats[i].a) >= keys_of(i / tiles))
        i += step;
      return i;
    };
    bool wide = true;
    SPECULA_NO_UNROLL
    for (int r = 0; r < rows; ++r) wide = wide && is_wide(row_of(r));
    int at = next(cluster_.rank() * block.warp_count() + block.warp_rank());
    if (at >= all) return;
    RawTile<Element> raw = load_tile<Order::columns>(lane, row_of(at / tiles), at % tiles);
    while (true) {
      const int then = next(at + step);
      RawTile<Element> ahead = raw;
      // In flight while this one is counted.
      if (wide && then < all) ahead = load_wide(lane, row_of(then / tiles), then % tiles);
      const int r = at / tiles;
      const std::uint32_t matter = keys_of(r), high = short_key<Element>(top(r));
      std::uint32_t* const mine = counts() + r * kWindow;
      SPECULA_UNROLL
      for (int e = 0; e < kPerLane; ++e) {
        const std::uint32_t below = high - short_key<Element>(raw[e]);
        if (below < matter) atomic_add(mine + below, 1u);
      }
      if (then >= all) return;
      if (!wide) ahead = load_tile<Order::columns>(lane, row_of(then / tiles), then % tiles);
      raw = ahead, at = then;
    }
  }

  /// Each block adds up its share of the keys and writes the sums to all blocks.
  SPECULA_HD void merge(int rows) {
    const auto block = cluster_.block();
    for (int r = 0; r < rows; ++r) {
      const int part = ceil_div(keys()[r], cluster_.size()), begin = cluster_.rank() * part,
                end = smaller(keys()[r], begin + part);
      for (int k = begin + block.rank(); k < end; k += block.size()) {
        std::uint32_t sum_of = 0;
        for (int b = 0; b < cluster_.size(); ++b) sum_of += cluster_.map(counts(), b)[r * kWindow + k];
        for (int b = 0; b < cluster_.size(); ++b) cluster_.map(merged(), b)[r * kWindow + k] = sum_of;
      }
    }
  }

  /// By a warp, from the counts of the whole cluster.
  SPECULA_HD Found search(int r, const SamplingParams& params, float top, double log_z, int vocab) const {
    const auto warp = cluster_.block().warp();
    const std::uint32_t* const counts = merged() + r * kWindow;
    const std::uint32_t high = short_key<Element>(top);
    const float scale = static_cast<float>(kLog2E / static_cast<double>(params.temperature));
    const auto logit = [&](int k) { return logit_of<Element>(high - static_cast<std::uint32_t>(k)); };
    const auto mass_at = [&](int k) {
      return counts[k] == 0 ? 0 : counts[k] * mass_in_bin(difference(logit(k), top), scale);
    };
    // Consecutive keys a lane; an odd number of them, so that no two lanes meet in a bank.
    const int mine = ceil_div(keys()[r], warp.size()) | 1, begin = warp.rank() * mine,
              end = smaller(keys()[r], begin + mine);
    std::uint64_t my_mass = 0;
    std::uint32_t my_count = 0;
    for (int k = begin; k < end; ++k) my_mass += mass_at(k), my_count += counts[k];
    const std::uint64_t upto_mass = inclusive_sum(warp, my_mass);
    const std::uint32_t upto_count = inclusive_sum(warp, my_count);

    Found out{min_p_logit(params, top), true, 0};
    double mass = exp(log_z) * 0x1p40;  // kept so far
    SPECULA_NO_UNROLL
    for (int by_mass = by_count(params, vocab) ? 0 : 1; by_mass < (params.top_p < 1.0f ? 2 : 1) && out.inside;
         ++by_mass) {
      const double wanted =
          by_mass != 0 ? static_cast<double>(params.top_p) * mass : static_cast<double>(params.top_k);
      const auto enough = [&](std::uint64_t m, std::uint32_t count) {
        return (by_mass != 0 ? static_cast<double>(m) : static_cast<double>(count)) >= wanted;
      };
      // The first key up to which there is enough, and the mass up to there; -1 if there is none.
      const std::uint32_t hit = warp.ballot(my_count > 0 && enough(upto_mass, upto_count));
      const int lane = larger(0, first_lane(hit));
      int key = -1;
      std::uint64_t m = upto_mass - my_mass;
      if (hit != 0 && warp.rank() == lane) {
        std::uint32_t count = upto_count - my_count;
        for (int k = begin; k < end && key < 0; ++k) {
          if (counts[k] == 0) continue;
          m += mass_at(k), count += counts[k];
          if (enough(m, count)) key = k;
        }
      }
      key = warp.shuffle(key, lane);
      mass = static_cast<double>(warp.shuffle(m, lane));
      // Where the counted keys end at min-p's threshold, top-p's threshold below it does not matter.
      out.inside = key >= 0 || (by_mass != 0 && params.min_p > 0.0f && keys()[r] < kWindow);
      if (key >= 0) out.min_logit = larger(out.min_logit, logit(key));
    }
    out.min_logit = smaller(out.min_logit, top);
    if (high - short_key<Element>(out.min_logit) >= static_cast<std::uint32_t>(keys()[r])) out.inside = false;
    std::uint64_t kept = 0;
    for (int k = begin; k < end; ++k)
      if (logit(k) >= out.min_logit) kept += mass_at(k);
    out.kept = static_cast<double>(reduce(warp, kept, Sum{})) * 0x1p-40;
    return out;
  }

  Cluster cluster_;
  int at_once_;  // rows
  std::uint32_t* shared_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
