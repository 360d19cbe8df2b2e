// SPDX-License-Identifier: MIT
// Top-k, top-p and min-p truncation: theta, the logit below which a token is dropped. Found by counting, so
// it does not depend on the order of summation.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Low bits of a float that conversion from an element leaves zero: keys need not tell them apart.
SPECULA_HD constexpr int idle_bits(float) { return 0; }
SPECULA_HD constexpr int idle_bits(Half) { return 13; }
SPECULA_HD constexpr int idle_bits(BFloat16) { return 16; }

constexpr int kBins = 256;

/// A histogram of logits in a block's shared memory: the number of logits per bin, and their mass in units of
/// 2^-40 of the largest one's. Integers, so the order of adding does not matter.
struct Histogram {
  std::uint32_t low[kBins], high[kBins];  // of the mass: words, which the hardware adds without a loop
  std::uint32_t count[kBins];

  SPECULA_HD std::uint64_t mass(int bin) const {
    return static_cast<std::uint64_t>(high[bin]) << 32 | low[bin];
  }
  SPECULA_HD void set(int bin, std::uint64_t mass, std::uint32_t how_many) {
    low[bin] = static_cast<std::uint32_t>(mass);
    high[bin] = static_cast<std::uint32_t>(mass >> 32);
    count[bin] = how_many;
  }
  /// Counts one more logit, by any number of threads at once; the carry out of a low word is added to the
  /// high word.
  SPECULA_HD void add(int bin, std::uint64_t mass) {
    const auto less = static_cast<std::uint32_t>(mass);
    const auto carry = atomic_add(&low[bin], less) > ~less ? 1u : 0u;
    const std::uint32_t more = static_cast<std::uint32_t>(mass >> 32) + carry;
    if (more > 0) atomic_add(&high[bin], more);
    atomic_add(&count[bin], 1u);
  }
};

/// The mass of a logit that is `below` the largest one, in units of 2^-40 of that.
SPECULA_HD std::uint64_t mass_in_bin(float below, float scale) {
  return nearest_whole(product(exp2_fast(product(below, scale)), 0x1p40f));
}

/// Keys of logits without the idle bits; both zeros have the same key.
template <class Element>
SPECULA_HD std::uint32_t short_key(float logit) {
  return key_of(sum(logit, 0.0f)) >> idle_bits(Element{});
}
template <class Element>
SPECULA_HD float logit_of(std::uint32_t key) {
  constexpr int kIdle = idle_bits(Element{});
  const std::uint32_t whole =
      key << kIdle;  // keys of negative numbers are complements: their idle bits are ones
  return of_key(whole & 0x80000000u ? whole : whole | ((1u << kIdle) - 1));
}

/// min-p's threshold; -infinity where it is off.
SPECULA_HD float min_p_logit(const SamplingParams& params, float top) {
  if (!(params.min_p > 0.0f)) return -infinity();
  return static_cast<float>(static_cast<double>(top) +
                            static_cast<double>(params.temperature) * log(static_cast<double>(params.min_p)));
}

template <class Cluster, class Element>
class Truncation {
 public:
  using Entry = TileEntry;
  SPECULA_HD static constexpr std::size_t shared_bytes() { return 2 * sizeof(Histogram); }

  /// `stats`: maximum of every tile. `top` is the row's largest logit. `shared` is shared_bytes() at the same
  /// place in every block.
  SPECULA_HD Truncation(Cluster cluster, unsigned char* shared, Row<Element> row, const Entry* stats,
                        float top, float temperature)
      : cluster_(cluster),
        mine_(reinterpret_cast<Histogram*>(shared)),
        all_(mine_ + 1),
        row_(row),
        stats_(stats),
        top_(sum(top, 0.0f)),  // of zeros the positive one, whose key is the larger
        temperature_(temperature),
        scale_(static_cast<float>(inverse_of(temperature) * kLog2E)) {}

  /// Cost: two reads of the tiles that can reach the threshold (three or more of float rows) for top-k and
  /// again for top-p; min-p is free.
  SPECULA_HD float threshold(const SamplingParams& params) {
    float theta = -infinity();
    double mass = -1;  // kept so far; below 0: all
    const bool by_count = params.top_k > 0 && params.top_k < row_.vocab;
    SPECULA_NO_UNROLL
    for (int by_mass = by_count ? 0 : 1; by_mass < (params.top_p < 1.0f ? 2 : 1); ++by_mass) {
      const Found found = find(params, by_mass != 0, mass);
      theta = larger(theta, found.logit);
      mass = found.mass;
    }
    return smaller(larger(theta, min_p_logit(params, top_)), top_);
  }

 private:
  struct Found {
    float logit;
    double mass;  // of all logits at or above it
  };
  /// Where the histogram ended: bins before `bin` do not suffice.
  struct Crossing {
    int bin;
    double mass, count;  // before it
  };

  SPECULA_HD static double inverse_of(float t) { return 1.0 / static_cast<double>(t); }

  /// Bins of the logits whose keys lie in [low, high], the best first: of an eighth of an octave below the
  /// largest logit, all that is lighter in the last one; or ranges of `width` keys. By keys, since zeros of
  /// two signs are equal floats, and what is not in the range has no bin.
  struct Bins {
    float top, scale;
    std::uint32_t low, high, width;  // width 0: octaves

