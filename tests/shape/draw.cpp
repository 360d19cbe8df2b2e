#include <specula/shape/draw.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("how tokens are taken decides the law of a chain") {
  static_assert(law_of_chain(Draw::greedy) == DraftLaw::deterministic);
  static_assert(law_of_chain(Draw::sampled) == DraftLaw::sampled);
  static_assert(law_of_chain(Draw::shared) == DraftLaw::shared);
  CHECK(true);  // by compiling
}
