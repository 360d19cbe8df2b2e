// Token and NodeId types of the CPU and CUDA headers. C++17.
#pragma once

#include <cstdint>

namespace specula {

using Token = std::int32_t;
using NodeId = std::int32_t;

inline constexpr NodeId kNoParent = -1;
inline constexpr Token kNoToken = -1;

}  // namespace specula
