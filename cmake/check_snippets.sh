#!/bin/sh
# SPDX-License-Identifier: MIT
# check_snippets.sh PAGE OUTPUT_DIR cpu|no-cpu llama_cpp|no-llama_cpp PARSED COMPILER [FLAG...]
#
# Compiles every ```cpp block of a Markdown page that directly follows the line `<!-- compile -->`. A block is a whole
# translation unit; those of the same includes are compiled together, each in a namespace, unless they have a main.
# Compiler messages name the page and its line. A marker without a block is an error. PARSED is a header that includes the
# facade, precompiled: for blocks that include that themselves.
set -eu

page=$1
output=$2
cpu=$3
llama_cpp=$4
parsed=$5
shift 5

rm -rf "$output"
mkdir -p "$output"
awk -v page="$page" -v output="$output" '
  function fail(message) { printf "%s:%d: %s\n", page, NR, message; broken = 1; exit 1 }
  function finish(  unit) {
    ++blocks
    unit = includes (main ? blocks : "")
    if (!(unit in files)) {
      files[unit] = sprintf("%s/%03d.cpp", output, blocks)
      printf "%s", includes > files[unit]
    }
    printf (main ? "#line %d \"%s\"\n%s" : "namespace block_" blocks " {\n#line %d \"%s\"\n%s}\n"), first, page, code > files[unit]
  }
  inside && /^```[ \t\r]*$/ { inside = 0; finish(); next }
  inside && /^#include /     { includes = includes $0 "\n"; code = code "\n"; next }
  inside                     { code = code $0 "\n"; if (/^int main\(/) main = 1; next }
  marked {
    if ($0 !~ /^```cpp[ \t\r]*$/) fail("a compile marker must stand directly above a ```cpp block")
    marked = 0
    inside = 1
    includes = code = main = ""
    first = NR + 1
    next
  }
  /^<!-- compile -->[ \t\r]*$/ { marked = 1 }
  END { if (!broken && (marked || inside)) fail("the page ends inside a marked block") }
' "$page"

compiled=0
for file in "$output"/*.cpp; do
  [ -e "$file" ] || break
  if [ "$cpu" = no-cpu ] && grep -q '<specula/cpu' "$file"; then
    echo "SKIP: a block needs Eigen: $file"
    continue
  fi
  if [ "$llama_cpp" = no-llama_cpp ] && grep -q '<specula/llama_cpp' "$file"; then
    echo "SKIP: a block needs libllama: $file"
    continue
  fi
  if grep -q '^#include <specula/specula.hpp>' "$file"; then
    "$@" -include "$parsed" "$file"
  else
    "$@" "$file"
  fi
  compiled=$((compiled + 1))
done
echo "$compiled compiled"
