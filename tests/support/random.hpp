// SPDX-License-Identifier: MIT
// Random numbers for tests: the same on every machine, from a seed that the test states.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace specula_test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// In [0, n).
  std::int32_t below(std::int32_t n) {
    return static_cast<std::int32_t>(bits() % static_cast<std::uint64_t>(n));
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double between(double a, double b) { return a + (b - a) * uniform(); }
  bool bernoulli(double p) { return uniform() < p; }

  /// Logits in [-spread, spread], on request with ties and with some -infinity.
  std::vector<float> row(std::int32_t vocab, double spread, double ties = 0, double empty = 0) {
    std::vector<float> out(static_cast<std::size_t>(vocab));
    for (float& l : out) {
      l = static_cast<float>(between(-spread, spread));
      if (bernoulli(ties)) l = static_cast<float>(std::round(static_cast<double>(l)));
      if (bernoulli(empty)) l = -std::numeric_limits<float>::infinity();
    }
    if (empty > 0) out[static_cast<std::size_t>(below(vocab))] = 0.5f;
    return out;
  }
  /// Moves some of a row's tiles of 512 tokens up or down, so that their largest logits differ.
  void move_tiles(std::vector<float>& row) {
    const double by = between(-4, 4);
    for (std::size_t i = 512; i < row.size(); ++i) row[i] += static_cast<float>(i / 512 % 3 == 1 ? by : -by);
  }

 private:
  std::uint64_t state_;
};

}  // namespace specula_test
