// labels: light
// Alive: a moved-from object is detected, a copied one is not touched.
#include <specula/base/alive.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <utility>

using specula::detail::Alive;

TEST_CASE("expect() throws after a move only, and names the object") {
  Alive a;
  a.expect("A");
  const Alive copy = a;
  a.expect("A");
  copy.expect("copy");
  Alive b = std::move(a);
  b.expect("B");
  CHECK_THROWS_WITH_AS(a.expect("A"), "A: it was moved from", std::logic_error);
  Alive c;
  c = std::move(b);
  c.expect("C");
  CHECK_THROWS_AS(b.expect("B"), std::logic_error);
  b = Alive();  // a new value
  b.expect("B");
  Alive& same = c;
  c = std::move(same);
  c.expect("C");
}
