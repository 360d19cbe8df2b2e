// Error message for a pair of rule and shape that is not lossless, at compile time and at run time.
#pragma once

#include "specula/base/compiler_options.hpp"

// A macro: C++20's static_assert takes a literal only.
#define SPECULA_NOT_LOSSLESS \
  "this rule does not keep the target's distribution for proposals drawn as this shape draws them."
