// SPDX-License-Identifier: MIT
// g++ -std=c++20 -O2 -I include -I /usr/include/eigen3 examples/01_generate.cpp && ./a.out
#include <cstdio>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

using namespace specula;

int main() {
  cpu::Decoder<float> target("examples/models/target"), draft("examples/models/small");
  const SamplingParams params{.temperature = 0.8f};
  Speculator run{TreeVerifier{target, Sampling{}, params}, ModelDrafter{draft},
                 CostAware{Chain<>{.length = 8}}};
  const Token prompt[] = {1, 300, 17, 4};  // a tokenizer is your program's
  run.generate(prompt, {.max_new_tokens = 64}, PhiloxRandom{/*seed*/ 1}, [](Tokens fresh) {
    for (const Token token : fresh) std::printf("%d ", token);
  });
  std::printf("\n%.2f tokens per pass of the target\n", run.stats().mat());
}
