#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: check_front_end.sh NVCC INCLUDE FILE.cu
#
# A second compiler understands the kernels: clang's front end, for sm_80 (but where the file says `// only sm_90a`) and
# sm_90a, with the toolkit of NVCC, and without a warning. Exit status 77 if it is not there.
set -euo pipefail

clang=$(command -v clang++-22 || true)
if [ -z "$clang" ]; then
  echo 'SKIP: there is no clang++-22'
  exit 77
fi
toolkit=$(cd "$(dirname "$(readlink -f "${SPECULA_REAL_NVCC:-$1}")")/.." && pwd)
architectures=(--cuda-gpu-arch=sm_90a)
if ! grep -q '^// only sm_90a' "$3"; then architectures+=(--cuda-gpu-arch=sm_80); fi
# Its release knows of older toolkits only.
exec "$clang" -x cuda --cuda-device-only -fsyntax-only -std=c++17 "${architectures[@]}" "--cuda-path=$toolkit" \
  -Wall -Wextra -Werror -Wno-unknown-cuda-version -isystem "$toolkit/include/cccl" -I "$2" "$3"
