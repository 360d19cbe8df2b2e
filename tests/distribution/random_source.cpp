// SPDX-License-Identifier: MIT
// labels: optimised
// PhiloxRandom: uniform draws by key, draws of tokens, draws by shared Gumbel noise.
#include <specula/distribution/random_source.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

#include "fixed_weights.hpp"
#include "philox_of_arrays.hpp"
#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr double kLargest = 1 - 0x1p-32;

/// Wilson and Hilferty: (chi / k)^(1/3) is normal. Distance of `counts` from weights
/// `w` in standard deviations.
double deviation(const std::vector<int>& counts, const std::vector<float>& w) {
  double total = 0, chi = 0, n = 0;
  for (std::size_t x = 0; x < w.size(); ++x) total += static_cast<double>(w[x]), n += counts[x];
  for (std::size_t x = 0; x < w.size(); ++x) {
    const double expected = n * static_cast<double>(w[x]) / total;
    chi += (counts[x] - expected) * (counts[x] - expected) / expected;
  }
  const double k = static_cast<double>(w.size()) - 1;
  return (std::cbrt(chi / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
}

/// Argmax of log w + Gumbel noise, independent of the library: one logarithm per token, one
/// key's words per four tokens.
Token by_gumbel(const PhiloxRandom& rng, const std::vector<float>& w, RandomKey key) {
  double best = -std::numeric_limits<double>::infinity();
  Token out = kNoToken;
  for (std::size_t x = 0; x < w.size(); ++x) {
    key.index = static_cast<std::uint32_t>(x / 4);
    const double u = (static_cast<double>(rng.words(key)[x % 4]) + 0.5) / 4294967296.0;
    const double score = std::log(static_cast<double>(w[x])) - std::log(-std::log(u));
    if (score > best) best = score, out = static_cast<Token>(x);
  }
  return out;
}

RandomKey noise_at(std::int32_t position) { return {position, 0, RandomStream::noise, 0}; }

}  // namespace

TEST_CASE("a uniform draw is a function of seed, sequence and key: golden words of the layout") {
  const PhiloxRandom rng(0x0123456789ABCDEFull, 42);
  const RandomKey key{1000, 990, RandomStream::accept, 7};
  CHECK(rng.words(key) == specula_test::philox({1000, 990, 2u << 24 | 7, 42}, {0x89ABCDEFu, 0x01234567u}));
  // Independent of earlier requests, and the same from a copy.
  PhiloxRandom used = rng;
  const FixedWeights weights({1, 2, 3});
  for (int i = 0; i < 10; ++i)
    used.draw(weights, RandomKey{i, 0, RandomStream::sample, 0}),
        used.accept(0.5, RandomKey{i, 1, RandomStream::accept, 0});
  CHECK(used.words(key) == rng.words(key));
}

TEST_CASE("uniform draws depend on every field of a key, both halves of the seed, and the sequence") {
  std::set<std::array<std::uint32_t, 4>> seen;
  std::size_t asked = 0;
  const auto ask = [&](const PhiloxRandom& rng, const RandomKey& key) {
    seen.insert(rng.words(key)), ++asked;
  };
  const RandomKey base{5, 3, RandomStream::draft, 2};
  for (int stream = 0; stream < 8; ++stream)
    ask(PhiloxRandom(1), {5, 3, static_cast<RandomStream>(stream), 2});
  for (int i = 0; i < 50; ++i) {
    ask(PhiloxRandom(1), {100 + i, 3, RandomStream::draft, 2});
    ask(PhiloxRandom(1), {5, 100 + i, RandomStream::draft, 2});
    ask(PhiloxRandom(1), {5, 3, RandomStream::draft, 100u + static_cast<std::uint32_t>(i)});
  }
  ask(PhiloxRandom(1), {5, 3, RandomStream::draft, (1u << 24) - 1});
  ask(PhiloxRandom(2), base);
  ask(PhiloxRandom(1ull | 1ull << 40), base);
  ask(PhiloxRandom(1, 1), base);
  CHECK(seen.size() == asked);
}

TEST_CASE("accept: 0 never, 1 always, NaN never") {
  PhiloxRandom rng(9);
  int yes = 0;
  for (std::int32_t i = 0; i < 2000; ++i) {
    const RandomKey key{i, 0, RandomStream::accept, 0};
    CHECK(!rng.accept(0.0, key));
    CHECK(!rng.accept(-1.0, key));
    CHECK(!rng.accept(std::numeric_limits<double>::quiet_NaN(), key));
    CHECK(rng.accept(1.0, key));
    CHECK(rng.accept(std::numeric_limits<double>::infinity(), key));
    CHECK(rng.accept(0.3, key) == (static_cast<double>(rng.words(key)[0]) / 4294967296.0 < 0.3));
    yes += rng.accept(0.3, key);
  }
  CHECK(std::abs(yes - 600) < 100);  // n 2000, 4.9 standard deviations
}

TEST_CASE("draw: extreme uniform draws, tokens without mass, and rows of any width") {
  for (const std::int32_t size : {1, 2, 511, 512, 513, 5000}) {
    Random random(static_cast<std::uint64_t>(size));
    const auto check = [&](const std::vector<float>& w, int draws) {
      const FixedWeights weights(w);
      const auto vocab = static_cast<Token>(w.size());
      Token first = 0, last = vocab - 1;
      while (w[static_cast<std::size_t>(first)] == 0) ++first;
      while (w[static_cast<std::size_t>(last)] == 0) --last;
      CHECK(detail::draw_two_level(weights, 0.0, 0.0) == first);
      if (weights(last) > 1e-6) CHECK(detail::draw_two_level(weights, kLargest, kLargest) == last);
      for (int i = 0; i < draws; ++i) {
        const double a = random.uniform(), b = random.uniform();
        const Token x = detail::draw_two_level(weights, a, b);
        REQUIRE((x >= 0 && x < vocab));
        CHECK(weights(x) > 0);
        // Word 0 chose the tile, word 1 the token in it.
        double below = 0, total = 0, inside = 0;
        for (Token y = 0; y < vocab; ++y) {
          total += weights(y);
          if (y / 512 < x / 512) below += weights(y);
          if (y / 512 == x / 512 && y < x) inside += weights(y);
        }
        const double mass = weights.masses[static_cast<std::size_t>(x / 512)];
        CHECK(a * total >= below - 1e-9 * total);
        CHECK(a * total < below + mass + 1e-9 * total);
        CHECK(b * mass >= inside - 1e-9);
        CHECK(b * mass < inside + weights(x) + 1e-9);
      }
    };
    for (const double density : {1.0, 0.5, 0.01}) {
      std::vector<float> w(static_cast<std::size_t>(size));
      for (float& x : w) x = random.bernoulli(density) ? static_cast<float>(random.uniform()) : 0.0f;
      if (size > 1024) std::fill(w.begin() + 512, w.begin() + 1024, 0.0f);  // a tile without mass
      w[static_cast<std::size_t>(random.below(size))] = 1;
      check(w, 300);
    }
    if (size < 5000)
      for (const RowKind kind : kRowKinds) check(structured_weights(kind, size + 16, random), 20);
  }
}

TEST_CASE("draw: a uniform draw on a boundary selects the token above it") {
  std::vector<float> w(1024, 0.0f);
  w[3] = w[7] = w[1000] = w[1001] = 1;
  const FixedWeights weights(w);
  CHECK(detail::draw_two_level(weights, 0.5 - 0x1p-32, 0.5 - 0x1p-32) == 3);
  CHECK(detail::draw_two_level(weights, 0.5 - 0x1p-32, 0.5) == 7);
  CHECK(detail::draw_two_level(weights, 0.5, 0.5 - 0x1p-32) == 1000);
  CHECK(detail::draw_two_level(weights, 0.5, 0.5) == 1001);
}

TEST_CASE("draw: no weights, and NaN weights, are errors") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  PhiloxRandom rng(1);
  CHECK_THROWS_AS(rng.draw(FixedWeights({0, 0, 0}), RandomKey{}), std::runtime_error);
  CHECK_THROWS_AS(rng.draw(FixedWeights({1, nan, 0}), RandomKey{}), std::runtime_error);
  CHECK_THROWS_AS(rng.draw(FixedWeights({1, inf, 0}), RandomKey{}), std::runtime_error);
}

