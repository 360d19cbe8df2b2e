// SPDX-License-Identifier: MIT
// ViewGuard: detects views of a model's state that are used after a later call.
#include <specula/model/view_guard.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <type_traits>
#include <utility>

using specula::detail::ChangeCount;
using specula::detail::ViewGuard;

namespace {

bool fresh(const ViewGuard& guard) {
  try {
    guard.expect_valid("x");
    return true;
  } catch (const std::logic_error&) {
    return false;
  }
}

}  // namespace

static_assert(std::is_nothrow_move_constructible_v<ChangeCount> &&
              std::is_nothrow_move_assignable_v<ChangeCount>);

TEST_CASE("a guard passes until the next call of its model, then always throws") {
  ChangeCount model;
  const ViewGuard first(model);
  CHECK(!first.empty());
  first.expect_valid("the view");
  first.expect_valid("the view");
  model.next();
  CHECK(model.now() == 1);
  CHECK_THROWS_WITH_AS(first.expect_valid("the view"), "the view is stale: the model was called since",
                       std::logic_error);
  const ViewGuard second(model);
  CHECK(fresh(second));
  CHECK(!fresh(first));
  const ViewGuard copy = second;
  model.next();
  CHECK(!fresh(second));
  CHECK(!fresh(copy));
}

TEST_CASE("a guard without a model is empty") {
  const ViewGuard guard;
  CHECK(guard.empty());
  CHECK_THROWS_WITH_AS(guard.expect_valid("the view"), "the view is empty: no model gave it", std::logic_error);
}

TEST_CASE("a view belongs to one object, not to its copies, and is stale after a move or an assignment") {
  ChangeCount a, b;
  a.next();
  ViewGuard of_a(a), of_b(b);
  const ChangeCount copy = a;
  CHECK(copy.now() == 0);
  CHECK(fresh(of_a));
  b = a;
  CHECK(!fresh(of_b));
  CHECK(fresh(of_a));
  of_b = ViewGuard(b);
  b = std::move(a);
  CHECK(!fresh(of_a));
  CHECK(!fresh(of_b));
  of_a = ViewGuard(a);
  const ChangeCount moved = std::move(a);
  CHECK(!fresh(of_a));
  CHECK(moved.now() == 0);
}
