// SPDX-License-Identifier: MIT
#include "machine.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace specula_train {
namespace {

/// Best time of a product of the trainer's usual shape, in seconds.
double time_product(torch::ScalarType dtype, torch::Device device) {
  const auto options = torch::TensorOptions().dtype(dtype).device(device);
  const auto a = torch::ones({4096, 256}, options);
  const auto b = torch::ones({1024, 256}, options);
  double best = 1e9;
  for (int i = 0; i < 6; ++i) {
    const auto start = std::chrono::steady_clock::now();
    // Reading one element waits for a device to finish.
    static_cast<void>(torch::linear(a, b)[0][0].item<float>());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

using Describe = char* (*)();

Describe openblas_describe() {
  return reinterpret_cast<Describe>(dlsym(RTLD_DEFAULT, "openblas_get_config"));
}

/// Whether the processor says that it has AMX with bfloat16, and the system lets this process use it.
bool request_amx() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBfloat16 = 1U << 22, kTile = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBfloat16) == 0 || (d & kTile) == 0) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool survives(const std::function<bool()>& attempt, unsigned seconds) {
  const auto child = fork();
  if (child < 0) return false;
  if (child == 0) {
    for (const int deadly : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) std::signal(deadly, SIG_DFL);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    alarm(seconds);  // ends a child that hangs
    bool good = false;
    try {
      good = attempt();
    } catch (...) {  // is no success
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool amx_works() {
  return request_amx() && survives([] {
           setenv("ONEDNN_MAX_CPU_ISA", "DEFAULT", /*overwrite=*/1);
           torch::set_num_threads(1);
           const auto a = torch::ones({256, 512}, torch::kBFloat16),
                      b = torch::ones({128, 512}, torch::kBFloat16);
           return (torch::linear(a, b) == 512).all().item<bool>();
         });
}

std::string better_core(std::string_view core, bool avx2, bool avx512) {
  if (core != "Prescott") return {};
  return avx512 ? "SkylakeX" : avx2 ? "Haswell" : "";
}

namespace {

/// better_core() of this process; empty without OpenBLAS.
std::string better_core_here() {
  const auto name = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (name == nullptr) return {};
  bool avx2 = false, avx512 = false;
#if defined(__x86_64__)
  avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return better_core(name(), avx2, avx512);
}

}  // namespace

void prepare_process(char** argv) {
  // Threads that wait for work must sleep: spinning threads would take the processor from working ones.
  // libgomp reads this before main, as OpenBLAS reads its kernels' name.
  const std::string core = better_core_here();
  const bool names_core = !core.empty() && std::getenv("OPENBLAS_CORETYPE") == nullptr;
  if (names_core) setenv("OPENBLAS_CORETYPE", core.c_str(), /*overwrite=*/1);
  if (names_core || std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) execv(self.c_str(), argv);  // returns only on failure; then the program works, but slowly
  }
  // Some virtual machines advertise AMX and fault on it.
  if (std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr)
    setenv("ONEDNN_MAX_CPU_ISA", amx_works() ? "DEFAULT" : "AVX512_CORE_BF16", /*overwrite=*/1);
  // Every step frees and allocates the same large blocks. Returning them to the system each time would cost
  // more in page faults than the arithmetic.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_ARENA_MAX, 1);  // arenas of other threads are of bounded size, and shrink
  mallopt(M_TOP_PAD, 64 << 20);
  // libtorch may start with a single thread on small virtual machines.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    torch::set_num_threads(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  }
}

torch::Device best_device() {
  return torch::cuda::is_available() ? torch::Device(torch::kCUDA) : torch::Device(torch::kCPU);
}

std::string blas_name() {
  if (const auto describe = openblas_describe()) return describe();
  if (at::hasMKL()) return "MKL";
  return "unknown";
}

std::string blas_warning() {
  if (openblas_describe() != nullptr || at::hasMKL()) return {};
  return "neither OpenBLAS nor MKL is loaded; Debian's reference BLAS is about 5 times slower in float32. "
         "Install libopenblas0-pthread and see `update-alternatives --config libblas.so.3-x86_64-linux-gnu`";
}

void set_blas_threads(int threads) {
  if (const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
}

std::optional<CudaDevice> find_cuda_device(int index) {
  // The driver's interface (cuda.h), which is binary compatible from release to release.
  using Get = int (*)(int* device, int ordinal);
  using GetName = int (*)(char* name, int size, int device);
  using GetAttribute = int (*)(int* value, int attribute, int device);
  constexpr int kComputeCapabilityMajor = 75;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return std::nullopt;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<Get>(dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<GetName>(dlsym(driver, "cuDeviceGetName"));
  const auto get_attribute = reinterpret_cast<GetAttribute>(dlsym(driver, "cuDeviceGetAttribute"));
  int device = 0;
  char name[256] = {};
  CudaDevice found;
  if (!init || !get || !get_name || !get_attribute || init(0) != 0 || get(&device, index) != 0 ||
      get_name(name, sizeof name, device) != 0 ||
      get_attribute(&found.major, kComputeCapabilityMajor, device) != 0)
    return std::nullopt;
  found.name = name;
  return found;
}

torch::ScalarType cuda_dtype(const CudaDevice& device) {
  return device.major >= 8 ? torch::kBFloat16 : torch::kFloat32;
}

std::string describe_machine(torch::Device device, torch::ScalarType dtype) {
  const std::string products = std::string(", products in ") + c10::toString(dtype);
  if (device.is_cpu()) return "CPU, " + std::to_string(torch::get_num_threads()) + " threads" + products;
  const auto cuda = find_cuda_device(device.has_index() ? device.index() : 0);
  return (cuda ? cuda->name : device.str()) + products;
}

torch::ScalarType choose_dtype(const std::string& precision, torch::Device device) {
  if (precision == "f32") return torch::kFloat32;
  if (precision == "bf16") return torch::kBFloat16;
  if (precision != "auto") {
    throw std::invalid_argument("precision '" + precision + "': expected auto, f32 or bf16");
  }
  if (device.is_cuda()) {
    if (const auto cuda = find_cuda_device(device.has_index() ? device.index() : 0)) return cuda_dtype(*cuda);
  }
  return time_product(torch::kBFloat16, device) < time_product(torch::kFloat32, device) ? torch::kBFloat16
                                                                                        : torch::kFloat32;
}

}  // namespace specula_train
