"""Figures within sentences, which scripts/pages writes between `<!-- figure: NAME -->` and `<!-- end -->`. Standard library only.

NAME is FILE | ROW | WHAT, or FILE | ROW | WHAT | CATEGORY: a pipeline of docs/benchmarks/FILE.json, by its label or its name (first: the
fastest one), and what is said of it (WHAT below). Others are in `claims`: words that need more than one row.
"""
import json

import cards
import runs
from methods import Missing, Row
from paper import by_costs, gain, paired, step, with_interval


def share(x):
    """Tenths in words, as of a share of rows."""
    return f"{round(10 * x)} tenths"


def listed(models):
    names = [f"`{m.name}`" for m in models]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def ratio(x):
    return "{:.2f}x [{:.2f}, {:.2f}]".format(*x)


def first(row):
    """The fastest pipeline of the row's file."""
    return max((p for p in row.data["pipelines"] if p["name"] != "autoregressive"), key=lambda p: p["speedup"])


def processor(data):
    """The one of a run, and how it multiplied."""
    return f"{data['run']['machine']['cpu']}, products of {'bfloat16' if data['inputs'] == 'bf16' else 'floats'}"


WHAT = {
    "name": lambda row: f"`{row.p['name']}`",
    "speedup": lambda row: f"{row.p['speedup']:.2f}x",
    "MAT": lambda row: f"{row.p['mat']:.2f}",
    "tau": lambda row: f"{row.p['tau']:.2f}",
    "acceptance": lambda row: f"{row.p['acceptance']:.2f}",
    "c": lambda row: f"{step(row.data, row.p):.2f}",
    "draft ms": lambda row: f"{row.p['draft_milliseconds_per_round'] / row.p['mean_proposed']:.2f} ms",  # of a draft token
    "draft tokens": lambda row: f"{row.p['mean_proposed']:.1f}",
    "draft calls": lambda row: f"{row.p['drafts'][0]['calls'] / row.p['target_calls']:.1f}",  # of the first draft, per round
    "layers": lambda row: f"{row.p['drafts'][0]['layers_per_call']:.1f}",
    "pass": lambda row: f"{row.p['target_milliseconds_per_call'] / row.data['pipelines'][0]['target_milliseconds_per_call']:.1f}",
    "prompts": lambda row: str(row.p["prompts"]),
    "processor": lambda row: processor(row.data),
    "speedup [95%]": lambda row: with_interval(row.p, "speedup", "x"),
    "MAT [95%]": lambda row: with_interval(row.p, "mat"),
    "tau [95%]": lambda row: with_interval(row.p, "tau"),
    "SWI": lambda row: f"{row.p['swi']:.2f}",
    **{f"SWI by {name}": lambda row, name=name: by_costs(row.p, name).split(" [")[0] for name in ("MS", "PW")},
    **{f"depth {n}": lambda row, n=n: f"{row.p['acceptance_by_depth'][n - 1]:.2f}" if len(row.p["acceptance_by_depth"]) >= n else "-" for n in range(1, 7)},
}
PAIRED = {"speed": "speed", "MAT": "mat", "tau": "tau", "SWI": "swi"}  # `MAT against ROW`: in per cent, with its interval; `MAT over ROW`: as a ratio


def figure(figures, name):
    """The words of FILE | ROW | WHAT [| CATEGORY]. Raises ValueError if there is no such figure, Missing if there is no such file."""
    parts = name.split(" | ")
    if len(parts) not in (3, 4):
        raise ValueError("neither FILE | ROW | WHAT nor the name of a claim")
    file, label, what = parts[:3]
    row = Row(figures, file, label if label != "first" else "autoregressive")
    if label == "first":
        row.p = first(row)
    if len(parts) == 4:
        row.of(parts[3])
    if what in WHAT:
        return WHAT[what](row)
    for how, words in ((" against ", gain), (" over ", paired)):
        key, found, other = what.partition(how)
        if found and key in PAIRED:
            said = words(row.data, label, other, PAIRED[key])
            if not said:
                raise ValueError(f"{file}.json does not compare {label} with {other} prompt by prompt")
            return said.replace(", within the noise", " (within the noise)") if words is gain else ratio(said)
    raise ValueError(f"nothing is called '{what}'")


