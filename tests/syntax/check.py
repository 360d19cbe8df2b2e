#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check.py SOURCES BUILD LIBRARY

Checks the syntax of all headers, in one file, and of the examples and tools, as BUILD/compile_commands.json compiles them, with
the C++ standard library LIBRARY (libc++ or libstdc++) of clang. What they include of other libraries is parsed once.
Without the two headers, and the source, that instantiate the whole CPU model or every pipeline.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

sources, build, library = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
work = build / "syntax" / library
work.mkdir(parents=True, exist_ok=True)
include = sources / "include"

commands = [c for c in json.loads((build / "compile_commands.json").read_text())
            if any(f"{tree}/{folder}/" in c["file"] for tree in (sources, build) for folder in ("examples", "tools"))
            and not c["file"].endswith("/pipelines.cpp")]
for folder in ("examples", "tools"):
    if not any(f"/{folder}/" in c["file"] for c in commands):
        sys.exit(f"no source of {folder} in compile_commands.json")


def words_of(command):
    """The compiler and its flags, without output and source."""
    words = shlex.split(command["command"])
    while "clang" not in words[0]:  # a launcher
        words.pop(0)
    words = words[: words.index("-o")]
    return [w for w in words if not w.startswith("-stdlib=")] + [f"-stdlib={library}", "-fsyntax-only"]


failed = 0


def check(words, source, folder=build):
    global failed
    ran = subprocess.run(words + [str(source)], cwd=folder, capture_output=True, text=True)
    if ran.returncode or ran.stderr:
        failed += 1
        print(f"{source}:\n{ran.stderr}", flush=True)


def headers(suffix, *without):
    names = sorted(str(p.relative_to(include)) for p in include.glob(f"specula/**/*.{suffix}"))
    return "".join(f"#include <{n}>\n" for n in names if not re.match("specula/(" + "|".join(without) + ")", n))


with_models = next(c for c in commands if "/specula_tools_models" in c["file"])  # finds every library's headers
flags = words_of(with_models)

every, cuda = work / "headers.hpp", work / "cuda_headers.cpp"
every.write_text("#include <CLI/CLI.hpp>\n" +
                 headers("hpp", "cuda/", "llama_cpp/", r"cpu/compile_decoder(_double)?\.hpp", r"make_pipeline\.hpp"))
cuda.write_text(headers("cuh"))
parsed = work / "headers.pch"
check([w for w in flags if w != "-fsyntax-only"] +
      ["-Wsign-conversion", "-Wold-style-cast", "-fpch-instantiate-templates", "-x", "c++-header", "-o", str(parsed)], every)
check([("-std=c++17" if w.startswith("-std=") else w) for w in flags], cuda)
for command in commands:
    check(words_of(command) + ["-include-pch", str(parsed)], command["file"], command["directory"])

print(f"{len(commands)} files of the examples and tools and all headers with {library}: {failed} failed")
sys.exit(failed > 0)
