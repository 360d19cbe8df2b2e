// When generation ends, and why it ended.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../rows.hpp"

namespace specula {

/// When generation ends, besides a full cache and a sink that cancels it.
struct Limits {
  std::int32_t max_new_tokens = 256;
  Tokens stop = {};  // any of these is emitted, and nothing after it
};

/// Throws std::invalid_argument naming the field, its value and the allowed range.
inline void validate(const Limits& limits, std::int32_t vocab_size) {
  if (limits.max_new_tokens < 0)
    throw std::invalid_argument("Limits::max_new_tokens is " + std::to_string(limits.max_new_tokens) +
                                ", must not be negative");
  for (std::size_t i = 0; i < limits.stop.size(); ++i)
    if (limits.stop[i] < 0 || limits.stop[i] >= vocab_size)
      throw std::invalid_argument("Limits::stop[" + std::to_string(i) + "] is " +
                                  std::to_string(limits.stop[i]) + ", must be a token from 0 to " +
                                  std::to_string(vocab_size - 1));
}

enum class FinishReason : std::uint8_t {
  limit,         // Limits::max_new_tokens
  stop_token,    // one of Limits::stop was emitted
  context_full,  // the target's cache
  cancelled      // the sink returned false before the limit or a stop token; the cache may be full, too
};

struct Generated {
  std::int32_t tokens = 0;  // emitted
  FinishReason reason = FinishReason::limit;

  friend bool operator==(const Generated&, const Generated&) = default;
};

/// What generate() hands each round's tokens to. One that returns a bool cancels the generation by false.
template <class S>
concept TokenSink = requires(S& sink, Tokens fresh) {
  sink(fresh);
}
&&(std::is_void_v<std::invoke_result_t<S&, Tokens>> ||
   std::convertible_to<std::invoke_result_t<S&, Tokens>, bool>);

}  // namespace specula
