// SPDX-License-Identifier: MIT
// Stats: counts and derived figures.
#include <specula/base/stats.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("MAT, acceptance and other figures") {
  Stats s;
  CHECK(s.mat() == 0);
  CHECK(s.acceptance(1) == 0);
  CHECK(s.overhead_share() == 0);
  CHECK(s.tokens_per_second() == 0);
  s.rounds = 4;
  s.new_tokens = 10;
  s.offered = {4, 3, 1};
  s.accepted = {3, 2, 0};
  s.target.seconds = 6;
  s.draft.seconds = 3;
  s.round_seconds = 10;
  CHECK(s.mean_acceptance_length() == 2.5);
  CHECK(s.mat() == 2.5);
  CHECK(s.acceptance(1) == 0.75);
  CHECK(s.acceptance(2) == doctest::Approx(2.0 / 3));
  CHECK(s.acceptance(3) == 0);
  CHECK(s.acceptance(4) == 0);
  CHECK(s.acceptance(0) == 0);
  CHECK(s.overhead_share() == doctest::Approx(0.1));
  s.draft.seconds = 1, s.draft.waited_seconds = 0.5, s.target.waited_seconds = 1;
  CHECK(s.overhead_seconds() == doctest::Approx(1.5));
  CHECK(s.tokens_per_second() == 1);
}

TEST_CASE("sums of two runs are pooled, not averaged, for any depths") {
  Stats a, b;
  a.rounds = 1, a.new_tokens = 1, a.proposed = 2, a.offered = {1}, a.accepted = {0};
  b.rounds = 3, b.new_tokens = 11, b.proposed = 9, b.offered = {3, 2, 1}, b.accepted = {2, 1, 1};
  b.target = {3, 12, 0.5};
  b.draft = {9, 9, 0.25};
  b.prefill_seconds = 2;
  b.round_seconds = 4;
  for (int order = 0; order < 2; ++order) {
    Stats sum = order ? b : a;
    sum += order ? a : b;
    CHECK((order ? b + a : a + b).offered == sum.offered);
    CHECK((a + b - b).new_tokens == a.new_tokens);
    CHECK(sum.rounds == 4);
    CHECK(sum.mat() == 3.0);
    CHECK(sum.proposed == 11);
    CHECK(sum.offered == std::vector<std::int64_t>{4, 2, 1});
    CHECK(sum.accepted == std::vector<std::int64_t>{2, 1, 1});
    CHECK(sum.target.nodes == 12);
    CHECK(sum.draft.calls == 9);
    CHECK(sum.prefill_seconds == 2);
    CHECK(sum.round_seconds == 4);
  }
}

TEST_CASE("usage is counted by difference") {
  Usage u{5, 20, 1.5};
  const Usage before = u;
  u += {2, 3, 0.25};
  const Usage d = u - before;
  CHECK((before + d).nodes == u.nodes);
  CHECK(d.calls == 2);
  CHECK(d.nodes == 3);
  CHECK(d.seconds == 0.25);
}

TEST_CASE("the statistics of a request are the difference of two sums, and clear() keeps the sizes") {
  Stats before, request;
  before.rounds = 3, before.new_tokens = 7, before.proposed = 5, before.offered = {3}, before.accepted = {2};
  before.target = {3, 8, 1, 4}, before.draft = {6, 6, 0.5, 2}, before.drafters = {{6, 6, 0.5, 2}};
  before.prefill_seconds = 1, before.round_seconds = 4;
  request.rounds = 2, request.new_tokens = 6, request.proposed = 4, request.offered = {2, 1};
  request.accepted = {1, 1}, request.target = {2, 6, 0.5, 3}, request.draft = {4, 4, 0.25, 1};
  request.drafters = {{1, 1, 0.125, 0}, {3, 3, 0.125, 1}};
  request.prefill_seconds = 2, request.round_seconds = 8;
  Stats after = before;
  after += request;
  const Stats got = after - before;
  CHECK(got.rounds == 2);
  CHECK(got.new_tokens == 6);
  CHECK(got.proposed == 4);
  CHECK(got.offered == request.offered);
  CHECK(got.accepted == request.accepted);
  CHECK(got.target.layers == 3);
  CHECK(got.draft.seconds == 0.25);
  REQUIRE(got.drafters.size() == 2);
  CHECK(got.drafters[0].calls == 1);
  CHECK(got.drafters[1].nodes == 3);
  CHECK(got.prefill_seconds == 2);
  CHECK(got.round_seconds == 8);
  after.clear();
  CHECK(after.rounds == 0);
  CHECK(after.offered == std::vector<std::int64_t>(2));
  CHECK(after.drafters.size() == 2);
  CHECK(after.drafters[1].calls == 0);
  CHECK(after.target.seconds == 0);
  CHECK(after.round_seconds == 0);
}

TEST_CASE("the usage of each drafter of a stack is pooled too, for any number of drafters") {
  Stats a, b;
  a.drafters = {{1, 2, 0.5}};
  b.drafters = {{3, 4, 0.25}, {5, 6, 1}};
  for (int order = 0; order < 2; ++order) {
    Stats sum = order ? b : a;
    sum += order ? a : b;
    CHECK((order ? b + a : a + b).offered == sum.offered);
    CHECK((a + b - b).new_tokens == a.new_tokens);
    REQUIRE(sum.drafters.size() == 2);
    CHECK(sum.drafters[0].calls == 4);
    CHECK(sum.drafters[0].nodes == 6);
    CHECK(sum.drafters[0].seconds == 0.75);
    CHECK(sum.drafters[1].calls == 5);
    CHECK(sum.drafters[1].seconds == 1);
  }
}

TEST_CASE("reviews by the number of draft tokens accepted before; the last depth counts deeper ones too") {
  Reviews reviews;
  reviews.saw(0, true);
  reviews.saw(1, true);
  reviews.saw(2, false);
  reviews.saw(0, false);
  reviews.saw(Reviews::kDepths - 1, true);
  reviews.saw(Reviews::kDepths, true);
  reviews.saw(1000, false);
  CHECK(reviews.calls == 0);
  CHECK(reviews.offered[0] == 2);
  CHECK(reviews.accepted[0] == 1);
  CHECK(reviews.offered[1] == 1);
  CHECK(reviews.accepted[1] == 1);
  CHECK(reviews.offered[2] == 1);
  CHECK(reviews.accepted[2] == 0);
  CHECK(reviews.offered[3] == 0);
  CHECK(reviews.offered.back() == 3);
  CHECK(reviews.accepted.back() == 2);
}
