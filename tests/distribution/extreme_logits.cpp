// SPDX-License-Identifier: MIT
// labels: optimised
// Masks of large finite logits, and offsets up to 1e38 times the temperature, on every instruction set:
// distributions, draws, and errors beyond the range.
#include <doctest/doctest.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include <losses/top_k_distillation.hpp>
#include <specula/accept/target_distributions.hpp>
#include <specula/accept/typical.hpp>
#include <specula/distribution/random_source.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "kernel_contract.hpp"
#include "plain_distribution.hpp"
#include "random.hpp"
#include "skip.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 1300;  // two whole tiles and a part
constexpr float kMasks[] = {-1e4f,  -65504.0f, -1e5f,  -1e6f,  -1e7f,  -1e8f,       -1e9f,    -2e9f, -1e10f,
                            -1e12f, -1e20f,    -1e30f, -1e37f, -1e38f, -3.3895e38f, -FLT_MAX, -kInf};
constexpr float kTemperatures[] = {0.01f, 0.3f, 1, 1.5f, 7, 100};

std::string name_of(Isa isa) {
  return std::array{"reference", "portable", "AVX2", "AVX-512"}[static_cast<std::size_t>(isa)];
}

/// Whether a row with this largest logit is within the supported range, 1e38 times the temperature.
bool is_within(float top, float temperature) {
  return std::abs(static_cast<double>(top)) <= 1e38 * static_cast<double>(temperature) * (1 + 1e-6);
}

/// The distribution of `row` against `want`: the largest difference of a probability, of a weight and of a
/// tile's mass; 1 where the support differs, or a draw leaves it.
double error_of(RowScan& scan, const std::vector<float>& row, const SamplingParams& params,
                const std::vector<double>& want) {
  const bool fast = isa() != Isa::reference;  // whose weights are 0 below 2^-126
  const Distribution distribution = scan.distribution(row, params);
  const TokenWeights weights = scan.weights(distribution);
  double error = 0;
  std::array<float, kTile> w;
  for (std::int32_t t = 0; t < tile_count(scan.vocab()); ++t) {
    weights.fill(t, w.data());
    double mass = 0;
    for (std::int32_t i = 0; i < std::min(kTile, scan.vocab() - t * kTile); ++i) {
      const auto x = static_cast<std::size_t>(t * kTile + i);
      const double p = distribution(static_cast<Token>(x)), q = want[x],
                   got = static_cast<double>(w[x % kTile]);
      mass += q;
      error = worse(worse(error, std::abs(p - q)), std::abs(got - q));
      if ((p > 0) != (q > 0) && std::max(p, q) > 1e-300) return 1;
      if (got > 0 ? q < (fast ? 0x1p-127 : 1e-300) : q > 0x1p-125) return 1;
    }
    const double got = weights.tile_masses()[static_cast<std::size_t>(t)];
    error = worse(error, std::abs(got - mass));
    if (got > 0 ? mass == 0 : mass > 0x1p-98) return 1;
  }
  PhiloxRandom rng(1);
  for (std::int32_t i = 0; i < 4; ++i) {
    const RandomKey key{i, 0, RandomStream::sample, 0};
    for (const Token x : {rng.draw(weights, key), rng.draw_by_noise(weights, key)})
      if (!(want[static_cast<std::size_t>(x)] > 0)) return 1;
  }
  return error;
}

/// Every instruction set on one row, against softmax in long double: within 1e-6, and the same support.
void check_row(RowScan& scan, const std::vector<float>& row, const SamplingParams& params) {
  const std::vector<double> want = plain_distribution(row, params);
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    const double error = error_of(scan, row, params, want);
    if (!(error <= 1e-6))
      FAIL_CHECK(name_of(isa) << ", temperature " << params.temperature << ", top_k " << params.top_k
                              << ", top_p " << params.top_p << ", min_p " << params.min_p << ", a row from "
                              << *std::min_element(row.begin(), row.end()) << " to "
                              << *std::max_element(row.begin(), row.end()) << ": off by " << error);
  }
}

/// Logits that spread over `temperature`, with ties.
std::vector<float> ordinary_row(Random& random, float temperature) {
  std::vector<float> row = random.row(kVocab, 6, 0.2);
  for (float& l : row) l *= temperature;
  return row;
}

const SamplingParams kTruncations[] = {
    {}, {.top_k = 20}, {.top_p = 0.9f}, {.top_k = 40, .top_p = 0.8f}, {.min_p = 0.1f}};

}  // namespace

TEST_CASE("any large number masks tokens: distribution, support and draws, with every truncation") {
  Random random(1);
  RowScan scan(kVocab);
  for (const float temperature : kTemperatures)
    for (const float mask : kMasks) {
      const std::vector<float> row = ordinary_row(random, temperature);
      std::vector<float> tile = row, part = row, few(row.size(), mask), both = row;
      std::fill(tile.begin() + 512, tile.begin() + 1024, mask);
      std::fill(part.begin() + 1024, part.end(), mask);
      std::copy_n(row.begin() + 700, 3, few.begin() + 700);
      for (std::size_t x = 0; x < both.size(); ++x)
        if (x % 3 != 0) both[x] = x % 2 == 0 ? mask : -FLT_MAX;
      for (const std::vector<float>& masked : {tile, part, few, both}) {
        SamplingParams params = kTruncations[random.below(5)];
        params.temperature = temperature;
        check_row(scan, masked, params);
      }
    }
}

