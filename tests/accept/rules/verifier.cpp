// SPDX-License-Identifier: MIT
// Rules over a verifier that has the documented members and nothing else: greedy and sample-and-match here,
// rejection and traversal in tests of their own. They ask only what is allowed, and decide as their
// definitions do.
#include <specula/accept/rules/verifier.hpp>

#include <doctest/doctest.h>

#include <vector>

#include <specula/accept/rules/matching.hpp>

#include "dense_verifier.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("greedy and sample-and-match over documented members only") {
  const auto rows = [](const Case& it) {
    std::vector<std::vector<float>> probs;
    for (const Dense& p : it.distributions) probs.emplace_back(p.begin(), p.end());
    return probs;
  };
  compare([](auto& v) { rules::greedy(v); },
          [&](const Case& it, DenseUniforms&) { return dense_greedy(it.dense, rows(it)); }, {});
  compare([](auto& v) { rules::sample_and_match(v); },
          [](const Case& it, DenseUniforms& u) { return dense_match(it.dense, it.distributions, u); }, {});
}
