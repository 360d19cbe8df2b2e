#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: plots.sh ROOT
#
# The plots are those of their data (scripts/plots --check), can be drawn, twice to the same bytes, and a change is noticed.
set -euo pipefail
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
root=$1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/docs"
cp -r "$root/docs/benchmarks" "$root/docs/plots" "$copy/docs"
plots() { SPECULA_ROOT=$copy python3 "$root/scripts/plots" "$@"; }

python3 "$root/scripts/plots" --check
if grep -L '<desc>[^<]' "$root"/docs/plots/*.svg | grep .; then echo 'error: no alternative text'; exit 1; fi

# notices WHAT PLOT...: the check fails and names these files of docs/plots, no others. Then the copy is as before.
notices() {
  local what=$1 status=0
  shift
  plots --check >"$copy/out" || status=$?
  if [ "$status" -ne 1 ] || [ "$(sed -n 's|^docs/plots/\([^ ]*\) is .*|\1|p' "$copy/out" | tr '\n' ' ')" != "$* " ]; then
    cat "$copy/out"
    echo "error: not noticed: $what"
    exit 1
  fi
  restore
}
restore() {
  rm -r "$copy/docs"
  mkdir "$copy/docs"
  cp -r "$root/docs/benchmarks" "$root/docs/plots" "$copy/docs"
}
asd=$copy/docs/benchmarks/paper_asd_t0.json
grep -q '"target_calls": 671,' "$asd"
sed -i 's/"target_calls": 671,/"target_calls": 490,/' "$asd"
notices 'a figure that changed' asd.svg
sed -i 's/[0-9]\.[0-9]*x</9.99x</' "$copy/docs/plots/speedup.svg"
notices 'a plot that was edited' speedup.svg
rm "$copy/docs/plots/cape.svg"
notices 'a plot that is missing' cape.svg
touch "$copy/docs/plots/of_nothing.svg"
notices 'a file that is no plot' of_nothing.svg

if ! python3 -c 'import matplotlib' 2>/dev/null && ! /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
  echo 'note: without matplotlib nothing is drawn'
  exit 0
fi
sed -i 's/"target_calls": 671,/"target_calls": 490,/' "$asd"
plots --only cape
grep -q '>0</text>' "$copy/docs/plots/cape.svg"  # an axis begins at a round number, below all values
plots --only asd
grep -q '>1.43x</text>' "$copy/docs/plots/asd.svg"
cp "$copy/docs/plots/asd.svg" "$copy/first.svg"
plots --only asd
cmp "$copy/first.svg" "$copy/docs/plots/asd.svg"
touch "$copy/docs/plots/of_nothing.svg"  # else all would be drawn again
notices 'a file that is no plot, beside one that was drawn anew' of_nothing.svg
sed -i 's/"Max-Gram":/"A method whose name is too long for the labels of a plot, and for any place that is left beside its bars":/' "$copy/docs/benchmarks/paper_main.json"
if plots --only speedup 2>"$copy/out" || ! grep -q 'leaves the plot' "$copy/out"; then
  cat "$copy/out"
  echo 'error: a text that does not fit is not noticed'
  exit 1
fi
