// Cost of drafting: the draft's calls, and the catch-up over tokens that it has not processed yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "specula/base/running_mean.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/stats.hpp"

namespace specula {

/// The cost curve of a draft's calls and the cost of its catch-up: over what start() deferred to the first
/// call of a text, and over the tokens of rounds that did not call it. Seconds, or the unit of a given curve.
/// A caught-up token is assumed to cost at most a call over one node. With a given curve nothing is measured:
/// catching up n tokens costs a call over n nodes. Cost: O(1).
class DraftCosts {
 public:
  DraftCosts() = default;
  explicit DraftCosts(CostCurve calls) : calls_(std::move(calls)) {}  ///< A given curve of the calls.

  const CostCurve& calls() const { return calls_; }  ///< cost of one call by its number of nodes
  /// Reserves memory for calls of up to `nodes` nodes.
  void reserve(std::int32_t nodes) { calls_.reserve(nodes); }

  /// Starts a text.
  void start() {
    first_call_ = true;
    paused_ = 0;
  }
  /// Records a round of `tokens` tokens that did not call the draft.
  void pause(double tokens) { paused_ += tokens; }
  /// Cost of the catch-up before the draft can draft after `context` tokens.
  double catch_up(double context) const {
    if (calls_.given()) return paused_ > 0 ? calls_(static_cast<std::int32_t>(paused_)) : 0.0;
    const double call = calls_(1);
    return std::min(call, (kPrior * call + late_seconds_) / (kPrior + late_tokens_)) * paused_ +
           prompt(context);
  }

  /// Records the draft's usage in a round after `context` tokens. Returns its time beyond that of its calls,
  /// at most one call per token caught up: time above that is treated as noise.
  double learn(const Usage& draft, double context) {
    if (draft.calls < 1) return 0;
    const auto calls = static_cast<double>(draft.calls);
    const auto width = static_cast<std::int32_t>(draft.nodes / draft.calls);
    const double call = calls_(width), extra = std::max(0.0, draft.seconds - calls * call),
                 charged = calls_.given() ? catch_up(context)
                                          : std::min(extra, calls_(1) * paused_ + prompt(context));
    const bool sure = calls_.sure(width);
    if (sure && paused_ >= kShortPause * std::min(calls, 2.0)) {
      late_seconds_ = kMemory * late_seconds_ + std::clamp(extra - prompt(context), 0.0, calls_(1) * paused_);
      late_tokens_ = kMemory * late_tokens_ + paused_;
    } else if (first_call_) {
      prompt_.learn(std::max(0.0, draft.seconds - (calls - 1) * call) / std::max(1.0, context));
      // An upper bound: this call caught up as well.
      if (asked_ == 0 || !sure) calls_.learn(width, draft.seconds / calls);
    } else if (paused_ == 0 || !sure) {
      calls_.learn(width, draft.seconds / calls);
    }
    asked_ = std::min(asked_ + 1, 2);
    first_call_ = false;
    paused_ = 0;
    return charged;
  }

  /// True after the first round that called the draft: its first call includes the prompt, so the cost of a
  /// call is not known yet.
  bool learns_calls() const { return asked_ == 1 && !calls_.given(); }
  /// True while no catch-up was measured: the first pause should last at least kShortPause tokens and end
  /// with a single call.
  bool learns_pauses() const { return asked_ == 2 && late_tokens_ == 0 && !calls_.given(); }
  /// Whether the present pause is too short to be measured.
  bool paused_too_short() const { return learns_pauses() && paused_ > 0 && paused_ < kShortPause; }

 private:
  static constexpr double kShortPause = 4;  // tokens; the time of fewer is lost in that of the call
  static constexpr double kPrior = 0.1;     // weight of the prior, in tokens
  static constexpr double kMemory = 0.75;   // factor on earlier pauses at each pause

  double prompt(double context) const {
    if (!first_call_ || prompt_.weight < 1) return 0;
    const double call = calls_(1);
    return std::max(0.0, std::min(prompt_.value, call) * (context - paused_) - call);
  }

  CostCurve calls_;
  detail::RunningMean prompt_;  // seconds of a text's first call per token of its context
  double late_seconds_ = 0, late_tokens_ = 0, paused_ = 0;
  std::int32_t asked_ = 0;  // rounds that called the draft, at most 2
  bool first_call_ = true;  // the next call is the text's first
};

}  // namespace specula
