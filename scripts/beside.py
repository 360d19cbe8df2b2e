# SPDX-License-Identifier: MIT
"""What scripts/public_model measured, as rows of a table, and our engine beside the best of the others. Standard library only.

A round has one prompt of each kind. A cell is what one engine made of a round at one type of weights:
{MODE: {"texts": {KIND: [new tokens, seconds]}, "same": [texts of plain decoding, texts]}}.
A row is all cells of an engine, type and mode: "texts" has the [new tokens, seconds] of each prompt by kind.
"""
OURS, INSIDE = "specula", "specula in llama.cpp"
FOUR_BITS = "q4_1"  # the type at which our engine is compared
PLAIN = "plain"


def rows_of(rounds, **about):
    """The rows of these rounds, each {(engine, weights): cell}."""
    rows = {}
    for cells in rounds:
        for (engine, weights), modes in cells.items():
            for mode, figures in modes.items():
                new = {"engine": engine, "weights": weights, "mode": mode, **about, "texts": {}, "same": [0, 0]}
                row = rows.setdefault((engine, weights, mode), new)
                for kind, pair in figures["texts"].items():
                    row["texts"].setdefault(kind, []).append(pair)
                row["same"] = [a + b for a, b in zip(row["same"], figures["same"])]
    return list(rows.values())


def speed(row, kind):
    """Tokens per second of all of a row's prompts of a kind; None if it has none."""
    texts = row["texts"].get(kind, [])
    seconds = sum(s for _, s in texts)
    return sum(n for n, _ in texts) / seconds if seconds else None


def fastest(rows, kind):
    """(row, its speed) of a kind; of equals the first; None if no row has such prompts."""
    timed = [(row, speed(row, kind)) for row in rows]
    return max(((row, x) for row, x in timed if x), key=lambda pair: pair[1], default=None)


def best_weights(rows, engine, kinds):
    """The type at which an engine is fastest, in its best mode of each kind, on average over the kinds; None if it has no rows."""
    def mean(weights):
        found = [fastest([row for row in rows if (row["engine"], row["weights"]) == (engine, weights)], kind) for kind in kinds]
        return sum(pair[1] for pair in found if pair) / len(kinds)

    return max(dict.fromkeys(row["weights"] for row in rows if row["engine"] == engine), key=mean, default=None)


def average(values):
    values = list(values)
    return sum(values) / len(values) if values and None not in values else None


def beside(rows, kinds, pipeline):
    """By kind: our engine at 4 bits, plain and with the pipeline; each other engine at its best type and mode for that kind; and the
    ratios. specula inside llama.cpp is no other engine. `means` are over the kinds, of speeds and of ratios, and None where a kind lacks them."""
    own = [row for row in rows if (row["engine"], row["weights"]) == (OURS, FOUR_BITS)]
    others = list(dict.fromkeys(row["engine"] for row in rows if row["engine"] not in (OURS, INSIDE)))
    out = {}
    for kind in kinds:
        plain, best = (next((speed(row, kind) for row in own if row["mode"] == mode), None) for mode in (PLAIN, pipeline))
        found = {engine: fastest([row for row in rows if row["engine"] == engine], kind) for engine in others}
        theirs = {engine: {"weights": pair[0]["weights"], "mode": pair[0]["mode"], "tokens_per_second": pair[1]} for engine, pair in found.items() if pair}
        most = max((x["tokens_per_second"] for x in theirs.values()), default=None)
        out[kind] = {"plain": plain, "best": best, "others": theirs, "best_of_others": most, "gain": best / plain if best and plain else None,
                     "ratio": best / most if best and most else None}
    means = {key: average(x[key] for x in out.values()) for key in ("plain", "best", "best_of_others", "gain", "ratio")}
    means["ratio_of_means"] = means["best"] / means["best_of_others"] if means["best"] and means["best_of_others"] else None
    return {"kinds": out, "means": means}
