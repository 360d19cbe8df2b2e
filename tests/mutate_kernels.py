#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tests/mutate_kernels.py [--only TEXT] [--jobs N] [--list]

Plants the faults of tests/cuda/faults.txt into the CUDA headers, and those of tests/cpu/faults.txt into the CPU model's, one after the
other, each in a copy of include/, and runs the test that must find it: compiled by g++, by clang++ with the address sanitizer, or by g++
with the thread sanitizer, as the fault says. First all of these tests run on the headers as they are. Ends with an error if a fault is not
found, or is no longer there to be planted. By hand, some 50 minutes on two cores.

  --only TEXT   faults whose lines hold this
  --jobs N      at once; one per core unless told
  --list        prints the faults and ends

Faults under __CUDA_ARCH__, which no test here can find, are those for `device`: scripts/gpu checks them, and they are only counted.
"""
import collections
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import measuring  # noqa: E402

given = measuring.options(__doc__, out=False, only="", jobs=os.cpu_count(), list=False)
root = measuring.root
Fault = collections.namedtuple("Fault", "room file how test what old new")
# What a test of a room is compiled with, besides the objects below.
WITH = {"cuda": [], "cpu": ["-isystem/usr/include/eigen3", f"-I{root}/tests", str(root / "cmake/specula-cpu-model-blocks.cpp")]}
HOW = {"plain": ["g++", "-O1"],
       "address": ["clang++", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
       "threads": ["g++", "-O1", "-fsanitize=thread"]}


def faults():
    """A fault: `# FILE HOW TEST: WHAT`, lines that begin with `-` and are replaced by those that begin with `+`."""
    out = []
    for room in WITH:
        for line in (root / f"tests/{room}/faults.txt").read_text().splitlines():
            if line.startswith("# "):
                where, what = line[2:].split(": ", 1)
                out.append(Fault(room, *where.split(), what, [], []))
            elif line.startswith("-"):
                out[-1].old.append(line[1:])
            elif line.startswith("+"):
                out[-1].new.append(line[1:])
    return out


def run(command, folder, seconds):
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
                              env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"})
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return 124, "took too long"


def needs_model(test):
    """Whether a test of the device compares with the model on the CPU, which no fault of the device is in."""
    return test.startswith("tests/cuda/model/")


def built_and_run(how, room, test, include, work):
    """'does not compile', 'passes', or how the test ended."""
    program = pathlib.Path(work) / "program"
    command = HOW[how] + ["-std=c++20", f"-I{include}", f"-I{root}/tests/support", *WITH[room], str(root / test), *(cpu_model if needs_model(test) else []),
                          str(objects[how] / "emulated_gpu.o"), str(objects[how] / "doctest_main.o"), "-o", str(program), "-lpthread"]
    code, log = run(command, work, 600)
    if code != 0:
        return "does not compile\n" + log[-2000:]
    code, log = run((fixed_space if how == "threads" else []) + [str(program)], work, 300)
    return "passes" if code == 0 else f"found: status {code}"


def attempt(fault):
    with tempfile.TemporaryDirectory() as work:
        include = pathlib.Path(work) / "include"
        shutil.copytree(root / "include", include)
        path, old = include / "specula" / fault.room / fault.file, "\n".join(fault.old)
        text = path.read_text()
        if text.count(old) != 1:
            return "is not there"
        path.write_text(text.replace(old, "\n".join(fault.new)))
        return built_and_run(fault.how, fault.room, fault.test, include, work)


def healthy(fault):
    with tempfile.TemporaryDirectory() as work:
        return built_and_run(fault.how, fault.room, fault.test, root / "include", work)


chosen = [f for f in faults() if given.only in " ".join([f.room, f.file, f.how, f.test, f.what])]
if not chosen:
    measuring.fail(f"no fault holds {given.only}")
if given.list:
    sys.exit(print("\n".join(f"{f.how:8} {f.file}: {f.what} ({f.test})" for f in chosen)))
fixed_space = ["setarch", os.uname().machine, "-R"] if subprocess.run(["setarch", os.uname().machine, "-R", "true"], capture_output=True).returncode == 0 else []
began = time.monotonic()
here = [f for f in chosen if f.how != "device"]
with tempfile.TemporaryDirectory() as shared, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
    objects = {how: pathlib.Path(shared) / how for how in HOW}
    for how in {f.how for f in here}:
        objects[how].mkdir()
        for name in ("emulated_gpu", "doctest_main"):
            subprocess.run(HOW[how] + ["-std=c++20", f"-I{root}/include", f"-I{root}/tests/support", "-c", str(root / f"tests/support/{name}.cpp"), "-o",
                                       str(objects[how] / f"{name}.o")], check=True)

    cpu_model = []
    if any(needs_model(f.test) for f in here):
        cpu_model = [f'-DSPECULA_MODELS_DIR="{root}/examples/models"']
        for source in sorted((root / "cmake").glob("specula-cpu-model*.cpp")):
            cpu_model.append(str(pathlib.Path(shared) / f"{source.stem}.o"))
            subprocess.run(["g++", "-O2", "-std=c++20", f"-I{root}/include", "-isystem/usr/include/eigen3", "-c", str(source), "-o", cpu_model[-1]], check=True)

    each = list({(f.how, f.test): f for f in here}.values())
    failed = [f"{f.how} {f.test}: {result}" for f, result in zip(each, pool.map(healthy, each)) if result != "passes"]
    if failed:
        measuring.fail("without a fault:\n" + "\n".join(failed))
    found = 0
    for fault, result in zip(here, pool.map(attempt, here)):
        found += result.startswith("found")
        print(f"{result.splitlines()[0]:20} {fault.how:8} {fault.file}: {fault.what}", flush=True)
print(f"{found} of {len(here)} found in {(time.monotonic() - began) / 60:.0f} minutes; {len(chosen) - len(here)} more are for a device")
sys.exit(found < len(here))
