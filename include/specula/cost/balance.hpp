// SPDX-License-Identifier: MIT
// The balance of drafting against plain decoding: what it gained and lost, and when it is tried again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Counts gains and losses of drafting against plain decoding, in plain passes of the target, over one node
/// per text, which give a token each. It begins with kAtFirst; tokens add 1.5 shares of their part of a pass
/// once that is more, and a share once that and kLater are less; a round that drafted also adds its tokens
/// and subtracts its cost. A round is allowed if the balance covers its largest loss, so all losses together
/// are about kAtFirst, 1.5 shares of the tokens, or a share plus kLater in the end. Gains count up to kMax.
/// Where drafting does not pay, it is tried again after ever longer pauses. Source: Wu, Shariff, Lattimore
/// and Szepesvari 2016 (Conservative Bandits), with plain decoding as the default arm; the fall is a CUSUM
/// test (Page 1954). Cost: O(1) per round.
class Balance {
 public:
  static constexpr double kAtFirst = 0.7;  ///< plain passes that drafting may lose before it gained any
  static constexpr double kLater = 1.7;    ///< the same beside the share of the tokens, after some hundreds

  /// What drafting may still lose, in plain passes: less what others lost, but not more by what they gained.
  double left() const { return left_ + std::min(0.0, others_); }
  double left_for_others() const { return left_ + others_; }          ///< the same of others
  double gained_by_others() const { return std::max(0.0, others_); }  ///< in plain passes
  double tokens() const { return all_tokens_; }  ///< of all rounds; where texts are merged, of each
  double drafted() const { return drafted_; }    ///< recent rounds that drafted
  /// Throughput of the recent rounds, in tokens of a text per plain pass; at least 1, plain decoding's.
  double rate() const { return std::max(1.0, passes_ > 0 ? tokens_ / passes_ : 1.0); }
  bool pauses() const { return idle_ > 0; }  ///< the last round did not draft, though it might have
  /// In a pause: whether it is time to try again.
  bool tries() const { return idle_ >= patience_; }

  /// Adds a round that emitted `tokens` tokens per text and cost as much as `cost` plain passes. `attempt`:
  /// it was to draft against the estimates; `measured`: it was plain on purpose. True if the balance has
  /// fallen so far that acceptance must have changed.
  bool add(double tokens, double cost, double share, bool drafted, bool attempt, bool measured) {
    tokens_ = kFade * tokens_ + tokens;
    passes_ = kFade * passes_ + cost;
    drafted_ = kFade * drafted_ + (drafted ? 1 : 0);
    highest_ = std::max(highest_, left_);
    left_ = std::min(left_ + earned(tokens, share) + (drafted ? tokens - cost : 0.0), kMax);
    if (drafted && tokens > cost)
      patience_ = kPatience;
    else if (drafted && attempt)
      patience_ = std::min(2 * patience_, kMaxPatience);
    if (drafted)
      idle_ = 0;
    else if (!measured)
      ++idle_;
    if (left_ > highest_ - kFall) return false;
    highest_ = left_;
    return true;
  }
  /// Adds a round of something else than the draft, such as copies, which tells nothing of the draft.
  void add_other(double tokens, double cost, double share) {
    left_ = std::min(left_ + earned(tokens, share), kMax);
    others_ = std::min(others_ + tokens - cost, kMax);
  }

 private:
  static constexpr double kMax = 8;                                 // plain passes
  static constexpr double kFade = 1 - 1.0 / 64;                     // factor per round on earlier ones
  static constexpr double kFall = 2.5;                              // of the balance: acceptance has changed
  static constexpr double kSoon = 1.5;                              // shares, while those are below kLater
  static constexpr std::int32_t kPatience = 4, kMaxPatience = 128;  // rounds before drafting is tried again

  /// What all tokens so far allow to lose. Little at first, since a short text has no time to win it back.
  double allowed(double share) const {
    return std::max(kAtFirst, std::min(kSoon * share * all_tokens_, kLater + share * all_tokens_));
  }
  double earned(double tokens, double share) {
    const double before = allowed(share);
    all_tokens_ += tokens;
    return allowed(share) - before;
  }

  double left_ = kAtFirst, highest_ = kAtFirst;  // highest_: since the last fall
  double others_ = 0, all_tokens_ = 0;           // others_: what others gained
  double tokens_ = 0, passes_ = 0, drafted_ = 0;
  std::int32_t idle_ = 0, patience_ = kPatience;
};

}  // namespace specula
