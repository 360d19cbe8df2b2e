# SPDX-License-Identifier: MIT
# Sourced by the scripts of this folder: of OUTPUT COMPILER [FLAG...] -- HEADER... leaves the headers in "$@", and sets `output` and
# `command`, which is for eval.
output=$1
shift
command=
while [ "$1" != -- ]; do
  command="$command '$1'"
  shift
done
shift
