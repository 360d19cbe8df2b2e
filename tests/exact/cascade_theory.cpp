// SPDX-License-Identifier: MIT
// labels: long optimised
// The theory of cascades against the shapes: models whose draft tokens are accepted with prescribed
// probabilities, and counts of emitted tokens and calls per round. Fixed seeds; every comparison is in
// standard errors of its own rounds, and would detect a rate that is off by 0.02.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <specula/specula.hpp>
#include <specula/study/cascade_model.hpp>
#include <specula/study/speedup.hpp>

#include "random.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 24;
constexpr std::int32_t kCapacity = 700000;

/// A text as a hash, extended token by token.
std::uint64_t extend_hash(std::uint64_t text, Token token) {
  std::uint64_t h = (text ^ static_cast<std::uint64_t>(token + 1)) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

/// The likeliest token after each text for the target (level 0) and drafters 1, 2, ...: level i agrees with
/// level i - 1 with probability rates[i - 1], independently of everything else, and where it does not, its
/// token is none of those above. So level i agrees with level j < i with the product of the rates between.
struct Agreement {
  std::uint64_t seed;
  std::vector<double> rates;

  Token operator()(std::uint64_t text, std::size_t level) const {
    Random random(text ^ seed);
    Token token = random.below(kVocab), fresh = token;
    for (std::size_t i = 0; i < level; ++i) {
      fresh =
          (fresh + 1 + random.below(5)) % kVocab;  // at most 5 per level: no token of a level above repeats
      if (!random.bernoulli(rates[i])) token = fresh;
    }
    return token;
  }
};

/// A model of one level, with a cache.
class LevelModel {
 public:
  LevelModel(Agreement agreement, std::size_t level) : agreement_(std::move(agreement)), level_(level) {
    committed_.reserve(kCapacity + 1);
  }
  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t size() const { return static_cast<std::int32_t>(committed_.size()) - 1; }
  std::int32_t capacity() const { return kCapacity; }
  void append(Tokens tokens) {
    nodes_.clear();
    for (const Token token : tokens) committed_.push_back(extend_hash(committed_.back(), token));
  }
  LogitsView extend(Tokens tokens, Nodes parents) {
    rows_.assign(tokens.size() * kVocab, 0.0f);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::uint64_t before =
          parents[i] == kNoParent ? committed_.back() : nodes_.at(static_cast<std::size_t>(parents[i]));
      nodes_.push_back(extend_hash(before, tokens[i]));
      rows_[i * kVocab + static_cast<std::size_t>(agreement_(nodes_.back(), level_))] = 5;
    }
    return {rows_.data(), static_cast<std::int32_t>(tokens.size()), kVocab, kVocab};
  }
  void commit(Nodes path) {
    for (const NodeId node : path) committed_.push_back(nodes_.at(static_cast<std::size_t>(node)));
    nodes_.clear();
  }
  void truncate(std::int32_t n) {
    nodes_.clear();
    committed_.resize(static_cast<std::size_t>(n) + 1);
  }

 private:
  Agreement agreement_;
  std::size_t level_;
  std::vector<std::uint64_t> committed_ = {0}, nodes_;  // texts up to each token
  std::vector<float> rows_;
};

/// A drafter of one level, without rows.
class LevelPoints {
 public:
  LevelPoints(Agreement agreement, std::size_t level) : agreement_(std::move(agreement)), level_(level) {}
  std::int32_t vocab_size() const { return kVocab; }
  std::int32_t capacity() const { return kCapacity; }
  void truncate(std::int32_t n) {
    if (static_cast<std::size_t>(n) < committed_.size()) committed_.resize(static_cast<std::size_t>(n) + 1);
  }
  void sync(Tokens context, Tokens draft_tokens) {
    for (std::size_t i = committed_.size() - 1; i < context.size(); ++i)
      committed_.push_back(extend_hash(committed_.back(), context[i]));
    tip_ = committed_.back();
    for (const Token token : draft_tokens) tip_ = extend_hash(tip_, token);
    nodes_.clear();
  }
  PointMasses extend(Tokens tokens, Nodes parents) {
    ++usage_.calls;
    draft_tokens_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      nodes_.push_back(extend_hash(
          parents[i] == kNoParent ? tip_ : nodes_.at(static_cast<std::size_t>(parents[i])), tokens[i]));
      draft_tokens_.push_back(agreement_(nodes_.back(), level_));
    }
    return {draft_tokens_};
  }
  const Usage& usage() const noexcept { return usage_; }

 private:
  Agreement agreement_;
  std::size_t level_;
  std::vector<std::uint64_t> committed_ = {0}, nodes_;
  std::uint64_t tip_ = 0;
  std::vector<Token> draft_tokens_;
  Usage usage_;
};

