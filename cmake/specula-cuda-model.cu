// SPDX-License-Identifier: MIT
// What nvcc compiles of a program that decodes on a GPU: nvcc -std=c++20 -arch=sm_90a -I include -c cmake/specula-cuda-model.cu
#include <specula/cuda/model/compile_cuda_rounds.hpp>
