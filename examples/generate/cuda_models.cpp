// SPDX-License-Identifier: MIT
#include "cuda_models.hpp"

#include <stdexcept>

#include "errors.hpp"

#ifdef SPECULA_HAS_CUDA
#include <specula/cuda/model/cuda_device.hpp>

#include "device_pack.hpp"
#endif

namespace specula_examples {

void check_device(const std::string& device, const ArithmeticOptions& arithmetic) {
  if (device == "cpu") return;
  if (device != "cuda") throw UsageError("--device is '" + device + "', must be cpu or cuda");
  for (const std::string* word :
       {&arithmetic.inputs, &arithmetic.weights, &arithmetic.cache, &arithmetic.isa})
    if (*word != "auto")
      throw UsageError(
          "--device cuda calculates in bfloat16: --inputs, --weights, --cache and --isa are of "
          "models on the CPU");
#ifndef SPECULA_HAS_CUDA
  throw UsageError(
      "--device cuda: this program was built without CUDA; docs/cuda_model.md says how to build "
      "it");
#endif
}

std::unique_ptr<specula::PipelineModels> cuda_models(const ModelFolders& folders, const ModelSizes& sizes,
                                                     std::ostream& notes) {
#ifdef SPECULA_HAS_CUDA
  using specula::cuda::CudaDevice;
  return std::make_unique<DevicePack<CudaDevice>>(std::make_unique<CudaDevice>(), folders, sizes, notes);
#else
  static_cast<void>(folders), static_cast<void>(sizes), static_cast<void>(notes);
  throw std::logic_error("cuda_models: built without CUDA");
#endif
}

}  // namespace specula_examples
