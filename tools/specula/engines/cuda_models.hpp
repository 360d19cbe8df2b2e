// SPDX-License-Identifier: MIT
// The models of a program on a GPU, where the program was built with CUDA.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <specula/pipeline.hpp>

#include "model_pack.hpp"

namespace specula_tools {

/// Whether the program was built with CUDA.
bool has_cuda();

/// Models on a device, and pipelines whose rounds stay there.
class DeviceModels : public specula::PipelineModels {
 public:
  /// Throws UsageError for a pipeline without such rounds.
  virtual std::unique_ptr<specula::Pipeline> rounds(const std::string& pipeline,
                                                    const specula::SamplingParams& params) = 0;
};

/// Models on the first GPU, one text at a time; see DevicePack. Requires has_cuda(). Throws
/// specula::cuda::DeviceError if there is no GPU that runs them.
std::unique_ptr<DeviceModels> cuda_models(const ModelFolders& folders, const ModelSizes& sizes,
                                          std::ostream& notes);

}  // namespace specula_tools
