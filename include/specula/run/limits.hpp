// Where a text ends: limits of a generation, its finish reason, and the statistics of a round that went beyond.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

/// When generation ends, besides a full KV cache and a sink that cancels it.
struct Limits {
  std::int32_t max_new_tokens = 256;  ///< at least 0
  Tokens stop = {};                   ///< any of these is emitted, and nothing after it; drafts end there
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
  cancelled      ///< the sink returned false before the limit or a stop token; the KV cache may be full, too
};

/// What generate() returns.
struct Generated {
  std::int32_t tokens = 0;                    ///< emitted
  FinishReason reason = FinishReason::limit;  ///< why it ended

  /// Equal in both.
  friend bool operator==(const Generated&, const Generated&) = default;
};

/// Receives each round's tokens from generate(). If it returns a bool, false cancels the generation.
template <class S>
concept TokenSink = requires(S& sink, Tokens fresh) {
  sink(fresh);
}
&&(std::is_void_v<std::invoke_result_t<S&, Tokens>> ||
   std::convertible_to<std::invoke_result_t<S&, Tokens>, bool>);

/// Of the `counted` tokens of a round (accepted ones and the next token, if none was removed before) only the
/// first `emitted` were emitted, since the text ends there. Removes the others from `stats`: they are not new
/// tokens, and a draft token behind the end is neither offered nor accepted, so a draft that is always right
/// keeps an acceptance rate of 1. `stats.proposed`, what the target ran, is unchanged. Throws
/// std::invalid_argument, and changes nothing, unless 0 <= emitted <= counted <= accepted + 1, or if `stats`
/// lacks the depths that this round reached.
inline void count_emitted(Stats& stats, const TokenTree& proposal, const VerifyResult& result,
                          std::int32_t emitted, std::int32_t counted) {
  const std::int32_t accepted = result.accepted_count();
  if (emitted < 0 || emitted > counted || counted > accepted + 1)
    throw std::invalid_argument("count_emitted: " + std::to_string(emitted) + " of " +
                                std::to_string(counted) + " tokens, must be 0 to " +
                                std::to_string(std::min(counted, accepted + 1)));
  if (emitted == counted) return;
  const bool goes_on = proposal.first_child(result.accepted.back()) != kNoParent;
  const auto offered = [&](std::int32_t tokens) { return std::min(tokens, accepted + (goes_on ? 1 : 0)); };
  const std::size_t depths = std::min(stats.offered.size(), stats.accepted.size());
  if (depths < static_cast<std::size_t>(offered(counted)))
    throw std::invalid_argument("count_emitted: the statistics have " + std::to_string(depths) +
                                " depths, the round offered " + std::to_string(offered(counted)));
  for (std::int32_t d = offered(emitted); d < offered(counted); ++d)
    --stats.offered[static_cast<std::size_t>(d)];
  for (std::int32_t d = emitted; d < std::min(counted, accepted); ++d)
    --stats.accepted[static_cast<std::size_t>(d)];
  stats.new_tokens -= counted - emitted;
}
/// The same for a round of which all tokens are counted.
inline void count_emitted(Stats& stats, const TokenTree& proposal, const VerifyResult& result,
                          std::int32_t emitted) {
  count_emitted(stats, proposal, result, emitted, result.accepted_count() + 1);
}

}  // namespace specula
