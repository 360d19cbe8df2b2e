#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: docs.sh ROOT
#
# The documentation builds: every public symbol is documented, and every link has a target. In a small tree, scripts/docs
# notices what is not so.
set -uo pipefail
root=$1
. "$root/tests/support/expect.sh"
site=$scratch/site
status=0
"$root/scripts/docs" --check "$site" || status=$?
if [ "$status" -eq 77 ]; then exit 77; fi
if [ "$status" -ne 0 ]; then failed=1; fi

# The front page is short, and its code fits its box on a page of 1280 pixels.
if [ "$(wc -l <"$root/README.md")" -gt 180 ]; then
  echo 'FAILED: the front page has more than 180 lines'
  failed=1
fi
if ! awk '/^ *```/ { code = !code } code && length > 92 { print "FAILED: code of more than 92 columns: " $0; bad = 1 } END { exit bad }' "$root/README.md"; then
  failed=1
fi

tree=$scratch/tree
mkdir -p "$tree/docs/pictures" "$tree/include/specula/run" "$tree/include/specula/shape"
cp -r "$root/docs/site" "$tree/docs"
cp "$root/docs/pictures/beam.svg" "$tree/docs/pictures"
echo '{"figures": 1}' >"$tree/docs/data.json"
echo 'int other;' >"$tree/docs/other.cpp"
echo '// What is there in C.' >"$tree/include/specula.h"
cat >"$tree/README.md" <<'END'
# A tree

