// SPDX-License-Identifier: MIT
// Detection of the device and its number types.
#include "machine.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace st = specula_train;

TEST_CASE("bfloat16 on CUDA devices of compute capability 8.0 and above") {
  CHECK((st::cuda_dtype({.name = "NVIDIA H100 80GB HBM3", .major = 9}) == torch::kBFloat16));
  CHECK((st::cuda_dtype({.name = "NVIDIA A100", .major = 8}) == torch::kBFloat16));
  CHECK((st::cuda_dtype({.name = "Tesla V100", .major = 7}) == torch::kFloat32));
}

TEST_CASE("precisions by name") {
  for (const auto device : {torch::Device(torch::kCPU), torch::Device(torch::kCUDA)}) {
    CHECK((st::choose_dtype("f32", device) == torch::kFloat32));
    CHECK((st::choose_dtype("bf16", device) == torch::kBFloat16));
    CHECK_THROWS_WITH_AS(st::choose_dtype("f16", device),
                         doctest::Contains("precision 'f16': expected auto, f32 or bf16"),
                         std::invalid_argument);
  }
  const auto chosen = st::choose_dtype("auto", torch::kCPU);
  CHECK((chosen == torch::kFloat32 || chosen == torch::kBFloat16));
}

TEST_CASE("descriptions of machines") {
  const auto words = st::describe_machine(torch::kCPU, torch::kBFloat16);
  CHECK(words == "CPU, " + std::to_string(torch::get_num_threads()) + " threads, products in BFloat16");
}

TEST_CASE("what may end the process is tried in a child") {
  CHECK(st::survives([] { return true; }));
  CHECK_FALSE(st::survives([] { return false; }));
  CHECK_FALSE(st::survives([]() -> bool { throw 1; }));
  CHECK_FALSE(st::survives([] { return std::raise(SIGILL) == 0; }));
  CHECK_FALSE(st::survives([] { return pause() == 0; }, 1));
}

TEST_CASE("AMX is used only where the processor has it") {
  std::ifstream in("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (st::amx_works()) CHECK(text.find("amx_bf16") != std::string::npos);
}