/// Mean and standard error of a figure per round.
struct Sample {
  double n = 0, sum = 0, squares = 0;
  void add(double x) { n += 1, sum += x, squares += x * x; }
  double mean() const { return sum / n; }
  double error() const { return std::sqrt((squares / n - mean() * mean()) / n); }  // of the mean
};

/// Emitted tokens and calls of rounds.
struct Rounds {
  std::vector<double> tokens, proposed;
  std::vector<std::vector<double>> calls;  // (drafters)

  static Sample of(const std::vector<double>& values) {
    Sample sample;
    for (const double value : values) sample.add(value);
    return sample;
  }
  /// Emitted tokens over cost, where a call of drafter d costs costs[d]; the standard error is
  /// that of a ratio of means.
  double speedup(const std::vector<double>& costs, double& error) const {
    Sample cost, rest;
    for (std::size_t i = 0; i < tokens.size(); ++i) cost.add(cost_of(i, costs));
    const double ratio = of(tokens).mean() / cost.mean();
    for (std::size_t i = 0; i < tokens.size(); ++i) rest.add(tokens[i] - ratio * cost_of(i, costs));
    error = rest.error() / cost.mean();
    return ratio;
  }

 private:
  double cost_of(std::size_t round, const std::vector<double>& costs) const {
    double cost = 1;
    for (std::size_t d = 0; d < costs.size(); ++d) cost += costs[d] * calls[d][round];
    return cost;
  }
};

/// `count` rounds of greedy decoding with a stack whose last drafter has no rows.
template <std::size_t drafters, class Shape>
Rounds rounds_of(Shape shape, const std::vector<double>& rates, std::uint64_t seed, int count) {
  const Agreement agreement{seed, rates};
  LevelModel target(agreement, 0), first(agreement, 1), second(agreement, 2);
  const LevelPoints last(agreement, drafters);
  const auto play = [&](auto stack) {
    Speculator run{TreeVerifier{target, Greedy{}}, std::move(stack), shape};
    PhiloxRandom rng(1);
    run.start(std::vector<Token>{1});
    Rounds out;
    out.calls.resize(drafters);
    std::vector<std::int64_t> before(drafters);
    for (int i = 0; i < count; ++i) {
      if (run.room() <= run.shape().nodes().most) FAIL("proposals are about to be trimmed");
      out.tokens.push_back(static_cast<double>(run.step(rng).size()));
      out.proposed.push_back(static_cast<double>(run.proposal().size() - 1));
      for (std::size_t d = 0; d < drafters; ++d) {
        const std::int64_t now = run.stats().drafters[d].calls;
        out.calls[d].push_back(static_cast<double>(now - before[d]));
        before[d] = now;
      }
    }
    return out;
  };
  if constexpr (drafters == 1)
    return play(Stack{last});
  else if constexpr (drafters == 2)
    return play(Stack{ModelDrafter{first}, last});
  else
    return play(Stack{ModelDrafter{first}, ModelDrafter{second}, last});
}

/// How many standard errors `theory` is off.
double off(const Sample& sample, double theory) { return std::abs(sample.mean() - theory) / sample.error(); }

/// The prescribed rates: [r][d] is the product of the rates from reviewer r to drafter d.
CascadeRates rates_of(const std::vector<double>& rates, const std::vector<double>& costs) {
  CascadeRates out;
  for (std::size_t r = 0; r < rates.size(); ++r) {
    out.acceptance.emplace_back(rates.size());
    double product = 1;
    for (std::size_t d = r; d < rates.size(); ++d) out.acceptance[r][d] = product *= rates[d];
  }
  for (const double cost : costs) out.draft_costs.push_back(CostCurve({cost}));
  return out;
}
std::vector<double> with(std::vector<double> rates, std::size_t at, double more) {
  rates[at] += more;
  return rates;
}

