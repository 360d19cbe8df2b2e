// SPDX-License-Identifier: MIT
// AnyDrafter: forwards to its drafter, whose cache must not be the target's. (Texts: any_shape.cpp,
// any_model.cpp.)
#include <specula/runtime/any_drafter.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/chain.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

TEST_CASE("an erased drafter forwards every call") {
  ToyModel model(9, 1, 1.0f, 64);
  AnyDrafter any{ModelDrafter{model}};
  CHECK(any.vocab_size() == 9);
  CHECK(any.capacity() == model.capacity());
  const std::vector<Token> context{1, 2, 3}, root{4};
  const std::vector<NodeId> none{kNoParent};
  any.sync(context, {});
  const LogitsView rows = any.extend(root, none);
  CHECK(rows.rows == 1);
  CHECK(rows.vocab == 9);
  CHECK(model.size() == 3);
  CHECK(any.usage().calls > 0);
  any.truncate(1);
  CHECK(model.size() == 1);
}

TEST_CASE("an erased drafter over the target itself is refused, as a typed one is") {
  ToyModel target(9, 1), other(9, 2);
  const AnyDrafter drafter{ModelDrafter{other}};
  CHECK(drafter.cache_id() == &other);
  using Pipeline = Speculator<TreeVerifier<ToyModel, Greedy>, AnyDrafter, Chain<>>;
  CHECK_THROWS_AS((Pipeline{TreeVerifier{target, Greedy{}}, AnyDrafter{ModelDrafter{target}}, Chain<>{}}),
                  std::invalid_argument);
}
