#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: size.sh ROOT
#
# The models, and what comes with them, take at most 49 MiB: the tree travels to machines with a GPU, in 64 MiB with all else, and what is
# committed once stays in history.
set -euo pipefail
cd "$1"
[ -e examples/models/target/model.safetensors ] || { echo 'SKIP: no model pack'; exit 77; }
limit=$((49 * 1024 * 1024))
files() { git ls-files examples/models examples/smollm2 2>/dev/null | grep . || find examples/models examples/smollm2 -type f; }
size=$(files | tr '\n' '\0' | xargs -0 stat -c %s | awk '{ all += $1 } END { printf "%d", all }')
echo "models: $size bytes of $limit"
if [ "$size" -gt "$limit" ]; then
  echo "error: $((size - limit)) bytes too many in examples/models and examples/smollm2"
  exit 1
fi
