// SPDX-License-Identifier: MIT
// The GPU, for model and model_check.
#include <specula/cuda/model/compile_cuda_device.hpp>
