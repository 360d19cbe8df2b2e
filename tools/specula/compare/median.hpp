// SPDX-License-Identifier: MIT
#pragma once

#include <specula/study/benchmark.hpp>

namespace specula_examples {

using specula::detail::median;

}  // namespace specula_examples
