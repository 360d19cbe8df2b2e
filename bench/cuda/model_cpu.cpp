// SPDX-License-Identifier: MIT
// The CPU's model, for model_check.
#include <specula/cpu/compile_decoder.hpp>
#include <specula/cpu/compile_decoder_double.hpp>
