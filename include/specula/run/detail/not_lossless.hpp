// The sentence about an unsound pair of rule and shape, for the compiler's message and for the run time's.
#pragma once

#include "specula/base/compiler_options.hpp"

// A macro: C++20's static_assert takes nothing but a literal.
#define SPECULA_NOT_LOSSLESS \
  "this rule does not keep the target's distribution for proposals drawn as this shape draws them."
