// SPDX-License-Identifier: MIT
// expect: SkipsLayers
#include <specula/specula.hpp>

#include "self_models.hpp"

using namespace specula;

#ifdef SPECULA_MUST_FAIL
using Target = specula_test::ToyModel;  // cannot skip layers
#else
using Target = specula_test::ToySkips;
#endif

// Named in full: clang 14 does not say which constraint fails when it deduces the arguments.
void draft(LayerSkip<Target>& drafter) { drafter.truncate(0); }
