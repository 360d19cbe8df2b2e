// SPDX-License-Identifier: MIT
// expect: kMembers|StackOf
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

#ifdef SPECULA_MUST_FAIL
using Shape = Cascade<3>;
#else
using Shape = Cascade<2>;
#endif

void propose(Shape& shape, Stack<ModelDrafter<specula_test::ToyModel>, MaxGram>& stack,
             const ProposeContext& round, ProposalBuilder& tree, PhiloxRandom& rng) {
  shape.propose(stack, round, tree, rng).run();
}
