// SPDX-License-Identifier: MIT
// The CPU model, compiled once per project: specula-cpu-model.cmake makes a library of this file and its two
// neighbours.
#define SPECULA_BLOCK_PRODUCTS_APART 1
#include <specula/cpu/compile_decoder.hpp>
