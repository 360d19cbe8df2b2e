#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check_rules.py [SEED [all]]

docs/conformance/check.py passes an exact rule, and finds and names planted faults. With `all`, by all vectors."""
import ast, functools, pathlib, sys

here = pathlib.Path(__file__).resolve().parent
checker = here.parents[1] / "docs" / "conformance" / "check.py"
sys.dont_write_bytecode = True
sys.path[:0] = [str(checker.parent), str(here)]
import check, rules

FEW = ("chain of 3", "chain of 2, large logits", "two distinct by two", "two independent by one, top-p", "chosen chain of 3",
       "chain of 2, greedy, ties")
faulty = lambda fault: functools.partial(rules.rejection, fault=fault)
keyed = lambda of: lambda *given: rules.rejection(*given[:-1], of(given[-1]))
ROUNDED, CHOSEN = "q rounded to bfloat16: ", "a drawn draft taken for a chosen one: "
SAMPLERS = [  # what, round, draw, the verdict
    ("rejection", rules.rejection, None, None),
    ("rejection, its own drafts", rules.rejection, rules.draw, None),
    ("drafts drawn in bfloat16", rules.rejection, rules.draw_in_bfloat16, ROUNDED + "the draft was drawn from it"),
    ("q in bfloat16", faulty("bfloat16"), None, ROUNDED + "p was compared with it"),
    ("accepted as chosen", faulty("accepted as chosen"), None, CHOSEN + "accepted so"),
    ("corrected as chosen", faulty("corrected as chosen"), None, CHOSEN + "corrected so"),
    ("likeliest tokens, recorded as drawn", rules.rejection, rules.draw_greedily, "a chosen draft taken for a drawn one"),
    ("temperature ignored", faulty("temperature"), None, "temperature ignored in p"),
    ("argmax", faulty("argmax"), None, "argmax at any temperature"),
    ("wrong correction", faulty("correction"), None, "correction from the wrong distribution"),
    ("bonus from q", faulty("bonus"), None, "bonus token from q"),
    ("residual as it is", faulty("residual"), None, "residual not renormalised"),
    ("siblings backwards", faulty("siblings"), None, "siblings in the wrong order"),
    ("one key for all rounds", keyed(lambda key: 1), None, "a repeated key"),
    ("one key for two rounds", keyed(lambda key: key // 2), None, "a repeated key"),
]


def main():
    seed, names = int((sys.argv + ["1"])[1]), None if "all" in sys.argv else FEW
    text, wrong = checker.read_text(), 0
    assert len(text.splitlines()) <= 100
    modules = {alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}
    assert modules and modules <= sys.stdlib_module_names, modules
    for vector in check.VECTORS:  # the page says how logits become probabilities: so does rules.py
        for logits, probabilities in (("p_logits", "p"), ("q_logits", "q")):
            for row, want in zip(vector.get(logits, []), vector.get(probabilities, [])):
                got = rules.process(tuple(row), vector["params"])
                assert max(abs(a - b) for a, b in zip(got, want)) < 1e-9, (vector["name"], row)
    for what, sampler, draw, want in SAMPLERS:
        verdict = check.check(sampler, draw, names, seed)
        good = verdict["fault"] == want
        wrong += not good
        print(f"{'ok' if good else 'WRONG'}: {what}: {verdict['fault'] or 'lossless'}", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
