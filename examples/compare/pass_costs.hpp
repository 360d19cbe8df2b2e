// T(n) of a model: what a pass over n nodes costs.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <specula/concepts.hpp>

namespace specula_examples {

/// Seconds of a pass over 1, 2, ..., `nodes` nodes of a chain behind `prompt`, which is not empty: the least
/// of a few medians of passes over as many nodes, one after the other, as they come in rounds. Leaves the
/// model empty.
template <specula::LanguageModel M>
std::vector<double> pass_seconds(M& model, specula::Tokens prompt, std::int32_t nodes) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kWarmUp = 2, kPasses = 7, kVisits = 3;
  std::vector<specula::Token> tokens(static_cast<std::size_t>(nodes), prompt.back());
  std::vector<specula::NodeId> parents;
  for (specula::NodeId n = 0; n < nodes; ++n) parents.push_back(n - 1);
  const specula::NodeId root = 0;
  model.truncate(0);
  model.append(prompt.first(prompt.size() - 1));
  model.extend(prompt.last(1), specula::Nodes(parents).first(1));
  model.commit({&root, 1});  // an append may be lazy: what it left would be part of every pass
  const std::int32_t size = model.size();
  std::vector<double> least(tokens.size(), std::numeric_limits<double>::infinity());
  std::array<double, kPasses> seconds;
  for (std::size_t visit = 0; visit < kVisits; ++visit)  // far apart: another program may be busy for a while
    for (std::size_t n = 1; n <= tokens.size(); ++n) {
      for (std::size_t pass = 0; pass < kWarmUp + kPasses; ++pass) {
        model.truncate(size);
        const auto begin = Clock::now();
        model.extend(specula::Tokens(tokens).first(n), specula::Nodes(parents).first(n));
        const std::chrono::duration<double> spent = Clock::now() - begin;
        if (pass >= kWarmUp) seconds[pass - kWarmUp] = spent.count();
      }
      std::nth_element(seconds.begin(), seconds.begin() + kPasses / 2, seconds.end());
      least[n - 1] = std::min(least[n - 1], seconds[kPasses / 2]);
    }
  model.truncate(0);
  return least;
}

}  // namespace specula_examples
