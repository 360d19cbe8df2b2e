// SPDX-License-Identifier: MIT
// expect: Limits: no field of this name: they are max_new_tokens
#include <specula/specula.hpp>

#include <cstdint>
#include <vector>

#include "toy_model.hpp"

using namespace specula;

void generate(Speculator<TreeVerifier<specula_test::ToyModel, Greedy>, NoDrafter, Chain<>>& run,
              [[maybe_unused]] const std::vector<Token>& prompt) {
#ifdef SPECULA_MUST_FAIL
  run.generate(prompt, {.max_tokens = 200}, PhiloxRandom{1}, [](Tokens) {});
#else
  run.generate(prompt, {.max_new_tokens = 200}, PhiloxRandom{1}, [](Tokens) {});
#endif
}
