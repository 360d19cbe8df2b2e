// A row of logits as a law, by a whole cluster: one read of it, and no memory but the tiles' table.
#pragma once

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../thread/coins.cuh"
#include "../thread/exponent.cuh"
#include "../types.cuh"
#include "../warp/tile.cuh"
#include "../warp/tile_law.cuh"
#include "cut.cuh"
#include "tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

template <class Cluster>
class RowScan {
 public:
  using Table = TileTable<Cluster>;

  /// 8-byte aligned shared memory of each block.
  SPECULA_HD static std::size_t shared_bytes(int vocab) {
    return Table::shared_bytes(vocab) + 2 * sizeof(Histogram);
  }
  SPECULA_HD RowScan(Cluster cluster, int vocab, unsigned char* shared)
      : table_(cluster, vocab, shared), histograms_(shared + Table::shared_bytes(vocab)) {}

  /// The law of `row` under valid `params`. Cost: one read of the row; a cut reads again what reaches it.
  template <class Element>
  SPECULA_HD RowStats law(Row<Element> row, const SamplingParams& params) {
    TileLaw tiles(params.temperature);
    RowStats out{0, 0, params.temperature, -infinity(), kNoToken, Status::ok};
    const auto warp = table_.cluster().block().warp();
    table_.pass(row, [&](int tile, const RawTile<Element>& raw) {
      float x[kPerLane];
      unpack<Order::columns>(warp.rank(), raw, row, tile, x);
      if (tiles.greedy) return typename Table::Entry{tile_maximum(warp, x), 0.0f};
      const TileStats s = tile_stats(warp, x, tiles.scale);
      return typename Table::Entry{s.maximum, s.sum};
    });
    const auto maximum = [&](int t) { return table_[t].a; };
    out.status = tiles.look(warp, table_.tiles(), maximum, [&](int t) { return table_[t].b; });
    if (out.status != Status::ok) return out;
    if (tiles.greedy) {
      out.point = first_equal(row, tiles.top_tile(warp, table_.tiles(), maximum), tiles.top);
      return out;
    }
    masses_ = {kStats, tiles.scale, tiles.unit, 1};
    const double total = table_.total(masses_);
    masses_.share = 1 / total;
    out.shift = tiles.top;
    out.log_z = tiles.log_z(total);
    if (cuts(params)) {
      out.cut =
          Cut<Cluster, Element>(table_.cluster(), histograms_, row, table_, tiles.top, params.temperature)
              .threshold(params);
      const Exponent exponent(out);
      const double kept = measure_from([&](int tile) { return table_.before(tile).a >= out.cut; },
                                       [&](int first, float(&w)[4]) { weigh(row, exponent, first, w); });
      masses_.share = 1 / kept;
      out.log_z += log(kept);
    }
    return out;
  }

  /// Measures the tiles' masses of weights that fill(first, w) gives, four tokens from `first` on; returns
  /// their total.
  template <class Fill>
  SPECULA_HD double measure(Fill fill) {
    return measure_from([](int) { return true; }, fill);
  }
  /// The same where only the tiles that `changed` says have other weights than those measured last, or than
  /// the law that law() returned; the masses of the others are taken over.
  template <class Changed, class Fill>
  SPECULA_HD double remeasure(Changed changed, Fill fill) {
    const auto warp = table_.cluster().block().warp();
    const Masses masses = masses_;
    table_.pass([&](int tile) {
      if (!changed(tile)) return typename Table::Entry{0.0f, static_cast<float>(masses(table_.before(tile)))};
      return typename Table::Entry{0.0f, tile_sum(warp, tile, fill)};
    });
    masses_ = {kMasses, 0, 0, 1};
    return table_.total(masses_);
  }
  /// The tile that a coin picks by the masses that the last call measured; -1 if there are none.
  SPECULA_HD int pick_tile(double coin) const { return table_.pick(masses_, coin); }

  /// Draws from the law that law() returned last. Cost: one tile.
  template <class Element>
  SPECULA_HD Token draw(Row<Element> row, const RowStats& law, Words coin_words) const {
    if (law.point != kNoToken) return law.point;
    const int tile = pick_tile(coin(coin_words.x));
    if (tile < 0) return kNoToken;
    const auto warp = table_.cluster().block().warp();
    const Exponent exponent(law);
    return draw_inside(warp, tile, coin(coin_words.y),
                       [&](int first, float(&w)[4]) { weigh(row, exponent, first, w); });
  }

  SPECULA_HD Cluster cluster() const { return table_.cluster(); }
  SPECULA_HD const Table& table() const { return table_; }

 private:
  enum Kind { kStats, kMasses };
  /// An entry of the table as a mass. Those of a law add up to 1.
  struct Masses {
    Kind kind;
    float scale;
    double unit, share;
    SPECULA_HD double operator()(typename Table::Entry entry) const {
      if (kind == kMasses) return static_cast<double>(entry.b) * share;
      const double mass = tile_mass(entry.a, entry.b, scale, unit) * share;
      return mass < kLeastMass ? 0.0 : mass;
    }
  };

  template <class Element>
  SPECULA_HD static void weigh(Row<Element> row, const Exponent& exponent, int first, float (&w)[4]) {
    load_four(row, first, w);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) w[e] = exponent.weight(w[e]);
  }
  template <class Wanted, class Fill>
  SPECULA_HD double measure_from(Wanted wanted, Fill fill) {
    const auto warp = table_.cluster().block().warp();
    table_.pass([&](int tile) {
      return typename Table::Entry{0.0f, wanted(tile) ? tile_sum(warp, tile, fill) : 0.0f};
    });
    masses_ = {kMasses, 0, 0, 1};
    return table_.total(masses_);
  }

  /// First token of the tile whose logit is `value`.
  template <class Element>
  SPECULA_HD Token first_equal(Row<Element> row, int tile, float value) const {
    const auto warp = table_.cluster().block().warp();
    Token token = row.vocab;
    for (int k = 3; k >= 0; --k) {
      const int first = tile * kTile + place_of<Order::run>(warp.rank(), k);
      float x[4];
      load_four(row, first, x);
      SPECULA_UNROLL
      for (int e = 3; e >= 0; --e)
        if (x[e] == value) token = first + e;
    }
    return reduce(warp, token, Min{});
  }

  Table table_;
  unsigned char* histograms_;
  Masses masses_{kStats, 0, 0, 1};
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
