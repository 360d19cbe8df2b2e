// Enumerates every outcome of a random program and adds probabilities in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/chance.hpp>

namespace specula_test {

/// How coins are told apart. `site` is the truth. The others are the mistakes that must be caught: without
/// the origin a draft's coin comes back in a later round; without the counter of the round the levels of a
/// cascade share the coins of their drafts and reviews; `fresh` takes every call for a new coin and so cannot
/// see such mistakes.
enum class CoinKey { site, site_without_origin, site_without_counter, fresh };

/// Depth-first over branches. A coin is one uniform number; asked again at the same site, it is the *same*
/// number, whose interval the earlier answers have narrowed.
///
///   ExactChance chance;
///   do { chance.begin(); run(chance); law[outcome] += chance.weight(); } while (chance.next());
class ExactChance {
 public:
  explicit ExactChance(CoinKey key = CoinKey::site) : key_(key) {}

  void begin() { depth_ = 0, weight_ = 1, coins_.clear(); }
  bool next() {
    while (!trail_.empty() && trail_.back().branch + 1 == trail_.back().branches.size()) trail_.pop_back();
    if (trail_.empty()) return false;
    ++trail_.back().branch;
    return true;
  }
  double weight() const { return weight_; }
  std::int64_t reused() const { return reused_; }

  bool accept(double probability, const specula::Site& site) {
    const double p = std::clamp(probability, 0.0, 1.0);
    return pick({p, 1 - p}, site) == 0;
  }
  template <class Weights>
  specula::Token draw(const Weights& weights, const specula::Site& site) {
    std::vector<double> p(static_cast<std::size_t>(weights.vocab()));
    double total = 0;
    for (std::size_t x = 0; x < p.size(); ++x) total += p[x] = weights(static_cast<specula::Token>(x));
    if (!(total > 0)) throw std::runtime_error("ExactChance: empty weights");
    for (double& x : p) x /= total;
    return static_cast<specula::Token>(pick(p, site));
  }

 private:
  struct Branch {
    int value;
    double probability, low, high;
  };
  using Key = std::tuple<std::int32_t, std::int32_t, int, std::uint32_t>;
  struct Choice {
    std::size_t branch;
    std::vector<Branch> branches;
    Key key;
    std::vector<double> law;
  };

  /// Whether the site's index is a counter that this enumerator leaves out.
  bool counts(specula::Stream stream) const {
    using specula::Stream;
    return key_ == CoinKey::site_without_counter &&
           (stream == Stream::draft || stream == Stream::review_accept || stream == Stream::review_residual);
  }
  int pick(const std::vector<double>& law, const specula::Site& site) {
    const Key key{site.position, key_ == CoinKey::site_without_origin ? 0 : site.origin,
                  static_cast<int>(site.stream), counts(site.stream) ? 0 : site.index};
    std::pair<double, double>* coin = nullptr;
    if (key_ != CoinKey::fresh) {
      const auto [at, is_new] = coins_.try_emplace(key, 0.0, 1.0);
      coin = &at->second;
      reused_ += !is_new;
    }
    if (depth_ == trail_.size()) {
      Choice choice{0, {}, key, law};
      const double low = coin ? coin->first : 0, high = coin ? coin->second : 1;
      double sum = 0;
      for (std::size_t v = 0; v < law.size(); ++v) {
        const double a = std::max(low, sum), b = std::min(high, sum + law[v]);
        sum += law[v];
        if (b - a > 1e-15) choice.branches.push_back({static_cast<int>(v), (b - a) / (high - low), a, b});
      }
      if (choice.branches.empty()) throw std::logic_error("ExactChance: no outcome is possible");
      trail_.push_back(std::move(choice));
    }
    const Choice& choice = trail_[depth_++];
    if (choice.key != key || choice.law != law)
      throw std::logic_error("ExactChance: a replay asked something else; state survived start()");
    const Branch& branch = choice.branches[choice.branch];
    weight_ *= branch.probability;
    if (coin) *coin = {branch.low, branch.high};
    return branch.value;
  }

  CoinKey key_;
  std::size_t depth_ = 0;
  double weight_ = 1;
  std::int64_t reused_ = 0;
  std::vector<Choice> trail_;
  std::map<Key, std::pair<double, double>> coins_;
};

}  // namespace specula_test
