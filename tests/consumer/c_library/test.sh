#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: test.sh PART SOURCE FOLDER CXX GENERATOR
# The library of specula.h as users get it: PART `build` builds and installs it in FOLDER/prefix; the others use that, in
# C, Python and Rust, and are skipped (77) where a tool is missing.
set -euo pipefail
part=$1 source=$2 folder=$3 cxx=$4 generator=$5
prefix=$folder/prefix examples=$source/examples/languages
library=$prefix/lib/libspecula_c.so
export LD_LIBRARY_PATH=$prefix/lib PKG_CONFIG_PATH=$prefix/lib/pkgconfig

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || { echo "SKIP: there is no $1"; exit 77; }; }
# Sets `python`.
need_numpy() {
  python=
  for one in python3 /usr/bin/python3; do
    if "$one" -c 'import numpy' 2>/dev/null; then python=$one; fi
  done
  [ -n "$python" ] || { echo 'SKIP: there is no numpy'; exit 77; }
}
# says EXPECTED COMMAND...
says() { local got; got=$("${@:2}"); [ "$got" = "$1" ] || fail "$2 says: $got"; }

case "$part" in
  build)
    rm -rf "$folder"
    cmake -S "$source" -B "$folder/build" -G "$generator" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release \
      -DSPECULA_C_LIBRARY=ON -DBUILD_SHARED_LIBS=ON -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib
    cmake --build "$folder/build"
    cmake --install "$folder/build"
    strip -o "$folder/stripped.so" "$library"
    size=$(stat -c %s "$folder/stripped.so")
    [ "$size" -le 250000 ] || fail "the library has $size bytes"
    symbols=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort | paste -sd ' ')
    [ "$symbols" = 'specula_abi specula_draw specula_error specula_message specula_rule specula_verify' ] ||
      fail "exported: $symbols"
    others=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -Ev '^(libstdc\+\+|libc\+\+(abi)?|libm|libgcc_s|libc|ld-linux.*)\.so' || true)
    [ -z "$others" ] || fail "needs $others"
    printf '%s bytes\n' "$size"
    ;;
  c)
    sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '1d;$d' | diff - <(sed 1,3d "$examples/round.c") ||
      fail 'the front page has another program than examples/languages/round.c'
    need cc
    flags=(-std=c99 -pedantic -Wall -Wextra -Werror)
    if command -v pkg-config >/dev/null; then
      read -ra found <<<"$(pkg-config --cflags --libs specula_c)"
    else
      found=("-I$prefix/include" "-L$prefix/lib" -lspecula_c)
    fi
    cc "${flags[@]}" "$examples/round.c" "${found[@]}" -o "$folder/round"
    says $'2 0 0\n1 1 0' "$folder/round"
    cmake -S "$examples" -B "$folder/examples" -G "$generator" -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$folder/examples"
    says $'2 0 0\n1 1 0' "$folder/examples/round"
    ;;
  python)
    need_numpy
    says '[1, 2, 3, 915] [5, 6, 7, 37]' "$python" -B "$examples/round.py" "$library"
    "$cxx" -std=c++20 -O0 -I "$source/include" -I "$source/tests/support" "$source/tests/consumer/c_library/rounds.cpp" \
      -L "$prefix/lib" -lspecula_c -o "$folder/rounds"
    "$folder/rounds" 10000 | "$python" -B "$source/tests/consumer/c_library/rounds.py" "$examples" "$library" 10000
    ;;
  conformance)
    need_numpy
    "$python" "$source/tests/conformance/library_rules.py" "$library"
    ;;
  rust)
    need rustc
    rustc -D warnings -L "native=$prefix/lib" "$examples/round.rs" -o "$folder/round_rs"
    says $'2 0 0\n1 1 0' "$folder/round_rs"
    ;;
esac
