// SPDX-License-Identifier: MIT
// The GPU, for the programs whose names begin with model.
#include <specula/cuda/model/compile_cuda_rounds.hpp>
