// Optional members of drafters, shapes and verifiers, as concepts: memory, learning, statistics, checks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "specula/base/fields.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/stats.hpp"
#include "specula/verify_result.hpp"

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
/// the library's own time: `Usage usage() const`, or a reference to one.
template <class P>
concept ReportsUsage = requires(const P& p) {
  { p.usage() } -> std::convertible_to<const Usage&>;
};

/// A drafter made of several: `static constexpr std::size_t kMembers`.
template <class D>
concept HasMembers = requires {
  { D::kMembers } -> std::convertible_to<std::size_t>;
};

/// A drafter that reports the usage of each member i < kMembers: `Usage usage(std::size_t i) const`.
template <class D>
concept ReportsMemberUsage = HasMembers<D> && requires(const D& d, std::size_t i) {
  { d.usage(i) } -> std::convertible_to<const Usage&>;
};

/// A drafter made of several that leaves out those without room: the nodes that a proposal after `context`
/// tokens may have, at most 1 if none of them has room: `std::int32_t room(std::int32_t context) const`. For
/// another drafter, it is capacity() less the context.
template <class D>
concept ReportsRoom = HasMembers<D> && requires(const D& d, std::int32_t context) {
  { d.room(context) } -> std::same_as<std::int32_t>;
};

/// A policy that names the KV cache that its text is in, by the address of the model: `const void* cache_id()
/// const`; null for none. A drafter of several also has `cache_id(std::size_t i) const`, of each member
/// i < kMembers. Speculator and Stack reject two policies that use one cache. So does a model that wraps
/// another one: its name is that of the wrapped model.
template <class P>
concept NamesItsCache = requires(const P& p) {
  { p.cache_id() } -> std::same_as<const void*>;
};

/// A verifier that reports the committed tokens of its target, by which Speculator detects another user of
/// the target: `std::int32_t size() const`.
template <class V>
concept ReportsSize = requires(const V& v) {
  { v.size() } -> std::same_as<std::int32_t>;
};

/// A verifier that reports the count of its target's changes (CountsChanges), for the same purpose:
/// `std::uint64_t change_count() const`, or a std::optional, which is empty if the target does not count.
template <class V>
concept ReportsChangeCount = requires(const V& v) {
  { std::optional(v.change_count()) } -> std::same_as<std::optional<std::uint64_t>>;
};

namespace detail {

// has_NAME<T>(): whether T has a member of this name, of any type, overloaded or not: in a class derived from
// T and from another class with such a member, the name is ambiguous. A final class cannot be a base, so only
// a member that is neither overloaded nor a template is found in it.
#define SPECULA_HAS_MEMBER(name)                                                \
  struct name##_member {                                                        \
    int name;                                                                   \
  };                                                                            \
  template <class T>                                                            \
  struct name##_twice : T, name##_member {};                                    \
  template <class T>                                                            \
  consteval bool has_##name() {                                                 \
    if constexpr (std::is_class_v<T> && !std::is_final_v<T>) return !requires { \
        &name##_twice<T>::name;                                                 \
      };                                                                        \
    else                                                                        \
      return requires { &T::name; };                                            \
  }
SPECULA_HAS_MEMBER(reserve)
SPECULA_HAS_MEMBER(learn)
SPECULA_HAS_MEMBER(reset)
SPECULA_HAS_MEMBER(validate)
SPECULA_HAS_MEMBER(least_nodes)
SPECULA_HAS_MEMBER(draft_nodes)
SPECULA_HAS_MEMBER(usage)
SPECULA_HAS_MEMBER(kMembers)
SPECULA_HAS_MEMBER(cache_id)
SPECULA_HAS_MEMBER(room)
SPECULA_HAS_MEMBER(size)
SPECULA_HAS_MEMBER(set_target_state)
#undef SPECULA_HAS_MEMBER

/// Compiles if each optional member of `D` satisfies its concept; otherwise a static_assert names the member.
template <class D>
consteval bool check_drafter_members() {
  static_assert(!has_reserve<D>() || ReservesMemory<D>,
                "the drafter's reserve is not ReservesMemory: void reserve(std::int32_t tokens)");
  static_assert(!has_usage<D>() || ReportsUsage<D>,
                "the drafter's usage is not ReportsUsage: Usage usage() const");
  static_assert(!has_kMembers<D>() || HasMembers<D>,
                "the drafter's kMembers is not HasMembers: static constexpr std::size_t kMembers");
  static_assert(!HasMembers<D> || !has_usage<D>() || ReportsMemberUsage<D>,
                "a drafter with kMembers and usage must be ReportsMemberUsage: Usage usage(std::size_t i) "
                "const");
  static_assert(!HasMembers<D> || !has_room<D>() || ReportsRoom<D>,
                "the room of a drafter with kMembers is not ReportsRoom: std::int32_t room(std::int32_t "
                "context) const");
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
                "the verifier's usage is not ReportsUsage: Usage usage() const");
  static_assert(!has_size<V>() || ReportsSize<V>,
                "the verifier's size is not ReportsSize: std::int32_t size() const");
  // a change_count() that cannot be called at all is one that its own `requires` has turned off
  static_assert(
      !requires(V & v) { v.change_count(); } || ReportsChangeCount<V>,
      "the verifier's change_count is not ReportsChangeCount: std::uint64_t change_count() const");
  static_assert(!has_cache_id<V>() || NamesItsCache<V>,
                "the verifier's cache_id is not NamesItsCache: const void* cache_id() const");
  return true;
}

/// The name of a model's KV cache: its address, or what a wrapper answers.
template <class M>
const void* cache_of(const M& model) {
  if constexpr (NamesItsCache<M>)
    return model.cache_id();
  else
    return &model;
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
