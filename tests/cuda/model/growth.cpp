// SPDX-License-Identifier: MIT
// labels: optimised
// Which shapes and rules have rounds on a device, each tried over tables of bigrams; and the law of what
// drawn chains emit, against enumeration.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

#include <specula/cuda/model/growth.hpp>
#include <specula/cuda/model/round.hpp>

#include "bigram_model.hpp"
#include "emulated_device.hpp"

namespace cuda = specula::cuda;
using namespace bigram_model;
using namespace specula;
using specula_test::EmulatedDevice;

namespace {

constexpr Table kTarget{
    {{0.55, 0.15, 0.2, 0.1}, {0.1, 0.3, 0.35, 0.25}, {0.05, 0.6, 0.05, 0.3}, {0.4, 0.1, 0.1, 0.4}}};
constexpr Table kDraft{
    {{0.25, 0.45, 0.2, 0.1}, {0.3, 0.3, 0.1, 0.3}, {0.2, 0.2, 0.5, 0.1}, {0.1, 0.2, 0.3, 0.4}}};

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

TEST_CASE("every shape with every rule writes a text; of greedy parameters the target's") {
  const auto check = [](const auto& shape, const auto& rule) {
    EmulatedDevice device;
    const auto target = weights_of(device, kTarget, 40), draft = weights_of(device, kDraft, 40);
    cuda::Round run(device, target, draft, shape, rule, {.capacity = 40, .params = {.temperature = 0}});
    std::vector<Token> text;
    const std::vector<Token> prompt{1};
    run.generate(prompt, {.max_new_tokens = 9}, 1,
                 [&](Tokens part) { text.insert(text.end(), part.begin(), part.end()); });
    CHECK(text == std::vector<Token>{2, 1, 2, 1, 2, 1, 2, 1, 2});
  };
  const auto rules = [&](const auto& shape) {
    check(shape, Greedy{}), check(shape, SampleAndMatch{}), check(shape, Rejection{}),
        check(shape, Traversal{});
  };
  rules(Chain<>{.length = 3}), rules(Chain<Draw::sampled>{.length = 3});
  check(Chain<Draw::sampled>{.length = 3}, Block{});
  rules(Cape{.length = 3, .budget = 8, .extras = CapeExtras::fixed(2)});
  rules(DynamicTree{.top_k = 2, .expansions = 2, .total = 5});
}
