// SPDX-License-Identifier: MIT
// expect: a sink is called with specula::Tokens and returns nothing, or a bool
#include <specula/specula.hpp>

#include "toy_model.hpp"

using namespace specula;

void generate(Speculator<TreeVerifier<specula_test::ToyModel, Greedy>, NoDrafter, Chain<>>& run,
              std::vector<Token>& out) {
  run.generate(out, {}, PhiloxRandom{1}, [&](Tokens fresh) {
#ifdef SPECULA_MUST_FAIL
    return out.insert(out.end(), fresh.begin(), fresh.end());
#else
    out.insert(out.end(), fresh.begin(), fresh.end());
    return true;
#endif
  });
}
