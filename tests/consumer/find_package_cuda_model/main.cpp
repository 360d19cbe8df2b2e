// SPDX-License-Identifier: MIT
// A file that g++ compiles. Where there is no GPU, the device says so.
#include <specula/cuda/model/cuda_device.hpp>
#include <specula/cuda/model/model.hpp>

#include <string>

using Model = specula::cuda::Model<specula::cuda::CudaDevice>;
static_assert(Model::kBatchInvariant);

int main() {
  try {
    specula::cuda::CudaDevice device(1 << 20);
    return 1;
  } catch (const specula::cuda::DeviceError& error) {
    return std::string(error.what()).starts_with("CUDA: ") ? 0 : 1;
  }
}
