// SPDX-License-Identifier: MIT
// Distributions of rows of logits, by a whole cluster: one read of each row, several rows per pass, and no
// memory but the tiles' table.
//
// Work: the warps of a cluster share the tiles (512 tokens) of up to 8 rows per pass.
// Traffic: tiles pass through a ring of 4 or 8 KB per warp; each block keeps two floats per tile.
// Forms: read() takes distributions, or largest logits at temperature 0. truncate() cuts 16-bit rows by
// KeyTruncation, float rows and what that leaves open by Truncation. keep() measures what a cut leaves.
// Reference: distribution/row_scan.hpp; tests/cuda/detail/verify/key_truncation.cpp;
// bench/cuda/verification_check.cu.
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program verification).
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/primitives/thread/philox_random.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/primitives/warp/tile_distribution.cuh"
#include "specula/cuda/detail/verify/key_truncation.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"
#include "specula/cuda/detail/verify/truncation.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A row's facts after a pass. The status is the distribution's.
struct RowFacts {
  RowStats distribution;
  RowMasses masses;                 // of its tiles, at a temperature above 0
  std::int32_t truncation_is_done;  // 0 or 1
};

/// Functions marked "all threads" are called by all threads of the cluster together, the others by one warp
/// of any block alone.
template <class Cluster, class Size = ScanSize>
class RowScan {
 public:
  using Table = TileTable<Cluster, Size>;
  using Entry = typename Table::Entry;

  /// 16-byte aligned shared memory of each block of `warps` warps.
  SPECULA_HD static std::size_t shared_bytes(const ScanSize& size, int warps) {
    return Table::shared_bytes(size, warps) + round_up(array_bytes<RowFacts>(size.rows), std::size_t{16});
  }
  SPECULA_HD RowScan(Cluster cluster, const ScanSize& size, unsigned char* shared)
      : table_(cluster, size, shared),
        size_(size),
        facts_(
            reinterpret_cast<RowFacts*>(shared + Table::shared_bytes(size, cluster.block().warp_count()))) {
    end_array(facts_, size.rows);
  }
  /// All threads, where no row was read.
  SPECULA_HD void leave() { table_.leave(); }

  /// All threads. Reads rows row_of(0) to row_of(rows - 1) under valid `params` without their cut. The facts
  /// of row r are known to warp r (modulo the warps of the block), which calls then(r), and after another
  /// barrier to all. Where `has_aside`, the last warp of each block calls aside() and reads nothing. Cost:
  /// one read of the rows.
  template <class Element, class RowOf, class Aside, class Then>
  SPECULA_HD void read(int rows, RowOf row_of, const SamplingParams& params, bool has_aside, Aside aside,
                       Then then) {
    const auto block = table_.cluster().block();
    const auto warp = block.warp();
    const bool greedy = params.temperature == 0.0f;
    const float scale = scale_of(params.temperature);
    table_.template read<Element>(
        rows, row_of, [](int, int) { return true; },
        [&](int, int, const RawTile<Element>& raw) {
          if (greedy) {
            const TileTop top = tile_top(warp, raw);
            return Entry{top.maximum, float_of(static_cast<std::uint32_t>(top.place))};
          }
          const TileStats s = tile_stats(warp, raw, scale);
          return Entry{s.maximum, s.sum};
        },
        has_aside, aside);
    for (int r = block.warp_rank(); r < rows; r += block.warp_count()) {
      merge(r, params.temperature);
      then(r);
    }
  }
  SPECULA_HD const RowFacts& facts(int r) const { return facts_[r]; }

