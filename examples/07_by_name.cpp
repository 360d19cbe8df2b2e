// SPDX-License-Identifier: MIT
// X='cmake/*-model*.cpp -include specula/make_pipeline.hpp'
// g++ -std=c++20 -O1 -Iinclude -I/usr/include/eigen3 $X examples/07_by_name.cpp && ./a.out chain:4@small
//
// A pipeline that is chosen while the program runs, by its name: docs/run_time_pipelines.md lists all. One
// file of a program includes make_pipeline.hpp, which compiles them.
#include <cstdio>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/pipeline.hpp>

int main(int argc, char** argv) try {
  specula::cpu::Decoder<float> target("examples/models/target"), small("examples/models/small");
  specula::NamedModels models("target", target);
  models.add("small", small);  // each of any type that is a LanguageModel
  const char* const name = argc > 1 ? argv[1] : "cost-aware:chain:8@small,max-gram";
  const auto pipeline = specula::make_pipeline(name, models, {.temperature = 0});
  const std::vector<specula::Token> prompt{1, 863, 406, 1953, 1997, 1585, 304};  // <s> He has 3 boxes of
  pipeline->generate(prompt, {.max_new_tokens = 64}, specula::PhiloxRandom{/*seed*/ 1},
                     [](specula::Tokens fresh) {
                       for (const specula::Token token : fresh) std::printf("%d ", token);
                     });
  std::printf("\n%.2f tokens per pass of the target\n", pipeline->stats().mat());
  return 0;
} catch (const specula::PipelineError& error) {  // a wrong name, or models that cannot do what it asks for
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
