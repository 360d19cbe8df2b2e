// Optional members of drafters, shapes and verifiers, as concepts: memory, learning, statistics, checks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "specula/base/fields.hpp"
#include "specula/base/has_member.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/model/language_model.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

// A policy may lack any of these members. One that has a member of that name with another signature does not
// compile. ValidatesFields, `void validate() const`, is in base/fields.hpp.

/// A drafter or a verifier that allocates once, by Speculator's constructor: `void reserve(std::int32_t n)`.
/// n: for a drafter the largest text with its proposal, in tokens; for a verifier the nodes of a proposal.
template <class P>
concept ReservesMemory = requires(P& p, std::int32_t n) {
  p.reserve(n);
};

/// A shape that allocates its working memory once, by Speculator's constructor: `void reserve()`.
template <class S>
concept ReservesWorkspace = requires(S& s) {
  s.reserve();
};

/// A shape that learns from acceptance and time: learn() is called after each round whose usage is known,
/// with the round's proposal, its result, and the usage of the models in it:
/// `void learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing)`.
template <class S>
concept LearnsFromRounds = requires(S& s, const TokenTree& tree, const VerifyResult& result,
                                    const Timing& timing) {
  s.learn(tree, result, timing);
};

/// A shape that drops its state of the last text, at start(): `void reset()`.
template <class S>
concept ResetsPerText = requires(S& s) {
  s.reset();
};

/// A shape that states the smallest proposal that holds a draft token, in nodes, root included; the default
/// is 2: `std::int32_t least_nodes() const`.
template <class S>
concept StatesLeastNodes = requires(const S& s) {
  { s.least_nodes() } -> std::same_as<std::int32_t>;
};

/// A shape whose drafter runs more nodes than the proposal has: `std::int32_t draft_nodes() const`.
template <class S>
concept StatesDraftNodes = requires(const S& s) {
  { s.draft_nodes() } -> std::same_as<std::int32_t>;
};

/// A drafter or a verifier that counts the calls of its models and their time, which Stats separates from
/// the library's own time: `Usage usage() const noexcept`, or a reference to one.
template <class P>
concept ReportsUsage = requires(const P& p) {
  { p.usage() } noexcept -> std::convertible_to<const Usage&>;
};

/// A drafter made of several: `static constexpr std::size_t kMembers`, their number; `Usage usage(std::size_t
/// i) const noexcept`, of each; and the nodes that a proposal after `context` tokens may have, if members
/// without room are left out, at most 1 if none has room: `std::int32_t room(std::int32_t context) const`. For
/// another drafter, that is capacity() less the context.
template <class D>
concept HasMembers = requires(const D& d, std::size_t i, std::int32_t context) {
  { D::kMembers } -> std::convertible_to<std::size_t>;
  { d.usage(i) } noexcept -> std::convertible_to<const Usage&>;
  { d.room(context) } -> std::same_as<std::int32_t>;
};

namespace detail {

// See base/has_member.hpp.
SPECULA_HAS_MEMBER(reserve)
SPECULA_HAS_MEMBER(learn)
SPECULA_HAS_MEMBER(reset)
SPECULA_HAS_MEMBER(validate)
SPECULA_HAS_MEMBER(least_nodes)
SPECULA_HAS_MEMBER(draft_nodes)
SPECULA_HAS_MEMBER(usage)
SPECULA_HAS_MEMBER(kMembers)
SPECULA_HAS_MEMBER(cache_id)

/// Compiles if each optional member of `D` satisfies its concept; otherwise a static_assert names the member.
template <class D>
consteval bool check_drafter_members() {
  static_assert(!has_reserve<D>() || ReservesMemory<D>,
                "the drafter's reserve is not ReservesMemory: void reserve(std::int32_t tokens)");
  static_assert(has_kMembers<D>() || !has_usage<D>() || ReportsUsage<D>,
                "the drafter's usage is not ReportsUsage: Usage usage() const noexcept");
  static_assert(!has_kMembers<D>() || HasMembers<D>,
                "a drafter with kMembers must be HasMembers: static constexpr std::size_t kMembers, Usage "
                "usage(std::size_t i) const noexcept, std::int32_t room(std::int32_t context) const");
  static_assert(!has_cache_id<D>() || NamesItsCache<D>,
                "the drafter's cache_id is not NamesItsCache: const void* cache_id() const");
  return true;
}
template <class S>
consteval bool check_shape_members() {
  static_assert(!has_reserve<S>() || ReservesWorkspace<S>,
                "the shape's reserve is not ReservesWorkspace: void reserve()");
  static_assert(!has_learn<S>() || LearnsFromRounds<S>,
                "the shape's learn is not LearnsFromRounds: void learn(const TokenTree&, const "
                "VerifyResult&, const Timing&)");
  static_assert(!has_reset<S>() || ResetsPerText<S>, "the shape's reset is not ResetsPerText: void reset()");
  static_assert(!has_validate<S>() || ValidatesFields<S>,
                "the shape's validate is not ValidatesFields: void validate() const");
  static_assert(!has_least_nodes<S>() || StatesLeastNodes<S>,
                "the shape's least_nodes is not StatesLeastNodes: std::int32_t least_nodes() const");
  static_assert(!has_draft_nodes<S>() || StatesDraftNodes<S>,
                "the shape's draft_nodes is not StatesDraftNodes: std::int32_t draft_nodes() const");
  return true;
}
template <class V>
consteval bool check_verifier_members() {
  static_assert(!has_reserve<V>() || ReservesMemory<V>,
                "the verifier's reserve is not ReservesMemory: void reserve(std::int32_t nodes)");
  static_assert(!has_usage<V>() || ReportsUsage<V>,
                "the verifier's usage is not ReportsUsage: Usage usage() const noexcept");
  static_assert(!has_cache_id<V>() || NamesItsCache<V>,
                "the verifier's cache_id is not NamesItsCache: const void* cache_id() const");
  return true;
}

/// Whether a drafter, or a member of it, has its text in this cache.
template <class D>
bool works_in(const D& drafter, const void* cache) {
  if (!cache) return false;
  if constexpr (HasMembers<D> && requires { drafter.cache_id(std::size_t{}); }) {
    for (std::size_t i = 0; i < D::kMembers; ++i)
      if (drafter.cache_id(i) == cache) return true;
  } else if constexpr (NamesItsCache<D>) {
    return drafter.cache_id() == cache;
  }
  return false;
}

}  // namespace detail

}  // namespace specula
