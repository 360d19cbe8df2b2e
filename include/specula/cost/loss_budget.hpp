// Conservative exploration: how much time drafting may lose against plain decoding.
#pragma once

#include <algorithm>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// An account of what drafting gained and lost against plain decoding, in passes of the target over one node:
/// plain decoding takes one pass per token. Each token adds kShare of a pass; a round that drafted adds its
/// tokens and takes what it cost. A round is allowed while the account covers the most that it can lose, so
/// all losses together stay below kShare of the tokens and kAtFirst, whatever draft tokens and costs do, as
/// far as rounds cost what they were expected to. Gains count up to kMost: a text that has turned cannot lose
/// all that the text before it has gained. Source: Wu, Shariff, Lattimore and Szepesvari 2016 (Conservative
/// Bandits), where the arm to fall back on is of known reward.
class LossBudget {
 public:
  /// A round that did not draft gave `tokens`.
  void saw_plain(double tokens) {
    balance_ = std::min(balance_ + kShare * tokens, std::max(balance_, kHeld));
  }
  /// Drafting cost that much beside its rounds.
  void take(double passes) { balance_ -= passes; }
  /// A round that drafted gave `tokens` and took `passes`.
  void saw_draft_tokens(double tokens, double passes) {
    saw_plain(tokens);
    rounds_ = kFade * rounds_ + 1;
    tokens_ = kFade * tokens_ + tokens;
    passes_ = kFade * passes_ + passes;
    const double after = balance_ + tokens - passes;
    balance_ = after < balance_ ? after : std::min(after, std::max(balance_, kMost));
  }
  /// Whether a round may lose so many passes.
  bool allows(double loss) const { return balance_ >= loss; }
  double balance() const { return balance_; }
  /// Whether the account fell by kFall since it was fullest, or since this was true: draft tokens are no
  /// longer what they were (a CUSUM test, Page 1954).
  bool fell() {
    highest_ = std::max(highest_, balance_);
    const bool so = balance_ <= highest_ - kFall;
    if (so) highest_ = balance_;
    return so;
  }
  /// What rounds that drafted gained of late, per pass; 0 before the first.
  double gain() const { return passes_ > 0 ? tokens_ / passes_ - 1 : 0.0; }
  /// How many of them count for that.
  double rounds() const { return rounds_; }

 private:
  static constexpr double kShare = 0.01, kAtFirst = 2, kMost = 8, kHeld = 256, kFall = 2.5;
  static constexpr double kFade = 1 - 1.0 / 64;
  double balance_ = kAtFirst, highest_ = kAtFirst, rounds_ = 0, tokens_ = 0, passes_ = 0;
};

}  // namespace specula
