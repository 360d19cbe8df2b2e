// SPDX-License-Identifier: MIT
// The models of a program on a GPU, where the program was built with CUDA.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <specula/pipeline.hpp>

#include "model_pack.hpp"

namespace specula_examples {

/// Throws UsageError unless `device` is "cpu", or "cuda" with arithmetic of its own, in a program that was
/// built with CUDA.
void check_device(const std::string& device, const ArithmeticOptions& arithmetic);

/// Models on the first GPU, one text at a time; see DevicePack. Requires check_device("cuda", ...). Throws
/// specula::cuda::DeviceError if there is no GPU that runs them.
std::unique_ptr<specula::PipelineModels> cuda_models(const ModelFolders& folders, const ModelSizes& sizes,
                                                     std::ostream& notes);

}  // namespace specula_examples
