// SPDX-License-Identifier: MIT
// Stack of drafters, best first, for cascade speculative drafting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "specula/base/stats.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"

namespace specula {

///   specula::Stack drafters{specula::ModelDrafter{base}, specula::ModelDrafter{small},
///                           specula::MaxGram{vocab}};
///
/// Drafters from the best to the cheapest, resolved at compile time: head() is the first, tail() the stack of
/// the others. Cascades call the members one by one; a shape for a single drafter uses the head. sync() and
/// truncate() go to all members. Members must not share a model, since a model holds one text. A member whose
/// capacity the text has reached is left out, and the others go on.
/// **Draws.** Nothing. **Cost.** That of the members called.
/// **Throws.** Constructor: std::invalid_argument if the members' vocabularies differ, or two use the same
/// model. What a member throws.
/// **Source.** Cascade Speculative Drafting (Chen et al. 2024).
template <class Head, class... Tail>
class Stack {
  static_assert(
      Drafter<Head>,
      "Stack: one of its members is no Drafter: a member function is missing or has another type; it is "
      "named below, and specula/policy/concepts.hpp lists them all");
  static_assert(detail::check_drafter_members<Head>());
  static_assert(!HasMembers<Head>, "Stack: one of its members is a Stack; name that one's members instead");

 public:
  static constexpr std::size_t kMembers = 1 + sizeof...(Tail);  ///< number of drafters

  /// Throws std::invalid_argument if the members' vocabularies differ, or two members use the same model.
  explicit Stack(Head head, Tail... tail) : head_(std::move(head)), tail_(std::move(tail)...) {
    if (head_.vocab_size() != tail_.vocab_size())
      throw std::invalid_argument("Stack: a drafter's vocabulary has " + std::to_string(head_.vocab_size()) +
                                  " tokens, that of the next one " + std::to_string(tail_.vocab_size()));
    if constexpr (NamesItsCache<Head>)
      if (detail::works_in(tail_, head_.cache_id()))
        throw std::invalid_argument("Stack: two drafters have the same model, which holds one text");
  }

  Head& head() { return head_; }            ///< the first drafter, the best
  Stack<Tail...>& tail() { return tail_; }  ///< the others
  /// The i-th member, from 0.
  template <std::size_t i>
  auto& get() {
    if constexpr (i == 0)
      return head_;
    else
      return tail_.template get<i - 1>();
  }

  std::int32_t vocab_size() const { return head_.vocab_size(); }  ///< size of the vocabulary, of every member
  /// Tokens and nodes that the first drafter can hold, for a shape that uses it alone.
  std::int32_t capacity() const { return head_.capacity(); }
  /// Nodes that a proposal after `context` tokens may have: as many as fit in each of the members that have
  /// room for a draft token; at most 1 if none has.
  std::int32_t room(std::int32_t context) const {
    const std::int32_t first = head_.capacity() - context, others = tail_.room(context);
    return first > 1 && others > 1 ? std::min(first, others) : std::max(first, others);
  }
  /// The cache of the i-th member; null for one that names none. See NamesItsCache. Requires i < kMembers.
  const void* cache_id(std::size_t i) const {
    if (i > 0) return tail_.cache_id(i - 1);
    if constexpr (NamesItsCache<Head>) return head_.cache_id();
    return nullptr;
  }
  /// Begins a text that shares `n` tokens with the last one, in every member.
  void truncate(std::int32_t n) {
    head_.truncate(n);
    tail_.truncate(n);
  }
  /// Brings every member that has room for it to the text `context` followed by `draft_tokens`; see Drafter.
  void sync(Tokens context, Tokens draft_tokens) {
    if (context.size() + draft_tokens.size() < static_cast<std::size_t>(head_.capacity()))
      head_.sync(context, draft_tokens);
    tail_.sync(context, draft_tokens);
  }
  /// Of the first drafter; see Drafter.
  auto extend(Tokens tokens, Nodes parents) { return head_.extend(tokens, parents); }
  /// extend() in halves, if the first drafter's has them; see MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) requires MergesPasses<Head> {
    return head_.begin_pass(tokens, parents);
  }
  /// The second half.
  LogitsView end_pass(const LogitsView& rows) requires MergesPasses<Head> { return head_.end_pass(rows); }

