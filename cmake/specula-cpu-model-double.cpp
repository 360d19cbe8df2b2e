// SPDX-License-Identifier: MIT
#include <specula/cpu/compile_decoder_double.hpp>
