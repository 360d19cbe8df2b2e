// SPDX-License-Identifier: MIT
// Properties of the machine: device, threads, BLAS, and the faster number type.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace specula_train {

/// Must run first in main: environment variables and allocator settings that libraries read only once.
/// Starts the program anew (exec) where a library has read them before main.
void prepare_process(char** argv);

/// Whether `attempt`, in a child process, returns true within `seconds`: what may end a process is tried so.
/// It must run before this process has threads that `attempt` would need.
bool survives(const std::function<bool()>& attempt, unsigned seconds = 20);

/// Whether oneDNN multiplies bfloat16 rightly with AMX here: asks the system for leave to use it, and tries a
/// product in a child process. oneDNN reads ONEDNN_MAX_CPU_ISA at its first product.
bool amx_works();

/// CUDA if there is a device, else the CPU.
torch::Device best_device();

/// The name of the BLAS library in this process.
std::string blas_name();

/// The kernels that OpenBLAS should be told to take ("SkylakeX", "Haswell") where it took those called
/// `core`: where these are of 2004 ("Prescott"), since it does not know the processor. Else empty.
std::string better_core(std::string_view core, bool avx2, bool avx512);

/// A warning if float32 products will be slow, else an empty string.
std::string blas_warning();

/// The threads of OpenBLAS, if that is loaded: torch::set_num_threads() does not reach them. For the whole
/// process.
void set_blas_threads(int threads);

/// A CUDA device, as its driver describes it.
struct CudaDevice {
  std::string name;
  int major = 0;  // of the compute capability, 8 in 8.0
};

/// The device that products run on, queried from the driver's library, so that compiling needs no CUDA. Empty
/// if there is no driver.
std::optional<CudaDevice> find_cuda_device(int index);

/// bfloat16 from compute capability 8.0 on, else float32.
torch::ScalarType cuda_dtype(const CudaDevice& device);

/// "f32" and "bf16" are as named. "auto" is cuda_dtype() on a CUDA device; on a CPU it times one
/// product each way and takes the faster. Throws std::invalid_argument for anything else.
torch::ScalarType choose_dtype(const std::string& precision, torch::Device device);

/// A description: "CPU, 2 threads, products in BFloat16" or "NVIDIA H100 80GB HBM3, products in BFloat16".
std::string describe_machine(torch::Device device, torch::ScalarType dtype);

}  // namespace specula_train
