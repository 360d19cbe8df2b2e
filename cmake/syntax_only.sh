#!/bin/sh
# syntax_only.sh COMPILER ARGUMENT...: compiles without making code, and leaves an empty file in place of the object.
out=''
previous=''
for argument; do
  [ "$previous" != -o ] || out=$argument
  previous=$argument
done
"$@" -fsyntax-only && : >"$out"
