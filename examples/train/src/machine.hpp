// What the machine offers: device, threads, BLAS, and the faster number type.
#pragma once

#include <torch/torch.h>

#include <string>

namespace specula_train {

/// Must run first in main: environment variables and allocator settings that libraries read only once.
/// Starts the program anew (exec) where a library has read them before main.
void prepare_process(char** argv);

/// CUDA if there is a device, else the CPU.
torch::Device best_device();

/// The BLAS library in this process, for people.
std::string blas_name();

/// A warning if float32 products will be slow, else an empty string.
std::string blas_warning();

/// "auto" times one product each way and takes the faster; "f32" and "bf16" are taken at their word.
torch::ScalarType choose_dtype(const std::string& precision, torch::Device device);

}  // namespace specula_train