TEST_CASE("draws follow the distribution: chi-square, n 200,000, alpha 1e-4, fixed seeds") {
  for (const std::int32_t vocab : {4, 700, 1500}) {
    Random random(static_cast<std::uint64_t>(vocab));
    std::vector<float> w(static_cast<std::size_t>(vocab));
    for (float& x : w) x = static_cast<float>(0.2 + random.uniform());
    const FixedWeights weights(w);
    PhiloxRandom rng(77);
    constexpr int n = 200000;
    std::vector<int> counts(w.size());
    for (std::int32_t i = 0; i < n; ++i)
      ++counts[static_cast<std::size_t>(rng.draw(weights, RandomKey{i, 0, RandomStream::sample, 0}))];
    CAPTURE(vocab);
    CHECK(std::abs(deviation(counts, w)) < 3.72);
  }
}

TEST_CASE("draw_by_noise: the argmax of log w + Gumbel noise, on every instruction set") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    PhiloxRandom rng(0x0123456789ABCDEFull, 3);
    Random random(5);
    for (std::int32_t i = 0; i < 600; ++i) {
      const std::int32_t sizes[] = {1, 2, 3, 5, 63, 64, 65, 511, 512, 513, 3000};
      std::vector<float> w(static_cast<std::size_t>(sizes[i % 11]));
      // Flat, peaked, over twenty decades, and sparse; tiles without mass; the heaviest not first.
      const double decades = i % 3 == 0 ? 0 : i % 3 == 1 ? 3 : 20, density = i % 2 ? 1 : 0.3;
      for (float& x : w)
        x = random.bernoulli(density) ? static_cast<float>(std::pow(10, -decades * random.uniform())) : 0.0f;
      if (w.size() == 3000) std::fill(w.begin() + 600, w.begin() + 1100, 0.0f);
      w[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(w.size())))] = 1;
      if (i % 5 == 0)
        w = structured_weights(kRowKinds[static_cast<std::size_t>(i / 5) % kRowKinds.size()],
                               static_cast<std::int32_t>(w.size()), random);
      REQUIRE(rng.draw_by_noise(FixedWeights(w), noise_at(i)) == by_gumbel(rng, w, noise_at(i)));
    }
  }
}

