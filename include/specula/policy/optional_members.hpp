// Optional members of drafters and shapes, as concepts: memory, learning, statistics.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/base/fields.hpp"
#include "specula/base/has_member.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/model/language_model.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

// A policy may lack any of these members, and NamesItsCache of model/language_model.hpp. One that has a
// member of that name with another signature does not compile. A verifier has no optional members.
// docs/design.md has a table of all, with the models'.

/// A drafter or a shape that allocates once, by Speculator's constructor: `void reserve(const Sizes& sizes)`.
template <class P>
concept Reserves = requires(P& p, const Sizes& sizes) {
  p.reserve(sizes);
};

/// A shape with a state, which it learns from acceptance and time. learn() is called after each round whose
/// usage is known, with the round's proposal, its result, and the usage of the models in it: `void
/// learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing)`. start() calls `void
/// reset()`, which drops what is the last text's.
template <class S>
concept LearnsFromRounds = requires(S& s, const TokenTree& tree, const VerifyResult& result,
                                    const Timing& timing) {
  s.learn(tree, result, timing);
  s.reset();
};

/// A shape whose drafters review each other: `std::span<const Reviews> reviewed() const`, the counts of each
/// reviewer so far.
template <class S>
concept CountsReviews = requires(const S& s) {
  { s.reviewed() } -> std::convertible_to<std::span<const Reviews>>;
};

/// A drafter that counts the calls of its models and their time, which Stats separates from the library's own
/// time: `Usage usage() const noexcept`, or a reference to one.
template <class D>
concept ReportsUsage = requires(const D& d) {
  { d.usage() } noexcept -> std::convertible_to<const Usage&>;
};

/// A drafter made of several: `static constexpr std::size_t kMembers`, their number; of each, i < kMembers,
/// `Usage usage(std::size_t i) const noexcept`, and `const void* cache_id(std::size_t i) const`, null where
/// it names no cache (NamesItsCache); and the nodes that a proposal after `context` tokens may have, if
/// members without room are left out, at most 1 if none has room: `std::int32_t room(std::int32_t context)
/// const`. For another drafter, that is capacity() less the context.
template <class D>
concept HasMembers = requires(const D& d, std::size_t i, std::int32_t context) {
  { D::kMembers } -> std::convertible_to<std::size_t>;
  { d.usage(i) } noexcept -> std::convertible_to<const Usage&>;
  { d.cache_id(i) } -> std::same_as<const void*>;
  { d.room(context) } -> std::same_as<std::int32_t>;
};

namespace detail {

// See base/has_member.hpp.
SPECULA_HAS_MEMBER(reserve)
SPECULA_HAS_MEMBER(learn)
SPECULA_HAS_MEMBER(reset)
SPECULA_HAS_MEMBER(reviewed)
SPECULA_HAS_MEMBER(validate)
SPECULA_HAS_MEMBER(usage)
SPECULA_HAS_MEMBER(kMembers)
SPECULA_HAS_MEMBER(cache_id)

/// Compiles if each optional member of `D` satisfies its concept; otherwise a static_assert names the member.
template <class D>
consteval bool check_drafter_members() {
  static_assert(!has_reserve<D>() || Reserves<D>,
                "the drafter's reserve is not Reserves: void reserve(const Sizes&)");
  static_assert(has_kMembers<D>() || !has_usage<D>() || ReportsUsage<D>,
                "the drafter's usage is not ReportsUsage: Usage usage() const noexcept");
  static_assert(
      !has_kMembers<D>() || HasMembers<D>,
      "a drafter with kMembers must be HasMembers: static constexpr std::size_t kMembers, Usage "
      "usage(std::size_t i) const noexcept, const void* cache_id(std::size_t i) const, std::int32_t "
      "room(std::int32_t context) const");
  static_assert(has_kMembers<D>() || !has_cache_id<D>() || NamesItsCache<D>,
                "the drafter's cache_id is not NamesItsCache: const void* cache_id() const");
  return true;
}
template <class S>
consteval bool check_shape_members() {
  static_assert(!has_reserve<S>() || Reserves<S>,
                "the shape's reserve is not Reserves: void reserve(const Sizes&)");
  static_assert((!has_learn<S>() && !has_reset<S>()) || LearnsFromRounds<S>,
                "a shape with learn or reset must be LearnsFromRounds: void learn(const TokenTree&, const "
                "VerifyResult&, const Timing&), void reset()");
  static_assert(!has_reviewed<S>() || CountsReviews<S>,
                "the shape's reviewed is not CountsReviews: std::span<const Reviews> reviewed() const");
  static_assert(!has_validate<S>() || ValidatesFields<S>,
                "the shape's validate is not ValidatesFields: void validate() const");
  return true;
}

/// Whether a drafter, or a member of it, has its text in this cache.
template <class D>
bool works_in(const D& drafter, const void* cache) {
  if (!cache) return false;
  if constexpr (HasMembers<D>) {
    for (std::size_t i = 0; i < D::kMembers; ++i)
      if (drafter.cache_id(i) == cache) return true;
  } else if constexpr (NamesItsCache<D>) {
    return drafter.cache_id() == cache;
  }
  return false;
}

}  // namespace detail

}  // namespace specula
