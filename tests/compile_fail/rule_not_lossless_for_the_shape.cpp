// SPDX-License-Identifier: MIT
// expect: accept_lossy\(rule\)
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

/// A rule that is lossless for sampled tokens only.
struct ForSampledOnly : Rejection {
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }
};

#ifdef SPECULA_MUST_FAIL
using Shape = Chain<Draw::greedy>;
#else
using Shape = Chain<Draw::sampled>;
#endif

using Pipeline = Speculator<TreeVerifier<specula_test::ToyModel, ForSampledOnly>,
                            ModelDrafter<specula_test::ToyModel>, Shape>;

void pipeline(Pipeline& run) { run.forget(); }
