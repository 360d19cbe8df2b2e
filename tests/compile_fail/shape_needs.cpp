// SPDX-License-Identifier: MIT
// expect: error: static.assert[^!]*this shape needs a drafter with rows
// expect: explain_shape[^;,]*Cape
// expect: explain_shape[^;,]*CostAware<specula::Beam>
// expect: this shape needs a Stack of exactly as many drafters
// expect: this is no ProposalShape for this drafter
#include <specula/accept/exact_rules.hpp>
#include <specula/draft/max_gram.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/draft/stack.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/beam.hpp>
#include <specula/shape/cape.hpp>
#include <specula/shape/cascade.hpp>
#include <specula/shape/cost_aware.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using Model = specula_test::ToyModel;
#ifdef SPECULA_MUST_FAIL
constexpr std::size_t kDrafters = 3;  // of a stack of two
using Drafter1 = MaxGram;             // tokens without rows
#else
constexpr std::size_t kDrafters = 2;
using Drafter1 = ModelDrafter<Model>;
#endif

// Accepts drafters with rows, but not this one, by a constraint of its own.
struct Picky {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  NodeCounts nodes() const { return {1}; }
  template <class D, class C>
#ifdef SPECULA_MUST_FAIL
    requires(!requires(const D& d) { d.forward(); })
#endif
  void propose(D&, const ProposeContext&, ProposalBuilder&, C&) {}
};

void pipelines(TreeVerifier<Model, Sampling> v, Drafter1 d, ModelDrafter<Model> m, MaxGram grams) {
  Speculator{v, d, Cape{}};
  Speculator{v, d, CostAware(Beam{})};
  Speculator{v, Stack{m, grams}, Cascade<kDrafters>{}};
  Speculator{v, m, Picky{}};
}
