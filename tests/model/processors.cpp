// SPDX-License-Identifier: MIT
// Ready processors: what they do to a row, and that texts under them are exact.
#include <specula/model/processors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/model/processed.hpp>
#include <specula/specula.hpp>

#include "exact_distribution.hpp"
#include "random.hpp"
#include "toy_model.hpp"

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept

using namespace specula;
using namespace specula_test;

namespace {
using Row = std::vector<float>;
using List = std::vector<Token>;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

template <class F>
Row processed(F process, const List& path, Row row) {
  process(path, std::span(row));
  return row;
}

/// Penalties by their definition, token by token.
Row penalised(const Penalties& p, const List& path, Row row) {
  std::map<Token, int> count;
  const auto size = static_cast<std::int32_t>(path.size());
  const std::int32_t first = std::max(p.from, p.last > 0 ? size - p.last : 0);
  for (std::int32_t i = first; i < size; ++i) ++count[path[static_cast<std::size_t>(i)]];
  for (const auto& [token, n] : count) {
    float& logit = row[static_cast<std::size_t>(token)];
    if (logit > 0)
      logit /= p.repetition;
    else
      logit *= p.repetition;
    logit -= static_cast<float>(n) * p.frequency + p.presence;
  }
  return row;
}

/// All of them.
auto all_rules() {
  return InTurn{Penalties{.repetition = 1.3f, .presence = 0.2f, .frequency = 0.1f, .last = 4},
                Bias{{{0, 0.5f}, {2, -0.25f}, {0, 0.25f}}}, MinimumLength{.tokens = 5, .ends = {{1}}},
                Banned{{3}}};
}
struct Oracle {
  const ToyModel& model;
};
std::vector<double> distribution_after(const Oracle& oracle, const List& text, const SamplingParams& params) {
  Row row(static_cast<std::size_t>(oracle.model.vocab_size()));
  oracle.model.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), row.data());
  row = penalised({.repetition = 1.3f, .presence = 0.2f, .frequency = 0.1f, .last = 4}, text, row);
  row[0] = row[0] + 0.5f + 0.25f, row[2] -= 0.25f, row[3] = kMasked;
  if (text.size() < 5) row[1] = kMasked;
  return plain_distribution(row, params);
}
}  // namespace

TEST_CASE("penalties are those of their definition, over any window") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    List path;
    for (std::int32_t n = random.below(30); n > 0; --n) path.push_back(random.below(9));
    Row row;
    for (int i = 0; i < 9; ++i) row.push_back(static_cast<float>(random.between(-3, 3)));
    if (random.bernoulli(0.2)) row[4] = kMasked;
    const Penalties p{.repetition = random.bernoulli(0.5) ? 1 : static_cast<float>(random.between(0.5, 2)),
                      .presence = random.bernoulli(0.5) ? 0 : static_cast<float>(random.between(-1, 1)),
                      .frequency = random.bernoulli(0.5) ? 0 : static_cast<float>(random.between(-1, 1)),
                      .last = random.below(12),
                      .from = random.below(12)};
    REQUIRE(processed(p, path, row) == penalised(p, path, row));
  }
}

TEST_CASE("biases, banned tokens and the minimum length") {
  const Row row{1, 2, 3};
  CHECK(processed(Bias{{{1, 0.5f}, {1, 0.25f}, {2, kMasked}}}, {}, row) == Row{1, 2.75f, kMasked});
  CHECK(processed(Banned{{0, 2}}, {}, row) == Row{kMasked, 2, kMasked});
  const MinimumLength ends{.tokens = 2, .ends = {{1}}};
  CHECK(processed(ends, {0}, row) == Row{1, kMasked, 3});
  CHECK(processed(ends, {0, 0}, row) == row);
  CHECK(processed(MinimumLength{.tokens = -1, .ends = {{1}}}, {}, row) == row);
  CHECK(processed(InTurn{Bias{{{0, 1.0f}}}, Penalties{.repetition = 2}}, {0}, row) == Row{1, 2, 3});
}

TEST_CASE("fields out of range are named") {
  const Row row{1, 2, 3};
  const auto throws = [&](auto process, const char* message) {
    CHECK_THROWS_WITH_AS(processed(process, {0}, row), message, std::invalid_argument);
  };
  throws(Penalties{.repetition = 0}, "Penalties::repetition is 0, must be in [1.1754944e-38, 1e+06]");
  throws(Penalties{.presence = std::numeric_limits<float>::quiet_NaN()},
         "Penalties::presence is nan, must be in [-1e+06, 1e+06]");
  throws(Penalties{.frequency = 2e6f}, "Penalties::frequency is 2e+06, must be in [-1e+06, 1e+06]");
  throws(Penalties{.last = -1}, "Penalties::last is -1, must be in [0, 2147483647]");
  throws(Penalties{.from = -1}, "Penalties::from is -1, must be in [0, 2147483647]");
  throws(Bias{{{3, 1.0f}}}, "Bias: token is 3, must be in [0, 2]");
  throws(Bias{{{1, -kMasked}}}, "Bias: of token 1 it is inf, must be a number or -infinity");
  throws(Banned{{-1}}, "Banned: token is -1, must be in [0, 2]");
}

TEST_CASE("texts have the distribution of the processed model, and rounds allocate nothing") {
  const SamplingParams params{.temperature = 0.9f};
  const auto error = [&](auto rule, auto shape) {
    ToyModel inner(4, 4), small(4, 5);
    Processed target{inner, all_rules()}, draft{small, all_rules()};
    Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
    return composed_distribution(run, Oracle{inner}, params, {0, 2, 1}, 4).error;
  };
  CHECK(error(Block{}, Chain<Draw::sampled>{.length = 2}) < 1e-12);
  CHECK(error(SampleAndMatch{}, DynamicTree{.top_k = 2, .expansions = 1, .total = 4}) < 1e-12);

  ToyModel inner(4, 4, 2.0f, 200), small(4, 5, 2.0f, 200);
  Processed target{inner, all_rules()}, draft{small, all_rules()};
  Speculator run{TreeVerifier{target, Sampling{}, params}, ModelDrafter{draft}, Chain<>{.length = 3}};
  PhiloxRandom rng(1);
  const List prompt{0, 2, 1};
  run.start(prompt);
  for (int i = 0; i < 4; ++i) run.step(rng);
  const AllocationCount counted;
  for (int i = 0; i < 20; ++i) run.step(rng);
  const auto found = counted.count();
  CHECK(found == 0);
}