/// Checks every figure of a forecast, and that a forecast with another rate would fail.
template <std::size_t drafters, class Shape>
void check_forecast(const Shape& shape, const std::vector<double>& rates, const std::vector<double>& costs,
                    const std::function<CascadeForecast(const CascadeRates&)>& forecast, std::uint64_t seed,
                    int count) {
  const Rounds rounds = rounds_of<drafters>(shape, rates, seed, count);
  const CascadeForecast want = forecast(rates_of(rates, costs));
  const Sample tokens = Rounds::of(rounds.tokens);
  CHECK(tokens.error() < 0.006 * tokens.mean());
  CHECK(off(tokens, want.tokens) < 4);
  const auto fits = [](const std::vector<double>& values, double theory) {
    const Sample sample = Rounds::of(values);
    return sample.error() == 0 ? sample.mean() == doctest::Approx(theory).epsilon(1e-12)
                               : off(sample, theory) < 4;
  };
  CHECK(fits(rounds.proposed, want.proposed));
  for (std::size_t d = 0; d < drafters; ++d) {
    CAPTURE(d);
    CHECK(fits(rounds.calls[d], want.calls[d]));
  }
  double error = 0;
  const double speedup = rounds.speedup(costs, error);
  CHECK(std::abs(speedup - want.speedup) < 4 * error);
  CHECK(want.swi == doctest::Approx(want.speedup).epsilon(1e-12));
  for (const double wrong : {-0.02, 0.02})
    CHECK(std::abs(speedup - forecast(rates_of(with(rates, 0, wrong), costs)).speedup) > 4 * error);
  for (std::size_t d = 0; d < drafters; ++d)
    for (const double wrong : {-0.1, 0.1}) {
      const CascadeForecast other = forecast(rates_of(with(rates, d, wrong), costs));
      CHECK((off(tokens, other.tokens) > 4 || !fits(rounds.proposed, other.proposed) ||
             !fits(rounds.calls[0], other.calls[0])));
    }
}

}  // namespace

TEST_CASE("the models agree as prescribed") {
  const Agreement agreement{3, {0.8, 0.5, 0.7}};
  Sample one, two, three, apart;
  std::uint64_t text = 1;
  for (int i = 0; i < 50000; ++i) {
    text = extend_hash(text, i % kVocab);
    const Token t = agreement(text, 0), a = agreement(text, 1), b = agreement(text, 2),
                c = agreement(text, 3);
    one.add(a == t), two.add(b == a), three.add(c == b);
    if (b != a) apart.add(b == t);
  }
  CHECK(off(one, 0.8) < 4);
  CHECK(off(two, 0.5) < 4);
  CHECK(off(three, 0.7) < 4);
  CHECK(apart.mean() == 0);
}

TEST_CASE("a vertical cascade that counts reviews: EWIF, unit values: 50,000 rounds") {
  const double alpha = 0.8, inner = 0.5, c1 = 0.04;
  const std::int32_t k = 10, n = 5;
  const Rounds rounds = rounds_of<2>(Vertical<2>{.reviews = n, .length = k}, {alpha, inner}, 11, 50000);
  for (const double calls : rounds.calls[0])
    if (calls != n) FAIL("not the cost that EWIF counts, n c1 + n k c2");
  for (const double calls : rounds.calls[1])
    if (calls != n * k) FAIL("not the cost that EWIF counts");
  for (const double c2 : {0.0, 0.003}) {
    double error = 0;
    const double speedup = rounds.speedup({c1, c2}, error);
    const double want = vertical_ewif(alpha, inner, k, n, c1, c2);
    if (c2 == 0) CHECK(want == doctest::Approx(3.727663).epsilon(1e-7));
    MESSAGE("vertical EWIF " << want << ", measured " << speedup << " +- " << error);
    CHECK(error < 0.005 * want);
    CHECK(std::abs(speedup - want) < 4 * error);
    for (const double wrong : {-0.02, 0.02})
      CHECK(std::abs(speedup - vertical_ewif(alpha + wrong, inner, k, n, c1, c2)) > 4 * error);
    CHECK(std::abs(speedup - vertical_ewif(alpha, inner - 0.1, k, n, c1, c2)) > 4 * error);
    CHECK(std::abs(speedup - vertical_ewif(alpha, inner, k, n - 2, c1, c2)) > 4 * error);
  }
  check_forecast<2>(
      Vertical<2>{.reviews = n, .length = k}, {alpha, inner}, {c1, 0.003},
      [&](const CascadeRates& rates) { return forecast_vertical(rates, n, k); }, 12, 50000);
}

