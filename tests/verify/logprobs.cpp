// SPDX-License-Identifier: MIT
// Log-probabilities of emitted tokens.
#include <specula/proposal/proposal_builder.hpp>
#include <specula/verify/logprobs.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

using namespace specula;

namespace {
constexpr float kNone = -std::numeric_limits<float>::infinity();
}

TEST_CASE("emitted tokens and the likeliest ones, best first, from rows computed by hand") {
  // Softmax of the root's row is 1/2, 1/4, 1/8, 1/8; of its child's 2/3, 1/3 and nothing else.
  const auto ln = [](double p) { return static_cast<float>(std::log(p)); };
  const std::array<float, 8> data{ln(0.5), ln(0.25), ln(0.125), ln(0.125), kNone, ln(2), kNone, ln(1)};
  const LogitsView rows{data.data(), 2, 4, 4};
  ProposalBuilder tree(4, 2, 0);
  tree.reset(3, 0);
  tree.choose(0, 2, 1);
  VerifyResult result;
  result.accepted = {0, 1};
  result.next_token = 3;
  VerifyWorkspace workspace(4, 2);
  for (const bool processed : {false, true}) {
    const TargetDistributions distributions(rows, {.temperature = 0.5f}, workspace);
    detail::LogprobRecorder recorder({.top = 3, .processed = processed}, 4);
    recorder.record(distributions, rows, tree, result);
    const Logprobs got = recorder.view();
    REQUIRE(got.size() == 2);
    // At T = 0.5 probabilities are squared: 16, 4, 1, 1 of 22, and 4, 1 of 5.
    const double first = processed ? 1.0 / 22 : 0.125, second = processed ? 0.2 : 1.0 / 3;
    CHECK(got[0].token == 2);
    CHECK(got[0].logprob == doctest::Approx(std::log(first)).epsilon(1e-6));
    CHECK(got[1].token == 3);
    CHECK(got[1].logprob == doctest::Approx(std::log(second)).epsilon(1e-6));
    REQUIRE(got.top(0).size() == 3);
    CHECK(got.top(0)[0].token == 0);
    CHECK(got.top(0)[2].token == 2);  // as likely as 3, the higher token
    REQUIRE(got.top(1).size() == 2);  // no other logit is finite
    CHECK(got.top(1)[0].token == 1);
    CHECK(got.first(1).size() == 1);
    const Logprobs part = got.first(1);
    recorder.clear();  // as each round does
    CHECK(recorder.view().size() == 0);
    CHECK_THROWS_WITH_AS((void)got.size(),
                         "a view of log-probabilities is stale: another round was run since",
                         std::logic_error);
    CHECK_THROWS_AS((void)got[0], std::logic_error);
    CHECK_THROWS_AS((void)got.top(0), std::logic_error);
    CHECK_THROWS_AS((void)part.first(1), std::logic_error);
  }
}

TEST_CASE("numbers of likeliest tokens out of range are refused") {
  CHECK_THROWS_WITH_AS(detail::LogprobRecorder({.top = 5}, 4), "LogprobOptions::top is 5, must be in [0, 4]",
                       std::invalid_argument);
  CHECK_THROWS_AS(detail::LogprobRecorder({.top = -1}, 4), std::invalid_argument);
}
