// SPDX-License-Identifier: MIT
// Which drafters a shape accepts, as the messages of its mistakes say. tests/compile_fail/shape_needs.cpp has
// those.
#include <specula/run/detail/explain.hpp>

#include <doctest/doctest.h>

#include <specula/shape/cascade.hpp>
#include <specula/shape/chain.hpp>

using namespace specula;
using namespace specula::detail;

namespace {

struct AnyPoints : AnyDenseDrafter {
  PointMasses extend(Tokens tokens, Nodes parents);
};

}  // namespace

TEST_CASE("a cascade of n accepts a stack of n, and no other; a chain any number") {
  CHECK(members_for<Cascade<2>>() == 2);
  CHECK(members_for<Cascade<3>>() == 3);
  CHECK(members_for<Chain<>>() == 1);
  CHECK(members_for<int>() == 0);
}

TEST_CASE("what is right compiles without a message, and so does what other checks refuse") {
  CHECK(explain_shape<Chain<>, AnyPoints>());
  CHECK(explain_shape<Chain<Draw::sampled>, AnyDenseDrafter>());
  CHECK(explain_shape<Cascade<2>, AnyStack<2>>());
  CHECK(explain_shape<Chain<>, int>());  // no Drafter
}
