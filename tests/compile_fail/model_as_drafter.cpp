// SPDX-License-Identifier: MIT
// expect: its second part is a model, not a drafter: wrap it: ModelDrafter.draft.
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

void pipeline(specula_test::ToyModel& target, specula_test::ToyModel& draft) {
#ifdef SPECULA_MUST_FAIL
  Speculator run{TreeVerifier{target, Greedy{}}, draft, Chain<>{}};
#else
  Speculator run{TreeVerifier{target, Greedy{}}, ModelDrafter{draft}, Chain<>{}};
#endif
}
