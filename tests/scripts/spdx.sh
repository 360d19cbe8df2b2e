#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: spdx.sh ROOT
#
# Every file of source names its licence in its first or second line.
set -euo pipefail
cd "$1"
text='SPDX-License-Identifier: MIT'
[[ $(head -n 1 LICENSE) = 'MIT License' ]]

# Sources by their names, and programs of scripts by their first line.
sources() {
  find include examples tests bench tools cmake -type f \
    \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.rs' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' -o -name '*.sh' \
    -o -name '*.cmake' -o -name CMakeLists.txt \) \
    -not -path '*/__pycache__/*'
  find scripts docs/figures docs/site -maxdepth 1 -type f \( -name '*.py' -o -name '*.sh' -o -name '*.awk' -o -not -name '*.*' \) -not -name Doxyfile
  printf '%s\n' CMakeLists.txt
}
bad=0
while read -r file; do
  head -n 2 "$file" | grep -qF "$text" || { printf 'without %s: %s\n' "$text" "$file"; bad=1; }
done < <(sources | sort)
exit "$bad"
