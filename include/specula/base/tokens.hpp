// SPDX-License-Identifier: MIT
// Token and NodeId types of the CPU and CUDA headers. C++17.
#pragma once

#include <cstdint>

namespace specula {

using Token = std::int32_t;   ///< an index into the vocabulary, from 0
using NodeId = std::int32_t;  ///< an index into a proposal or into a model's nodes, from 0

inline constexpr NodeId kNoParent = -1;  ///< the parent of a root: the end of the context
inline constexpr Token kNoToken = -1;    ///< no prediction

}  // namespace specula
