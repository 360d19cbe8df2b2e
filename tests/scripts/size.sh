#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: size.sh ROOT
#
# The models, and what comes with them, take at most 49 MB: the tree travels to machines with a GPU, in 64 MB with all else, and what is
# committed once stays in history.
set -euo pipefail
cd "$1"
limit=$((49 * 1024 * 1024))
size=$(find examples/models examples/smollm2 -type f -printf '%s\n' | awk '{ all += $1 } END { print all }')
echo "models: $size bytes of $limit"
[ "$size" -gt 1000000 ]  # they are there
[ "$size" -le "$limit" ]
