# SPDX-License-Identifier: MIT
"""A rule for the checker of docs/conformance, small and slow: exact, or with a fault planted. library_rules.py asks about the library's."""
import functools, math, random


@functools.lru_cache(maxsize=None)
def softmax(logits, temperature, top_k, top_p, min_p):
    """Temperature, then top-k, then top-p of what is left, then min-p; ties are kept. Temperature 0: the first largest logit."""
    if temperature == 0:
        return tuple(float(x == logits.index(max(logits))) for x in range(len(logits)))
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    ranked = sorted(weights, reverse=True)
    least = max(min_p, ranked[top_k - 1] if 0 < top_k < len(ranked) else 0)
    if top_p < 1:
        ranked = [x for x in ranked if top_k == 0 or x >= ranked[min(top_k, len(ranked)) - 1]]
        sums = [sum(ranked[: i + 1]) for i in range(len(ranked))]
        least = max(least, next(x for x, s in zip(ranked, sums) if s >= top_p * sums[-1]))
    kept = [x if x >= least else 0.0 for x in weights]
    return tuple(x / sum(kept) for x in kept)


def process(row, params, temperature=None):
    return softmax(row, params["temperature"] if temperature is None else temperature, params["top_k"], params["top_p"], params["min_p"])


def draw_from(weights, rng):
    return rng.choices(range(len(weights)), weights)[0]


def norm(weights):
    """None where rounding alone has left something."""
    total = sum(weights)
    return tuple(x / total for x in weights) if total > 1e-9 else None


def without(q, token):
    return norm([0 if x == token else w for x, w in enumerate(q)]) or q


@functools.lru_cache(maxsize=None)
def left_after(p, q):
    """The residual."""
    return norm([max(0.0, a - b) for a, b in zip(p, q)]) or p


def point(token, vocab):
    return tuple(float(x == token) for x in range(vocab))


def bfloat16(row):
    """Rounded as a bfloat16 from 16 to 32; other logits of the vectors are such numbers already."""
    return tuple(round(x * 8) / 8 if 16 <= x < 32 else x for x in row)


def children_of(parents, node):
    return [i for i, parent in enumerate(parents) if parent == node]


def rejection(p_logits, q_logits, tokens, parents, params, key, fault="", rng=None):
    """Token by token, siblings in order. With one of the faults, not exact."""
    rng, node, out, distinct = rng or random.Random(key), -1, [], params["distinct"]
    while True:
        full = p = process(p_logits[node + 1], params, 1 if fault == "temperature" and params["temperature"] else None)
        children = children_of(parents, node)
        if fault == "argmax":
            best = p.index(max(p))
            found = next((c for c in children if tokens[c] == best), None)
        else:
            row = q_logits and q_logits[node + 1]
            q = row and process(bfloat16(row) if fault == "bfloat16" else row, params)
            if fault == "siblings" and distinct:
                children.reverse()
            found = None
            for c in children:
                x = tokens[c]
                q = q if q_logits else point(x, len(p))
                if rng.random() * (1 if fault == "accepted as chosen" else q[x]) < p[x]:
                    found = c
                    break
                if fault == "residual":
                    p = tuple(max(0.0, a - b) for a, b in zip(p, q))
                elif fault == "corrected as chosen":
                    p = without(p, x)
                else:
                    p = left_after(p, q)
                q = without(q, x) if distinct else q
        if found is not None:
            out.append(tokens[found])
            node = found
            continue
        if fault == "argmax":
            return out + [best]
        if fault == "correction":
            p = full
        if fault == "bonus" and not children and q_logits:
            p = process(q_logits[node + 1], params)
        if fault == "residual":  # the walk over its sums ends at the last token
            u = rng.random()
            for x, w in enumerate(p):
                u -= w
                if u < 0:
                    break
            return out + [x]
        return out + [draw_from(p, rng)]


# ---- drafts


def draw(row, params, n, distinct, key, fault=""):
    """n siblings."""
    rng, out = random.Random(key), []
    q = process(bfloat16(row) if fault == "bfloat16" else row, params)
    for _ in range(n):
        out.append(q.index(max(q)) if fault == "greedy" else draw_from(q, rng))
        q = without(q, out[-1]) if distinct else q
    return out


def draw_in_bfloat16(row, params, n, distinct, key):
    return draw(row, params, n, distinct, key, "bfloat16")


def draw_greedily(row, params, n, distinct, key):
    return draw(row, params, n, distinct, key, "greedy")