  /// Reserves memory in the members that keep a copy of the text.
  void reserve(const Sizes& sizes) {
    if constexpr (Reserves<Head>) head_.reserve(sizes);
    tail_.reserve(sizes);
  }
  /// Usage of the i-th member; empty for a member without usage(). Requires i < kMembers.
  Usage usage(std::size_t i) const noexcept {
    if (i > 0) return tail_.usage(i - 1);
    if constexpr (ReportsUsage<Head>) return head_.usage();
    return {};
  }
  /// Usage of all members together.
  Usage usage() const noexcept {
    Usage sum = usage(0);
    return sum += tail_.usage();
  }

 private:
  Head head_;
  Stack<Tail...> tail_;
};

/// A stack of one drafter.
template <class Head>
class Stack<Head> {
  static_assert(
      Drafter<Head>,
      "Stack: one of its members is no Drafter: a member function is missing or has another type; it is "
      "named below, and specula/policy/concepts.hpp lists them all");
  static_assert(detail::check_drafter_members<Head>());
  static_assert(!HasMembers<Head>, "Stack: one of its members is a Stack; name that one's members instead");

 public:
  static constexpr std::size_t kMembers = 1;  ///< number of drafters

  explicit Stack(Head head) : head_(std::move(head)) {}  ///< A stack of `head` alone.

  Head& head() { return head_; }  ///< the first drafter, the best
  /// The first drafter: `i` must be 0.
  template <std::size_t i>
  Head& get() {
    static_assert(i == 0, "the stack has fewer drafters");
    return head_;
  }

  std::int32_t vocab_size() const { return head_.vocab_size(); }  ///< size of the vocabulary, of every member
  /// Tokens and nodes that the drafter can hold.
  std::int32_t capacity() const { return head_.capacity(); }
  /// Nodes that a proposal after `context` tokens may have.
  std::int32_t room(std::int32_t context) const { return head_.capacity() - context; }
  /// The cache of the drafter; null if it names none. See NamesItsCache.
  const void* cache_id(std::size_t) const {
    if constexpr (NamesItsCache<Head>) return head_.cache_id();
    return nullptr;
  }
  /// Begins a text that shares `n` tokens with the last one, in every member.
  void truncate(std::int32_t n) { head_.truncate(n); }
  /// Brings the drafter to the text `context` followed by `draft_tokens` if it has room; see Drafter.
  void sync(Tokens context, Tokens draft_tokens) {
    if (context.size() + draft_tokens.size() < static_cast<std::size_t>(head_.capacity()))
      head_.sync(context, draft_tokens);
  }
  /// Of the first drafter; see Drafter.
  auto extend(Tokens tokens, Nodes parents) { return head_.extend(tokens, parents); }
  /// extend() in halves, if the first drafter's has them; see MergesPasses.
  PassRequest begin_pass(Tokens tokens, Nodes parents) requires MergesPasses<Head> {
    return head_.begin_pass(tokens, parents);
  }
  /// The second half.
  LogitsView end_pass(const LogitsView& rows) requires MergesPasses<Head> { return head_.end_pass(rows); }
  /// Reserves memory in the drafter if it keeps a copy of the text.
  void reserve(const Sizes& sizes) {
    if constexpr (Reserves<Head>) head_.reserve(sizes);
  }
  /// Usage of the drafter; empty if it has no usage().
  Usage usage(std::size_t = 0) const noexcept {
    if constexpr (ReportsUsage<Head>) return head_.usage();
    return {};
  }

 private:
  Head head_;
};

/// A stack of these drafters.
template <class... D>
Stack(D...) -> Stack<D...>;

namespace detail {

/// Drafters that a cascade of `members` can use.
template <class D, std::size_t members>
concept StackOf = Drafter<D> && HasMembers<D> && D::kMembers == members;

/// The same if all members but the last return rows, which a review requires.
template <class D, std::size_t members, std::size_t i = 0>
constexpr bool reviews_below() {
  if constexpr (i + 1 >= members)
    return true;
  else
    return LogitsDrafter<std::remove_reference_t<decltype(std::declval<D&>().template get<i>())>> &&
           reviews_below<D, members, i + 1>();
}
template <class D, std::size_t members>
concept ReviewingStackOf = StackOf<D, members> && reviews_below<D, members>();

}  // namespace detail

}  // namespace specula
