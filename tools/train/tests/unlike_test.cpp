// SPDX-License-Identifier: MIT
// Runs of words that texts share.
#include "unlike.hpp"

#include <doctest/doctest.h>

#include <string>

namespace st = specula_train;

TEST_CASE("texts share a run of words, whatever stands between them") {
  st::WordRuns runs(4);
  runs.add("Janet's ducks lay 16 eggs per day.");
  CHECK(runs.size() == 5);  // 8 words: janet, s, ducks, ...
  CHECK(runs.shares("And then: DUCKS, lay\n16 -- eggs!"));
  CHECK(runs.shares("per day ... ducks lay 16 eggs"));
  CHECK_FALSE(runs.shares("ducks lay 16 goose eggs per day"));
  CHECK_FALSE(runs.shares("lay 16 eggs"));
  CHECK_FALSE(runs.shares("eggs 16 lay ducks"));
  CHECK_FALSE(runs.shares(""));
  CHECK_FALSE(st::WordRuns(4).shares("a b c d e"));
}

TEST_CASE("letters beyond ASCII are parts of words") {
  st::WordRuns runs(2);
  runs.add("größer als zwölf");
  CHECK(runs.shares("Größer (als) drei"));
  CHECK_FALSE(runs.shares("gr\xc3\xb6 als"));
}
