// SPDX-License-Identifier: MIT
// Run statistics: counts and times per round, mean acceptance length, acceptance rate.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "specula/base/rows.hpp"

namespace specula {

/// Calls of a model and the time spent in them.
struct Usage {
  std::int64_t calls = 0;  ///< forward passes that returned rows
  std::int64_t nodes = 0;  ///< nodes in those passes
  /// Inside the model, catch-up and commits included: by its own clock (TimesItself), else wall time.
  double seconds = 0;
  double layers = 0;          ///< computed for those nodes, summed; 0: not counted
  double waited_seconds = 0;  ///< what the calls took beyond `seconds`, of a model that TimesItself

  /// Adds another model's or period's usage.
  Usage& operator+=(const Usage& other) {
    calls += other.calls;
    nodes += other.nodes;
    seconds += other.seconds;
    layers += other.layers;
    waited_seconds += other.waited_seconds;
    return *this;
  }
  /// Subtracts an earlier copy.
  Usage& operator-=(const Usage& other) {
    calls -= other.calls;
    nodes -= other.nodes;
    seconds -= other.seconds;
    layers -= other.layers;
    waited_seconds -= other.waited_seconds;
    return *this;
  }
  friend Usage operator+(Usage a, const Usage& b) { return a += b; }  ///< the usage of both
  friend Usage operator-(Usage a, const Usage& b) { return a -= b; }  ///< the usage since `b`
};

/// Counts of one reviewer in a cascade, for its acceptance rates.
struct Reviews {
  static constexpr std::size_t kDepths = 32;  ///< depths that are told apart

  std::int64_t calls = 0;  ///< passes that reviewed
  /// Draft tokens reviewed after d accepted ones; the last entry: after at least kDepths - 1.
  std::array<std::int64_t, kDepths> offered{};
  std::array<std::int64_t, kDepths> accepted{};  ///< the accepted ones of them

  /// Counts a draft token reviewed after `depth` accepted ones.
  void saw(std::int32_t depth, bool was_accepted) {
    const std::size_t d = std::min(static_cast<std::size_t>(depth), kDepths - 1);
    ++offered[d];
    accepted[d] += was_accepted ? 1 : 0;
  }
};

/// Usage of the models in one round, for a shape's learn().
struct Timing {
  Usage target,  ///< of the target
      draft;     ///< of all drafters
};

/// Statistics summed over rounds. The sum of two pools them; the difference from an earlier copy has the
/// figures since then.
struct Stats {
  std::int64_t rounds = 0;            ///< calls of step()
  std::int64_t new_tokens = 0;        ///< emitted: accepted draft tokens and next tokens, without those that
                                      ///< count_emitted() removed
  std::int64_t proposed = 0;          ///< draft tokens that the target ran, those after the end included
  std::int64_t failed_drafts = 0;     ///< texts of which a failing draft ended drafting
  std::int64_t untimed_rounds = 0;    ///< whose target's pass took no time by its clock; see BatchBudget
  std::vector<std::int64_t> offered;  ///< (depth d) rounds whose path could reach depth d + 1 within the text
  std::vector<std::int64_t> accepted;  ///< (depth d) rounds whose path reached it
  Usage target,                        ///< in rounds, without prefill
      draft;                           ///< of all drafters, likewise
  std::vector<Usage> drafters;         ///< (members) `draft` per drafter of a stack
  double prefill_seconds = 0;          ///< start(): target and drafters
  double round_seconds = 0;            ///< step(): everything

  /// MAT, tau, mean acceptance length: emitted tokens per round, next token included, pooled over all rounds.
  double mean_acceptance_length() const {
    return rounds ? static_cast<double>(new_tokens) / static_cast<double>(rounds) : 0.0;
  }
  /// Short for mean_acceptance_length().
  double mat() const { return mean_acceptance_length(); }
  /// Acceptance rate at `depth` (1-based): accepted draft tokens over those under an accepted path.
  double acceptance(std::int32_t depth) const {
    const auto d = static_cast<std::size_t>(depth - 1);
    return d < offered.size() && offered[d]
               ? static_cast<double>(accepted[d]) / static_cast<double>(offered[d])
               : 0.0;
  }
  /// The rounds' time spent outside the models: the library's overhead.
  double overhead_seconds() const {
    return round_seconds - target.seconds - target.waited_seconds - draft.seconds - draft.waited_seconds;
  }
  /// The same as a share of the rounds' time.
  double overhead_share() const { return round_seconds > 0 ? overhead_seconds() / round_seconds : 0.0; }
  /// Emitted tokens per second of step(), without prefill.
  double tokens_per_second() const {
    return round_seconds > 0 ? static_cast<double>(new_tokens) / round_seconds : 0.0;
  }

  /// Pools the rounds of both.
  Stats& operator+=(const Stats& other) {
    return combine(other, [](auto& sum, const auto& value) { sum += value; });
  }
  /// Subtracts an earlier copy.
  Stats& operator-=(const Stats& other) {
    return combine(other, [](auto& sum, const auto& value) { sum -= value; });
  }
  /// Sets everything to zero; the vectors keep their sizes.
  void clear() {
    combine(*this, [](auto& sum, const auto&) { sum = {}; });
  }
  /// The rounds of both.
  friend Stats operator+(Stats one, const Stats& other) { return one += other; }
  /// The rounds since `before`.
  friend Stats operator-(Stats after, const Stats& before) { return after -= before; }

 private:
  template <class F>
  Stats& combine(const Stats& other, F f) {
    const auto all = [&](auto& sums, const auto& values) {
      sums.resize(std::max(sums.size(), values.size()));
      for (std::size_t i = 0; i < values.size(); ++i) f(sums[i], values[i]);
    };
    f(rounds, other.rounds);
    f(new_tokens, other.new_tokens);
    f(proposed, other.proposed);
    f(failed_drafts, other.failed_drafts);
    f(untimed_rounds, other.untimed_rounds);
    all(offered, other.offered);
    all(accepted, other.accepted);
    f(target, other.target);
    f(draft, other.draft);
    all(drafters, other.drafters);
    f(prefill_seconds, other.prefill_seconds);
    f(round_seconds, other.round_seconds);
    return *this;
  }
};

}  // namespace specula
