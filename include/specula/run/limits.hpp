// SPDX-License-Identifier: MIT
// Where a text ends: limits of a generation, its finish reason, and the sink that may end it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"

namespace specula {

namespace detail {
/// The type of fields that Limits has under another name: the compiler then says which.
struct MisnamedLimit {
  MisnamedLimit() = default;
  template <class T>
  MisnamedLimit(T&&) {  // NOLINT: implicit, as the right field's would be
    static_assert(sizeof(T) == 0,
                  "Limits: no field of this name: they are max_new_tokens, a number of tokens, and stop, a "
                  "span of tokens");
  }
};
}  // namespace detail

/// When generation ends, besides a full KV cache and a sink that cancels it.
struct Limits {
  std::int32_t max_new_tokens = 256;  ///< at least 0
  Tokens stop = {};                   ///< any of these is emitted, and nothing after it; drafts end there

  /// @cond
  // What other libraries call these fields.
  [[no_unique_address]] detail::MisnamedLimit max_tokens = {}, max_length = {}, n_predict = {},
                                              stop_tokens = {}, eos = {}, eos_token_id = {};
  /// @endcond
};

/// Throws std::invalid_argument naming the field, its value and the allowed range.
inline void validate(const Limits& limits, std::int32_t vocab_size) {
  detail::expect_in("Limits::max_new_tokens", limits.max_new_tokens, 0,
                    std::numeric_limits<std::int32_t>::max());
  for (std::size_t i = 0; i < limits.stop.size(); ++i)
    if (limits.stop[i] < 0 || limits.stop[i] >= vocab_size)
      detail::expect_in(("Limits::stop[" + detail::number(i) + ']').c_str(), limits.stop[i], 0,
                        vocab_size - 1);
}

/// Why generate() ended.
enum class FinishReason : std::uint8_t {
  limit,         ///< Limits::max_new_tokens
  stop_token,    ///< one of Limits::stop was emitted
  context_full,  ///< the target's KV cache is full
  cancelled      ///< the sink ended the text before the limit or a stop token; the KV cache may be full, too
};

/// What generate() returns.
struct Generated {
  std::int32_t tokens = 0;                    ///< emitted
  FinishReason reason = FinishReason::limit;  ///< why it ended

  /// Equal in both.
  friend bool operator==(const Generated&, const Generated&) = default;
};

/// Receives each round's tokens from generate(). If it returns a bool, false cancels the generation; so does
/// count_emitted(), by which it keeps only the first of these tokens.
template <class S>
concept TokenSink = requires(S& sink, Tokens fresh) {
  sink(fresh);
}
&&(std::is_void_v<std::invoke_result_t<S&, Tokens>> ||
   std::convertible_to<std::invoke_result_t<S&, Tokens>, bool>);

}  // namespace specula