    SPECULA_HD int operator()(float logit) const {
      if (width > 0) return static_cast<int>((high - short_key<Element>(logit)) / width);
      const float below = product(difference(top, logit), scale);
      return below < static_cast<float>(kBins - 1) ? static_cast<int>(below) : kBins - 1;
    }
  };
  SPECULA_HD Bins coarse() const {
    return {top_, product(scale_, 8.0f), short_key<Element>(-infinity()) + 1, short_key<Element>(top_), 0};
  }
  /// The largest logit x such that the logits at or above it number top-k, or have top-p of `mass` (below 0:
  /// of all). First by octaves, then by ever smaller ranges of the keys in the bin that the search ends in.
  SPECULA_HD Found find(const SamplingParams& params, bool by_mass, double mass) {
    Bins bins = coarse();
    Crossing at{0, 0, 0};
    double wanted = static_cast<double>(params.top_k);
    SPECULA_NO_UNROLL
    while (true) {  // once in the source, since its code is long
      count_bins(bins);
      if (by_mass && bins.width == 0)
        wanted = static_cast<double>(params.top_p) * (mass < 0 ? total_mass() : mass);
      at = crossing(by_mass, wanted, at.mass, at.count);
      if (bins.width == 0) {  // bins fall as keys rise, so both ends are found by halving
        bins = {0, 0, last_key_in(at.bin + 1) + 1, last_key_in(at.bin), 0};
      } else {
        bins.high -= static_cast<std::uint32_t>(at.bin) * bins.width;
        if (bins.width == 1)
          return {logit_of<Element>(bins.high), at.mass + static_cast<double>(all_->mass(at.bin)) * 0x1p-40};
        // never below 0: keys of bfloat16 begin at 128
        if (bins.high - bins.low >= bins.width) bins.low = bins.high - bins.width + 1;
      }
      const std::uint32_t span = bins.high - bins.low + 1;
      bins.width = span / kBins + (span % kBins ? 1 : 0);
    }
  }

  /// The largest key whose logit is in coarse bin `bin` or after it; the key before the least if there is
  /// none.
  SPECULA_HD std::uint32_t last_key_in(int bin) const {
    const Bins bins = coarse();
    std::uint32_t yes = short_key<Element>(-infinity()), no = short_key<Element>(top_) + 1;
    if (bin >= kBins) return yes;
    while (no - yes > 1) {
      const std::uint32_t middle = yes + (no - yes) / 2;
      (bins(logit_of<Element>(middle)) >= bin ? yes : no) = middle;
    }
    return yes;
  }

  /// Fills all_ with the logits of the row in [low, high].
  SPECULA_HD void count_bins(Bins bins) {
    const auto block = cluster_.block();
    const auto warp = block.warp();
    for (int b = block.rank(); b < kBins; b += block.size()) {
      mine_->set(b, 0, 0);
    }
    block.sync();
    const int step = cluster_.size() * block.warp_count();
    for (int t = cluster_.rank() * block.warp_count() + block.warp_rank(); t < tile_count(row_.vocab);
         t += step) {
      if (short_key<Element>(stats_[t].a) < bins.low) continue;
      const RawTile<Element> raw = load_tile<Order::columns>(warp.rank(), row_, t);
      SPECULA_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const std::uint32_t key = short_key<Element>(raw[i]);
        if (key < bins.low || key > bins.high) continue;
        mine_->add(bins(raw[i]), mass_in_bin(difference(raw[i], top_), scale_));
      }
    }
    cluster_.sync();
    for (int b = block.rank(); b < kBins; b += block.size()) {
      std::uint64_t mass = 0;
      std::uint32_t count = 0;
      for (int r = 0; r < cluster_.size(); ++r) {
        const Histogram* other = cluster_.map(mine_, r);
        mass += other->mass(b);
        count += other->count[b];
      }
      all_->set(b, mass, count);
    }
    cluster_.sync();  // others may still read this block's
  }

  SPECULA_HD double total_mass() const {
    std::uint64_t mine = 0;
    const auto warp = cluster_.block().warp();
    for (int b = warp.rank(); b < kBins; b += warp.size()) mine += all_->mass(b);
    return static_cast<double>(reduce(warp, mine, Sum{})) * 0x1p-40;
  }

  /// The first bin up to which there is enough, `mass` and `count` lying before the first bin; the last
  /// non-empty bin if there never is.
  SPECULA_HD Crossing crossing(bool by_mass, double wanted, double mass, double count) const {
    constexpr int kMine = kBins / 32;
    const auto warp = cluster_.block().warp();
    const int begin = warp.rank() * kMine;
    std::uint64_t my_mass = 0;
    std::uint32_t my_count = 0;
    for (int b = begin; b < begin + kMine; ++b) my_mass += all_->mass(b), my_count += all_->count[b];
    const std::uint64_t upto_mass = inclusive_sum(warp, my_mass);
    const std::uint32_t upto_count = inclusive_sum(warp, my_count);
    const auto value = [&](std::uint64_t m) { return mass + static_cast<double>(m) * 0x1p-40; };
    const auto enough = [&](std::uint64_t m, std::uint32_t c) {
      return (by_mass ? value(m) : count + static_cast<double>(c)) >= wanted;
    };
    const std::uint32_t has = warp.ballot(my_count > 0);
    const std::uint32_t hit = warp.ballot(my_count > 0 && enough(upto_mass, upto_count));
    const int lane = hit ? first_lane(hit) : larger(0, last_lane(has));
    Crossing out{0, 0, 0};
    if (warp.rank() == lane) {
      std::uint64_t m = upto_mass - my_mass;
      std::uint32_t c = upto_count - my_count;
      for (int b = begin; b < begin + kMine; ++b) {
        if (all_->count[b] == 0) continue;
        out = {b, value(m), count + static_cast<double>(c)};
        m += all_->mass(b);
        c += all_->count[b];
        if (enough(m, c)) break;
      }
    }
    return {warp.shuffle(out.bin, lane), warp.shuffle(out.mass, lane), warp.shuffle(out.count, lane)};
  }

  Cluster cluster_;
  Histogram *mine_, *all_;
  Row<Element> row_;
  const Entry* stats_;
  float top_, temperature_, scale_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
