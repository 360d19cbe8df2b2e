// SPDX-License-Identifier: MIT
// Whole rounds of speculation on a GPU: a HASS head's dynamic tree beside plain decoding. -arch=sm_80 for
// older ones.
//
//   nvcc -std=c++20 -arch=sm_90a -O2 -I include -c cmake/specula-cuda-model.cu
//   g++ -std=c++20 -O2 -I include -I /usr/include/eigen3 examples/cuda/round.cpp
//       cmake/specula-cpu-model*.cpp specula-cuda-model.o -L /usr/local/cuda/lib64
//       -lcublasLt -lcudart -pthread
//   ./a.out examples/models/target examples/models/hass
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/round.hpp>
#include <specula/specula.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include <specula/cpu/decoder_weights.hpp>

using namespace specula;

namespace {

template <class Run>
std::vector<Token> decode(const char* name, Run& run, std::int32_t length) {
  const std::vector<Token> prompt{1, 415, 1014, 318, 99, 270, 1203, 57};
  std::vector<Token> text;
  double seconds = 0;
  for (int turn = 0; turn < 3; ++turn) {  // the first two launch and capture the graphs
    text.clear();
    const auto begin = std::chrono::steady_clock::now();
    run.generate(
        prompt, {.max_new_tokens = 256}, 1,
        [&](Tokens fresh) { text.insert(text.end(), fresh.begin(), fresh.end()); }, length);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  const auto tokens = static_cast<double>(text.size());
  std::printf("%s: %.0f tokens/s, %.2f tokens a round\n", name, tokens / seconds,
              tokens / static_cast<double>(run.rounds()));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s TARGET DRAFT\n", argv[0]), 2;
  try {
    constexpr std::int32_t kCapacity = 1024;
    cuda::CudaDevice device;
    const auto target =
        std::make_shared<const cpu::DecoderWeights<float>>(cpu::load_decoder_weights<float>(argv[1]));
    const auto draft = cpu::load_decoder_weights<float>(argv[2], target);
    const cuda::DeviceWeights on_device = cuda::upload(device, *target, kCapacity);
    const cuda::DeviceWeights draft_on_device = cuda::upload(device, draft, kCapacity, &on_device);

    // Shape and rule as in a Speculator. A round without draft tokens is plain decoding.
    cuda::Round run{device,          on_device,
                    draft_on_device, DynamicTree{.top_k = 4, .expansions = 4, .total = 23},
                    Greedy{},        {.capacity = kCapacity}};
    const std::vector<Token> plain = decode("plain decoding", run, 0);
    const std::vector<Token> text = decode("a dynamic tree of 23", run, run.longest());
    std::size_t same = 0;
    while (same < text.size() && text[same] == plain[same]) ++same;
    std::printf("the same text up to token %zu of %zu\n", same, text.size());
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
