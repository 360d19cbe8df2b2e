// SPDX-License-Identifier: MIT
#include <specula/cpu/decoder.hpp>

#include <cstdint>

/// Called by nothing: that it links is the test.
std::int32_t exits(const char* directory) { return specula::cpu::Decoder<float>(directory).exits(); }
