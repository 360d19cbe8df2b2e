// SPDX-License-Identifier: MIT
#pragma once

#include <specula/run/benchmark.hpp>

namespace specula_examples {

using specula::detail::median;

}  // namespace specula_examples
