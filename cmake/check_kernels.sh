#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: check_kernels.sh NVCC INCLUDE OUT FILE.cu [--other-architectures]
#        check_kernels.sh --table NVCC OUT...
#
# Compiles FILE.cu with NVCC in two ways that together cover C++17 and 20, with and without fast math, sm_80 (but where
# the file says `// only sm_90a`) and sm_90a; fails on any warning (C75xx among them: a serialised wgmma), on a spilled
# register, on a stack frame, and on a kernel with more instructions than a line of the file says:
#   // at most 6500 instructions for sm_90a: NAME, or the begin of it, as in the table
# With --other-architectures the build in C++17 has those that the toolkit knows of
# sm_89, sm_100 and sm_120 as well, assembled from the PTX for 8.0 and 9.0: no source asks for more than that. Leaves a
# line for each kernel on sm_80 and sm_90a in OUT.
#
# With --table: the lines of several OUTs as a Markdown table.
set -euo pipefail

if [ "$1" = --table ]; then
  nvcc=$2
  shift 2
  printf '# Registers and instructions of the CUDA kernels\n\n'
  printf 'Compiled by nvcc %s as C++17, with the elements that tests/cuda/kernels/ uses. ' \
    "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  printf 'Shared memory is what a kernel declares; most of what they use is asked for at launch.\n'
  printf 'A spilled register or a warning fails the tests (cuda/kernels).\n\n'
  echo '| kernel | architecture | registers | instructions | shared memory, static | spills |'
  echo '|---|---|---|---|---|---|'
  cat "$@" | sort -u
  exit
fi

nvcc=$1 include=$2 out=$3 file=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gencodes=(-gencode=arch=compute_90a,code=sm_90a)
if ! grep -q '^// only sm_90a' "$file"; then
  gencodes+=(-gencode=arch=compute_80,code=sm_80)
fi
if [ "${5-}" = --other-architectures ]; then
  known=$("$nvcc" --list-gpu-code)
  for pair in 80:89 90:100 90:120; do
    if [[ $known = *sm_${pair#*:}* ]]; then gencodes+=("-gencode=arch=compute_${pair%:*},code=sm_${pair#*:}"); fi
  done
fi

# compile LOG OPTION...
compile() {
  local log=$1
  shift
  if ! "$nvcc" -I "$include" -Xcompiler -Wall,-Wextra -Xptxas -v "$@" -c "$file" -o "$work/object" >"$log" 2>&1; then
    cat "$log"
    exit 1
  fi
}
compile "$work/plain" -std=c++17 "${gencodes[@]}" --keep --keep-dir "$work"
compile "$work/fast" -std=c++20 -use_fast_math -gencode=arch=compute_90a,code=sm_90a

bad=0
# MEMBAR.SC, which no kernel needs: acquire, release and the barriers do.
if grep -HnE 'membar\.(gl|sys|cta)|fence\.sc' "$work"/*.ptx; then
  echo "error: $(basename "$file"): a sequentially consistent fence"
  bad=1
fi
for log in plain fast; do
  c++filt <"$work/$log" >"$work/$log.names"
  # Any unusual line of ptxas is a warning or an error; and no register may be spilled.
  if grep -vE '^ptxas info    : (Compiling entry function|Function properties|Used [0-9]+ registers|Compile time|[0-9]+ bytes gmem)|^ +[0-9]+ bytes stack frame' \
    "$work/$log" | grep -E '[^[:space:]]'; then
    echo "error: $(basename "$file") ($log): the lines above"
    bad=1
  fi
  if grep -E 'spill' "$work/$log" | grep -qvE '^ +0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'; then
    grep -E -B 1 'spill' "$work/$log.names" | grep -vE '^--$' | grep -B 1 -vE '0 bytes stack frame, 0 bytes spill|Function' || true
    echo "error: $(basename "$file") ($log): spills or a stack frame"
    bad=1
  fi
done

# Instructions are 16 bytes long on all architectures since sm_70.
for cubin in "$work"/*.cubin; do
  [[ $cubin =~ _(80|90a)\.cubin$ ]] || continue
  readelf -SW "$cubin" 2>/dev/null | sed -nE "s/.* \.text\.([^ ]+) +PROGBITS +[0-9a-f]+ +[0-9a-f]+ +([0-9a-f]+) .*/sm_${BASH_REMATCH[1]} \1 \2/p"
done | while read -r arch name bytes; do printf '%s %s %d\n' "$arch" "$name" $((16#$bytes / 16)); done >"$work/instructions"

awk -v sizes="$work/instructions" '
  BEGIN { while ((getline line < sizes) > 0) { split(line, part, " "); size[part[1] " " part[2]] = part[3] } }
  /Compiling entry function/ {
    name = $0; sub(/.*entry function ./, "", name); sub(/. for .sm.*/, "", name)
    arch = $0; sub(/.* for .sm_/, "sm_", arch); sub(/[^0-9a-z_].*/, "", arch)
  }
  /bytes stack frame/ { spills = ($0 ~ / 0 bytes spill stores, 0 bytes spill loads/) ? "none" : $0 }
  /Used [0-9]+ registers/ {
    registers = $0; sub(/.*Used /, "", registers); sub(/ registers.*/, "", registers)
    shared = "0"; if ($0 ~ /bytes smem/) { shared = $0; sub(/ bytes smem.*/, "", shared); sub(/.* /, "", shared) }
    if (arch == "sm_80" || arch == "sm_90a")
      printf "%s | %s | %s | %s | %s | %s |\n", name, arch, registers, size[arch " " name], shared, spills
  }' "$work/plain" | c++filt | sed -E 's/specula::cuda::|detail::|^void //g; s/\([^|]*\) \|/ |/; s/^([^|]*) \|/| `\1` |/' >"$out"

while IFS=: read -r limit kernel; do
  most=$(sed -E 's/.*at most ([0-9]+) .*/\1/' <<<"$limit") arch=${limit##* } kernel=${kernel# }
  found=$(awk -F ' \\| ' -v arch="$arch" -v kernel="| \`$kernel" 'index($0, kernel) == 1 && $2 == arch { print $4 }' "$out" | sort -n | tail -n 1)
  if [ -z "$found" ] || [ "$found" -gt "$most" ]; then
    echo "error: $(basename "$file"): ${found:-no} instructions of $kernel for $arch, at most $most"
    bad=1
  fi
done < <(grep -E '^// at most [0-9]+ instructions for sm_[0-9]+a?: ' "$file" || true)
exit "$bad"
