// The acceptance rules as the kernels take them: what each asks of the rows, and its function of rules/.
#pragma once

#include "specula/cuda/host_device.cuh"
#include "specula/cuda/verify/tile_table.cuh"
#include "specula/rules/matching.hpp"
#include "specula/rules/rejection.hpp"
#include "specula/rules/traversal.hpp"

namespace specula {
namespace cuda {
namespace detail {

/// A rule's needs; each rule hides what differs.
struct RuleNeeds {
  static constexpr bool kReadsDistributions = true;  // it asks for distributions, not for maxima
  static constexpr bool kDraws = false;              // a token is drawn after every row that is read
  static constexpr bool kJudges = false;             // p and q of draft tokens matter
  static constexpr int kLeastRows = 2;  // of a chain that it gains by reading together, whatever it decides
};

struct RejectionRule : RuleNeeds {
  static constexpr bool kJudges = true;

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::rejection(verifier);
  }
};

struct TraversalRule : RuleNeeds {
  static constexpr bool kJudges = true;
  static constexpr int kLeastRows = kMostRows;  // it starts from the end, so it reads all

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::traversal(verifier);
  }
};

struct GreedyRule : RuleNeeds {
  static constexpr bool kReadsDistributions = false;
  static constexpr int kLeastRows = 1;  // it mostly stops at once: at the first that is not the largest logit

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::greedy(verifier);
  }
};

struct SampleAndMatchRule : RuleNeeds {
  static constexpr bool kDraws = true;

  template <class SequenceVerifier>
  SPECULA_HD static void(verify)(SequenceVerifier& verifier) {
    rules::sample_and_match(verifier);
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
