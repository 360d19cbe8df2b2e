// SPDX-License-Identifier: MIT
#pragma once

#include <specula/study/benchmark.hpp>

namespace specula_tools {

using specula::detail::median;

}  // namespace specula_tools
