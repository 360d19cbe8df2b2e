// SPDX-License-Identifier: MIT
// Traversal asks only what accept/rules/verifier.hpp allows, and decides as its definition does.
#include <specula/accept/rules/traversal.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "dense_verifier.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("traversal over documented members only, on trees and chains") {
  for (const Mix& mix : {Mix{}, kChains})
    compare([](auto& v) { rules::traversal(v); },
            [](const Case& it, DenseUniforms& u) { return dense_traversal(it.dense, it.distributions, u); },
            mix, true);
}

TEST_CASE("traversal gives a child that neither target nor draft can produce weight 0, which needs no draw") {
  DenseTree tree{{0, 1, 2}, {kNoParent, 0, 1}, {{}, {0.5, 0, 0.5}, {0, 0, 1}}};
  const std::vector<Dense> rows(3, Dense{0.25, 0, 0.75});
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    DenseUniforms uniforms(seed);
    DenseVerifier verifier(tree, rows, uniforms);
    rules::traversal(verifier);
    CHECK(verifier.result().accepted == std::vector<NodeId>{0});
    CHECK(verifier.accepts().empty());
    CHECK(verifier.result().next_token == 2);  // the residual of {0.25, 0, 0.75} after {0.5, 0, 0.5}
  }
}
