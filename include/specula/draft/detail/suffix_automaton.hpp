// SPDX-License-Identifier: MIT
// Suffix automaton of a growing text: the index of Max-Gram.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/draft/detail/pair_map.hpp"

namespace specula::detail {

/// Suffix automaton of a growing text (Blumer et al. 1985). A state is a class of strings with the same end
/// positions in the text; they are suffixes of each other, and the suffix link leads to the longest suffix
/// with more end positions. A repetitive text has chains of links as long as itself, so searches follow them
/// like a skip list (Pugh 1990).
class SuffixAutomaton {
 public:
  /// A string in the text: its state and its length in tokens. {} is the empty one, which occurs everywhere.
  struct Match {
    std::int32_t state = 0;
    std::int32_t length = 0;
  };

  SuffixAutomaton() { clear(); }

  Tokens text() const { return text_; }
  std::int32_t size() const { return static_cast<std::int32_t>(text_.size()); }

  /// Reserves memory for `tokens` tokens in all; beyond that the capacity doubles. At most 200 bytes per
  /// token. Throws std::length_error above 2^29.
  void reserve(std::int32_t tokens) {
    if (tokens > kMax)
      throw std::length_error("SuffixAutomaton: " + std::to_string(tokens) + " tokens, at most " +
                              std::to_string(kMax) + " fit");
    if (tokens <= room_) return;
    room_ = tokens;
    const auto n = static_cast<std::size_t>(tokens);
    text_.reserve(n);
    states_.reserve(2 * n + 1);  // a text of n tokens has at most 2 n - 1 states and 3 n - 4 edges
    edges_.reserve(3 * n);
  }

  /// Clears the text; keeps the reserved memory. O(capacity).
  void clear() {
    text_.clear();
    edges_.clear();
    states_.assign(1, State{.link = kNone});
    last_ = 0;
  }

  /// Appends `token` to the text. Amortised O(1).
  void append(Token token) {
    if (size() == room_) reserve(room_ < kMax / 2 ? std::max(64, 2 * room_) : std::max(kMax, room_ + 1));
    text_.push_back(token);
    const std::int32_t now = add_state({.length = size(), .after = size()});
    std::int32_t at = last_;
    const Edge* edge = nullptr;
    for (; at != kNone && !(edge = find(at, token)); at = state(at).link) add_edge(at, token, now);
    set_link(now, at == kNone ? 0 : split(at, token, edge->to));
    last_ = now;
  }

  /// The text itself.
  Match whole() const { return {last_, size()}; }
  /// The longest suffix of the text that also occurs earlier in it.
  Match repeated() const {
    const std::int32_t link = state(last_).link;
    return link == kNone ? Match{} : Match{link, state(link).length};
  }
  /// The longest suffix of (`match` followed by `token`) that occurs. One look-up if `token` continues
  /// `match`; else at worst about ten times the logarithm of the number of links between the two.
  Match advance(Match match, Token token) {
    if (const Edge* edge = find(match.state, token)) return {edge->to, match.length + 1};
    // A token that follows a string also follows its suffixes.
    const std::int32_t at =
        first_below(match.state, [&](std::int32_t id) { return find(id, token) != nullptr; });
    return at == kNone ? Match{} : Match{find(at, token)->to, state(at).length + 1};
  }
  /// The suffix of `match` of `length` tokens, or `match` if it is not longer. Requires length >= 1.
  Match shorten(Match match, std::int32_t length) {
    if (match.length <= length) return match;
    const auto is_it = [&](std::int32_t id) {
      ++steps_;
      return id == 0 || state(state(id).link).length < length;
    };
    return {is_it(match.state) ? match.state : first_below(match.state, is_it), length};
  }
  /// Position of the token after the earliest occurrence of `match`: size() if that occurrence ends the text.
  std::int32_t after(Match match) const { return state(match.state).after; }

  /// Number of look-ups so far, for tests of the cost.
  std::int64_t steps() const { return steps_; }

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kMax = 1 << 29;

  struct State {
    std::int32_t length = 0;  // of its longest string
    std::int32_t after = 0;   // end of the earliest occurrence
    std::int32_t link = 0;
    std::int32_t jump = 0;        // first state of higher level along the links, as of creation
    Token first_edge = kNoToken;  // list of its edges
  };
  struct Edge {
    std::int32_t to = 0;
    Token next = kNoToken;  // in the edge list of its source state
  };

  const State& state(std::int32_t id) const { return states_[static_cast<std::size_t>(id)]; }
  State& state(std::int32_t id) { return states_[static_cast<std::size_t>(id)]; }

  Edge* find(std::int32_t from, Token token) {
    ++steps_;
    return edges_.find(from, token);
  }
  std::int32_t add_state(const State& made) {
    states_.push_back(made);
    return static_cast<std::int32_t>(states_.size()) - 1;
  }
  void add_edge(std::int32_t from, Token token, std::int32_t to) {
    edges_.at(from, token) = {to, state(from).first_edge};
    state(from).first_edge = token;
  }
  /// Level in a skip list: half of the states have level 0, a quarter level 1, ...
  static int level(std::int32_t id) {
    const std::uint64_t hash = static_cast<std::uint64_t>(id) * std::uint64_t{0x9E3779B97F4A7C15};
    return std::countr_zero((hash ^ hash >> 32) * 0xD6E8FEB86659FD93ull >> 32);
  }
  void set_link(std::int32_t of, std::int32_t link) {
    std::int32_t jump = link;
    while (jump != 0 && level(jump) <= level(of)) jump = state(jump).jump;
    state(of).link = link;
    state(of).jump = jump;
  }
  /// The first state along the suffix links of `at` for which `holds` is true; kNone if there is none.
  /// Requires that holds() is false at `at`, and true after that state.
  template <class Holds>
  std::int32_t first_below(std::int32_t at, Holds holds) const {
    while (at != 0) {
      const std::int32_t jump = state(at).jump, link = state(at).link;
      if (!holds(jump))
        at = jump;
      else if (jump == link || holds(link))
        return link;
      else
        at = link;
    }
    return kNone;
  }

  /// The state of `from`'s longest string followed by `token`, which now has one end position more than the
  /// other strings of its old state `to`.
  std::int32_t split(std::int32_t from, Token token, std::int32_t to) {
    if (state(to).length == state(from).length + 1) return to;
    const std::int32_t clone = add_state({.length = state(from).length + 1, .after = state(to).after});
    for (Token t = state(to).first_edge; t != kNoToken;) {
      const Edge edge = *find(to, t);
      add_edge(clone, t, edge.to);
      t = edge.next;
    }
    set_link(clone, state(to).link);
    set_link(to, clone);  // jumps of longer states may skip the clone: this costs steps, not correctness
    for (std::int32_t at = from; at != kNone; at = state(at).link) {
      Edge* edge = find(at, token);
      if (edge->to != to) break;
      edge->to = clone;
    }
    return clone;
  }

  std::vector<Token> text_;
  std::vector<State> states_;  // state 0: the empty string
  PairMap<Edge> edges_;        // by state and token
  std::int32_t last_ = 0, room_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace specula::detail
