// SPDX-License-Identifier: MIT
// Logit processors for Processed, as values: penalties, biases, banned tokens, a minimum length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"

namespace specula {

/// Makes tokens that the text already has less likely: of each distinct one the logit is, in this order,
/// divided by `repetition` if it is above 0, else multiplied by it (Keskar et al. 2019, CTRL, 4.1), and
/// lowered by `presence` and by `frequency` times its occurrences. libllama's sampler of penalties, with as
/// many tokens in its window as `last`, gives the same logits.
///
/// Of the completion interfaces of servers, presence and frequency penalties count generated tokens only:
/// that is `from`, the prompt's length.
struct Penalties {
  float repetition = 1;   ///< in (0, 1e6]; 1: off
  float presence = 0;     ///< in [-1e6, 1e6]
  float frequency = 0;    ///< in [-1e6, 1e6]
  std::int32_t last = 0;  ///< only the last so many tokens count; 0: all
  std::int32_t from = 0;  ///< only tokens from this index of the text on count

  /// Throws std::invalid_argument for a field out of range.
  void validate() const {
    detail::expect_in("Penalties::repetition", repetition, std::numeric_limits<float>::min(), 1e6f);
    detail::expect_in("Penalties::presence", presence, -1e6f, 1e6f);
    detail::expect_in("Penalties::frequency", frequency, -1e6f, 1e6f);
    constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
    detail::expect_in("Penalties::last", last, 0, kMost);
    detail::expect_in("Penalties::from", from, 0, kMost);
  }
  /// Whether it changes no row.
  bool off() const { return repetition == 1 && presence == 0 && frequency == 0; }
  /// Throws as validate(). Cost: sorts the n tokens that count.
  void operator()(Tokens path, std::span<float> row) const {
    validate();
    if (off()) return;
    path = path.subspan(std::min(path.size(), static_cast<std::size_t>(from)));
    if (last > 0) path = path.last(std::min(path.size(), static_cast<std::size_t>(last)));
    thread_local std::vector<Token> sorted;  // keeps its memory
    if (sorted.capacity() < path.size()) sorted.reserve(2 * path.size());
    sorted.assign(path.begin(), path.end());
    std::ranges::sort(sorted);
    for (auto begin = sorted.begin(); begin != sorted.end();) {
      const auto end = std::upper_bound(begin, sorted.end(), *begin);
      float& logit = row[static_cast<std::size_t>(*begin)];
      logit = logit > 0 ? logit / repetition : logit * repetition;
      logit -= static_cast<float>(end - begin) * frequency + presence;
      begin = end;
    }
  }
};

/// A token and what is added to its logit.
struct TokenBias {
  Token token = kNoToken;  ///< in the vocabulary
  float bias = 0;          ///< below infinity; -infinity bans the token
};

/// Adds to the logits of some tokens. A token that is named twice gets both.
struct Bias {
  std::vector<TokenBias> tokens;  ///< few: each row reads all

  /// Throws std::invalid_argument for a token outside the row's vocabulary, and for NaN or infinity.
  void operator()(Tokens, std::span<float> row) const {
    for (const auto& [token, bias] : tokens) {
      detail::expect_in("Bias: token", token, 0, static_cast<std::int32_t>(row.size()) - 1);
      if (!(bias < std::numeric_limits<float>::infinity()))
        throw std::invalid_argument("Bias: of token " + detail::number(token) + " it is " +
                                    detail::number(bias) + ", must be a number or -infinity");
      row[static_cast<std::size_t>(token)] += bias;
    }
  }
};

/// Excludes tokens.
struct Banned {
  std::vector<Token> tokens;  ///< few: each row reads all

  /// Throws std::invalid_argument for a token outside the row's vocabulary.
  void operator()(Tokens, std::span<float> row) const {
    for (const Token token : tokens) {
      detail::expect_in("Banned: token", token, 0, static_cast<std::int32_t>(row.size()) - 1);
      row[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
  }
};

/// Excludes the tokens that end a text until it is long enough.
struct MinimumLength {
  std::int32_t tokens = 0;  ///< the text's, prompt included, before which none of `ends` may come
  Banned ends;              ///< stop tokens

  /// Throws std::invalid_argument as Banned.
  void operator()(Tokens path, std::span<float> row) const {
    if (path.size() < static_cast<std::size_t>(std::max(tokens, 0))) ends(path, row);
  }
};

/// Processors one after the other: `InTurn{Penalties{.repetition = 1.1f}, Banned{{7}}}`.
template <class... Process>
struct InTurn {
  std::tuple<Process...> processors;  ///< the first one changes the model's row

  explicit InTurn(Process... of) : processors(std::move(of)...) {}  ///< In this order.
  /// Throws what they throw.
  void operator()(Tokens path, std::span<float> row) {
    std::apply([&](auto&... each) { (each(path, row), ...); }, processors);
  }
};

}  // namespace specula
