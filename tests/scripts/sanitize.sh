#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: sanitize.sh ROOT
#
# Counts of compute-sanitizer's reports by scripts/gpu: every part is called, and every report is a failure; with a fake
# tool that only prints.
set -uo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$root/bench/cuda/sanitize.sh"

bad=0
# expect WANTED GOT WHAT
expect() {
  if [ "$1" != "$2" ]; then
    printf 'error: %s: %s, not %s\n' "$3" "$2" "$1"
    bad=1
  fi
}
# counts NUMBER: what count_reports finds in the text that is read.
counts() {
  cat >"$work/log"
  expect "$1" "$(count_reports "$work/log")" "reports in
$(cat "$work/log")"
}

counts 0 <<'END'
========= COMPUTE-SANITIZER
| rejection bf16 | 12 of 12 equal | unexplained 0 | farthest 0 | pass |
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
END
counts 0 <<'END'
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
END
counts 1 <<'END'
========= Barrier error detected. Divergent thread(s) in warp.
=========     at specula::cuda::DeviceBlock::sync()+0x97a0 in group.cuh:114
=========     by thread (64,0,0) in block (448,0,0)
=========         Host Frame: cudaError specula::cuda::detail::launch<int>(void (*)(int), int) [0x63932] in verification
=========         Host Frame: specula_bench::Report::part(...) [0x1d2e8] in verification
========= 
========= ERROR SUMMARY: 1 error
END
counts 2 <<'END'
========= Error: Race reported between Write access at kernel(int *)+0x90 in a.cu:6
=========     and Read access at kernel(int *)+0xb0 in a.cu:7 [4 hazards]
========= 
========= Warning: Race reported between Write access at kernel(int *)+0x90 in a.cu:6
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
END
counts 9 <<'END'
========= Invalid __shared__ read of size 4 bytes
=========     at kernel(int *)+0x90 in a.cu:6
========= Uninitialized __global__ memory read of size 4 bytes
========= ERROR SUMMARY: 9 errors
========= ERROR SUMMARY: 7 errors were not printed. Use --print-limit option to adjust the number of printed errors
END

# ---- all calls, against a tool that finds something in one part and takes too long in another

place=$work/programs results=$work table=$work/table seed=7
mkdir "$place"
PATH=$work:$PATH
for program in verification growth helpers attention; do
  printf '#!/bin/sh\n' >"$place/$program"
  chmod +x "$place/$program"
done
cat >"$work/compute-sanitizer" <<'END'
#!/usr/bin/env bash
printf '%s\n' "$*" >>"${0%/*}/calls"
case "$*" in
  *racecheck*--part\ traversal*) echo '========= Error: Race reported between'; exit 9 ;;
  *racecheck*--part\ sharded*) exit 124 ;;
esac
echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'
END
chmod +x "$work/compute-sanitizer"
left() { echo 500; }
limited() { shift; "$@"; }
head_of() { printf '"section": "%s"' "$1"; }
pack() { :; }
failed=()
sanitize >/dev/null
expect 2 "${#failed[@]}" failures
expect 'racecheck of verification traversal (status 9, 1 reports)' "${failed[0]-}" 'first failure'
expect 'racecheck of verification sharded (status 124, 0 reports)' "${failed[1]-}" 'second failure'
for part in $(sed -n 's/^ *report\.part("\([a-z -]*\)".*/\1/p' "$root/bench/cuda/verification_check.cu" | tr ' ' - |
  grep -v chi-square) greedy sample-and-match rejection traversal block; do  # chi-square is no tiny check
  expect 1 "$(grep -c -- "--tool racecheck .* --part $part\$" "$work/calls")" "racecheck of $part"
done
expect 4 "$(grep -c -- '--only wgmma$' "$work/calls")" 'calls of wgmma'
expect 0 "$(grep -c -- '--print-limit .*--print-limit' "$work/calls")" 'calls with an option twice'
expect 0 "$(grep synccheck "$work/calls" | grep -vc -- '--print-limit 1000000')" 'calls of synccheck with a limit'
if command -v python3 >/dev/null; then
  python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["sanitize"]))' "$results/sanitize.json" >"$work/items" ||
    bad=1
  expect "$(wc -l <"$work/calls")" "$(cat "$work/items")" 'calls in the JSON'
fi

: >"$work/calls"
sanitize >/dev/null
expect 2 "$(wc -l <"$work/calls")" 'calls of another run: what had failed'
rm "$work"/sanitize.*.ok
: >"$work/calls"
sanitize='synccheck growth|racecheck .*--part greedy' sanitize >/dev/null
expect 2 "$(wc -l <"$work/calls")" 'calls that match a pattern'
exit "$bad"
