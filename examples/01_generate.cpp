// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -Iinclude -I/usr/include/eigen3 examples/01_*.cpp cmake/*-model*.cpp
#include <cstdio>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

using namespace specula;

int main() {
  cpu::Decoder<float> target("examples/models/target"), draft("examples/models/small");
  const SamplingParams params{.temperature = 0.8f};
  Speculator run{TreeVerifier{target, Sampling{}, params}, ModelDrafter{draft},
                 CostAware{Chain<>{.length = 8}}};
  const Token prompt[] = {1, 863, 406, 1953, 1997, 1585, 304};  // <s> He has 3 boxes of
  run.generate(prompt, {.max_new_tokens = 64}, PhiloxRandom{/*seed*/ 1}, [](Tokens fresh) {
    for (const Token token : fresh) std::printf("%d ", token);
  });
  std::printf("\n%.2f tokens per pass of the target\n", run.stats().mat());
}