  /// All threads, once all know the facts: the cut of the rows that were read, as part of their
  /// distributions; rows that are not ok are unchanged. Known to warp 0, and after another barrier to all.
  /// Returns whether it ended with keep(). Cost: one read of the tiles that matter for 16-bit rows, otherwise
  /// several per row.
  template <class Element, class RowOf>
  SPECULA_HD bool truncate(int rows, RowOf row_of, const SamplingParams& params) {
    const auto block = table_.cluster().block();
    const auto ok = [&](int r) { return facts_[r].distribution.status == Status::ok; };
    static_assert(2 * sizeof(Histogram) <= Table::kScratchBytes, "Truncation works in the rings");
    if constexpr (sizeof(Element) == 2) {
      using ByKey = KeyTruncation<Cluster, Element>;
      static_assert(ByKey::row_bytes() <= Table::kScratchBytes, "so does KeyTruncation");
      ByKey(table_.cluster(), table_.scratch(), Table::scratch_bytes(size_, block.warp_count()))
          .find(
              rows, row_of, table_.row(0), params, ok, [&](int r) { return facts_[r].distribution.shift; },
              [&](int r) { return facts_[r].distribution.log_z; },
              [&](int r, const typename ByKey::Found& found) {
                block.warp().sync();
                if (block.warp().rank() != 0 || !found.inside) return;
                facts_[r].truncation_is_done = 1;
                facts_[r].distribution.min_logit = found.min_logit;
                facts_[r].distribution.log_z = log(found.kept);
              });
      block.sync();
    }
    bool all = true;
    for (int r = 0; r < rows; ++r) {
      if (!ok(r) || facts_[r].truncation_is_done != 0) continue;
      all = false;
      const float min_logit =
          Truncation<Cluster, Element>(table_.cluster(), table_.scratch(), row_of(r), table_.row(r),
                                       facts_[r].distribution.shift, params.temperature)
              .threshold(params);
      if (block.rank() == 0) facts_[r].distribution.min_logit = min_logit;
    }
    if (all) return false;
    block.sync();
    keep<Element>(0, rows, row_of);
    if (block.warp_rank() == 0)
      for (int r = 0; r < rows; ++r) {
        if (!ok(r) || facts_[r].truncation_is_done != 0) continue;
        const double kept = measured_total(r);
        scale_masses(r, 1 / kept);
        if (block.rank() == 0) facts_[r].distribution.log_z += log(kept);
        block.warp().sync();
      }
    return true;
  }

  /// All threads, after a barrier: measures the masses that a cut leaves of the tiles of rows `from` to from
  /// + rows - 1 of the last pass, for draw_by(): their entries begin with row 0's. Cost: a read of the
  /// tiles that the cut does not drop whole.
  template <class Element, class RowOf>
  SPECULA_HD void keep(int from, int rows, RowOf row_of) {
    const auto warp = table_.cluster().block().warp();
    const Entry* const stats = table_.row(from);
    const int tiles = table_.tiles();
    Exponent exponent;  // of row `of`
    int of = -1;
    table_.template read<Element>(
        rows, row_of,
        [&](int r, int tile) {
          return facts_[from + r].distribution.status == Status::ok &&
                 stats[r * tiles + tile].a >= facts_[from + r].distribution.min_logit;
        },
        [&](int r, int, const RawTile<Element>& raw) {
          if (r != of) exponent = Exponent(facts_[from + r].distribution), of = r;
          return Entry{0.0f, tile_sum_of(warp, [&](int i) { return exponent.weight(raw[i]); })};
        },
        false, [] {});
  }

  /// All threads: the distribution of one row under valid `params`; without a cut, its tiles' maxima are
  /// table().row(0)'s. Cost: one read of the row; a cut reads again the tiles that reach its threshold.
  template <class Element>
  SPECULA_HD RowStats distribution(Row<Element> row, const SamplingParams& params) {
    const auto row_of = [&](int) { return row; };
    read<Element>(
        1, row_of, params, false, [] {}, [](int) {});
    const auto block = table_.cluster().block();
    block.sync();
    if (is_cut(params)) {
      truncate<Element>(1, row_of, params);
      block.sync();
    }
    return facts_[0].distribution;
  }

  /// All threads: measures the tiles' masses of weight(a, b) of two rows' logits or probabilities.
  template <class One, class Two, class Weight>
  SPECULA_HD void measure_two(Row<One> one, Row<Two> two, Weight weight) {
    const auto warp = table_.cluster().block().warp();
    table_.read_two(one, two, [&](int, const RawTile<One>& a, const RawTile<Two>& b) {
      return Entry{0.0f, tile_sum_of(warp, [&](int i) { return weight(a[i], b[i]); })};
    });
  }
  /// All threads: the same of weights that fill(first, w) gives, four tokens from `first` on.
  template <class Fill>
  SPECULA_HD void measure(Fill fill) {
    const auto warp = table_.cluster().block().warp();
    table_.pass([&](int tile) { return Entry{0.0f, tile_sum(warp, tile, fill)}; });
  }

