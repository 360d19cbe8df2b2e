#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does a sampler of speculative decoding keep the target's distribution? docs/conformance.md says how to ask.
usage: check.py SAMPLER.py [SEED]      SAMPLER.py defines round(), and draw() if its drafts are to be tested, too"""
import itertools, json, math, pathlib, random, runpy, sys
from collections import Counter

VECTORS = json.loads(pathlib.Path(__file__).with_name("vectors.json").read_text())["vectors"]
LEVEL, PAIRS = 1e-6, " (one round beside the next)"

def chi_square(counts, law):
    """The p-value of counts under a law. What expects less than 10 is put together."""
    if any(not law[x] for x in counts):
        return 0.0  # it cannot be
    n = sum(counts.values())
    cells = sorted((n * law[x], counts[x]) for x in law if n * law[x] >= 10)
    rest = (n - sum(e for e, _ in cells), n - sum(c for _, c in cells))
    if cells and rest[0] < 10:
        rest = (rest[0] + cells[0][0], rest[1] + cells.pop(0)[1])
    half, df, odd = sum((c - e) ** 2 / e for e, c in [*cells, rest]) / 2, len(cells), len(cells) % 2
    return 1.0 if df == 0 or half == 0 else odd * math.erfc(half**0.5) + sum(  # the distribution's tail is a finite sum
        math.exp((j - odd / 2) * math.log(half) - half - math.lgamma(j + 1 - odd / 2)) for j in range(odd, (df + odd) // 2))

def play(vector, sampler, draw, n, rng, keys):
    """(draft, answer, text) of n rounds, or of none if the sampler leaves the vector out. A text is the answer and then tokens of the
    target's own. Only whole texts have its law under every lossless rule: a rule may look at later tokens to decide how many to emit."""
    params, parents, distinct, vocab = vector["params"], vector["parents"], vector["draw"] == "distinct", range(vector["vocab"])
    p_rows, q_rows = ([tuple(row) for row in vector.get(rows, ())] for rows in ("p_logits", "q_logits"))
    p, q = ([list(itertools.accumulate(row)) for row in vector.get(rows, ())] for rows in "pq")
    families = [(parent, len(list(children))) for parent, children in itertools.groupby(parents)]
    for i in range(n):
        tokens = list(vector.get("tokens", ()))
        for parent, size in families if q else ():
            row = tokens[parent] + 1 if parent >= 0 else 0  # 0: after the text's end
            children = [int(x) for x in draw(q_rows[row], params, size, distinct, next(keys))] if draw else []
            while len(children) < size:
                children += [x for x in rng.choices(vocab, cum_weights=q[row]) if not distinct or x not in children]
            tokens += children
        after = [0] + [x + 1 for x in tokens]
        answer = sampler([p_rows[a] for a in after], [q_rows[a] for a in after] if q else None, tokens, parents, params, next(keys))
        if answer is None and i == 0:
            return
        text = [int(x) for x in answer]
        assert 0 < len(text) <= vector["length"] and all(x in vocab for x in text), f"{vector['name']}: a round emitted {text}"
        while len(text) < vector["length"]:
            text += rng.choices(vocab, cum_weights=p[text[-1] + 1])
        yield tuple(tokens), tuple(text[: len(answer)]), tuple(text)

def law_of(vector, fault=None):
    return dict(zip(itertools.product(range(vector["vocab"]), repeat=vector["length"]), vector["faults"].get(fault, vector["law"])))

def p_values(vector, played):
    """That of texts: the smallest of their first token's, their first two's, ..., times their number; and that of chance for how
    often the first and second round, the third and fourth, ... had the same text."""
    texts, law, same = [text for *_, text in played], law_of(vector), min(1, sum(x * x for x in vector["law"]))
    begins = lambda k: {x: sum(law[text] for text in law if text[:k] == x) for x in itertools.product(range(vector["vocab"]), repeat=k)}
    values = [chi_square(Counter(text[:k] for text in texts), begins(k)) for k in range(1, vector["length"] + 1)]
    pairs = chi_square(Counter(a == b for a, b in zip(texts[::2], texts[1::2])), {True: same, False: 1 - same})
    return {vector["name"]: min(1, len(values) * min(values)), vector["name"] + PAIRS: pairs}

def rejected(values):
    """Those whose p-values are too small among so many (Holm)."""
    ranked = sorted(values, key=values.get)
    return list(itertools.takewhile(lambda x: values[x] * (len(ranked) - ranked.index(x)) < LEVEL, ranked))

def likeness(runs, faulty):
    """The known fault whose law makes the texts likeliest, if they are as that law says."""
    scores, misfits = Counter(), {}
    for fault, (vector, played) in itertools.product(sorted({x for vector, _ in runs for x in vector["faults"]}), runs):
        counts, law, exact = Counter(text for *_, text in played), law_of(vector, fault), law_of(vector)
        scores[fault] += sum(c * math.log(0.999 * law[x] + 0.001 * exact[x] + 1e-9) for x, c in counts.items())
        misfits.setdefault(fault, {})[vector["name"]] = chi_square(counts, law)
    best, chance = max(scores, key=scores.get), [played for vector, played in runs if max(vector["law"]) < 1]
    fixed = chance and all(len({(draft, answer) for draft, answer, _ in played}) == len({draft for draft, *_ in played}) for played in chance)
    repeated = "a repeated key" if fixed or all(x.endswith(PAIRS) for x in faulty) else f"none of the known; the nearest: {best}"
    return repeated if rejected(misfits[best]) else best

def check(sampler, draw=None, names=None, seed=0):
    """{"fault": None or what it looks like, "faulty": vectors, "p": {vector: p-value}, "emitted": {vector: tokens a round}}"""
    rng, keys, runs, values = random.Random(seed), itertools.count(seed << 32), [], {}
    for vector in (v for v in VECTORS if not names or v["name"] in names):
        for rounds in (4000, 40000):  # the latter where the former decide nothing, and then alone
            played = list(play(vector, sampler, draw, rounds, rng, keys))
            found = p_values(vector, played) if played else {}
            if not 1e-9 < min(found.values(), default=1) < 0.01:
                break
        values.update(found)
        runs += [(vector, played)] * bool(played)
    assert runs, "the sampler took no vector"
    faulty, emitted = rejected(values), {v["name"]: sum(len(answer) for _, answer, _ in played) / len(played) for v, played in runs}
    return {"fault": likeness(runs, faulty) if faulty else None, "faulty": faulty, "p": values, "emitted": emitted}

if __name__ == "__main__":
    given = runpy.run_path(sys.argv[1]) if len(sys.argv) in (2, 3) else sys.exit(__doc__)
    verdict = check(given.get("round") or sys.exit(f"{sys.argv[1]} defines no round()"), given.get("draw"), seed=int((sys.argv + [0])[2]))
    for name, emitted in verdict["emitted"].items():
        values = [f"{verdict['p'][x]:7.1g}{' NOT THE TARGET' * (x in verdict['faulty'])}" for x in (name, name + PAIRS)]
        print(f"{name:40} {emitted:.2f} tokens a round, p {values[0]} and {values[1]}")
    print(f"{len(verdict['emitted'])} of {len(VECTORS)} vectors: {'not lossless, like ' + verdict['fault'] if verdict['fault'] else 'lossless'}")
    sys.exit(bool(verdict["fault"]))
