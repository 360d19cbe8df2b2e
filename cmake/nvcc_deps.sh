#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# nvcc_deps.sh ARGUMENT...: nvcc, which also leaves what it reads as a dependency file in the folder $SPECULA_NVCC_DEPS.
nvcc=${SPECULA_REAL_NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}
options=() sources=()
previous=''
for argument; do
  case "$previous" in -I) options+=(-I "$argument") ;; esac
  case "$argument" in
    -I?* | -std=* | -D?*) options+=("$argument") ;;
    *.cu | *.cpp) [ "$previous" = -o ] || sources+=("$argument") ;;
  esac
  previous=$argument
done
if [ -n "${SPECULA_NVCC_DEPS-}" ]; then
  for source in ${sources[@]+"${sources[@]}"}; do
    "$nvcc" ${options[@]+"${options[@]}"} -MM "$source" >"$(mktemp "$SPECULA_NVCC_DEPS/XXXXXX")" 2>/dev/null
  done
fi
exec "$nvcc" "$@"
