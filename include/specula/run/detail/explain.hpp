// SPDX-License-Identifier: MIT
// Messages for pipelines that do not compile: what a shape requires of its drafter, and that a pair is not lossless.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "specula/draft/stack.hpp"
#include "specula/policy/concepts.hpp"

// A macro: C++20's static_assert takes a literal only.
#define SPECULA_NOT_LOSSLESS \
  "this rule does not keep the target's distribution for proposals drawn as this shape draws them."

#define SPECULA_BRACES_AS_PROMPT \
  "braces are no prompt: name its type, as in std::vector<specula::Token>{3, 14, 15}"
#define SPECULA_OTHER_TOKENS                                                        \
  "these tokens have another type: specula::Token is std::int32_t; copy them to a " \
  "std::vector<specula::Token>"

namespace specula::detail {

/// Integers in a row that are no Tokens, such as a vector of 64-bit ones.
template <class P>
concept OtherTokens = !std::convertible_to<const P&, Tokens> && requires(const P& p) {
  p.size();
  requires std::integral<std::remove_cvref_t<decltype(*p.data())>>;
};

/// Drafters with rows, alone and as a stack, to test what a shape accepts. Never called.
struct AnyDenseDrafter {
  std::int32_t vocab_size() const;
  std::int32_t capacity() const;
  void truncate(std::int32_t n);
  void sync(Tokens context, Tokens draft_tokens);
  LogitsView extend(Tokens tokens, Nodes parents);
};
template <std::size_t members>
struct AnyStack : AnyDenseDrafter {
  static constexpr std::size_t kMembers = members;
  Usage usage(std::size_t i) const noexcept;
  const void* cache_id(std::size_t i) const;
  std::int32_t room(std::int32_t context) const;
  template <std::size_t i>
  AnyDenseDrafter& get();
};

/// How many members a stack must have for the shape; 0 if no number does.
template <class S, std::size_t members = 1>
constexpr std::size_t members_for() {
  if constexpr (ProposalShape<S, AnyStack<members>>)
    return members;
  else if constexpr (members < 8)
    return members_for<S, members + 1>();
  else
    return 0;
}

/// Compiles if `S` can propose with `D`; otherwise a static_assert names what `S` requires.
template <class S, class D>
constexpr bool explain_shape() {
  if constexpr (Drafter<D> && !ProposalShape<S, D>) {
    constexpr bool takes_rows = ProposalShape<S, AnyDenseDrafter>;
    constexpr std::size_t members = takes_rows ? 0 : members_for<S>();
    if constexpr (takes_rows && !LogitsDrafter<D>)
      static_assert(LogitsDrafter<D>,
                    "this shape needs a drafter with rows (a LogitsDrafter, such as ModelDrafter); this one's "
                    "extend() returns PointMasses, as n-grams do");
    else if constexpr (members > 0 && !ReviewingStackOf<D, members>)
      static_assert(
          ReviewingStackOf<D, members>,
          "this shape needs a Stack of exactly as many drafters as its first template parameter says, "
          "and rows (a LogitsDrafter) of each one that reviews");
    else
      static_assert(
          ProposalShape<S, D>,
          "this is no ProposalShape for this drafter: a member of the shape is missing or has another "
          "type; it is named below, and specula/policy/concepts.hpp lists them all");
  }
  return true;
}

}  // namespace specula::detail
