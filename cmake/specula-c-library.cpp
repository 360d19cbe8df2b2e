// SPDX-License-Identifier: MIT
// The library of specula.h, as specula-c-library.cmake compiles it.
#include <specula/accept/compile_c_library.hpp>
