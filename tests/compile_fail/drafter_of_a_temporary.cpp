// SPDX-License-Identifier: MIT
// expect: deleted
// expect: a temporary: the model must outlive this; name it
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

void pipeline() {
#ifdef SPECULA_MUST_FAIL
  ModelDrafter drafter{specula_test::ToyModel(4, 1)};
#else
  specula_test::ToyModel model(4, 1);
  ModelDrafter drafter{model};
#endif
}
