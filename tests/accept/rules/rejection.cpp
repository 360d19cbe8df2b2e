// SPDX-License-Identifier: MIT
// Rejection asks only what accept/rules/verifier.hpp allows, and decides as its definition does.
#include <specula/accept/rules/rejection.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "dense_verifier.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("rejection over documented members only, on trees and chains, exact and lenient") {
  for (const double lenience : {1.0, 2.5})
    for (const Mix& mix : {Mix{}, kChains})
      compare([&](auto& v) { rules::rejection(v, lenience); },
              [&](const Case& it, DenseUniforms& u) {
                return dense_rejection(it.dense, it.distributions, u, lenience);
              },
              mix);
}
