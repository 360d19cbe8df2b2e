// Corrects the statistics of a round whose tokens were not all emitted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/proposal/token_tree.hpp"
#include "specula/stats.hpp"
#include "specula/verify_result.hpp"

namespace specula {

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
