// SPDX-License-Identifier: MIT
// expect: ReviewingStackOf
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

using Model = ModelDrafter<specula_test::ToyModel>;
#ifdef SPECULA_MUST_FAIL
using Drafters = Stack<MaxGram, Model>;  // a reviewer requires rows
#else
using Drafters = Stack<Model, MaxGram>;
#endif

void propose(Vertical<>& shape, Drafters& stack, const ProposeContext& round, ProposalBuilder& tree,
             PhiloxRandom& rng) {
  shape.propose(stack, round, tree, rng).run();
}
