// SPDX-License-Identifier: MIT
// Figures of a comparison (speedup, MAT, tau, acceptance, SWI) from counts and times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <specula/study/bootstrap.hpp>

#include "comparison.hpp"

namespace specula_tools {

using specula::Bootstrap, specula::Interval, specula::RatioTerms;

struct DraftCost {
  std::string model;
  std::int64_t calls = 0;
  double milliseconds_per_call = 0;
  double layers_per_call = 0;  // that its nodes went through; 0: not counted
  double cost_coefficient =
      0;  // c: time of a call over one node, relative to the target's, both in plain decoding
};

/// 0 without calls.
inline double seconds_per_call(const specula::Usage& usage) {
  return usage.calls > 0 ? usage.seconds / static_cast<double>(usage.calls) : 0.0;
}

/// c of drafts by name, measured in plain decoding of each model.
using CostCoefficients = std::map<std::string, double>;

/// c of every `autoregressive@DRAFT` among the outcomes, the first of which is the target's plain decoding:
/// the median over prompts of the ratio of the times per call. A median, since other programs may disturb
/// single prompts.
CostCoefficients cost_coefficients(std::span<const Outcome> outcomes);

/// Given values of c, for example those of a paper, with the name of the set.
struct GivenCosts {
  std::string name;
  CostCoefficients costs;
};

/// SWI by given costs. Absent for a pipeline with a drafter that the set does not name.
struct GivenSwi {
  std::string costs;  // which set
  std::optional<RatioTerms> terms;
};

/// Sums for the figures that are ratios.
struct FigureTerms {
  RatioTerms mat, tau, acceptance, swi;
  RatioTerms speed;  // new tokens over the seconds of their rounds
};

/// 95% intervals over prompts, see bootstrap.hpp. c counts as known.
struct FigureIntervals {
  Interval mat, tau, acceptance, swi;
  Interval speedup;  // paired
  std::vector<std::optional<Interval>> given_swi;
};

/// Only emitted tokens count: tokens of the last round beyond the limit or the stop token are left out of
/// every figure.
struct Figures {
  std::string name;
  std::int64_t prompts = 0;
  std::int64_t new_tokens = 0;
  std::int64_t target_calls = 0;
  std::int64_t draft_calls = 0;  // of all drafts together
  double mat = 0;                // new tokens per target call, pooled over prompts
  double tau = 0;                // mean over prompts of each one's new tokens per target call
  std::vector<std::optional<double>>
      acceptance_by_depth;               // of draft tokens under an accepted path; empty: never offered
  std::vector<ContextRange> by_context;  // rounds and new tokens by the length of the context
  ByConfidence by_confidence = {};  // the same draft tokens by the draft's confidence, with their siblings
  double acceptance = 0;            // alpha: of all of those together
  double swi = 0;                   // new tokens / (target calls + sum over drafts of calls * c)
  double tokens_per_second = 0;     // mean over prompts, start() left out
  double tokens_per_second_with_prefill = 0;  // mean over prompts, start() included
  double speedup = 0;  // the baseline's seconds per token over this one's, of all prompts together
  double tokens_per_second_over_plain = 0;  // ratio of the means over prompts, in which each counts alike
  std::vector<GivenSwi> given_swi;          // in the order of the given sets
  double overhead_share = 0;                // share of the rounds' time outside the models
  std::int64_t identical_to_autoregressive = 0;  // prompts whose text is the baseline's
  bool lossy = false;
  double mean_proposed = 0;                 // draft tokens per round
  double mat_per_verified_node = 0;         // new tokens over nodes that the target ran, the roots included
  double draft_milliseconds_per_round = 0;  // inside the draft models
  double target_milliseconds_per_call = 0;
  std::vector<DraftCost> drafts;
  FigureTerms terms;
  std::optional<FigureIntervals> intervals;
};

/// `baseline` is the plain decoding of the same prompts. For a draft that `costs` does not name, c is that of
/// its calls in this pipeline. Counts are those of the first repetition. Without `bootstrap` there are no
/// intervals.
Figures figures(const Outcome& outcome, const Outcome& baseline, const CostCoefficients& costs = {},
                std::span<const GivenCosts> given = {}, const Bootstrap* bootstrap = nullptr);

/// Ratios of the figures of two pipelines over the same prompts, with paired intervals.
struct Gain {
  Interval speed, mat, tau, swi;

  /// Whether the interval of the speed ratio contains 1.
  bool within_noise() const { return speed.low <= 1 && 1 <= speed.high; }
};
Gain gain(const Figures& of, const Figures& over, const Bootstrap& bootstrap);

}  // namespace specula_tools