Read [the page](docs/page.md#two-words-and-a-code), its [data](docs/data.json) and [code](include/specula/run/thing.hpp),
or `Thing::size`; [other code](include/specula), and [code](docs/other.cpp).

| a table | with `code` |
| --- | --- |
| 1 | 2 |
END
cat >"$tree/docs/page.md" <<'END'
# Page

![A beam](pictures/beam.svg)

## Two words, and a `code`

Back to the [top](#page), and to [the front](../README.md).

```cpp
int main() {}
```
END
cat >"$tree/include/specula/run/thing.hpp" <<'END'
// What this header is for.
#pragma once
namespace specula {

/// A concept.
template <class T>
concept Sized = requires(const T& t) {
  t.size();  // its comment is shown
};

/// A thing.
struct Thing {
  int size = 0;  ///< in bytes
  /// Checks it.
  void scale(int much) const;
};

namespace detail {
struct Hidden {};
}  // namespace detail

}  // namespace specula
END
cat >"$tree/include/specula/shape/line.hpp" <<'END'
// A shape.
#pragma once
namespace specula {

/// A line of draft tokens.
/// **Draws.** Nothing. **Cost.** One call.
/// **Throws.** Nothing. **Source.** Nothing.
struct Line {
  static constexpr ProposalKind kind = chain;  ///< how its draft tokens are drawn
};

}  // namespace specula
END
mkdir -p "$tree/tests/run" "$tree/build/dev"
touch "$tree/tests/run/thing.cpp" "$tree/tests/run/other.cpp"
cat >"$tree/build/dev/build.ninja" <<'END'
rule cc
  command = printf '%s: %s %s\n' $out $in '$headers' >$out.d && touch $out
  depfile = $out.d
  deps = gcc
build thing.o: cc ../../tests/run/thing.cpp
  headers = ../../include/specula/run/thing.hpp
build other.o: cc ../../tests/run/other.cpp
  headers = ../../include/specula/run/thing.hpp ../../include/specula/shape/line.hpp
END
ninja -C "$tree/build/dev" >/dev/null
sed -i '/| --- |/,/a GPU/d' "$tree/docs/site/reference.dox"  # which names the library's types
export SPECULA_ROOT=$tree
docs=("$root/scripts/docs" --check "$site")

# holds FILE REGEX...: of the page FILE.
holds() {
  local file=$1 regex
  shift
  for regex; do grep -q "$regex" "$site/$file" || { echo "FAILED: no $regex in $file"; failed=1; }; done
}
expect 0 '^written: ' "${docs[@]}"
holds index.html 'href="docs/page.html#two-words-and-a-code">' 'href="_downloads/[0-9a-f]*/data.json">' \
  'href="reference/structspecula_1_1Thing.html#[a-z0-9]*"><code[^>]*><span class="pre">Thing::size' 'href="reference/thing_8hpp.html"' \
  '<li class="toctree-l1"><a class="reference internal" href="docs/page.html">Page</a></li>' 'href="reference/index.html">Reference'
holds docs/page.html '<span class="kt">int</span>' 'href="../README.html">' 'src="../_images/beam.svg"'
holds "$(cd "$site" && echo _downloads/*/data.json)" figures
holds searchindex.js 'top'
holds reference/conceptspecula_1_1Sized.html 'its comment is shown'
holds reference/structspecula_1_1Thing.html 'void&#160;.*scale</[ab]> (int much)'
holds reference/structspecula_1_1Line.html '<p *><b>Draws.</b> Nothing. *</p>' '^<p *><b>Cost.</b> One call' '^<p *><b>Source'
holds reference/thing_8hpp.html 'What this header is for' 'Tested by</b> tests/run/thing.cpp, and included by run/other\.'
holds reference/line_8hpp.html 'No test of its own name' 'Included by run/other\.'
holds reference/untested.html 'line.hpp'
if [ -e "$site/reference/structspecula_1_1detail_1_1Hidden.html" ]; then echo 'FAILED: detail is shown'; failed=1; fi

# after FILE SED: edits a file of the tree, which keeps its lines. breaks REGEX [OPTION...]: after such edits, scripts/docs fails
# with this message; `also` has the others, since most of a run's time is starting Sphinx. Then the tree is as before.
after() {
  [ -e "$scratch/kept" ] || cp -r "$tree" "$scratch/kept"
  cp "$tree/$1" "$scratch/before"
  sed -i "$2" "$tree/$1"
  cmp -s "$tree/$1" "$scratch/before" && { echo "FAILED: $2 changes nothing"; failed=1; }
}
breaks() { expect 1 "$1" "${docs[@]}" "${@:2}"; }
restore() { rm -r "$tree" && mv "$scratch/kept" "$tree"; }
thing=include/specula/run/thing.hpp shape=include/specula/shape/line.hpp
after $thing 's|  ///< in bytes||'
after $thing 's|^/// A concept.||'
after $shape 's| \*\*Cost.\*\* One call.||'
breaks "$thing:13: error: Member size .* is not documented"
also 'Sized.* is not documented'
also "$shape:9: error: Line has the heads .*Draws.\*\*\*\*Throws"
restore
after README.md 's|docs/page.md#|docs/pages.md#|'
after README.md 's|docs/data.json|docs/date.json|'
after README.md 's|(include/specula)|(include/speculum)|'
after docs/page.md 's|(pictures/beam|(pictures/bean|'
after docs/page.md 's|(#page)|(#pages)|'
after docs/page.md 's|^## Two|#### Two|'
breaks 'README.md:3: WARNING: .* not found: docs/pages.md'
also 'README.md:3: WARNING: .* not found: docs/date.json'
also 'README.md:3: WARNING: .* not found: include/speculum'
also 'docs/page.md:3: WARNING: .*docs/pictures/bean.svg'
also 'docs/page.md:7: WARNING: .* not found: #pages'
also 'docs/page.md:5: WARNING: Non-consecutive header level'
restore
# What hides some of these.
after $thing 's|^/// A thing.||'
after $shape 's|\*\*Draws.\*\*|**Cost.**|'
after README.md 's|-and-a-code|-and-no-code|'
breaks 'Compound specula::Thing is not documented'
also "$shape:9: error: Line has the heads"
also 'README.md:3: WARNING: .* not found: docs/page.md#two-words'
restore

# ---- links to other hosts
python3 - "$tree/docs" "$scratch/port" 2>/dev/null <<'END' &
import functools, http.server, pathlib, sys
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1]))
pathlib.Path(sys.argv[2] + ".part").write_text(str(server.server_address[1]))
pathlib.Path(sys.argv[2] + ".part").rename(sys.argv[2])
server.serve_forever()
END
server=$!
trap 'kill "$server"; rm -rf "$scratch"' EXIT
for _ in $(seq 100); do [ ! -e "$scratch/port" ] || break; sleep 0.1; done
host=http://127.0.0.1:$(cat "$scratch/port")
echo "[There]($host/data.json)" >>"$tree/docs/page.md"
expect 0 '^written: ' "${docs[@]}" --links
after docs/page.md 's|data.json|date.json|'
breaks "docs/page.md:12: .*$host/date.json.*404" --links
restore
exit "$failed"
