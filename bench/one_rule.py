#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: bench/one_rule.py LIBRARY [--out FOLDER] [--rounds N]

Times the rule of specula.h, called by ctypes and numpy, beside transformers' own, `_speculative_sampling`, on the same rows of logits:
one text, four drawn draft tokens, one thread, rounds of both in turns. A round of transformers begins where its generate() has the
logits of both models; sizes, strides and arrays of ours are set once, as an engine has them. Needs numpy, PyTorch and transformers.

  LIBRARY       libspecula_c.so
  --out FOLDER  where one_rule.json goes      (docs/benchmarks)
  --rounds N    of each, for each vocabulary  (200)
"""
import ctypes
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import transformers
from transformers.generation.utils import _speculative_sampling

root = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(root / "scripts"), str(root / "examples" / "languages")]
import measuring  # noqa: E402
import round as example  # noqa: E402

DRAFTED = 4
torch.set_num_threads(1)
if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__.strip())
library = ctypes.CDLL(sys.argv.pop(1))
library.specula_error.restype = ctypes.c_char_p
given = measuring.options(__doc__, rounds=200)


class Rounds:
    """Rows of a target and of a draft that resembles it, and draft tokens drawn from the latter."""

    def __init__(self, vocab):
        random = np.random.default_rng(1)
        self.vocab, nodes = vocab, DRAFTED + 1
        self.target = random.normal(0, 3, (nodes, vocab)).astype("f4")
        self.draft = self.target[:DRAFTED] + random.normal(0, 0.5, (DRAFTED, vocab)).astype("f4")
        q = torch.tensor(self.draft).softmax(-1)
        self.tokens = torch.multinomial(q, 1, generator=torch.Generator().manual_seed(1)).flatten().numpy().astype("i4")
        self.out = {"out_token": np.empty((1, nodes), "i4"), "out_accepted": np.empty((1, nodes), "i4"), "out_count": np.empty(1, "i4"), "out_status": np.empty(1, "i4")}
        self.seed = np.zeros(1, "u8")
        self.call = example.Call(
            library.specula_verify, example.ROUND, sequences=1, nodes=nodes, vocab=vocab, width=nodes, begin=np.array([0, nodes], "i4"),
            token=np.concatenate([[0], self.tokens]).astype("i4"), position=np.zeros(1, "i4"), seed=self.seed, target=self.target, target_rows=nodes,
            draft_form=1, draft=self.draft, draft_rows=DRAFTED, **self.out)
        self.input = torch.tensor([[0, *self.tokens.tolist()]])
        self.new, self.candidate = torch.from_numpy(self.target)[None], torch.from_numpy(self.draft)[None]

    def ours(self, rule):
        self.call.set(rule=library.specula_rule(rule))
        self.seed[0] += 1
        began = time.perf_counter()
        failed = self.call()
        took = time.perf_counter() - began
        assert failed == 0, library.specula_error()
        return took

    def theirs(self):
        torch.manual_seed(int(self.seed[0]))
        began = time.perf_counter()
        _speculative_sampling(self.input, self.candidate, DRAFTED, self.new, False)
        return time.perf_counter() - began


def main():
    sizes = []
    for vocab in (2048, 49152, 128256):
        rounds, times = Rounds(vocab), {"block": [], "token": [], "transformers": []}
        for i in range(given.rounds + 10):  # the first ten warm up
            for name, into in times.items():
                took = rounds.theirs() if name == "transformers" else rounds.ours(name.encode())
                into += [took * 1e6] * (i >= 10)
        medians = {name: round(statistics.median(all_times), 2) for name, all_times in times.items()}
        sizes.append({"vocab": vocab, "median_us": medians, "quartiles_us": {name: [round(x, 2) for x in statistics.quantiles(all_times)] for name, all_times in times.items()}})
        print(vocab, medians, flush=True)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "numpy": np.__version__}
    measuring.write(given.out / "one_rule.json", {"run": {**measuring.record(), "rounds": given.rounds, "drafted": DRAFTED, "versions": versions}, "sizes": sizes})


if __name__ == "__main__":
    main()
