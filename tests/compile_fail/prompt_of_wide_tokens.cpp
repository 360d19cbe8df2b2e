// SPDX-License-Identifier: MIT
// expect: these tokens have another type: specula::Token is std::int32_t
#include <specula/specula.hpp>

#include <cstdint>
#include <vector>

#include "toy_model.hpp"

using namespace specula;

void generate(Speculator<TreeVerifier<specula_test::ToyModel, Greedy>, NoDrafter, Chain<>>& run,
              [[maybe_unused]] const std::vector<Token>& prompt) {
#ifdef SPECULA_MUST_FAIL
  run.generate(std::vector<std::int64_t>(prompt.begin(), prompt.end()), {}, PhiloxRandom{1}, [](Tokens) {});
#else
  run.generate(std::vector<Token>(prompt.begin(), prompt.end()), {}, PhiloxRandom{1}, [](Tokens) {});
#endif
}
