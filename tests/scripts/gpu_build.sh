#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: gpu_build.sh ROOT
#
# scripts/gpu with files that do not compile and programs that fail: with a fake compiler whose programs only write JSON,
# and a fake driver that names a device.
set -uo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tests" "$work/peers/flashinfer" "$work/bin" "$work/include"
cp -r "$root/scripts" "$root/bench" "$work"
cp -r "$root/tests/support" "$work/tests"
touch "$work/peers/flashinfer/sampling.cuh"
cat >"$work/bin/nvcc" <<'END'
#!/usr/bin/env bash
for word; do
  if [ -n "${FAILS-}" ] && [[ $word = */bench/cuda/$FAILS ]]; then echo 'error: it does not compile'; exit 1; fi
done
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then cp "${0%/*}/program" "$2"; fi
  shift
done
END
cat >"$work/bin/program" <<'END'
#!/usr/bin/env bash
echo "| ${0##*/} $1 |"
if [ "$2" = --out ]; then printf '{"%s": 1}' "$1" >"$3"; fi
[ "${0##*/} $1" != "${BREAKS-}" ]
END
cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$1" in *compute_cap*) echo 9.0 ;; *) echo 'Some GPU, 1.2' ;; esac
END
printf '#!/bin/sh\nexit 1\n' >"$work/bin/python3"  # has no PyTorch
chmod +x "$work"/bin/*
python=$(command -v python3 || true)
export NVCC=$work/bin/nvcc

bad=0
# expect STATUS REGEX FAILS OPTION...: of scripts/gpu where the file FAILS does not compile.
expect() {
  local wanted=$1 regex=$2 status
  export FAILS=$3
  shift 3
  [ -n "${keep-}" ] || rm -rf "$work/build"
  PATH=$work/bin:$PATH bash "$work/scripts/gpu" --jobs 2 "$@" >"$work/log" 2>&1
  status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -q "$regex" "$work/log"; then
    printf 'error: %s where "%s" does not compile: status %s, not %s, or no "%s" in\n' "$*" "$FAILS" "$status" "$wanted" "$regex"
    cat "$work/log"
    bad=1
  fi
}
expect 0 'the build took' '' --build-only
expect 1 'failed: build of growth' growth_bars.cu --build-only
expect 0 'not built, because of peers_attention.cu: peers_attention' peers_attention.cu --build-only --peers "$work/bin:$work/peers"
[ -e "$work/build/gpu/90a/peers" ] || { echo 'error: a peer that compiles is not built'; bad=1; }
expect 0 'the build took' peers.cu --build-only
expect 0 'no flashinfer/sampling.cuh' '' --build-only --peers "$work/bin"
expect 1 'no such folder' '' --build-only --peers "$work/nowhere"
expect 0 'nvcc accepts' '' --syntax
expect 1 'nvcc reports errors or warnings' cases.cpp --syntax

sections=ceilings,check,bars,graph,sweep
expect 0 'seed 5; 0 failed' '' --out "$work/out" --sections $sections --seed 5 --peers "$work/peers"
archived() { rm -rf "$work/got" && mkdir "$work/got" && tar -xzf "$work/out/gpu.tar.gz" -C "$work/got"; }
archived
[ "$(ls "$work/out")" = gpu.tar.gz ] || { echo 'error: more than an archive'; bad=1; }
for section in ${sections//,/ } peers; do
  [ -z "$python" ] || "$python" -c 'import json, sys
file = json.load(open(sys.argv[1]))
assert file["device"] == "Some GPU, 1.2" and file["seed"] == 5 and "commit" in file and len(file) > 6, file' \
    "$work/got/$section.json" || bad=1
done
BREAKS='growth check' expect 1 'FAILED check of growth (status 1)' '' --out "$work/out" --sections check
expect 1 'FAILED build of growth' growth_bars.cu --out "$work/out" --sections check

# A call that goes on runs what failed, and nothing that did not; with the seed of the first.
BREAKS='growth check' expect 1 'FAILED check of growth' '' --out "$work/out" --sections check --seed 9
keep=yes expect 0 'seed 9; 0 failed' '' --out "$work/out" --sections check,bars --resume
[ "$(grep -c 'done before' "$work/log")" = 3 ] || { echo 'error: not resumed'; cat "$work/log"; bad=1; }
archived
[ "$(grep -c '"[a-z]*": {"check": 1}' "$work/got/check.json")" = 4 ] || { echo 'error: not all parts in the archive'; bad=1; }
keep=yes expect 0 'seed 11; 0 failed' '' --out "$work/out" --sections check --seed 11
! grep 'done before' "$work/log" || { echo 'error: resumed unasked'; bad=1; }
exit "$bad"
