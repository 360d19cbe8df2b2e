#!/bin/sh
# SPDX-License-Identifier: MIT
# cuda_examples.sh OUTPUT COMPILER [FLAG...] -- HEADER...
#
# Every public function of these CUDA headers that returns a cudaError_t is called in an example, `/// @code` to
# `/// @endcode`, of a docblock of the same header, and all examples compile. Compiler messages name the header and its line.
set -eu
. "${0%/*}/arguments.sh"

{
  echo '#include "cuda_examples.hpp"'
  awk '
    function finish(  name) {
      for (name in functions)
        if (index(examples, name "(") == 0) { printf "%s: %s() has no example\n", file, name >"/dev/stderr"; bad = 1 }
      split("", functions)
      examples = ""
    }
    FNR == 1 { finish(); file = FILENAME; hidden = 0 }
    /^namespace detail \{/ { hidden = 1 }
    /^}  \/\/ namespace detail/ { hidden = 0 }
    /^\/\/\/ @code$/ {
      printf "namespace specula {\nnamespace cuda {\nvoid example_%d() {\n#line %d \"%s\"\n", ++count, FNR + 1, FILENAME
      inside = 1
      next
    }
    /^\/\/\/ @endcode$/ { inside = 0; print "}\n}\n}" }
    inside { sub(/^\/\/\/ ?/, ""); print; examples = examples $0 }
    !hidden && match($0, /^(inline )?cudaError_t [a-z_]+\(/) { name = $0; sub(/\(.*/, "", name); sub(/.* /, "", name); functions[name] = 1 }
    END { finish(); exit bad }
  ' "$@"
} >"$output"
printf '%s examples\n' "$(grep -c '^void example_' "$output")"
eval "$command" '"$output"'