TEST_CASE("draw_by_noise does not depend on the sum of the weights") {
  Random random(6);
  std::vector<float> w(900);
  for (float& x : w) x = static_cast<float>(std::pow(random.uniform(), 8));
  PhiloxRandom rng(2);
  for (std::int32_t i = 0; i < 100; ++i) {
    const Token want = rng.draw_by_noise(FixedWeights(w), noise_at(i));
    for (const int power : {-90, -40, 40, 100, 120}) {
      std::vector<float> scaled = w;
      for (float& x : scaled) x = std::ldexp(x, power);
      REQUIRE(rng.draw_by_noise(FixedWeights(scaled), noise_at(i)) == want);
    }
  }
}

TEST_CASE("draw_by_noise: the best word wins with the smallest weight that can win") {
  PhiloxRandom rng(1);
  const RandomKey key = noise_at(14847084);  // found by search: token 8 has the word 2^32 - 1
  REQUIRE(rng.words({key.position, 0, RandomStream::noise, 2})[0] == 0xFFFFFFFFu);
  const double u =
      (static_cast<double>(rng.words({key.position, 0, RandomStream::noise, 150})[0]) + 0.5) * 0x1p-32;
  const double equal = 0x1p-33 / -std::log(u);  // weight of token 8 that ties with a weight of 1 of token 600
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    std::vector<float> w(601, 0.0f);
    w[600] = 1;
    w[8] = static_cast<float>(equal * 1.001);
    CHECK(rng.draw_by_noise(FixedWeights(w), key) == 8);
    w[8] = static_cast<float>(equal * 0.999);
    CHECK(rng.draw_by_noise(FixedWeights(w), key) == 600);
  }
}

