// SPDX-License-Identifier: MIT
// Softmax over a row of logits in one streaming pass: its distribution, argmax, top-k, and tile masses for
// sampling.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/status.hpp"
#include "specula/distribution/row_math.hpp"
#include "specula/distribution/truncation.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::detail {

/// An error that a Status names, as of a row without a distribution.
class StatusError : public std::runtime_error {
 public:
  StatusError(Status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  Status status() const { return status_; }  ///< never ok

 private:
  Status status_;
};

/// A row of numbers. A span of floats converts.
struct Row {
  RowPointer at;
  std::size_t size = 0;

  Row(const RowPointer& first, std::int32_t count) : at(first), size(static_cast<std::size_t>(count)) {}
  template <std::convertible_to<std::span<const float>> Logits>
  Row(const Logits& logits)
      : at(std::span<const float>(logits).data()), size(std::span<const float>(logits).size()) {}
};

/// ln of distribution(token), also where distribution(token) underflows. Requires logits or a point mass.
inline double log_prob(const Distribution& distribution, Token token) {
  const double none = -std::numeric_limits<double>::infinity();
  if (distribution.is_point()) return token == distribution.point ? 0.0 : none;
  const float logit = distribution.logits[token];
  return logit < distribution.min_logit ? none : std::min(0.0, distribution.log_prob(logit));
}

/// A tile of a row without logits.
inline void fill_probabilities(const RowPointer& row, std::int32_t vocab, std::int32_t tile, float* weights) {
  const std::int32_t begin = tile * kTile, count = std::min(kTile, vocab - begin);
  if (row.format == RowFormat::probabilities) {
    std::fill_n(std::copy_n(row.floats() + begin, count, weights), kTile - count, 0.0f);
    return;
  }
  std::fill_n(weights, kTile, 0.0f);
  const auto& few = *static_cast<const SparseRow*>(row.data);
  for (std::int32_t i = 0; i < few.k; ++i)
    if (few.token[i] >= begin && few.token[i] < begin + count) weights[few.token[i] - begin] = few.prob[i];
}

/// The probabilities of one tile of a distribution, which may be a point mass.
inline void fill_tile(const Distribution& distribution, std::int32_t vocab, std::int32_t tile,
                      float* weights) {
  if (distribution.is_point()) {
    std::fill_n(weights, kTile, 0.0f);
    if (distribution.point / kTile == tile) weights[distribution.point % kTile] = 1.0f;
    return;
  }
  if (!distribution.logits.has_logits()) return fill_probabilities(distribution.logits, vocab, tile, weights);
  std::array<float, kTile> padding;
  kernels().fill(tile_at(distribution.logits, vocab, tile, padding), Exponent(distribution), weights);
}

/// A scanned row: its distribution with the masses of its tiles, as weights for Rng::draw. The masses are a
/// view of a workspace: once that is written again, operator(), tile_masses() and fill() throw
/// std::logic_error, whatever the vocabulary.
class TokenWeights {
 public:
  Distribution distribution;

  /// `masses` (ceil(V / 512)) are of `distribution`; empty for a point mass. `guard` is of their memory;
  /// none: it is not written again while this is used.
  TokenWeights(const Distribution& of, std::int32_t vocab, std::span<const double> masses,
               ViewGuard guard = {})
      : distribution(of), vocab_(vocab), masses_(masses), guard_(guard) {}

  std::int32_t vocab() const { return vocab_; }
  double operator()(Token token) const {
    expect_current();
    return distribution(token);
  }
  std::span<const double> tile_masses() const {
    expect_current();
    return masses_;
  }
  void fill(std::int32_t tile, float* weights) const {
    expect_current();
    fill_tile(distribution, vocab_, tile, weights);
  }

 private:
  void expect_current() const { guard_.expect_current("a view of weights", "another row was read since"); }

