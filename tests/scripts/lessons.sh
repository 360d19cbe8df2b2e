#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: lessons.sh PROJECT
# The lessons of examples/: each has at most 120 lines and its compile line on top; those with a model have the same one; and README's
# first program is the first of them.
set -euo pipefail
cd "$1"

failed=0
fail() {
  echo "error: $*"
  failed=1
}
[ "$(ls examples/[0-9][0-9]_*.cpp | wc -l)" -eq 10 ] || fail 'there are not ten lessons'
models=$(mktemp -d)
trap 'rm -r "$models"' EXIT
for file in examples/[0-9][0-9]_*.cpp; do
  [ "$(wc -l <"$file")" -le 120 ] || fail "$file has more than 120 lines"
  sed -n 2,3p "$file" | grep -Eq '^// g\+\+ -std=c\+\+20 ' || fail "$file does not begin with the line that compiles it"
  ! grep -q '^#include "' "$file" || fail "$file needs another file"
  sed -n '/^\/\/\/ The model of these lessons/,/^};/p' "$file" >"$models/$(basename "$file")"
done
find "$models" -type f -empty -delete
[ "$(ls "$models" | wc -l)" -eq 5 ] || fail "these lessons have a model: $(ls "$models" | tr '\n' ' ')"
for file in "$models"/*; do
  cmp -s "$file" "$models/02_own_model.cpp" || fail "the model of $(basename "$file") is not that of 02_own_model.cpp"
done
[ "$(grep -m 1 '^<!-- file: ' README.md)" = '<!-- file: examples/01_generate.cpp -->' ] || fail 'another program stands first in README.md'
exit "$failed"
