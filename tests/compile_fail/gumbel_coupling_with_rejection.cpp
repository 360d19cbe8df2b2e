// SPDX-License-Identifier: MIT
// expect: accept_lossy\(rule\)
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

#ifdef SPECULA_MUST_FAIL
using Rule = Rejection;
#else
using Rule = GumbelCoupling;
#endif

using Pipeline = Speculator<TreeVerifier<specula_test::ToyModel, Rule>, ModelDrafter<specula_test::ToyModel>,
                            Chain<Draw::shared>>;

void pipeline(Pipeline& run) { run.forget(); }