  std::int32_t vocab_;
  std::span<const double> masses_;
  ViewGuard guard_;
};

/// A tile of a smaller mass has none: its weights may all underflow as floats, so it must not be drawn.
inline constexpr double kLeastMass = 0x1p-100;

/// Mass of one tile of any weights. Under the reference arithmetic it is the sum of the weights' exact
/// values, so that distributions enumerated over toy vocabularies are exact too.
template <class Weights>
double tile_mass(const Weights& weights, std::int32_t tile) {
  if (isa() == Isa::reference) {
    double sum = 0;
    for (Token x = tile * kTile; x < std::min(weights.vocab(), (tile + 1) * kTile); ++x) sum += weights(x);
    return sum < kLeastMass ? 0.0 : sum;
  }
  std::array<float, kTile> w;
  weights.fill(tile, w.data());
  return kernels().sum(w.data());
}

/// Workspace for scanning a row. Allocates in the constructor, and 4 V bytes at the first truncation. Its
/// functions throw StatusError on a row that holds NaN or +infinity, has no finite logit, or has
/// logits beyond 1e38 times the temperature, and std::invalid_argument on a row of another width.
///
/// Where a function takes `masses`, (ceil(V / 512)), it writes the tile masses there, and the result refers
/// to them. If `masses` is empty it writes into the workspace, and the result throws std::logic_error after
/// the next call that does so. It throws std::invalid_argument if their number differs.
class RowScan {
 public:
  explicit RowScan(std::int32_t vocab)
      : vocab_(vocab),
        stats_(static_cast<std::size_t>(tile_count(vocab))),
        masses_(stats_.size()),
        truncation_(vocab) {}

  std::int32_t vocab() const { return vocab_; }

  /// The distribution of `row` under `params` and its tile masses; a point mass, which has none, at
  /// temperature 0. Cost: one read of the row; truncation reads the tiles that reach the threshold again.
  TokenWeights weights(const Row& row, const SamplingParams& params, std::span<double> masses = {}) {
    if (params.greedy()) return {Distribution::at(argmax(row)), vocab_, {}};
    const Place place = place_for(masses);
    masses = place.masses;
    Distribution distribution;
    distribution.logits = row.at;
    distribution.inv_t = 1.0 / static_cast<double>(params.temperature);
    const bool needs_sum = !params.truncates() || truncation_.needs_sum(params);
    distribution.shift = needs_sum ? scan(row, distribution.inv_t) : maxima(row, distribution.inv_t);
    // A truncation that needs no sum needs no log_z either: the kept mass is summed below.
    if (needs_sum) distribution.log_z = log_sum(masses);
    if (params.truncates()) {
      distribution.min_logit = truncation_.threshold(distribution, params, stats_);
      const double kept = measure(distribution, masses,
                                  [&](std::size_t t) { return stats_[t].maximum < distribution.min_logit; });
      distribution.log_z += std::log(kept);
      normalise(masses, kept);
    }
    return {distribution, vocab_, masses, place.guard};
  }
  /// The distribution alone, at the same cost.
  Distribution distribution(const Row& row, const SamplingParams& params) {
    return weights(row, params).distribution;
  }

  /// The tile masses of any distribution over a row. Requires that it is no point mass. Cost: one read of the
  /// row.
  TokenWeights weights(const Distribution& distribution, std::span<double> masses = {}) {
    const Place place = place_for(masses);
    measure(distribution, place.masses, [](std::size_t) { return false; });
    return {distribution, vocab_, place.masses, place.guard};
  }

  /// argmax: the first of the largest logits. Cost: one read of the row.
  Token argmax(const Row& row) {
    check_width(row);
    std::array<float, kTile> padding;
    float top = -std::numeric_limits<float>::infinity();
    std::int32_t best = 0;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      const float m = kernels().maximum(tile_at(row.at, vocab_, t, padding));
      if (std::isnan(m)) throw_bad(row);
      if (m > top) top = m, best = t;
    }
    if (!std::isfinite(top)) throw_bad(row);
    return first(row, best, [&](float l) { return l == top; });
  }

  /// argmax with its confidence. Cost: one read of the row.
  Top top(const Row& row) {
    const float best = scan(row, 1.0);
    std::int32_t tile = 0;
    while (stats_[static_cast<std::size_t>(tile)].maximum != best) ++tile;
    return {first(row, tile, [&](float l) { return l == best; }), prob(-log_sum(place_for({}).masses))};
  }

