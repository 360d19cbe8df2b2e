// SPDX-License-Identifier: MIT
// labels: optimised slow
// The law of what drawn chains emit on a device, against enumeration, over tables of bigrams.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/cuda/model/growth.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include "bigram_model.hpp"
#include "emulated_device.hpp"

namespace cuda = specula::cuda;
using namespace bigram_model;
using namespace specula;
using specula_test::EmulatedDevice;

namespace {

/// The three tokens after token 2, as a number.
using Counts = std::array<int, kTokens * kTokens * kTokens>;
template <class Shape, class Rule>
Counts counts_of(const Shape& shape, const Rule& rule, int texts) {
  EmulatedDevice device;
  const auto target = weights_of(device, kTarget, 32), draft = weights_of(device, kDraft, 32);
  cuda::Round run(device, target, draft, shape, rule, {.capacity = 32, .params = {.temperature = 1}});
  const std::vector<Token> prompt{2};  // nothing to read before the first round
  Counts out{};
  for (int seed = 1; seed <= texts; ++seed) {
    int text = 0;
    run.generate(prompt, {.max_new_tokens = 3}, static_cast<std::uint64_t>(seed), [&](Tokens part) {
      for (const Token token : part) text = text * kTokens + token;
    });
    ++out[static_cast<std::size_t>(text)];
  }
  return out;
}

/// Of the counts and the law of the target alone; 63 degrees of freedom.
double chi_square(const Counts& counts, int texts) {
  const Table p = rounded(kTarget);
  double out = 0;
  for (std::size_t text = 0; text < counts.size(); ++text) {
    const std::size_t a = text / 16, b = text / 4 % 4, c = text % 4;
    const double expected = texts * p[2][a] * p[a][b] * p[b][c];
    out += (counts[text] - expected) * (counts[text] - expected) / expected;
  }
  return out;
}

}  // namespace

TEST_CASE("drawn chains emit the target's law, by every rule") {
  // 63 degrees of freedom: above 113 in one of 10,000.
  const Chain<Draw::sampled> chain{.length = 2};
  CHECK(chi_square(counts_of(chain, Rejection{}, 5000), 5000) < 113);
  CHECK(chi_square(counts_of(chain, Block{}, 1000), 1000) < 113);
}
