// SPDX-License-Identifier: MIT
// expect: accept_lossy\(rule\)
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

#ifdef SPECULA_MUST_FAIL
using Rule = Lenient;
#else
using Rule = AcceptLossy<Lenient>;
#endif

// Named in full: clang 14 does not say which constraint fails when it deduces the arguments.
using Pipeline = Speculator<TreeVerifier<specula_test::ToyModel, Rule>, ModelDrafter<specula_test::ToyModel>, Chain<>>;

void pipeline(Pipeline& run) { run.forget(); }