  /// The out.size() largest logits, best first, ties to the lower token; returns how many are above
  /// -infinity. Cost: one read of the row, and of the tiles that reach the smallest of them again. Each
  /// logit that is among them when it is read is inserted in order, which is O(V * out.size()) for an
  /// ascending row.
  std::int32_t top_k(const Row& row, std::span<Top> out) {
    if (out.empty()) return 0;
    const float best = scan(row, 1.0);
    const double log_z = log_sum(place_for({}).masses);
    std::size_t found = 0;
    // few logits are within a small gap of the best
    for (const float gap : {4.0f, 10.0f, std::numeric_limits<float>::infinity()}) {
      found = collect(row, best - gap, out);
      if (found == out.size()) break;
    }
    for (Top& top : out.first(found)) top.prob = prob(top.prob - static_cast<double>(best) - log_z);
    return static_cast<std::int32_t>(found);
  }

 private:
  /// Where masses are written, and for the workspace's own a guard of what is written now.
  struct Place {
    std::span<double> masses;
    ViewGuard guard;
  };
  Place place_for(std::span<double> masses) {
    if (masses.empty()) {
      writes_.next();
      return {masses_, ViewGuard(writes_)};
    }
    if (masses.size() != masses_.size())
      throw std::invalid_argument("room for " + std::to_string(masses.size()) + " tile masses, a row has " +
                                  std::to_string(masses_.size()) + " tiles");
    return {masses, {}};
  }
  /// At most 1 in spite of rounding, so that products along a path never rise.
  static double prob(double log) { return std::min(1.0, std::exp(log)); }
  /// The largest of the logits above `bound`, sorted, in `out`, with the logit as `prob`.
  std::size_t collect(const Row& row, float bound, std::span<Top> out) const {
    std::array<float, kTile> padding;
    std::array<std::int32_t, kTile> places;
    std::size_t found = 0;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      if (!(stats_[static_cast<std::size_t>(t)].maximum > bound)) continue;
      const float* tile = tile_at(row.at, vocab_, t, padding);
      const std::int32_t count = kernels().above(tile, bound, places.data());
      for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t place = places[static_cast<std::size_t>(i)];
        const float logit = tile[place];
        if (!(logit > bound)) continue;  // `bound` has risen since
        std::size_t at = found < out.size() ? found++ : found - 1;
        for (; at > 0 && out[at - 1].prob < static_cast<double>(logit); --at) out[at] = out[at - 1];
        out[at] = {t * kTile + place, static_cast<double>(logit)};
        if (found == out.size()) bound = static_cast<float>(out.back().prob);
      }
    }
    return found;
  }
  /// Computes the statistics of all tiles; returns the largest logit.
  float scan(const Row& row, double inv_t) {
    check_width(row);
    const std::int32_t whole = row.at.format == RowFormat::full ? vocab_ / kTile : 0;
    if (whole > 0) kernels().stats(row.at.floats(), whole, inv_t, stats_.data());
    // Tiles that are copied, several at once: the kernel reads ahead by one.
    std::array<std::array<float, kTile>, 8> copies;
    for (std::int32_t t = whole, some; t < tile_count(vocab_); t += some) {
      some = std::min<std::int32_t>(copies.size(), tile_count(vocab_) - t);
      for (std::int32_t i = 0; i < some; ++i)
        tile_at(row.at, vocab_, t + i, copies[static_cast<std::size_t>(i)]);
      kernels().stats(copies[0].data(), some, inv_t, stats_.data() + t);
    }
    float top = -std::numeric_limits<float>::infinity();
    bool nan = false;
    for (const TileStats& tile : stats_) {
      top = tile.maximum > top ? tile.maximum : top;
      nan |= std::isnan(tile.sum);
    }
    check_top(row, top, inv_t, nan);
    return top;
  }
  /// Computes the tiles' maxima only, without exponentials; returns the largest.
  float maxima(const Row& row, double inv_t) {
    check_width(row);
    std::array<float, kTile> padding;
    float top = -std::numeric_limits<float>::infinity();
    bool nan = false;
    for (std::size_t t = 0; t < stats_.size(); ++t) {
      const float m = kernels().maximum(tile_at(row.at, vocab_, static_cast<std::int32_t>(t), padding));
      stats_[t].maximum = m;
      top = m > top ? m : top;
      nan |= std::isnan(m);
    }
    check_top(row, top, inv_t, nan);
    return top;
  }
  /// log of the sum of exp(inv_t * (l - top)) over the row that scan() read last, top being its largest
  /// logit; writes the tiles' shares of it to `masses`.
  double log_sum(std::span<double> masses) const {
    const TileStats& first =
        *std::max_element(stats_.begin(), stats_.end(),
                          [](const TileStats& a, const TileStats& b) { return a.maximum < b.maximum; });
    for (std::size_t t = 0; t < stats_.size(); ++t) {
      const double mass = stats_[t].sum > 0 ? stats_[t].sum * pow2(stats_[t].unit - first.unit) : 0.0;
      masses[t] = mass < kLeastMass ? 0.0 : mass;
    }
    const double sum = merge_tiles(masses);
    normalise(masses, sum);
    return (std::log2(sum) - static_cast<double>(first.rest)) / kLog2E;
  }
  /// Computes the tile masses of any distribution over its row, skipping `is_empty` tiles; returns their
  /// total.
  template <class IsEmpty>
  double measure(const Distribution& distribution, std::span<double> masses, IsEmpty is_empty) const {
    const Exponent exponent(distribution);
    std::array<float, kTile> padding, weights;
    for (std::size_t t = 0; t < masses.size(); ++t) {
      const auto tile = static_cast<std::int32_t>(t);
      masses[t] = is_empty(t) ? 0.0
                              : kernels().fill(tile_at(distribution.logits, vocab_, tile, padding), exponent,
                                               weights.data());
      if (masses[t] < kLeastMass) masses[t] = 0;
    }
    return merge_tiles(masses);
  }
  static void normalise(std::span<double> masses, double total) {
    for (double& mass : masses) mass /= total;
  }
  /// The first token from a tile on whose logit is asked for; V if there is none.
  template <class Is>
  Token first(const Row& row, std::int32_t tile, Is is) const {
    std::array<float, kTile> padding;
    for (; tile < tile_count(vocab_); ++tile) {
      const float* logits = tile_at(row.at, vocab_, tile, padding);
      const float* end = logits + std::min(kTile, vocab_ - tile * kTile);
      if (const float* at = std::find_if(logits, end, is); at != end)
        return tile * kTile + static_cast<Token>(at - logits);
    }
    return vocab_;
  }
  void check_top(const Row& row, float top, double inv_t, bool nan) {
    if (nan || !std::isfinite(top)) throw_bad(row);
    if (too_large(top, inv_t))
      throw StatusError(Status::overflow,
                        "a row of logits is too large for its temperature: its largest logit is " +
                            number(top) + ", must be within 1e38 times the temperature, which is " +
                            number(static_cast<float>(1 / inv_t)));
  }
  void check_width(const Row& row) const {
    if (row.size != static_cast<std::size_t>(vocab_))
      throw std::invalid_argument("a row has " + std::to_string(row.size) + " logits, the vocabulary " +
                                  std::to_string(vocab_) + " tokens");
  }
  [[noreturn]] void throw_bad(const Row& row) const {
    const Token bad = first(row, 0, [](float l) { return !(l < std::numeric_limits<float>::infinity()); });
    if (bad == vocab_)
      throw StatusError(Status::empty_row, "a row of logits is empty: none is above -infinity");
    throw StatusError(Status::not_a_number,
                      "a row of logits holds NaN or +infinity at token " + std::to_string(bad));
  }

  std::int32_t vocab_;
  std::vector<TileStats> stats_;  // (ceil(V / 512)) of the last scanned row
  std::vector<double> masses_;    // (ceil(V / 512)), if the caller passes no memory for them
  ChangeCount writes_;            // of masses_
  Truncation truncation_;
};

}  // namespace specula::detail
