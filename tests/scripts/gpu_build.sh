#!/usr/bin/env bash
# usage: gpu_build.sh ROOT
#
# What scripts/gpu makes of files that do not compile: with a compiler that only writes empty files.
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
  if [ "$1" = -o ]; then : >"$2"; fi
  shift
done
END
chmod +x "$work/bin/nvcc"
export NVCC=$work/bin/nvcc

bad=0
# expect STATUS REGEX FAILS OPTION...: of scripts/gpu where the file FAILS does not compile.
expect() {
  local wanted=$1 regex=$2 status
  export FAILS=$3
  shift 3
  rm -rf "$work/build"
  bash "$work/scripts/gpu" --jobs 2 "$@" >"$work/log" 2>&1
  status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -q "$regex" "$work/log"; then
    printf 'error: %s where "%s" does not compile: status %s, not %s, or no "%s" in\n' "$*" "$FAILS" "$status" "$wanted" "$regex"
    cat "$work/log"
    bad=1
  fi
}
expect 0 'the build took' '' --build-only
expect 1 'failed: build of growth' growth_bars.cu --build-only
expect 0 'not built, for want of peers_attention.cu: peers_attention' peers_attention.cu --build-only --peers "$work/bin:$work/peers"
[ -e "$work/build/gpu/90a/peers" ] || { echo 'error: a peer that compiles is not built'; bad=1; }
expect 0 'the build took' peers.cu --build-only
expect 0 'no flashinfer/sampling.cuh' '' --build-only --peers "$work/bin"
expect 1 'no such folder' '' --build-only --peers "$work/nowhere"
expect 0 'nvcc understands' '' --syntax
expect 1 'nvcc has something to say' cases.cpp --syntax
exit "$bad"
