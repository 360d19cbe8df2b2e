// SPDX-License-Identifier: MIT
// What policies may have besides: a concept holds only if all of its members are there, and in which cache a
// drafter works.
#include <specula/policy/optional_members.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>

using namespace specula;

namespace {

struct Nothing {};
struct Resets {
  void reset() {}
};
struct Learns {
  void learn(const TokenTree&, const VerifyResult&, const Timing&) {}
};
struct LearnsAndResets : Learns, Resets {};
static_assert(LearnsFromRounds<LearnsAndResets> && !LearnsFromRounds<Learns> && !LearnsFromRounds<Resets>);

struct Throwing {
  Usage usage() const { return {}; }
};
struct Quiet {
  Usage usage() const noexcept { return {}; }
};
static_assert(ReportsUsage<Quiet> && !ReportsUsage<Throwing> && !ReportsUsage<Nothing>);

struct Reserving {
  void reserve(const Sizes&) {}
};
struct Reviewing {
  std::span<const Reviews> reviewed() const { return {}; }
};
static_assert(Reserves<Reserving> && !Reserves<Nothing> && CountsReviews<Reviewing> &&
              !CountsReviews<Nothing>);

struct Alone {
  const void* cache = nullptr;
  const void* cache_id() const { return cache; }
};

/// Two drafters, without one member of HasMembers: 1 usage, 2 cache_id, 3 room; 0: with all.
template <int without>
struct Two {
  static constexpr std::size_t kMembers = 2;
  const void* caches[2] = {};
  Usage usage(std::size_t) const noexcept requires(without != 1) { return {}; }
  const void* cache_id(std::size_t i) const requires(without != 2) { return caches[i]; }
  std::int32_t room(std::int32_t) const requires(without != 3) { return 1; }
};
static_assert(HasMembers<Two<0>> && !HasMembers<Two<1>> && !HasMembers<Two<2>> && !HasMembers<Two<3>>);
static_assert(!HasMembers<Alone>);

// What is right compiles; tests/compile_fail/pipeline_members.cpp has what is not.
static_assert(detail::check_drafter_members<Nothing>() && detail::check_drafter_members<Two<0>>() &&
              detail::check_drafter_members<Quiet>() && detail::check_drafter_members<Alone>());
static_assert(detail::check_shape_members<Nothing>() && detail::check_shape_members<LearnsAndResets>() &&
              detail::check_shape_members<Reviewing>());

}  // namespace

TEST_CASE("a drafter works in the caches that it or a member names; it works in no unnamed cache") {
  int here = 0, there = 0;
  CHECK(detail::works_in(Alone{&here}, &here));
  CHECK_FALSE(detail::works_in(Alone{&here}, &there));
  CHECK_FALSE(detail::works_in(Alone{nullptr}, nullptr));
  CHECK_FALSE(detail::works_in(Nothing{}, &here));
  CHECK(detail::works_in(Two<0>{{nullptr, &here}}, &here));
  CHECK_FALSE(detail::works_in(Two<0>{{nullptr, &here}}, &there));
  CHECK_FALSE(detail::works_in(Two<0>{{nullptr, &here}}, nullptr));
}