TEST_CASE("draw_by_noise: no weights, and NaN weights, are errors") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  PhiloxRandom rng(1);
  CHECK_THROWS_AS(rng.draw_by_noise(FixedWeights({0, 0, 0}), RandomKey{}), std::runtime_error);
  CHECK_THROWS_AS(rng.draw_by_noise(FixedWeights({1, nan, 0}), RandomKey{}), std::runtime_error);
  CHECK_THROWS_AS(rng.draw_by_noise(FixedWeights({1, inf, 0}), RandomKey{}), std::runtime_error);
}

TEST_CASE("draws by noise follow the distribution: chi-square, n 100,000, alpha 1e-4, fixed seeds") {
  for (const std::int32_t vocab : {4, 700}) {
    Random random(static_cast<std::uint64_t>(vocab) + 1);
    std::vector<float> w(static_cast<std::size_t>(vocab));
    for (float& x : w) x = static_cast<float>(0.2 + random.uniform());
    const FixedWeights weights(w);
    PhiloxRandom rng(78);
    std::vector<int> counts(w.size());
    for (std::int32_t i = 0; i < 100000; ++i)
      ++counts[static_cast<std::size_t>(rng.draw_by_noise(weights, noise_at(i)))];
    CAPTURE(vocab);
    CHECK(std::abs(deviation(counts, w)) < 3.89);
  }
}

TEST_CASE(
    "draws from two distributions with the same noise agree with probability at least (1 - TV) / (1 + TV): n "
    "4,000, 4 standard "
    "errors") {
  Random random(9);
  for (int pair = 0; pair < 20; ++pair) {
    CAPTURE(pair);
    const std::size_t vocab = pair % 2 ? 8 : 600;
    std::vector<float> p(vocab), q(vocab);
    double sum_p = 0, sum_q = 0;
    for (std::size_t x = 0; x < vocab; ++x) {
      p[x] = static_cast<float>(std::exp(random.between(-3, 3)));
      q[x] = p[x] * static_cast<float>(std::exp(random.between(-1, 1)));
      sum_p += static_cast<double>(p[x]), sum_q += static_cast<double>(q[x]);
    }
    double distance = 0, independent = 0;
    for (std::size_t x = 0; x < vocab; ++x) {
      const double a = static_cast<double>(p[x]) / sum_p, b = static_cast<double>(q[x]) / sum_q;
      distance += std::abs(a - b) / 2, independent += a * b;
    }
    PhiloxRandom rng(10, static_cast<std::uint32_t>(pair));
    const FixedWeights target(p), draft(q);
    constexpr int n = 4000;
    double agree = 0;
    for (std::int32_t i = 0; i < n; ++i) {
      const Token x = rng.draw_by_noise(target, noise_at(i));
      agree += x == rng.draw_by_noise(draft, noise_at(i));
      if (i < 50) CHECK(x == rng.draw_by_noise(target, noise_at(i)));
    }
    const double rate = agree / n, error = std::sqrt(rate * (1 - rate) / n);
    CHECK(rate > (1 - distance) / (1 + distance) - 4 * error);
    CHECK(rate <= 1 - distance + 4 * error);  // the bound of any coupling
    CHECK(rate > independent + 4 * error);
  }
}
