// SPDX-License-Identifier: MIT
// expect: deleted
// expect: a temporary: the model must outlive this; name it
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

void pipeline() {
#ifdef SPECULA_MUST_FAIL
  TreeVerifier verifier{specula_test::ToyModel(4, 1), Greedy{}};
#else
  specula_test::ToyModel model(4, 1);
  TreeVerifier verifier{model, Greedy{}};
#endif
}