TEST_CASE("rows with structure: distribution, support and draws, with every truncation") {
  Random random(2);
  for (const std::int32_t vocab : {1, 2, 17, 512, kVocab}) {
    RowScan scan(vocab);
    for (const RowKind kind : kRowKinds)
      for (const float temperature : {0.3f, 1.5f, 100.0f}) {
        const std::vector<float> row = structured_row(kind, vocab, random);
        for (SamplingParams params : kTruncations) {
          params.temperature = temperature;
          if (!by_sorting(row, params, 1e-5).near) check_row(scan, row, params);
        }
      }
  }
}

TEST_CASE(
    "all tokens masked by the same number, and offsets up to 1e38 times the temperature: ties have equal "
    "probability") {
  RowScan scan(kVocab);
  std::size_t rows = 0;
  for (const float temperature : kTemperatures) {
    std::vector<float> offsets(std::begin(kMasks), std::end(kMasks));
    for (int power = 20; power < 50; power += 3) offsets.push_back(-std::ldexp(1.1f, power));
    for (const float large : {1e25f, 1e36f, 1e38f}) offsets.push_back(-large * temperature);
    for (const float offset : offsets)
      for (const float top : {offset, -offset}) {
        // Ties in one tile and in several, alone, beside ordinary logits and masks, and beside the next
        // float.
        const float next = std::nextafter(top, -kInf);
        std::vector<float> all(kVocab, top), two(kVocab, -kInf), some(kVocab, -FLT_MAX);
        two[3] = two[1299] = top;
        some[0] = some[600] = some[1024] = top;
        some[1] = some[700] = next;
        some[2] = std::min(0.0f, top);
        for (const std::vector<float>& row : {all, two, some}) {
          if (std::abs(top) == kInf || !is_within(top, temperature)) continue;
          SamplingParams params =
              kTruncations[rows++ % 4];  // min_p's threshold is rounded to a float, as logits are
          params.temperature = temperature;
          check_row(scan, row, params);
        }
      }
  }
  CHECK(rows > 900);
}

TEST_CASE("confidences and top-k of rows of large logits") {
  for (const Isa isa : every_isa()) {
    CAPTURE(name_of(isa));
    const Arithmetic arithmetic(isa);
    for (const float top : {1e9f, -1e10f, 1e20f, -3e37f, 1e38f}) {
      CAPTURE(top);
      std::vector<float> row(kVocab, -FLT_MAX);
      row[5] = row[600] = top;
      RowScan scan(kVocab);
      CHECK(scan.top(row).token == 5);
      CHECK(scan.top(row).prob == doctest::Approx(0.5).epsilon(1e-6));
      std::array<Top, 3> best;
      CHECK(scan.top_k(row, best) == 3);
      CHECK(best[1].token == 600);
      CHECK(best[1].prob == doctest::Approx(0.5).epsilon(1e-6));
      CHECK(best[2].prob == 0);
      std::vector<float> loss_row(row), gradient(row.size());
      CHECK(TopKDistillation{}.row(row, loss_row, gradient).cross_entropy ==
            doctest::Approx(std::log(2.0)).epsilon(1e-6));
      CHECK(std::abs(gradient[5]) < 0.6f);
      VerifyWorkspace workspace(kVocab, 2);
      const TargetDistributions distributions(LogitsView{row.data(), 1, kVocab, kVocab}, {}, workspace);
      CHECK(entropy(distributions.weights(distributions[0])) == doctest::Approx(std::log(2.0)).epsilon(1e-6));
    }
  }
}

TEST_CASE("beyond 1e38 times the temperature: an error that names the node, the logit and the temperature") {
  for (const Isa isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    for (const float top : {1.01e38f, -1.01e38f, FLT_MAX, -FLT_MAX})
      for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.top_k = 3}}) {
        const std::vector<float> row(kVocab, top);
        const std::string what =
            std::string("a row of logits is too large for its temperature: its largest logit is ") +
            number(top) + ", must be within 1e38 times the temperature, which is 1";
        ProposalBuilder tree(kVocab, 4, 4);
        tree.reset(0, 0);
        tree.choose(0, 1, 1);
        CHECK_THROWS_WITH_AS(tree.store(1, row, params), ("the draft's row after node 1: " + what).c_str(),
                             std::runtime_error);
        std::vector<float> rows(row);
        rows.insert(rows.begin(), kVocab, 0.0f);
        VerifyWorkspace workspace(kVocab, 4);
        const TargetDistributions distributions(LogitsView{rows.data(), 2, kVocab, kVocab}, params,
                                                workspace);
        CHECK_NOTHROW(distributions[0]);
        CHECK_THROWS_WITH_AS(distributions[1], ("the target's row after node 1: " + what).c_str(),
                             std::runtime_error);
        CHECK_THROWS_WITH_AS(RowScan(kVocab).top(row), what.c_str(), std::runtime_error);
      }
    // The bound depends on the temperature.
    RowScan scan(2);
    CHECK_NOTHROW(scan.distribution(std::vector<float>{FLT_MAX, 0}, {.temperature = 4}));
    CHECK_THROWS_WITH_AS(scan.distribution(std::vector<float>{1.01e36f, 0}, {.temperature = 0.01f}),
                         "a row of logits is too large for its temperature: its largest logit is 1.01e+36, "
                         "must be within 1e38 times the temperature, which is 0.01",
                         std::runtime_error);
  }
}
