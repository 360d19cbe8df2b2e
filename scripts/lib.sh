# SPDX-License-Identifier: MIT
# Shared by the scripts beside it; sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)

# The packages that most programs of this repository need.
build_packages=(g++ cmake ninja-build libeigen3-dev libsentencepiece-dev libonig-dev libutf8proc-dev nlohmann-json3-dev
  libcli11-dev)

# What scripts/docs needs.
docs_packages=(doxygen doxygen-awesome-css python3-sphinx python3-myst-parser python3-sphinx-copybutton furo)

say() { printf '\n== %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# need_packages PACKAGE...: installs missing ones with apt-get, as root or by sudo without a password. If neither works, it
# prints the command and stops.
need_packages() {
  local package status missing=()
  if ! command -v dpkg-query >/dev/null; then
    printf 'note: this is no Debian system; the equivalents of these packages are needed: %s\n' "$*" >&2
    return
  fi
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || true
    [[ $status = installed* ]] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      printf 'Some packages are missing. Please run\n\n' >&2
      printf '    sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n\n' "${missing[*]}" >&2
      die 'cannot install packages: not root, and sudo wants a password'
    fi
    as_root=(sudo -n)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq </dev/null || die 'apt-get update failed'
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null ||
    die "apt-get could not install ${missing[*]}"
}

# pip_download DIRECTORY PACKAGE==VERSION SHA256 [OPTION...]: one file, which must have that hash. Few retries, so that a
# machine without a network does not wait long.
pip_download() {
  local into=$1 package=$2 sha256=$3
  shift 3
  python3 -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
  printf '%s --hash=sha256:%s\n' "$package" "$sha256" >"$into/requirements"
  python3 -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-deps --require-hashes \
    "$@" -d "$into" -r "$into/requirements" </dev/null || die "pip cannot download $package"
}

# given NAMES WORD...: whether one of the words is one of these options.
given() {
  local names=" $1 " word
  shift
  for word in "$@"; do [[ $word != --* || $names != *" ${word%%=*} "* ]] || return 0; done
  return 1
}

# usage: prints the comment at the head of the running script, without the line of the licence.
usage() { sed -n '2,/^[^#]/{/SPDX/d;/^#/s/^# \{0,1\}//p}' "$0"; }

# options NAMES WORDS WORD...: the command line of a script. Its options are the variables NAMES: one that is `false` is a flag, others
# take a value. Other words go to the array WORDS; with '' there must be none. A wrong one prints the usage, with exit code 2.
options() {
  local names=" $1 " words=$2 name
  shift 2
  while [ $# -gt 0 ]; do
    name=${1#--}
    name=${name//-/_}
    case "$1" in
      -h | --help) usage; exit 0 ;;
      --*) [[ $names = *" $name "* ]] || { usage >&2; exit 2; }
        if [ "${!name}" = false ]; then printf -v "$name" true; else printf -v "$name" %s "${2:?$1 needs a value}"; shift; fi ;;
      *) [[ -n $words && $1 != -* ]] || { usage >&2; exit 2; }
        eval "$words+=(\"\$1\")" ;;
    esac
    shift
  done
}
