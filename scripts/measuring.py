# SPDX-License-Identifier: MIT
"""What the scripts that measure share: options, programs, records of sources and machine, JSON. Standard library only."""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import random
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(1, str(root / "docs" / "figures"))  # before packages: one is called tables, too
pages = root / "docs" / "benchmarks"
cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "specula"


def options(usage, out=pages, parts=(), **defaults):
    """Those of the command line, of the types of their defaults; False is a flag (of `out`: none), None a path. With
    `parts`, --only names some of them."""
    if set(sys.argv[1:]) & {"-h", "--help"}:
        print(usage.strip())
        sys.exit(0)
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    for name, default in {**({} if out is False else {"out": out}), **({"only": ",".join(parts)} if parts else {}),
                          **defaults}.items():
        kind = {"action": "store_true"} if default is False else {"type": pathlib.Path if default is None else type(default), "default": default}
        parser.add_argument("--" + name.replace("_", "-"), **kind)
    given = parser.parse_args()
    if parts:
        given.only = given.only.split(",")
        if unknown := set(given.only) - set(parts):
            fail(f"nothing is called '{unknown.pop()}'; there are {', '.join(parts)}")
    if getattr(given, "quick", False) and given.out.resolve() == pages.resolve():
        fail("--quick measures nothing: it needs --out")
    return given


# Instruction sets, the best one last: the processor's flags, the options of scripts/llama_cpp, and what libllama must and must not say of itself.
SETS = {"avx2": (("avx2",), (), ("AVX2",), ("AVX_VNNI", "AVX512")),
        "avx-vnni": (("avx2", "avx_vnni"), ("--avx-vnni",), ("AVX2", "AVX_VNNI"), ("AVX512",)),
        "avx512": (("avx512bw", "avx512vl", "avx512_vnni"), ("--avx512",), ("AVX512", "AVX512_VNNI"), ())}


def sets():
    """Those that this processor has."""
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return [name for name, (needs, *_) in SETS.items() if flags and set(needs) <= set(flags[1].split())]


def fail(what):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {what}")


def smollm2():
    """SmolLM2-135M-Instruct, where scripts/demo --model smollm2 puts it."""
    file = cache / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return file if file.exists() else fail(f"no {file}: scripts/demo --model smollm2 downloads it")


def random_model(name, *options):
    """A random model by scripts/random_gguf, which is kept."""
    file = root / f"build/blocks/{name}.gguf"
    if not file.exists():
        print(f"writing {file.name}", flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".unfinished")
        run(root / "scripts/random_gguf", *options, "--out", fresh)
        fresh.replace(file)
    return file


def random_1b(kind):
    """Of the shapes of Llama 3.2 1B."""
    return random_model(f"llama-1b.{kind}", "--like", "llama-1b", "--types", kind)


def libllama(*which):
    """The prefix of a build of libllama by scripts/llama_cpp."""
    return subprocess.run([root / "scripts/llama_cpp", *which], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]


def build(*targets, llama=""):
    """The folder of the programs of the release preset, as scripts/demo builds them; with libllama of this prefix."""
    script = '. scripts/lib.sh; need_packages "${build_packages[@]}"; ' \
        f'cmake --preset release -DSPECULA_BUILD_TESTS=OFF -DSPECULA_BUILD_BENCH=OFF {llama and f"-DLLAMA_DIR={llama}"} >/dev/null && ' \
        'cmake --build build/release --target "$@" --parallel "$jobs"'
    subprocess.run(["bash", "-euc", script, "build", *targets], cwd=root, check=True)
    return root / "build/release/bin"


def run(*command, libllama=None, input=None):
    """Runs a program, with the libllama of this prefix. Ends with the last line of what it says, if it fails."""
    more = {"LD_LIBRARY_PATH": f"{libllama}/lib"} if libllama else {}
    ended = subprocess.run([str(word) for word in command], input=input, capture_output=True, text=True, errors="replace", env={**os.environ, **more})
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1].replace(f"{root}/", "")
        fail(f"{said[:200]} (exit code {ended.returncode})")
    return ended


def json_of(*command, libllama=None):
    """What a program writes with --json."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "run.json")
        run(*command, "--json", file, libllama=libllama)
        return json.loads(file.read_text())


def git(*arguments):
    """What git says of this tree; None if it fails."""
    shown = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return None if shown.returncode else shown.stdout


def resampled(items, figure, times=2000):
    """A figure of all of these, and its 95% interval over resamplings of them."""
    draw = random.Random(1)
    drawn = sorted(figure(draw.choices(items, k=len(items))) for _ in range(times))
    return figure(items), drawn[times // 40], drawn[-1 - times // 40]


MEASURED = ["include", "examples", "tools/specula", ":!include/specula/cuda", ":!examples/cuda"]


def sources():
    """What tells the sources of what is measured on a CPU from others: of a commit that changes pages, scripts or what only a GPU runs it is the same."""
    files = git("ls-files", "--stage", "--", *MEASURED) or ""
    return [hashlib.sha256(files.encode()).hexdigest(), *(["and changes"] if git("status", "--porcelain", "--", *MEASURED) else [])]


def same_sources(commit):
    """Whether what is measured is that of this commit."""
    return git("diff", "--quiet", commit, "--", *MEASURED) is not None


def record():
    """Commit, date and machine. Virtual machines often name no more than the processor's maker: so its family and model too."""
    cpu = platform.processor() or platform.machine()
    try:
        info = pathlib.Path("/proc/cpuinfo").read_text()
        name, family, model = (re.search(rf"^{key}\s*:\s*(.*)$", info, re.M)[1] for key in ("model name", "cpu family", "model"))
        cpu = f"{name}, family {family} model {model}"
    except (OSError, TypeError):
        pass
    changed = " and changes" if git("status", "--porcelain", "include", "examples") else ""
    return {"commit": (git("rev-parse", "--short", "HEAD") or "unknown").strip() + changed, "date": datetime.date.today().isoformat(),
            "machine": {"cpu": cpu, "cores": os.cpu_count()}}


def as_rows(value, depth=0, most=0):
    """JSON with one measured row a line: an item of a list is one, up to 16,000 characters."""
    flat, pad = json.dumps(value), "\n" + " " * (depth + 1)
    if not isinstance(value, (dict, list)) or len(flat) <= most or (isinstance(value, list) and not any(isinstance(x, (dict, list)) for x in value)):
        return flat
    inner = [f"{json.dumps(key)}: {as_rows(x, depth + 1, 200)}" for key, x in value.items()] if isinstance(value, dict) else [as_rows(x, depth + 1, 16000) for x in value]
    return ("{%s}" if isinstance(value, dict) else "[%s]") % (pad + ("," + pad).join(inner) + pad[:-1])


def write(file, data):
    """As a whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".unfinished")
    fresh.write_text(as_rows(data) + "\n")
    fresh.replace(file)


def show(out):
    """The pages, if what was measured is theirs."""
    if out.resolve() == pages.resolve():
        subprocess.run([sys.executable, str(root / "scripts/pages")], check=True)
