#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: llama_cpp.sh ROOT
#
# scripts/llama_cpp names its prefixes by what the processor has.
set -uo pipefail
root=$1
. "$root/tests/support/expect.sh"

# A build with AVX-512 or for the same bits is a separate one. Nothing is built here: the CMake cache pretends that everything has been.
cpu() { printf 'flags\t\t: fpu sse4_2 avx avx2 fma f16c bmi2 %s\n' "$1" >"$scratch/cpuinfo"; }
built() { mkdir -p "$1/share" && printf '%s\n' "$1" >"$1/share/specula-llama-cpp"; }
export SPECULA_CPUINFO=$scratch/cpuinfo
prefix=$scratch/specula/llama.cpp-$(sed -n 's/^version=//p' "$root/scripts/llama_cpp")-rpc-schema-$(uname -m)
[ "$(uname -m)" != x86_64 ] || prefix+=-sse4_2-avx-avx2-fma-f16c-bmi2
built "$prefix" && built "$prefix-same-bits" && built "$prefix-programs" && built "$prefix-avx512" && built "$prefix-avx512-vbmi-vnni-bf16"
llama_cpp=(env XDG_CACHE_HOME="$scratch" "$root/scripts/llama_cpp")
cpu 'avx512f avx512cd avx512bw avx512dq avx512vl avx512vbmi avx512_vnni avx512_bf16 amx_tile amx_int8'
expect 0 "^$prefix$" "${llama_cpp[@]}"
expect 0 "^$prefix-avx512-vbmi-vnni-bf16$" "${llama_cpp[@]}" --avx512
expect 0 "^$prefix-same-bits$" "${llama_cpp[@]}" --same-bits
expect 0 "^$prefix-programs$" "${llama_cpp[@]}" --programs
cpu 'avx512f avx512cd avx512bw avx512dq avx512vl'
expect 0 "^$prefix-avx512$" "${llama_cpp[@]}" --avx512
cpu 'avx512f avx512cd'
expect 0 'this processor has no AVX-512; taking the build without it' "${llama_cpp[@]}" --avx512
also "^$prefix$"
exit "$failed"
