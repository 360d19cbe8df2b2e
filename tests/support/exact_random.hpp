// SPDX-License-Identifier: MIT
// A random source that enumerates every outcome of a program, with probabilities in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/distribution/random_source.hpp>

#include "draw_weights.hpp"

namespace specula_test {

/// How uniform draws are identified. `key` is correct. The others are mistakes that tests must detect:
/// without the origin, a uniform draw of a draft repeats in a later round; without the counter of the
/// round, the levels of a cascade share the uniform draws of their drafts and reviews. `fresh` treats every
/// call as a new uniform draw and so cannot detect them.
enum class RandomKeying { key, key_without_origin, key_without_counter, fresh };

/// Depth-first over branches. A second request at the same key gets the *same* uniform number, whose
/// interval the earlier answers have narrowed.
///
///   ExactRandom rng;
///   do { rng.begin(); run(rng); distribution[outcome] += rng.weight(); } while (rng.next());
class ExactRandom {
 public:
  explicit ExactRandom(RandomKeying keying = RandomKeying::key) : keying_(keying) {}

  void begin() { depth_ = 0, weight_ = 1, uniforms_.clear(); }
  bool next() {
    while (!trail_.empty() && trail_.back().branch + 1 == trail_.back().branches.size()) trail_.pop_back();
    if (trail_.empty()) return false;
    ++trail_.back().branch;
    return true;
  }
  double weight() const { return weight_; }
  std::int64_t reused() const { return reused_; }

  bool accept(double probability, const specula::RandomKey& key) {
    const double p = std::clamp(probability, 0.0, 1.0);
    return pick({{0, p}, {1, 1 - p}}, key) == 0;
  }
  /// Throws std::logic_error if production, which reads tile_masses() and fill(), would draw by other weights
  /// than weights(x), by which this enumerates.
  template <class Weights>
  specula::Token draw(const Weights& weights, const specula::RandomKey& key) {
    static_assert(specula::DrawWeights<Weights>);  // as PhiloxRandom requires
    std::vector<TokenWeight> p;
    if (depth_ == trail_.size()) {
      p = agreed_weights(weights);
    } else {  // a replay: the tokens that have a weight are known
      for (const TokenWeight& known : trail_[depth_].distribution)
        if (known.token < weights.vocab()) p.push_back({known.token, weights(known.token)});
      expect_masses(weights, p);
    }
    double total = 0;
    for (const TokenWeight& w : p) total += w.weight;
    if (!(total > 0)) throw std::logic_error("ExactRandom: empty weights");
    for (TokenWeight& w : p) w.weight /= total;
    return pick(p, key);
  }

 private:
  struct Branch {
    specula::Token value;
    double probability, low, high;
  };
  using Key = std::tuple<std::int32_t, std::int32_t, int, std::uint32_t>;
  struct Choice {
    std::size_t branch;
    std::vector<Branch> branches;
    Key place;
    std::vector<TokenWeight> distribution;
  };

  /// Whether the key's index is a counter that this enumerator leaves out.
  bool counts(specula::RandomStream stream) const {
    using specula::RandomStream;
    return keying_ == RandomKeying::key_without_counter &&
           (stream == RandomStream::draft || stream == RandomStream::review_accept ||
            stream == RandomStream::review_residual);
  }
  static bool same(const std::vector<TokenWeight>& a, const std::vector<TokenWeight>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TokenWeight& x, const TokenWeight& y) {
      return x.token == y.token && x.weight == y.weight;
    });
  }
  specula::Token pick(const std::vector<TokenWeight>& distribution, const specula::RandomKey& key) {
    const Key place{key.position, keying_ == RandomKeying::key_without_origin ? 0 : key.origin,
                    static_cast<int>(key.stream), counts(key.stream) ? 0 : key.index};
    std::pair<double, double>* uniform = nullptr;
    if (keying_ != RandomKeying::fresh) {
      const auto [at, is_new] = uniforms_.try_emplace(place, 0.0, 1.0);
      uniform = &at->second;
      reused_ += !is_new;
    }
    if (depth_ == trail_.size()) {
      Choice choice{0, {}, place, distribution};
      const double low = uniform ? uniform->first : 0, high = uniform ? uniform->second : 1;
      double sum = 0;
      for (const auto& [token, p] : distribution) {
        const double a = std::max(low, sum), b = std::min(high, sum + p);
        sum += p;
        if (b - a > 1e-15) choice.branches.push_back({token, (b - a) / (high - low), a, b});
      }
      if (choice.branches.empty()) throw std::logic_error("ExactRandom: no outcome is possible");
      trail_.push_back(std::move(choice));
    }
    const Choice& choice = trail_[depth_++];
    if (choice.place != place || !same(choice.distribution, distribution))
      throw std::logic_error("ExactRandom: a replay asked something else; state survived start()");
    const Branch& branch = choice.branches[choice.branch];
    weight_ *= branch.probability;
    if (uniform) *uniform = {branch.low, branch.high};
    return branch.value;
  }

  RandomKeying keying_;
  std::size_t depth_ = 0;
  double weight_ = 1;
  std::int64_t reused_ = 0;
  std::vector<Choice> trail_;
  std::map<Key, std::pair<double, double>> uniforms_;
};

}  // namespace specula_test
