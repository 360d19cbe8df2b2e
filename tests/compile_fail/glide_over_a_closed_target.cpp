// SPDX-License-Identifier: MIT
// expect: ExposesKeyValues
#include <specula/specula.hpp>

#include "conditioned_models.hpp"

using namespace specula;

#ifdef SPECULA_MUST_FAIL
using Target = specula_test::ToyModel;  // exposes no keys and values
#else
using Target = specula_test::SeenModel;
#endif

// Named in full: clang 14 does not say which constraint fails when it deduces the arguments.
void draft(Glide<specula_test::ToyGlide, Target>& drafter) { drafter.truncate(0); }