def claims(root):
    """NAME to a function that returns the words. It raises Missing if a file of figures is not there."""
    figures = root / "docs" / "benchmarks"

    def load(name):
        path = figures / f"{name}.json"
        if not path.exists():
            raise Missing(path)
        return json.loads(path.read_text())

    def llama_cpp():
        """specula's best over llama.cpp's best, for each kind of draft."""
        rate = load("llama_cpp_peers")["best"]["tokens_per_second"]

        def best(*begins):
            return max(speed for name, speed in rate.items() if name.startswith(begins) and ("--bigram" in name or "static" in name) == table)

        kinds = []
        for table, ours, theirs in ((False, ("specula-llama max-gram", "specula-llama cost-aware:max-gram"), "llama-lookup"),
                                    (True, ("specula-llama max-gram", "specula-llama cost-aware:max-gram"), "llama-lookup"),
                                    (False, ("specula-llama chain", "specula-llama cost-aware:chain"), "llama-speculative")):
            kinds.append(best(*ours) / best(theirs))
        return f"{min(kinds):.2f} to {max(kinds):.2f}"

    def h100(section, name):
        return next(x for x in load("cuda_h100_peers")[section] if x["name"] == name)

    def chains():
        x = h100("verification", "B = 64, 4 drafts, alpha .7")
        return f"{x['ours_us']:.0f} us; FlashInfer, from the target's logits {x['verify_us']:.0f} us, from ready probabilities {x['chain_us']:.0f} us"

    def trees():
        x = h100("trees", "B = 64")
        return (f"{x['ours_us']:.0f} us; SGLang's kernel, by another rule, {x['kernel_us']:.0f} us from ready probabilities of all 4,096 rows, "
                f"{x['softmax_us']:.0f} us with PyTorch's softmax before it")

    def drafts():
        """What each draft of the pack was trained on, from the cards."""
        of = [cards.Card(root, name) for name in ("small", "base", "s2d", "glide", "eagle", "hass")]
        both = [c for c in of if c.of_target() > 0]
        people = [c for c in of if c.of_target() == 0]
        if len({share(c.of_target()) for c in both}) != 1:
            raise ValueError("drafts of different shares of the target's text: say which")
        starts = {}  # the weights that they began with
        for card in both:
            starts.setdefault(card.started_from(), []).append(card)
        own = ", ".join(f"{listed(group)} began as {start}" for start, group in starts.items() if start)
        return (f"{listed(both)} were trained on rows of which the target wrote {share(both[0].of_target())} ({own}), "
                f"{listed(people)} on text written by people alone")

    def trained(name):
        card = cards.Card(root, name)
        by = f"{share(card.of_target())} of the rows written by the target" if card.of_target() else "text written by people"
        start = f", after beginning as {card.started_from()}" if card.started_from() else ", from scratch"
        return f"{card.million_tokens():.1f} million tokens, {by}{start}"

    def glide_points(temperature):
        """What cross attention adds to the acceptance of the same draft, and how much dearer its draft tokens are."""
        data = load("glide_greedy" if temperature == 0 else "glide_temperature_1")
        by_name = {p["name"]: p for p in data["pipelines"]}
        chain = "chain" if temperature == 0 else "sampled-chain"
        pairs = [(f"glide{x}", f"vanilla{x}") for x in ("64", "128", "128x2")] + [("glide", "vanilla128-people")]
        return data, [(by_name[f"{chain}:{a}:5"], by_name[f"{chain}:{b}:5"]) for a, b in pairs]

    def points(temperature):
        _, pairs = glide_points(temperature)
        gains = [100 * (a["acceptance"] - b["acceptance"]) for a, b in pairs]
        return f"{min(gains):.0f} to {max(gains):.0f}"

    def dearer():
        data, pairs = glide_points(0)
        factors = [step(data, a) / step(data, b) for a, b in pairs]
        return f"{min(factors):.1f} to {max(factors):.1f}"

    def known():
        names = [name for name, data in runs.read(figures).items() if runs.faults(data)]
        return f"{len(names)} of {len(runs.read(figures))}"

    all_claims = {"llama.cpp": llama_cpp, "h100 chains": chains, "h100 trees": trees, "drafts": drafts,
                  **{f"trained: {name}": lambda name=name: trained(name) for name in ("small", "base", "s2d", "glide", "eagle", "hass")},
                  "glide points": lambda: points(0), "glide points at temperature 1": lambda: points(1), "glide dearer": dearer, "known": known}

    class Named(dict):
        def __missing__(self, name):
            return lambda: figure(figures, name)

    return Named(all_claims)