  /// Sum of the masses that were measured last; NaN if one of them is.
  SPECULA_HD double measured_total(int r = 0) const {
    const auto warp = table_.cluster().block().warp();
    const Entry* const entries = table_.row(r);
    const auto mass = [&](int t) { return entries[t].b; };
    const FloatMasses all(warp, table_.tiles(), mass);
    if (all.nan) return static_cast<double>(float_of(0x7FC00000u));
    return all.value(total_mass(warp, table_.tiles(), [&](int t) { return all.whole(mass(t)); }));
  }
  /// Draws a token by tiles and, inside the one that is picked, by weights that fill(first, w) gives. The
  /// entries of row `r` are the tiles' masses if they were `measured`, else the statistics of row r of the
  /// last pass. kNoToken if there are no masses. One function, since its code is long. Cost: one tile.
  template <class Fill>
  SPECULA_HD Token draw_by(bool measured, int r, Words uniform_words, Fill fill) const {
    const auto warp = table_.cluster().block().warp();
    const Entry* const entries = table_.row(r);
    FloatMasses all;
    if (measured) all = FloatMasses(warp, table_.tiles(), [&](int t) { return entries[t].b; });
    const RowMasses& masses = facts_[measured ? 0 : r].masses;
    const int tile = pick_tile(
        warp, table_.tiles(),
        [&](int t) { return measured ? all.whole(entries[t].b) : masses(entries[t].a, entries[t].b); },
        uniform_words.x);
    return tile < 0 ? kNoToken : draw_inside(warp, tile, uniform(uniform_words.y), fill);
  }
  /// The same from the distribution of row r of the last pass; the masses that a cut leaves are the entries
  /// of row `kept` if `cut`.
  template <class Element>
  SPECULA_HD Token draw(bool cut, int kept, int r, Row<Element> row, Words uniform_words) const {
    const RowStats& distribution = facts_[r].distribution;
    if (distribution.point != kNoToken) return distribution.point;
    const Exponent exponent(distribution);
    return draw_by(cut, cut ? kept : r, uniform_words,
                   [&](int first, float(&w)[4]) { weigh(row, exponent, first, w); });
  }
  /// A warp, for its block alone: turns the statistics of row r of the last pass into masses that
  /// draw_by() draws by and measure_tile() changes. They add up to 1.
  SPECULA_HD void measure_distribution(int r = 0) const {
    const auto warp = table_.cluster().block().warp();
    Entry* const entries = table_.row(r);
    const RowMasses& masses = facts_[r].masses;
    const double total = masses.value(
        total_mass(warp, table_.tiles(), [&](int t) { return masses(entries[t].a, entries[t].b); }));
    warp.sync();  // after a draw, in which other lanes read them
    for (int t = warp.rank(); t < table_.tiles(); t += warp.size())
      entries[t].b = masses.as_float(entries[t].a, entries[t].b);
    scale_masses(r, 1 / total);
  }
  /// A warp, for its block alone: measures one tile again, of weights that fill gives.
  template <class Fill>
  SPECULA_HD void measure_tile(int tile, Fill fill, int r = 0) const {
    const auto warp = table_.cluster().block().warp();
    const float mass = tile_sum(warp, tile, fill);
    if (warp.rank() == 0) table_.row(r)[tile].b = mass;
    warp.sync();
  }

  /// The weights of four tokens under a distribution.
  template <class Element>
  SPECULA_HD static void weigh(Row<Element> row, const Exponent& exponent, int first, float (&w)[4]) {
    load_four(row, first, w);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) w[e] = exponent.weight(w[e]);
  }

  /// log of the probability of a token that was drawn from a row, at most 0.
  template <class Element>
  SPECULA_HD static float log_prob_of(Row<Element> row, Token token, const RowStats& distribution) {
    if (distribution.point != kNoToken) return 0;
    return smaller(0.0f, static_cast<float>(log_prob(row[token], distribution)));
  }

  SPECULA_HD Cluster cluster() const { return table_.cluster(); }
  SPECULA_HD Table& table() { return table_; }
  SPECULA_HD const Table& table() const { return table_; }

 private:
  SPECULA_HD void scale_masses(int r, double by) const {
    const auto warp = table_.cluster().block().warp();
    Entry* const entries = table_.row(r);
    for (int t = warp.rank(); t < table_.tiles(); t += warp.size())
      entries[t].b = static_cast<float>(static_cast<double>(entries[t].b) * by);
    warp.sync();
  }

  /// By a warp: the facts of row r from its tiles.
  SPECULA_HD void merge(int r, float temperature) {
    const auto warp = table_.cluster().block().warp();
    const Entry* const entries = table_.row(r);
    const auto maximum = [&](int t) { return entries[t].a; };
    const TileDistribution tiles(warp, table_.tiles(), temperature, maximum,
                                 [&](int t) { return entries[t].b; });
    RowFacts out;
    out.truncation_is_done = 0;
    out.distribution = {0, 0, temperature, -infinity(), kNoToken, tiles.status};
    out.masses = tiles.masses;
    if (tiles.status == Status::ok) {
      if (temperature == 0.0f) {
        const int tile = tiles.top_tile(warp, table_.tiles(), maximum);
        out.distribution.point = tile * kTile + static_cast<Token>(bits_of(entries[tile].b));
      } else {
        out.distribution.shift = tiles.top;
        out.distribution.log_z = tiles.log_z();
      }
    }
    if (warp.rank() == 0) facts_[r] = out;
    warp.sync();
  }

  Table table_;
  Size size_;
  RowFacts* facts_;  // (rows)
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
