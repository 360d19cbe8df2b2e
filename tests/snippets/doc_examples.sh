#!/bin/sh
# SPDX-License-Identifier: MIT
# doc_examples.sh OUTPUT COMPILER [FLAG...] -- HEADER...
#
# The docblock of every shape, rule and drafter of these headers begins with its line of code, and all of them compile. Compiler
# messages name the header and its line.
set -eu
. "${0%/*}/arguments.sh"

{
  echo '#include "doc_examples.hpp"'
  awk '
    /^\/\/\// && above !~ /^\/\/\// { begins = $0 ~ /^\/\/\/   /; heads = 0; code = ""; line = FNR }
    /^\/\/\/   / && begins == 1 { code = code substr($0, 4) "\n" }
    /^\/\/\/$/ && begins { begins = 2 }
    /^\/\/\/.*\*\*Draws\.\*\*/ { heads = 1 }
    /^(class|struct) [A-Za-z]+( |$)/ && heads {
      if (begins) printf "void example_%d(Examples& examples) {\n  SPECULA_EXAMPLES\n#line %d \"%s\"\n%s}}\n", ++count, line, FILENAME, code
      else { printf "%s:%d: the docblock of %s does not begin with a line of code\n", FILENAME, line, $2 >"/dev/stderr"; bad = 1 }
      heads = 0
    }
    { above = $0 }
    END { exit bad }
  ' "$@"
} >"$output"
printf '%s examples\n' "$(grep -c '^void example_' "$output")"
eval "$command" '"$output"'
