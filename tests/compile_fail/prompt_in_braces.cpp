// SPDX-License-Identifier: MIT
// expect: braces are no prompt: name its type
#include <specula/specula.hpp>

#include <cstdint>
#include <vector>

#include "toy_model.hpp"

using namespace specula;

void generate(Speculator<TreeVerifier<specula_test::ToyModel, Greedy>, NoDrafter, Chain<>>& run,
              [[maybe_unused]] const std::vector<Token>& prompt) {
#ifdef SPECULA_MUST_FAIL
  run.generate({3, 14, 15}, {}, PhiloxRandom{1}, [](Tokens) {});
#else
  run.generate(std::vector<Token>{3, 14, 15}, {}, PhiloxRandom{1}, [](Tokens) {});
#endif
}
