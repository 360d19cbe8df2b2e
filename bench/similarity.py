#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: bench/similarity.py PROGRAM --public FOLDER [--out FOLDER]

How alike blocks' inputs and outputs are (docs/asd.md): the cosines of all layers of the pack's target and of SmolLM2-135M-Instruct, by
bench_blocks, over 16 texts of 256 tokens that each model writes; and has scripts/pages show it. No figure is a time, so other work does
not matter. Some four minutes.

  PROGRAM          build/release/bench/bench_blocks
  --public FOLDER  SmolLM2-135M-Instruct, as tools/train/smollm2_drafts.sh keeps it in its folder `target`
  --out FOLDER     where similarity.json goes  (docs/benchmarks)
"""
import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import measuring  # noqa: E402

if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__.strip())
program = sys.argv.pop(1)
given = measuring.options(__doc__, public="")
if not (pathlib.Path(given.public) / "config.json").exists():
    measuring.fail(f"--public {given.public}: no model there")


def cosines(folder):
    """Of a model: {block: {figure: cosine}}."""
    counted = json.loads(subprocess.run([program, "--benchmark_filter=similarity", "--benchmark_format=json"], check=True, stdout=subprocess.PIPE,
                                        env={**os.environ, "SPECULA_BENCH_MODEL": str(folder)}).stdout)["benchmarks"][0]
    return {block: {figure: round(counted[f"{block}_{figure}"], 4) for figure in ("min", "max", "mean", "median")} for block in ("attention", "mlp")}


measuring.write(given.out / "similarity.json", {
    "run": measuring.record(),
    "models": [{"model": name, "layers": json.loads((pathlib.Path(folder) / "config.json").read_text())["num_hidden_layers"], **cosines(folder)}
               for name, folder in (("pack's target", measuring.root / "examples/models/target"), ("SmolLM2-135M-Instruct", given.public))]})
measuring.show(given.out)