TEST_CASE("vertical with three drafters: 50,000 rounds") {
  check_forecast<3>(
      Vertical<3>{.reviews = 3, .length = 4}, {0.8, 0.7, 0.6}, {0.04, 0.01, 0.0},
      [](const CascadeRates& rates) { return forecast_vertical(rates, 3, 4); }, 21, 50000);
}

TEST_CASE("a horizontal cascade: EWIF: 80,000 rounds") {
  const std::vector<double> rates = {0.8, 0.75}, costs = {0.04, 0.01};
  const Rounds rounds = rounds_of<2>(Horizontal<2>{.counts = {4, 3}}, rates, 31, 80000);
  double error = 0;
  const double speedup = rounds.speedup(costs, error);
  const auto ewif = [](double first, double second) {
    const std::vector<double> alphas = {first, first, first, first, second, second, second},
                              prices = {0.04, 0.04, 0.04, 0.04, 0.01, 0.01, 0.01};
    return horizontal_ewif(alphas, prices);
  };
  const double want = ewif(0.8, 0.8 * 0.75);
  MESSAGE("horizontal EWIF " << want << ", measured " << speedup << " +- " << error);
  CHECK(error < 0.005 * want);
  CHECK(std::abs(speedup - want) < 4 * error);
  CHECK(std::abs(speedup - ewif(0.82, 0.6)) > 4 * error);
  CHECK(std::abs(speedup - ewif(0.78, 0.6)) > 4 * error);
  CHECK(std::abs(speedup - ewif(0.8, 0.66)) > 4 * error);
  check_forecast<3>(
      Horizontal<3>{.counts = {3, 2, 3}}, {0.8, 0.8, 0.8}, {0.04, 0.01, 0.001},
      [](const CascadeRates& all) {
        const std::vector<std::int32_t> counts = {3, 2, 3};
        return forecast_horizontal(all, counts);
      },
      32, 80000);
}

TEST_CASE("a vertical cascade that counts tokens, ten of them: 50,000 rounds") {
  const std::vector<double> rates = {0.8, 0.5}, costs = {0.04, 0.0};
  const auto forecast = [](const CascadeRates& all) { return forecast_cascade(all, {{10, 0}, {0, 10}}); };
  CHECK(forecast(rates_of(rates, costs)).speedup == doctest::Approx(3.804863).epsilon(1e-7));
  check_forecast<2>(Cascade<2>{.limits = {{{10, 0}, {0, 10}}}}, rates, costs, forecast, 41, 50000);
}

TEST_CASE("full cascades of three drafters: 50,000 rounds each") {
  const std::vector<double> costs = {0.05, 0.015, 0.001};
  check_forecast<3>(
      Cascade<3>{.limits = {{{4, 3, 5}, {0, 2, 3}, {0, 0, 4}}}}, {0.8, 0.75, 0.6}, costs,
      [](const CascadeRates& all) {
        return forecast_cascade(all, {{4, 3, 5}, {0, 2, 3}, {0, 0, 4}});
      },
      51, 50000);
  check_forecast<3>(
      Cascade<3>{.limits = {{{8, 5, 10}, {0, 1, 10}, {0, 0, 10}}}}, {0.85, 0.75, 0.5}, costs,
      [](const CascadeRates& all) {
        return forecast_cascade(all, {{8, 5, 10}, {0, 1, 10}, {0, 0, 10}});
      },
      52, 50000);
}
