// SPDX-License-Identifier: MIT
#include "cuda_models.hpp"

#include <stdexcept>

#ifdef SPECULA_HAS_CUDA
#include <specula/cuda/model/cuda_device.hpp>

#include "device_pack.hpp"
#endif

namespace specula_tools {

bool has_cuda() {
#ifdef SPECULA_HAS_CUDA
  return true;
#else
  return false;
#endif
}

std::unique_ptr<DeviceModels> cuda_models(const ModelFolders& folders, const ModelSizes& sizes,
                                          std::ostream& notes) {
#ifdef SPECULA_HAS_CUDA
  using specula::cuda::CudaDevice;
  return std::make_unique<DevicePack<CudaDevice>>(std::make_unique<CudaDevice>(), folders, sizes, notes);
#else
  static_cast<void>(folders), static_cast<void>(sizes), static_cast<void>(notes);
  throw std::logic_error("cuda_models: built without CUDA");
#endif
}

}  // namespace specula_tools
