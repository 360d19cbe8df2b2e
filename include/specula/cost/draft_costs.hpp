// What asking a draft costs: its calls, and the tokens that it has to read first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "specula/base/running_mean.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/stats.hpp"

namespace specula {

/// The curve of a draft's calls, and what it takes to catch up: with what start() of a text left to its first
/// call, and with the tokens of rounds that did not ask it. Seconds, or the unit of a given curve. A token
/// that is read late is taken to cost no more than a call over one node. With a given curve nothing is
/// measured: reading n tokens costs what a call over n nodes does. Cost: O(1).
class DraftCosts {
 public:
  DraftCosts() = default;
  explicit DraftCosts(CostCurve calls) : calls_(std::move(calls)) {}

  const CostCurve& calls() const { return calls_; }
  void reserve(std::int32_t nodes) { calls_.reserve(nodes); }

  /// A text begins.
  void start() {
    first_call_ = true;
    paused_ = 0;
  }
  /// A round did not ask, and added so many tokens.
  void pause(double tokens) { paused_ += tokens; }
  /// What the draft has to read before it can draft behind `context` tokens.
  double catch_up(double context) const {
    if (calls_.given()) return paused_ > 0 ? calls_(static_cast<std::int32_t>(paused_)) : 0.0;
    const double call = calls_(1);
    return std::min(call, (kPrior * call + late_seconds_) / (kPrior + late_tokens_)) * paused_ +
           prompt(context);
  }

  /// The draft was asked behind `context` tokens. Returns what it took beyond its calls, at most a call for
  /// each token: what is above that was chance.
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
      // No call takes longer than one that read something as well.
      if (asked_ == 0 || !sure) calls_.learn(width, draft.seconds / calls);
    } else if (paused_ == 0 || !sure) {
      calls_.learn(width, draft.seconds / calls);
    }
    asked_ = std::min(asked_ + 1, 2);
    first_call_ = false;
    paused_ = 0;
    return charged;
  }

  /// The draft was asked once: that does not tell what its calls cost, since the first one also reads.
  bool learns_calls() const { return asked_ == 1 && !calls_.given(); }
  /// Nothing is known of pauses: the first one is to last at least kShortPause tokens and to end with a
  /// single call.
  bool learns_pauses() const { return asked_ == 2 && late_tokens_ == 0 && !calls_.given(); }
  bool paused_too_short() const { return learns_pauses() && paused_ > 0 && paused_ < kShortPause; }

 private:
  static constexpr double kShortPause = 4;  // tokens: what fewer take cannot be told from the call's own time
  static constexpr double kPrior = 0.1;     // tokens that count before the first pause
  static constexpr double kMemory = 0.75;   // of earlier pauses, at each

  double prompt(double context) const {
    if (!first_call_ || prompt_.weight < 1) return 0;
    const double call = calls_(1);
    return std::max(0.0, std::min(prompt_.value, call) * (context - paused_) - call);
  }

  CostCurve calls_;
  detail::RunningMean prompt_;  // seconds of a text's first call per token of its context
  double late_seconds_ = 0, late_tokens_ = 0, paused_ = 0;
  std::int32_t asked_ = 0;  // rounds, up to two
  bool first_call_ = true;  // of the text
};

}  // namespace specula
