// SPDX-License-Identifier: MIT
// expect: specula does not support clang-cl
// flags: -U__GNUC__ -D__clang__=1 -D_MSC_VER=1940
#include <specula/base/compiler_options.hpp>
#ifndef SPECULA_MUST_FAIL
static_assert(__cplusplus >= 202002L);
#endif
