// SPDX-License-Identifier: MIT
// The CPU model, compiled once per project: specula-cpu-model.cmake makes a library of this file and the
// next.
#include <specula/cpu/compile_decoder.hpp>
