#include <specula/verdict.hpp>

#include <doctest/doctest.h>

TEST_CASE("a cleared verdict holds the root, and accepted() leaves it out") {
  specula::Verdict v;
  v.path = {0, 2, 5};
  v.next = 7;
  CHECK(v.accepted() == 2);
  v.clear();
  CHECK(v.path == std::vector<specula::NodeId>{0});
  CHECK(v.next == specula::kNoToken);
  CHECK(v.accepted() == 0);
}
