// SPDX-License-Identifier: MIT
// Optional members of drafters, shapes and verifiers, as concepts: memory, learning, statistics, passes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/base/fields.hpp"
#include "specula/base/has_member.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/model/detail/check_members.hpp"
#include "specula/model/language_model.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

// A policy may lack any of these members, NamesItsCache of model/language_model.hpp, and MergesPasses of
// model/pass_request.hpp. One that has a member of that name with another signature does not compile, nor one
// with a part of them. docs/design.md has a table of all, with the models'.

/// A drafter or a shape that allocates once, by Speculator's constructor: `void reserve(const Sizes& sizes)`.
template <class P>
concept Reserves = requires(P& p, const Sizes& sizes) {
  p.reserve(sizes);
};

/// A shape with a state, which it learns from acceptance and time. learn() is called after each round in
/// which propose() was, and did not fail, with the round's proposal, its result, and the usage of the models
/// in it: never after a round for the root alone, such as a plain one of a shared budget. `void learn(const
/// TokenTree& tree, const VerifyResult& result, const Timing& timing)`. start() calls `void reset()`, which
/// drops what is the last text's.
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

/// A verifier whose run_round() has two halves, between which the caller runs the target's pass:
///
///   const void* batch() const                       the model of many texts of which the target is a slot;
///                                                   null: it is none, and its passes are its own
///   PassRequest begin_round(const TokenTree& tree)  what that model is to run
///   const VerifyResult& end_round(const TokenTree& tree, const LogitsView& rows, PhiloxRandom& rng)
///                                                   given its rows, what run_round() would return
///
/// begin_round() throws as run_round(), and may be called again with another tree. If there is no batch,
/// nothing is committed, and run_round() has to be called. A failed pass has no end_round(): the next call of
/// any other member repairs what there is to repair.
template <class V>
concept MergesRounds =
    requires(V& v, const V& c, const TokenTree& tree, const LogitsView& rows, PhiloxRandom& rng) {
  { c.batch() } -> std::same_as<const void*>;
  { v.begin_round(tree) } -> std::same_as<PassRequest>;
  { v.end_round(tree, rows, rng) } -> std::convertible_to<const VerifyResult&>;
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
SPECULA_HAS_MEMBER(begin_round)
SPECULA_HAS_MEMBER(end_round)

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
  return check_pass_halves<D>();
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

template <class V>
consteval bool check_verifier_members() {
  static_assert(
      (!has_begin_round<V>() && !has_end_round<V>()) || MergesRounds<V>,
      "a verifier with begin_round or end_round must be MergesRounds: const void* batch() const, PassRequest begin_round(const "
      "TokenTree&), const VerifyResult& end_round(const TokenTree&, const LogitsView&, "
      "PhiloxRandom&)");
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
