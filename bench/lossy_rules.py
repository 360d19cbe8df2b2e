#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: bench/lossy_rules.py PROGRAM [--out FOLDER]

What lossy rules gain and cost (docs/methods.md), by bench_lossy_rules, with 95% intervals over its texts; and has scripts/pages show it. No
figure is a time, so other work does not matter. Some ten minutes on an idle core.

  PROGRAM       build/release/bench/bench_lossy_rules
  --out FOLDER  where lossy_rules.json goes  (docs/benchmarks)
"""
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import measuring  # noqa: E402


def with_interval(texts, figure):
    return [round(x, 4) for x in measuring.resampled(texts, figure, 10000)]


def mean(at):
    """Of a figure of every text: they are equally long."""
    return lambda texts: sum(text[at] for text in texts) / len(texts)


if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__.strip())
program = sys.argv.pop(1)
given = measuring.options(__doc__)
rules = json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout)
FIGURES = {"mat": lambda texts: sum(text[0] for text in texts) / sum(text[1] for text in texts),
           "acceptance": mean(2), "total_variation": mean(3), "nats": mean(4)}
measuring.write(given.out / "lossy_rules.json", {
    "run": {**measuring.record(), "texts": len(rules[0]["texts"]), "tokens": rules[0]["texts"][0][0]},
    "rules": [{"rule": of["rule"], "draft": of["draft"], **{name: with_interval(of["texts"], figure) for name, figure in FIGURES.items()}} for of in rules]})
measuring.show(given.out)
