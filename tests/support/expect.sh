# SPDX-License-Identifier: MIT
# For tests of programs; sourced, never run. The last line of such a test is: exit "$failed"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect CODE TEXT COMMAND...: runs it; requires that exit code and TEXT (a basic regular expression) in its output.
expect() {
  local code=$1 text=$2 got
  shift 2
  "$@" >"$scratch/out" 2>&1 </dev/null
  got=$?
  if [ "$got" -ne "$code" ] || ! grep -q -- "$text" "$scratch/out"; then
    printf 'FAILED: %s\n  exit code %s, expected %s with "%s"; it printed:\n' "$*" "$got" "$code" "$text"
    sed 's/^/  | /' "$scratch/out"
    failed=1
  fi
}
# also TEXT: requires TEXT in the output of the last command, too.
also() {
  grep -q -- "$1" "$scratch/out" && return
  printf 'FAILED: expected "%s" as well; it printed:\n' "$1"
  sed 's/^/  | /' "$scratch/out"
  failed=1
}
# never TEXT: requires that TEXT is not in the output of the last command.
never() {
  grep -q -- "$1" "$scratch/out" || return 0
  printf 'FAILED: did not expect "%s"; it printed:\n' "$1"
  sed 's/^/  | /' "$scratch/out"
  failed=1
}
