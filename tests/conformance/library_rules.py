#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: library_rules.py LIBRARY [SEED [all]]

docs/conformance/check.py passes the rules and the drafts of specula.h, called by ctypes, and finds q of another row. With `all`, by all
vectors."""
import ctypes
import functools
import pathlib
import sys

import numpy as np

here = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(here), str(here.parents[1] / "examples" / "languages")]
import check_rules  # noqa: E402, which finds check.py
import round as example  # noqa: E402

from check_rules import check, rules  # noqa: E402

library = ctypes.CDLL(sys.argv[1])
LOGITS = 1  # a specula_form
BAD_TREE = 5  # a tree for a rule of chains


def settings(params):
    return {"temperature": np.array([params["temperature"]], "f4"), "top_k": np.array([params["top_k"]], "i4"),
            "top_p": np.array([params["top_p"]], "f4"), "min_p": np.array([params["min_p"]], "f4")}


def scales(q_logits, tokens, parents, params):
    """Of tokens drawn without replacement: 1 over the mass that their earlier siblings left."""
    out, left = [0.0], {}
    for token, parent in zip(tokens, parents):
        out.append(1 / left.setdefault(parent, 1.0))
        left[parent] -= rules.process(q_logits[parent + 1], params)[token]
    return out


def verify(rule, p_logits, q_logits, tokens, parents, params, key, row=lambda row: row):
    """One round of one text. None where the rule has no such trees."""
    nodes, vocab = len(tokens) + 1, len(p_logits[0])
    out = {"out_token": np.empty((1, nodes), "i4"), "out_accepted": np.empty((1, nodes), "i4"), "out_count": np.empty(1, "i4"), "out_status": np.empty(1, "i4")}
    call = example.Call(
        library.specula_verify, example.ROUND, sequences=1, nodes=nodes, vocab=vocab, width=nodes, rule=library.specula_rule(rule.encode()),
        begin=np.array([0, nodes], "i4"), token=np.array([0, *tokens], "i4"), parent=np.array([-1] + [x + 1 for x in parents], "i4"),
        position=np.zeros(1, "i4"), seed=np.array([key], "u8"), target=np.array(p_logits, "f4"), target_rows=nodes, **settings(params), **out)
    if q_logits:
        call.set(draft_form=LOGITS, draft=np.array(q_logits, "f4"), draft_rows=nodes, draft_row=np.array([-1] + [row(x + 1) for x in parents], "i4"))
        if params["distinct"]:
            call.set(draft_scale=np.array(scales(q_logits, tokens, parents, params), "f8"))
    assert call() >= 0, library.specula_error().decode()
    if out["out_status"][0] == BAD_TREE:
        return None
    assert out["out_status"][0] == 0, library.specula_error().decode()
    return out["out_token"][0, : out["out_count"][0]].tolist()


def draw(q_logits, params, n, distinct, key):
    token, status = np.empty((1, n), "i4"), np.empty(1, "i4")
    at = np.zeros(1, "i4")
    failed = example.Call(library.specula_draw, example.DRAFT, rows=1, draws=n, vocab=len(q_logits), logits=np.array([q_logits], "f4"), position=at, origin=at,
                          seed=np.array([key], "u8"), distinct=int(distinct), out_token=token, out_status=status, **settings(params))()
    assert failed == 0, library.specula_error().decode()
    return token[0].tolist()


def as_chosen(rule, p_logits, q_logits, *more):
    """Drawn draft tokens as if they had been chosen: exact, since that is so whatever the tokens are; it accepts fewer."""
    return verify(rule, p_logits, None, *more)


def of_another_row(rule, p_logits, *more):
    return verify(rule, p_logits, *more, row=lambda row: (row + 1) % len(p_logits))


SAMPLERS = [(rule, verify, rule, None) for rule in ("token", "block", "traversal", "match")]
SAMPLERS += [("sampling, its own drafts", verify, "sampling", draw), ("sampling, a drawn draft as a chosen one", as_chosen, "sampling", None)]


def main():
    library.specula_error.restype = ctypes.c_char_p
    seed, names, wrong = int((sys.argv + ["1"])[2]), None if "all" in sys.argv else check_rules.FEW, 0
    for what, sampler, rule, drafts in [*SAMPLERS, ("token, q of another row", of_another_row, "token", None)]:
        verdict = check.check(functools.partial(sampler, rule), drafts, names, seed)
        good = bool(verdict["fault"]) == (sampler is of_another_row)
        wrong += not good
        print(f"{'ok' if good else 'WRONG'}: {what}, {len(verdict['emitted'])} vectors: {verdict['fault'] or 'lossless'}", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
