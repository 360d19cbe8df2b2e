# SPDX-License-Identifier: MIT
# Stamps of the runs that scripts/test skips while nothing that they read has changed; sourced by it and by its test.
#
# scripts/stamps/NAME is a hash and the files of the repository that a run of NAME read, as compilers, CMake and CTest name
# them. The hash is of these files, and of the names of all sources in and below the folders of the compiled ones, as a new
# file there may belong to the run. To compare it needs no build.

# inputs_of FOLDER TARGET [CTEST_OPTION...]: the files of the repository that a finished build and these tests read. Its
# status is not 0 if a tool does not say it.
inputs_of() {
  local folder=$1 target=$2 path
  shift 2
  {
    # What the compilers included.
    ninja -C "$folder" -t inputs "$target" | grep -E '\.(o|gch|pch)$' | tr '\n' '\0' |
      xargs -0 ninja -C "$folder" -t deps | sed -n 's/^    //p' || exit 1
    # What the tests' commands name, and the CMake files that define them.
    ctest --test-dir "$folder" --show-only=json-v1 "$@" | grep -o '"/[^"]*"' | tr -d '"' | while read -r path; do
      case "$path" in
        "$root" | "$root"/build/* | */include) ;;
        "$root"/*) find "$path" -type f ;;
      esac
    done
  } | in_repository "$folder"
}
# in_repository FOLDER: of paths from FOLDER, one a line, those of files in the repository, from its root.
in_repository() {
  (cd "$1" && tr '\n' '\0' | xargs -0 -r realpath -m --relative-to="$root") | grep -Ev '^(\.\./|build/)' | LC_ALL=C sort -u |
    while read -r path; do [ ! -f "$root/$path" ] || printf '%s\n' "$path"; done
}
# cmake_files_of FOLDER LIST: the CMake files that the build's configuration read, if their folders have a file of LIST.
cmake_files_of() {
  ninja -C "$1" -t query build.ninja | sed -n 's/^    \(| \)*//p' | grep -E '(/CMakeLists\.txt|\.cmake|\.in)$' |
    in_repository "$1" | awk -v list="$2" '
      BEGIN { while ((getline path < list) > 0) while (sub("/[^/]*$", "", path)) used[path] }
      { folder = $0; if (!sub("/[^/]*$", "", folder) || folder in used) print }'
}

# stamp_text NAME [LIST]: what the hash is of: of the files in LIST, or of those in the stamp.
stamp_text() {
  local list folder
  if [ $# -gt 1 ]; then list=$(cat "$2"); else list=$(tail -n +2 "$root/scripts/stamps/$1"); fi
  (
    cd "$root" || exit
    tr '\n' '\0' <<<"$list" | xargs -0 sha256sum 2>/dev/null
    sed -nE 's,/[^/]*\.(cpp|cu|cuh)$,,p' <<<"$list" | sort -u | while read -r folder; do
      find "$folder" -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'
    done 2>/dev/null | LC_ALL=C sort -u
  )
  if [ "$1" = cuda ]; then "${nvcc:-false}" --version 2>/dev/null | grep release || true; fi
}
# stamp_hash NAME [LIST]
stamp_hash() { stamp_text "$@" | sha256sum | cut -d ' ' -f 1; }

# stamped NAME: whether these files passed before.
stamped() {
  [ -e "$root/scripts/stamps/$1" ] && [ "$(stamp_hash "$1")" = "$(head -n 1 "$root/scripts/stamps/$1")" ]
}

# write_stamp NAME: of the files that are read from the standard input.
write_stamp() {
  local list=$root/build/stamp.$1
  LC_ALL=C sort -u >"$list"
  mkdir -p "$root/scripts/stamps"
  { stamp_hash "$1" "$list" && cat "$list"; } >"$list.new" && mv "$list.new" "$root/scripts/stamps/$1"
}
