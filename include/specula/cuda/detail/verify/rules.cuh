// SPDX-License-Identifier: MIT
// The acceptance rules as the kernels take them: what each asks of the rows, and its function of
// accept/rules/.
#pragma once

#include "specula/accept/rules/matching.hpp"
#include "specula/accept/rules/rejection.hpp"
#include "specula/accept/rules/traversal.hpp"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A rule's needs; each rule hides what differs.
struct RuleNeeds {
  static constexpr bool kReadsDistributions = true;   // it asks for distributions, not for maxima
  static constexpr bool kDraws = false;               // a token is drawn after every row that is read
  static constexpr bool kReadsDraft = false;          // p and q of draft tokens matter
  static constexpr bool kKeepsDistributions = false;  // in the states of nodes: it ends from the leaf
  static constexpr int kMinRows = 2;  // of a chain that it gains by reading together, whatever it decides
  static constexpr bool kTakesCuts = true;  // parameters may truncate
};
/// A rule of a plan whose kernel has no code for truncation.
template <class Rule>
struct WithoutCuts : Rule {
  static constexpr bool kTakesCuts = false;
};

struct RejectionRule : RuleNeeds {
  static constexpr bool kReadsDraft = true;

  template <class SequenceVerifier>
  SPECULA_HD static void decide(SequenceVerifier& verifier) {
    rules::rejection(verifier);
  }
};

struct TraversalRule : RuleNeeds {
  static constexpr bool kReadsDraft = true, kKeepsDistributions = true;
  static constexpr int kMinRows = kMaxRows;  // it starts from the end, so it reads all

  template <class SequenceVerifier>
  SPECULA_HD static void decide(SequenceVerifier& verifier) {
    rules::traversal(verifier);
  }
};

struct GreedyRule : RuleNeeds {
  static constexpr bool kReadsDistributions = false;
  static constexpr int kMinRows = 1;  // it mostly stops at once: at the first that is not the largest logit

  template <class SequenceVerifier>
  SPECULA_HD static void decide(SequenceVerifier& verifier) {
    rules::greedy(verifier);
  }
};

struct SampleAndMatchRule : RuleNeeds {
  static constexpr bool kDraws = true;

  template <class SequenceVerifier>
  SPECULA_HD static void decide(SequenceVerifier& verifier) {
    rules::sample_and_match(verifier);
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
