// SPDX-License-Identifier: MIT
// What draft calls cost: a curve by nodes, and the catch-up with tokens that the draft has missed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "specula/base/stats.hpp"
#include "specula/cost/cost_curve.hpp"

namespace specula {

/// What the costs of a text's draft depend on besides its proposal.
struct DraftState {
  double missed = 0;       ///< tokens since the draft's last call
  double context = 0;      ///< tokens of the text
  bool first_call = true;  ///< whether the next call is the text's first, which reads the prompt

  /// After a round of `tokens` tokens, with this many draft calls.
  void add_round(double tokens, std::int64_t calls) {
    missed = calls > 0 ? 0.0 : missed + tokens;
    first_call = first_call && calls == 0;
  }
};

/// Learns D(n), what a draft call over n nodes costs, and what each token costs that the draft reads late:
/// those since its last call, and the prompt. Until a call is measured, it is taken to cost `assumed`, so
/// that a bound is known before anything is; a text without a draft model makes no calls and costs what its
/// copies do. What a call seems to take beyond what it can is an interruption (CostCurve::believe()). Cost:
/// O(nodes reserved) per learned call, no allocation.
class DraftCosts {
 public:
  /// A default-constructed curve is learned.
  explicit DraftCosts(CostCurve calls = {}) : calls_(std::move(calls)) {}

  /// Allocates for calls over `nodes`; of many texts, whose calls have too many sizes to learn each.
  void reserve(std::int32_t nodes, bool many) {
    calls_.reserve(nodes);
    if (many) calls_.make_straight();
  }
  const CostCurve& calls() const { return calls_; }  ///< D(n)
  /// What a call is taken to cost before one is measured.
  void assume(double cost) { calls_.assume(cost); }

  /// What the draft's catch-up costs: a call per token at most. While none was measured, one that is guessed
  /// to take at most `dared` plain passes counts as one of a few tokens.
  double catch_up(const DraftState& text, double dared) const {
    if (calls_.given()) return text.missed > 0 ? calls_(static_cast<std::int32_t>(text.missed)) : 0.0;
    const double call = calls_(1), prompt = prompt_.cost >= 0 ? prompt_.cost : std::max(0.0, late_.cost);
    const double token = late_.cost >= 0 ? std::min(call, late_.cost) : kGuess * call;
    // A pause would soon be too expensive to learn from, so a few tokens stand for all until one is measured.
    const bool dares = late_.cost < 0 && text.missed * token <= dared * most_;
    return (dares ? std::min(text.missed, kFewTokens) : text.missed) * token +
           (text.first_call ? prompt * text.context : 0.0);
  }

  /// Learns from a pass of many texts' drafts over `width` nodes and `late` tokens that they had missed;
  /// returns what it is believed to have cost. `most` is that of a call before its size is known: a plain
  /// pass of the target.
  double learn_pass(std::int32_t width, double late, double cost, double most, double slack) {
    if (calls_.given()) return calls_(static_cast<std::int32_t>(width + late));
    return learn(width, 1, late, late_, cost, most, slack);
  }
  /// The same of a round of one text.
  double learn_round(const Usage& usage, const DraftState& text, double cost, double most, double slack) {
    if (usage.calls < 1) return 0;
    const auto width = static_cast<std::int32_t>(usage.nodes / usage.calls);
    const auto calls = static_cast<double>(usage.calls);
    if (calls_.given())
      return calls * calls_(width) + (text.missed > 0 ? calls_(static_cast<std::int32_t>(text.missed)) : 0.0);
    if (text.first_call) return learn(width, calls, std::max(1.0, text.context), prompt_, cost, most, slack);
    return learn(width, calls, text.missed, late_, cost, most, slack);
  }

 private:
  static constexpr double kGuess = 0.25;   // what a late token is taken to cost, in calls
  static constexpr double kFewTokens = 4;  // see above
  static constexpr double kToken = 1.25;   // what a late token may cost, in calls

  /// What a late token costs, learned from passes in which some ran.
  struct Late {
    double cost = -1;      // -1: not known
    bool doubted = false;  // the last such pass took far more than was expected
  };

  double learn(std::int32_t width, double calls, double late, Late& token, double cost, double most,
               double slack) {
    most_ = most;
    if (!(late > 0)) return calls * calls_.believe(width, cost / calls, most, slack);
    const double call = calls * calls_(width), known = token.cost;
    if (!calls_.knows(width) && calls_.largest() <= width && cost < call) {
      calls_.learn(width, cost / calls);  // an upper bound, and lower than what was assumed
      token.cost = known < 0 ? 0.0 : 0.5 * known;
      return cost;
    }
    // What the first of all calls takes beyond a plain pass tells nothing: an engine plans, pages are read.
    if (!std::exchange(begun_, true) && cost > std::max(most, call) + slack) return call;
    // Nor does, once, what a later one takes beyond what is known: of many tokens it would be many passes.
    const double expected = call + late * known;
    const bool odd = known >= 0 && CostCurve::differ(cost, expected) && cost > expected + slack;
    if (odd && !std::exchange(token.doubted, true)) return std::min(cost, std::max(most, expected));
    token.doubted = odd;
    const double seen = std::clamp((cost - call) / late, 0.0, kToken * calls_(1));
    token.cost = known < 0 ? seen : 0.5 * (known + seen);
    return std::min(cost, std::max(most, call + late * (odd ? token.cost : seen)));
  }

  CostCurve calls_;
  Late late_, prompt_;  // tokens since the last call; a prompt's
  double most_ = 0;     // a plain pass of the target
  bool begun_ = false;  // a call that caught up was measured
};

}  // namespace specula
