// SPDX-License-Identifier: MIT
// labels: optimised
// A budget of draft tokens against the best fixed size, over a grid of acceptance, drafts, texts and costs of
// passes, by a virtual clock; with single passes that seem to take 100,000 times as long, and clocks that
// advance in steps. Here texts of 3,000 tokens, 1 and 8 at once; with SPECULA_TEST_THOROUGH of 6,000 tokens,
// and 1, 2, 8 and 32.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "budget_grid.hpp"

using namespace specula_test::grid;

TEST_CASE("the rates of fixed sizes are those that the library has without a budget") {
  for (const Draft draft : {Draft::model, Draft::copies, Draft::head}) {
    const Cell cell{
        .acceptance = 0.8, .draft = draft, .texts = 2, .curve = kCurves[1], .from = 100, .to = 600};
    const std::vector<Text> texts = texts_of(cell);
    std::vector<Matches> matches;
    for (const Text& text : texts) matches.push_back(matches_of(text, draft == Draft::copies));
    for (const std::int32_t length : {0, 2, 12}) {
      World world;
      const double rate = decode(cell, texts, world, false, false, specula::Chain<>{.length = length}).rate;
      CHECK(rate == doctest::Approx(fixed_rate(cell, matches, call_of(draft), length)).epsilon(1e-9));
    }
  }
}

TEST_CASE("every cell reaches the best fixed size; and plain decoding where none pays") {
  if (std::getenv("SPECULA_TEST_THOROUGH"))
    expect_the_grid({1, 2, 8, 32}, 2000, 6000);
  else
    expect_the_grid({1, 8}, 1000, 3000);
}

TEST_CASE("Either of one text, whatever was seen first") {
  // An unlucky beginning must not settle whether it drafts or copies, nor end drafting for good.
  for (const Curve& curve : {kCurves[1], kCurves[2]}) {
    double all = 0, least = 1;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Cell cell{0.5, Draft::either, 1, curve, 2000, 4000};
      const std::vector<Text> texts{Text(1000003 * seed + 18, 0.5, 8200)};
      World world;
      const double reached = decode(cell, texts, world, true, true).rate / best_fixed(cell, texts).rate;
      all += reached / 20, least = std::min(least, reached);
    }
    CAPTURE(std::string(curve.name));
    CHECK(all > 0.955);
    CHECK(least > (std::string(curve.name) == "linear" ? 0.95 : 0.7));  // where rows cost least by fours
  }
}

TEST_CASE("one pass that seems to take up to 100,000 times as long costs nothing for long") {
  for (const Draft draft : {Draft::model, Draft::copies, Draft::either, Draft::head})
    for (const std::int32_t texts : {1, 8})
      for (const double acceptance : {0.8, 0.99}) {
        const Cell cell{.acceptance = acceptance, .draft = draft, .texts = texts, .from = 1300, .to = 2300};
        const std::vector<Text> text = texts_of(cell);
        for (const bool alone : {false, true}) {
          if (alone && texts > 1) continue;
          World quiet;
          const double before = decode(cell, text, quiet, true, alone).rate;
          enum { of_draft, of_target, first_call };
          for (const int what : {of_draft, of_target, first_call})
            for (const double longer : {1.0, 30.0, 1e5}) {
              World world;
              bool hit = false;
              const double from = quiet.now * 1000 / 2300;  // some 300 tokens before those that count
              world.stretched = [&](double cost, bool in_draft, bool first) {
                const bool now = what == first_call ? in_draft && first
                                                    : in_draft == (what == of_draft) && world.now > from;
                return hit || !now ? cost : (hit = true, cost + longer);
              };
              CAPTURE(std::string(name_of(draft)));
              CAPTURE(texts);
              CAPTURE(acceptance);
              CAPTURE(alone);
              CAPTURE(what);
              CAPTURE(longer);
              // Copies and drafts of equal acceptance: which is chosen depends on what was seen first.
              CHECK(decode(cell, text, world, true, alone).rate >
                    (draft == Draft::either ? 0.95 : 0.97) * before);
              CHECK(hit == (draft != Draft::copies || what == of_target));  // copies make no calls
            }
        }
      }
}

TEST_CASE("a clock that advances in steps of half a pass; and of five, where only means tell") {
  for (const Draft draft : {Draft::model, Draft::copies, Draft::head})
    for (const std::int32_t texts : {1, 8})
      for (const double acceptance : {0.8, 0.99}) {
        const Cell cell{.acceptance = acceptance, .draft = draft, .texts = texts, .from = 1000, .to = 3000};
        const std::vector<Text> text = texts_of(cell);
        const double best = best_fixed(cell, text).rate;
        for (const double step : {0.5, 5.0}) {
          World world;
          world.step = step;
          CAPTURE(std::string(name_of(draft)));
          CAPTURE(texts);
          CAPTURE(acceptance);
          CAPTURE(step);
          CHECK(decode(cell, text, world, true, false).rate > (step < 1 ? 0.9 : 0.35) * best);
        }
      }
}

TEST_CASE("a clock that stands still: drafts by the default costs") {
  for (const Draft draft : {Draft::model, Draft::copies, Draft::head}) {
    const Cell cell{.acceptance = 0.8, .draft = draft, .texts = 1, .from = 500, .to = 1500};
    const std::vector<Text> text = texts_of(cell);
    World world;
    world.step = -1;
    const Outcome got = decode(cell, text, world, true, false);
    CHECK(got.rate > 1.5);  // plain decoding has 1
    CHECK(got.rounds > 0);
    CHECK(got.untimed == got.rounds);
    World fine;
    CHECK(decode(cell, text, fine, true, false).untimed == 0);
  }
}
