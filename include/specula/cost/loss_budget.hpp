// Loss budget for exploration: bounds the time that drafting may lose against plain decoding.
#pragma once

#include <algorithm>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Balance of gains and losses of drafting against plain decoding, in passes of the target over one node:
/// plain decoding takes one pass per token. Each token adds kShare of a pass; a round that drafted also adds
/// its tokens and subtracts its cost. A round is allowed if the balance covers its largest possible loss. So
/// all losses together are at most kShare of the tokens plus kAtFirst, if rounds cost what was expected.
/// Gains count up to kMost, so that a text whose acceptance rate falls cannot lose everything gained before.
/// Source: Wu, Shariff, Lattimore and Szepesvari 2016 (Conservative Bandits), with plain decoding as the
/// default arm.
class LossBudget {
 public:
  /// Records a round without draft that emitted `tokens`.
  void saw_plain(double tokens) {
    balance_ = std::min(balance_ + kShare * tokens, std::max(balance_, kHeld));
  }
  /// Subtracts a cost of drafting outside the rounds that drafted.
  void take(double passes) { balance_ -= passes; }
  /// Records a round with a draft that emitted `tokens` and took `passes`.
  void saw_draft_tokens(double tokens, double passes) {
    saw_plain(tokens);
    rounds_ = kFade * rounds_ + 1;
    tokens_ = kFade * tokens_ + tokens;
    passes_ = kFade * passes_ + passes;
    const double after = balance_ + tokens - passes;
    balance_ = after < balance_ ? after : std::min(after, std::max(balance_, kMost));
  }
  /// Whether a round may lose `loss` passes.
  bool allows(double loss) const { return balance_ >= loss; }
  double balance() const { return balance_; }  ///< passes of the target
  /// Whether the balance is at least kFall below its maximum since the start or since this was last true: the
  /// acceptance rate has fallen (a CUSUM test, Page 1954).
  bool fell() {
    highest_ = std::max(highest_, balance_);
    const bool so = balance_ <= highest_ - kFall;
    if (so) highest_ = balance_;
    return so;
  }
  /// Recent gain of rounds that drafted, in tokens per pass above plain decoding; 0 before the first.
  double gain() const { return passes_ > 0 ? tokens_ / passes_ - 1 : 0.0; }
  /// Weighted number of rounds in gain().
  double rounds() const { return rounds_; }

 private:
  static constexpr double kShare = 0.01, kAtFirst = 2, kMost = 8, kHeld = 256, kFall = 2.5;
  static constexpr double kFade = 1 - 1.0 / 64;
  double balance_ = kAtFirst, highest_ = kAtFirst, rounds_ = 0, tokens_ = 0, passes_ = 0;
};

}  // namespace specula
