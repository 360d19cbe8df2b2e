// SPDX-License-Identifier: MIT
// Compiler requirements of specula's headers: the vector extensions of GCC and Clang, C++20, exceptions, and
// floating-point arithmetic without -ffast-math.
#pragma once

#if defined(__clang__) && defined(_MSC_VER) && !defined(__GNUC__)
#error \
    "specula does not support clang-cl, which passes itself off as MSVC: compile with clang++ for a target with libstdc++ or libc++"
#elif !defined(__GNUC__)
#error \
    "specula needs g++ or clang: its SIMD code is written in their vector extensions, which MSVC does not have"
#endif
#if __cplusplus < 202002L
#error "specula needs C++20: compile with -std=c++20"
#include "specula needs C++20"  // no such file: stops g++ and clang, which continue after an #error
#endif
#if !defined(__cpp_exceptions)
#error "specula reports errors by exceptions: compile without -fno-exceptions"
#include "specula reports errors by exceptions"  // stops as above
#endif

// clang 14 defines no macro under -fassociative-math or -funsafe-math-optimizations alone: the headers
// cannot detect these there.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error \
    "specula: -ffast-math, -Ofast, -fassociative-math, -funsafe-math-optimizations and -ffinite-math-only reorder the sums or drop the checks for NaN that distributions rest on: compile the files that include it with -fno-fast-math"
#endif
