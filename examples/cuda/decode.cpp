// SPDX-License-Identifier: MIT
// Speculative decoding of a model on a GPU, with a draft on the same GPU. -arch=sm_80 for older ones.
//
//   nvcc -std=c++20 -arch=sm_90a -O2 -I include -c cmake/specula-cuda-model.cu
//   g++ -std=c++20 -O2 -I include -I /usr/include/eigen3 examples/cuda/decode.cpp
//       cmake/specula-cpu-model*.cpp specula-cuda-model.o -L /usr/local/cuda/lib64
//       -lcublasLt -lcudart -pthread
//   ./a.out examples/models/target examples/models/small
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/model.hpp>
#include <specula/specula.hpp>

#include <cstdio>
#include <exception>
#include <vector>

#include <specula/cpu/decoder_weights.hpp>

using namespace specula;

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s TARGET DRAFT\n", argv[0]), 2;
  try {
    cuda::CudaDevice device;
    cuda::Model target{device, cpu::load_decoder_weights<float>(argv[1])},
        draft{device, cpu::load_decoder_weights<float>(argv[2])};
    std::printf("rounded to bfloat16: relative error %.1e\n", target.weights().distance);

    // Any drafter, shape and rule of the library: its rows come from the GPU. A chain has the text of plain
    // decoding.
    Speculator run{TreeVerifier{target, Greedy{}, {.temperature = 0}}, ModelDrafter{draft},
                   CostAware{Chain<>{.length = 8}}};
    const std::vector<Token> prompt{1, 415, 1014, 318, 99, 270, 1203, 57};
    run.generate(prompt, {.max_new_tokens = 64}, PhiloxRandom{1}, [](Tokens fresh) {
      for (const Token token : fresh) std::printf("%d ", token);
    });
    std::printf("\n%.2f tokens a pass\n", 64.0 / static_cast<double>(run.stats().rounds));
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
