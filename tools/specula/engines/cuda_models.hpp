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

/// Models on the first GPU, one text at a time; see DevicePack. Requires has_cuda(). Throws
/// specula::cuda::DeviceError if there is no GPU that runs them.
std::unique_ptr<specula::PipelineModels> cuda_models(const ModelFolders& folders, const ModelSizes& sizes,
                                                     std::ostream& notes);

}  // namespace specula_tools
