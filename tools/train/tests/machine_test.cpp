// SPDX-License-Identifier: MIT
// Detection of the device and its number types.
#include "machine.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "gradients.hpp"

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

TEST_CASE("OpenBLAS is told better kernels where it took those of 2004, and the processor has AVX2") {
  CHECK(st::better_core("Prescott", true, true) == "SkylakeX");
  CHECK(st::better_core("Prescott", true, false) == "Haswell");
  CHECK(st::better_core("Prescott", false, false).empty());
  for (const char* known : {"Haswell", "SkylakeX", "Zen", "Nehalem"})
    CHECK(st::better_core(known, true, true).empty());
}

TEST_CASE("this process has been told them") {
#if defined(__x86_64__)
  const auto name = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  const char* const told = std::getenv("OPENBLAS_CORETYPE");
  const bool wanted = told != nullptr && std::string(told) == "Prescott";
  if (name != nullptr && !wanted && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    CHECK(std::string(name()) != "Prescott");
#endif
}

TEST_CASE("parts of a batch that run at once have one thread of OpenBLAS each") {
  const auto of_blas = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  if (of_blas == nullptr) return;
  const int threads = torch::get_num_threads();
  torch::set_num_threads(2);
  std::atomic<int> most = 0;
  const auto weight = torch::ones({2}, torch::requires_grad());
  static_cast<void>(st::compute_gradients(
      [&](const torch::Tensor& rows) {
        most = std::max(most.load(), of_blas());
        return (rows * weight).mean();
      },
      torch::ones({4, 2}), {weight}));
  CHECK(most == 1);
  CHECK(of_blas() == 2);
  torch::set_num_threads(threads);
  st::set_blas_threads(threads);
}
