// SPDX-License-Identifier: MIT
// Compiles a SIMD body for an instruction set: the only functions with a `target` attribute besides the
// matrix products.
#pragma once

#include "specula/simd/isa.hpp"

namespace specula::simd {

#if SPECULA_X86
/// Ends a function that uses wide registers. Compilers do so by themselves only where they optimise, g++ from
/// -O2 on; as long as upper halves are in use, SSE code is slow, libm's exponentials among it: three times as
/// slow.
struct WideRegisters {
  [[gnu::target("avx"), gnu::always_inline]] ~WideRegisters() { __builtin_ia32_vzeroupper(); }
};
#endif

/// Functions that call `body`, which is always inlined, each compiled for one instruction set.
template <auto body>
struct Compiled;

template <class Result, class... Args, Result (*body)(Args...)>
struct Compiled<body> {
#if SPECULA_X86
  [[gnu::target("avx512f")]] static Result avx512(Args... args) {
    const WideRegisters used;
    return body(args...);
  }
  [[gnu::target("avx2,fma")]] static Result avx2(Args... args) {
    const WideRegisters used;
    return body(args...);
  }
#endif
  [[gnu::noinline]] static Result portable(Args... args) { return body(args...); }
};

/// `body` compiled for `isa`. Requires an instruction set of this processor architecture.
template <Isa isa, auto body>
constexpr auto compiled() {
#if SPECULA_X86
  if constexpr (isa == Isa::avx512) return &Compiled<body>::avx512;
  if constexpr (isa == Isa::avx2) return &Compiled<body>::avx2;
#endif
  if constexpr (isa == Isa::portable) return &Compiled<body>::portable;
}

}  // namespace specula::simd
