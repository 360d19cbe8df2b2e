#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: stamps.sh ROOT
#
# Stamps of scripts/test: what their hash is of, and that the list of files has what the compiler reads.
set -uo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
# expect WHAT COMMAND...
expect() {
  local what=$1
  shift
  "$@" >"$work/log" 2>&1 && return
  printf 'error: %s\n' "$what"
  cat "$work/log"
  bad=1
}
differs() { [ "$1" != "$2" ]; }

# ---- every listed file, and every new one beside the compiled ones, changes the hash of each stamp

for name in cuda train; do
  list=$source/scripts/stamps/$name
  root=$work/$name
  mkdir "$root"
  (cd "$source" && tail -n +2 "$list" | tr '\n' '\0' | xargs -0 -I{} sh -c '[ ! -e "$1" ] || cp -r --parents "$1" "$0"' "$root" {})
  mkdir -p "$root/scripts/stamps" && cp "$list" "$root/scripts/stamps"
  . "$source/scripts/stamp.sh"
  expect "scripts/stamps/$name lists files" test "$(wc -l <"$list")" -gt 50
  before=$(stamp_text "$name")
  expect "$name: the hash is of each file once" test "$(tail -n +2 "$list" | while read -r file; do [ ! -e "$root/$file" ] || echo; done | wc -l)" = \
    "$(grep -cE '^[0-9a-f]{64}  ' <<<"$before")"
  tail -n +2 "$list" | while read -r file; do [ ! -e "$root/$file" ] || printf '\n' >>"$root/$file"; done
  expect "$name: a changed file leaves its line as it was" test -z "$(comm -12 <(grep -E '^[0-9a-f]{64}  ' <<<"$before" | sort) <(stamp_text "$name" | sort))"
  for beside in $(tail -n +2 "$list" | grep -E '\.(cpp|cu)$' | sed 's,[^/]*$,,' | sort -u); do
    before=$(stamp_hash "$name")
    mkdir -p "$root/${beside}inner" && touch "$root/${beside}inner/new.cpp"
    expect "$name: a new file below $beside does not change the hash" differs "$before" "$(stamp_hash "$name")"
  done
  gone=$(tail -n +2 "$list" | tail -n 1)
  before=$(stamp_hash "$name")
  rm -f "$root/$gone"
  expect "$name: $gone is gone, and the hash is the same" differs "$before" "$(stamp_hash "$name")"
done

# ---- the list of a stamp that is right has what the compiler includes today

root=$source
nvcc=${NVCC:-$(PATH=${CUDA_HOME:+$CUDA_HOME/bin:}$PATH:/usr/local/cuda/bin command -v nvcc || true)}
for name in cuda train; do
  if ! stamped "$name"; then
    printf 'note: scripts/stamps/%s is of other files, so its list is not compared\n' "$name"
    continue
  fi
  tail -n +2 "$root/scripts/stamps/$name" | sort >"$work/list"
  grep '\.cpp$' "$work/list" | awk 'NR % 10 == 1' | while read -r file; do
    (cd "$root" && g++ -std=c++20 -MM -MG -Iinclude -Itests/support -Itools/train/src -Itools/common "$file") |
      tr -s ' \\' '\n'
  done | in_repository "$root" | sort >"$work/included"
  expect "$name: nothing is included" test -s "$work/included"
  expect "$name: the compiler includes what is not listed: $(comm -13 "$work/list" "$work/included")" \
    test -z "$(comm -13 "$work/list" "$work/included")"
done

# ---- a project of its own: what its list has

root=$work/project
mkdir -p "$root"/{scripts,src/deep,include,lib,aside}
cp "$source/scripts/stamp.sh" "$root/scripts"
cat >"$root/src/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(one LANGUAGES CXX)
include(${CMAKE_CURRENT_SOURCE_DIR}/../lib/flags.cmake)
include(${CMAKE_CURRENT_SOURCE_DIR}/../aside/unused.cmake)
enable_testing()
add_executable(one one.cpp)
target_include_directories(one PRIVATE ../include)
add_executable(other other.cpp)
add_test(NAME one COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/../lib/run.sh ${CMAKE_CURRENT_SOURCE_DIR}/../include)
add_test(NAME other COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/other.sh)
END
touch "$root/lib/flags.cmake" "$root/aside/unused.cmake" "$root/lib/run.sh" "$root/src/other.sh" "$root/include/unused.hpp"
echo '#include "middle.hpp"' >"$root/include/first.hpp"
echo '#include <cstddef>' >"$root/include/middle.hpp"
printf '#include "first.hpp"\n#include "deep/own.hpp"\nint main() {}\n' >"$root/src/one.cpp"
touch "$root/src/deep/own.hpp"
echo 'int main() {}' >"$root/src/other.cpp"
expect 'the project builds' sh -c "cmake -G Ninja -S '$root/src' -B '$root/build/one' && ninja -C '$root/build/one'"
inputs_of "$root/build/one" one -R '^one$' >"$work/inputs"
cmake_files_of "$root/build/one" "$work/inputs" >>"$work/inputs"
printf '%s\n' include/first.hpp include/middle.hpp lib/flags.cmake lib/run.sh src/CMakeLists.txt src/deep/own.hpp src/one.cpp >"$work/wanted"
expect 'the list of a project' diff "$work/wanted" <(sort -u "$work/inputs")
printf 'int more;\n' >>"$root/include/middle.hpp"
write_stamp one <"$work/inputs"
expect 'a stamp that was written is right' stamped one
printf 'int again;\n' >>"$root/include/middle.hpp"
expect 'a header that changed' eval '! stamped one'
exit "$bad"
