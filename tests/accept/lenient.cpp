// SPDX-License-Identifier: MIT
// Lenient rejection sampling, and accept_lossy().
#include <specula/accept/lenient.hpp>

#include <doctest/doctest.h>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/lossy.hpp>

#include <limits>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("same uniform draws, same verification result as the dense rule") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 3}, {.temperature = 1.4f, .top_p = 0.8f}};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    int compared = 0;
    std::int32_t strict = 0, lenient = 0;
    for (std::uint64_t i = 0; i < 300; ++i) {
      const SamplingParams& params = settings[i % 3];
      const Case it =
          random_case(random, 2 + random.below(8), params, {.nodes = 1 + random.below(16), .wide = 0.4}, i);
      for (const double lenience : {1.0, 1.5, 4.0}) {
        DenseUniforms uniforms(i);
        const VerifyResult want = dense_rejection(it.dense, it.distributions, uniforms, lenience);
        if (uniforms.margin < (isa == Isa::reference ? 1e-11 : 1e-5)) continue;
        const VerifyResult got = result_of(Lenient{lenience}, it, params, i);
        CHECK(got.accepted == want.accepted);
        CHECK(got.next_token == want.next_token);
        ++compared;
        if (lenience == 1) strict += got.accepted_count();
        if (lenience == 4) lenient += got.accepted_count();
      }
    }
    CHECK(compared > 850);
    CHECK(lenient > strict * 11 / 10);
  }
}

TEST_CASE("lenience 1 is rejection") {
  Random random(2);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Case it = random_case(random, 5, {}, {.nodes = 12}, i);
    const VerifyResult a = result_of(Lenient{1.0}, it, {}, i), b = result_of(Rejection{}, it, {}, i);
    CHECK(a.accepted == b.accepted);
    CHECK(a.next_token == b.next_token);
  }
}

TEST_CASE("temperature 0: the first largest logit, or q <= lenience p at temperature 1") {
  const SamplingParams greedy{.temperature = 0};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(3);
    int forgiven = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const Case it =
          random_case(random, 2 + random.below(5), greedy, {.nodes = 10, .wide = 0.4, .spread = 1.5}, i);
      const double lenience = i % 4 == 0 ? 1.0 : 1.0 + static_cast<double>(i % 4);
      VerifyResult want;
      want.clear();
      bool near = false;  // rounding decides
      for (bool more = true; more;) {
        const auto at = static_cast<std::size_t>(want.accepted.back());
        const std::vector<float>& row = it.row[at];
        const Dense p = plain_distribution(row, {});
        want.next_token = static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
        more = false;
        for (const NodeId c : it.dense.children(want.accepted.back())) {
          const auto x = static_cast<std::size_t>(it.dense.token[static_cast<std::size_t>(c)]);
          const bool best = static_cast<Token>(x) == want.next_token;
          const double q = static_cast<double>(it.tree.confidence(c));
          near |= !best && lenience > 1 && std::abs(q - lenience * p[x]) < 1e-6;
          if (!best && !(lenience > 1 && q <= lenience * p[x])) continue;
          forgiven += !best;
          want.accepted.push_back(c);
          more = true;
          break;
        }
      }
      if (near) continue;
      const VerifyResult got = result_of(Lenient{lenience}, it, greedy, i);
      CHECK(got.accepted == want.accepted);
      CHECK(got.next_token == want.next_token);
      if (lenience == 1) CHECK(got.accepted == dense_greedy(it.dense, it.row).accepted);
    }
    CHECK(forgiven > 50);
  }
}

TEST_CASE("errors of Lenient") {
  CHECK_THROWS_WITH_AS(Lenient{0.5}, "Lenient: lenience is 0.5, must be in [1, 1e+30]",
                       std::invalid_argument);
  CHECK_THROWS_AS(Lenient{std::numeric_limits<double>::quiet_NaN()}, std::invalid_argument);
  CHECK_THROWS_AS(Lenient{std::numeric_limits<double>::infinity()}, std::invalid_argument);
  CHECK(Lenient{2.5}.lenience() == 2.5);
  static_assert(!Lenient::lossless_for(ProposalKind::deterministic) &&
                !Lenient::lossless_for(ProposalKind::sampled));
}
