// SPDX-License-Identifier: MIT
// Chain of adaptive length: dynamic draft length by a confidence threshold or a heuristic schedule.
#pragma once

#include <algorithm>
#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/chain.hpp"

namespace specula {

/// Lengthens the chain by 2 if all of it was accepted, and shortens it by 1 after a rejection. The length is
/// unchanged if a shorter chain than asked for was accepted. Source: transformers,
/// AssistedCandidateGenerator, num_assistant_tokens_schedule "heuristic".
struct HeuristicEnd {
  std::int32_t longest = 20;  ///< draft tokens
  std::int32_t now = 5;       ///< current length in draft tokens

  std::int32_t length() const { return std::min(now, longest); }  ///< at most so many draft tokens
  float exit_below() const { return 0; }                          ///< see Chain::exit_below
  /// Throws std::invalid_argument naming the field that is out of range.
  void validate() const {
    detail::expect_in("HeuristicEnd::longest", longest, 0, detail::kMaxDraftTokens);
    detail::expect_in("HeuristicEnd::now", now, 1, detail::kMaxDraftTokens);  // from 0 it would never rise
  }
  /// Learns from a round that proposed `drafted` tokens.
  void learn(std::int32_t drafted, std::int32_t accepted) {
    if (drafted < 1) return;
    if (accepted < drafted)
      now = std::max(length() - 1, 1);
    else if (drafted >= length())
      now = std::min(now + 2, longest);
  }
};

/// Ends the chain after a draft token whose confidence is below a threshold in [0, 1], which adapts to the
/// acceptance rate. Source: Draft & Verify (Zhang et al. 2024), section 3.4 and its tuned values. The paper's
/// rule needs a goal below the share of draft tokens that is accepted even in short chains. Below the goal it
/// can only raise the threshold, and where confidences do not tell which tokens are accepted, that ends at 1:
/// one draft token per round, for ever. So while the rate is below the goal, the chain's length is that of
/// HeuristicEnd instead, and the threshold, which goes on learning, decides once the goal is reached.
/// `unbounded` is the paper's rule as it is.
///
/// In simulated time (confidences sure or honest, acceptance 0.5 to 0.95, the best of the fixed chains of 0
/// to 20) it has at least 0.95 of the best chain's speed where a draft token costs 0.1 of a pass, 0.91 at
/// 0.25 and 0.76 at 0.02; unbounded 0.73, 0.79 and 0.53.
struct ThresholdEnd {
  std::int32_t longest = 12;  ///< draft tokens
  float threshold = 0.6f;     ///< current; a draft token of a lower probability is the last
  float goal = 0.9f;          ///< acceptance rate below which the threshold rises
  float step = 0.01f;         ///< change of the threshold before smoothing
  float inertia = 0.9f;       ///< smoothing of the threshold: weight of its old value
  float memory = 0.5f;        ///< smoothing of the rate: weight of its old value
  float rate = 0;             ///< smoothed acceptance rate
  bool unbounded = false;     ///< the threshold ends chains below the goal, too: the paper's rule
  HeuristicEnd below = {};    ///< the length while the rate is below the goal, unless unbounded

  /// At most so many draft tokens.
  std::int32_t length() const { return by_threshold() ? longest : std::min(below.length(), longest); }
  /// See Chain::exit_below.
  float exit_below() const { return by_threshold() ? threshold : 0; }
  /// Throws std::invalid_argument naming the field that is out of range.
  void validate() const {
    detail::expect_in("ThresholdEnd::longest", longest, 0, detail::kMaxDraftTokens);
    detail::expect_in("ThresholdEnd::threshold", threshold, 0.0f, 1.0f);
    detail::expect_in("ThresholdEnd::goal", goal, 0.0f, 1.0f);
    detail::expect_in("ThresholdEnd::step", step, 0.0f, 1.0f);
    detail::expect_in("ThresholdEnd::inertia", inertia, 0.0f, 1.0f);
    detail::expect_in("ThresholdEnd::memory", memory, 0.0f, 1.0f);
    detail::expect_in("ThresholdEnd::rate", rate, 0.0f, 1.0f);
    below.validate();
  }
  /// Learns from a round that proposed `drafted` tokens.
  void learn(std::int32_t drafted, std::int32_t accepted) {
    if (drafted < 1) return;
    rate = memory * rate + (1 - memory) * static_cast<float>(accepted) / static_cast<float>(drafted);
    const float moved = rate < goal ? threshold + step : drafted == longest ? threshold : threshold - step;
    // Unbounded, the threshold would leave [0, 1] and take long to return.
    threshold = std::clamp(inertia * threshold + (1 - inertia) * moved, 0.0f, 1.0f);
    below.longest = std::min(below.longest, longest);
    // what became of the tokens that it would have asked for
    below.learn(std::min(drafted, below.length()), std::min(accepted, below.length()));
  }

 private:
  bool by_threshold() const { return unbounded || rate >= goal; }
};

///   specula::AdaptiveChain<specula::ThresholdEnd> shape{.end = {.longest = 8}};
///
/// A Chain whose end `End` learns; with `carry`, the learned state is kept for the next text. As with
/// Chain::exit_below, the draft token that ends the chain stays: leaving it out would bias the text.
/// **Draws.** As Chain. **Cost.** As Chain. **Throws.** As Chain. **Source.** That of `End`.
template <class End = ThresholdEnd, Draw mode = Draw::greedy>
struct AdaptiveChain {
  static constexpr ProposalKind kind = kind_of_chain(mode);  ///< how its draft tokens are drawn

  End end = {};       ///< as at the first text
  bool carry = true;  ///< keep what was learned for the next text
  End now = end;      ///< as learned so far

  /// How large its proposals get.
  NodeCounts nodes() const { return {detail::node_count(std::int64_t{1} + end.longest)}; }
  /// Throws std::invalid_argument naming the field of the end that is out of range.
  void validate() const {
    detail::expect_valid(end);
    detail::expect_valid(now);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <Drafter D, RandomSource C>
  Steps propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const
      requires(mode != Draw::shared || NoiseSource<C>) {
    return detail::grow<mode>(drafter, round, now.length(), tree, rng, now.exit_below());
  }
  /// Learns from a round's result.
  void learn(const TokenTree& tree, const VerifyResult& result, const Timing&) {
    now.learn(tree.size() - 1, result.accepted_count());
  }
  /// Begins a text.
  void reset() {
    if (!carry) now = end;
  }
};

}  // namespace specula
