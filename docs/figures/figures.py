# SPDX-License-Identifier: MIT
"""Figures of docs/benchmarks, and the words in which pages and plots say them. Standard library only.

SPECULA_ROOT names another tree than the one that this file lies in, SPECULA_INTERVALS a file that keeps intervals from call to call.
"""
import atexit
import functools
import hashlib
import json
import os
import pathlib
import re

import measuring
import runs

root = pathlib.Path(os.environ.get("SPECULA_ROOT") or pathlib.Path(__file__).resolve().parents[2])
folder = root / "docs" / "benchmarks"
TITLES = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "mt_bench": "MT-bench", "spec_bench": "Spec-Bench", "lengths": "of Spec-Bench and MT-bench",
          "gsm8k/test": "GSM8K", "humaneval/HumanEval": "HumanEval", "math_reasoning": "math reasoning"}
RENAMED = {"ASD": "every 2nd layer skipped"}  # labels of earlier runs: these rows leave the paper's thresholding out


class Missing(Exception):
    """A figure or its file is not there."""


loaded = set()  # names of the files that were asked for: scripts/pages looks at those of a table


def load(name):
    loaded.add(name)
    return parsed(name)


@functools.cache
def parsed(name):
    path = folder / f"{name}.json"
    if not path.exists():
        raise Missing(name)
    return json.loads(path.read_text())


def table(heads, rows):
    """A head says [95%] where an interval stands below it."""
    heads = [str(head) if any("[" in str(cell) for cell in below) else str(head).replace(" [95%]", "") for head, *below in zip(heads, *rows)] if rows else heads
    return ["| " + " | ".join(map(str, r)) + " |" for r in [heads, ["---"] * len(heads), *rows]]


def columns(spec, rows):
    """A table of `head = figure | figure | ...`, as `Row` names figures."""
    pairs = [(part.partition(" = ")[0].strip(), part.rpartition(" = ")[2].strip()) for part in spec.split("|")]
    return table([head for head, _ in pairs], [[row[what] for _, what in pairs] for row in rows])


def pipelines(data):
    """Labels of the measured rows, with their figures: of a search, its pick."""
    by_name = {p["name"]: p for p in data["pipelines"]}
    picks = {s["search"]: s["picked"] for s in data.get("searches", [])}
    return {RENAMED.get(label, label): by_name[picks.get(spec, spec)] for label, spec in data["run"]["rows"].items()} if "run" in data else {}


def by_task(main, mt_bench, spec, first):
    """(title with prompts, {label: pipeline}) of each data set of the main comparison, of Spec-Bench without MT-bench, which `first` names."""
    parts = [*((main, c) for c in main["categories"]), (mt_bench, {**mt_bench, "name": first}), *((spec, c) for c in spec["categories"])]
    return [(f"{TITLES.get(c['name'], c['name'])} ({c['prompts']})",
             {label: q for label, p in pipelines(data).items() for q in c["pipelines"] if q["name"] == p["name"]}) for data, c in parts]


def with_interval(p, key):
    low, high = p["intervals"][key] if "intervals" in p else (None, None)
    return f"{p[key]:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None else "")


def passes_over_nodes(what="median"):
    """A pass of forward.json over n nodes, for each (hidden size, whether bfloat16): {nodes: time}, or the coefficient of variation as `cv`."""
    found = {}
    for run in load("forward")["benchmarks"]:
        at = re.match(r"extend/hidden:(\d+)/nodes:(\d+)/context:256/threads:1/bf16:([01])/", run["name"])
        if at and run["aggregate_name"] == what:
            found.setdefault((int(at[1]), at[3] == "1"), {})[int(at[2])] = run["real_time"]
    return found


def spent(p):
    """(new tokens, seconds of their rounds) of all prompts of a row together: counted calls at their mean times, and the library's own time."""
    models = p["target_calls"] * (p["target_milliseconds_per_call"] + p["draft_milliseconds_per_round"]) / 1e3
    return p["new_tokens"], models / (1 - p["overhead_share"])


def over_all(pairs):
    """Speedup over all prompts together, of (plain decoding's row, a row) for each set of prompts: plain decoding's time per token over
    the row's, each weighted by the tokens that it wrote. With its 95% interval, from 10,000 resamplings of the prompts, if the rows have
    `by_prompt`, the [new tokens, seconds, ...] of each prompt; else (ratio, None, None)."""
    def ratio(tokens, seconds, own_tokens, own_seconds):
        return seconds / tokens * own_tokens / own_seconds

    if not all("by_prompt" in p for pair in pairs for p in pair):
        return ratio(*map(sum, zip(*(spent(plain) + spent(own) for plain, own in pairs)))), None, None
    prompts = [(*a[:2], *b[:2]) for plain, own in pairs for a, b in zip(plain["by_prompt"], own["by_prompt"], strict=True)]
    key = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()
    if key not in known_intervals:
        known_intervals[key] = measuring.resampled(prompts, lambda drawn: ratio(*map(sum, zip(*drawn))), 10000)
    return tuple(known_intervals[key])


# They are most of what the pages cost, and a test makes those many times.
kept_intervals = pathlib.Path(os.environ["SPECULA_INTERVALS"]) if "SPECULA_INTERVALS" in os.environ else None
known_intervals = json.loads(kept_intervals.read_text()) if kept_intervals and kept_intervals.exists() else {}
if kept_intervals:
    atexit.register(lambda: kept_intervals.write_text(json.dumps(known_intervals)))


def in_words(value, low=None, high=None):
    return f"{value:.2f}x" + (f" [{low:.2f}, {high:.2f}]" if low is not None else "")


def speedup_over_all(*pairs):
    """In words."""
    return in_words(*over_all(pairs))


OF_RATES = "tokens/s over plain"  # ratio of means over prompts, in which each counts alike, however long it takes


def as_counted(p):
    """What a run's key `speedup` is, and (value, low, high): the speedup over all prompts; in older runs, the ratio of rates."""
    return "speedup" if "tokens_per_second_over_plain" in p else OF_RATES, (p["speedup"], *p.get("intervals", {}).get("speedup", (None, None)))


def speedup_of(plain, p):
    """(value, low, high): of a run's own figures or of its prompts' times. Raises ValueError for a group of prompts of an older run."""
    if "by_prompt" not in p and "target_milliseconds_per_call" not in p:
        if as_counted(p)[0] != "speedup":
            raise ValueError(f"this run has no times of groups of prompts: say '{OF_RATES}'")
        return as_counted(p)[1]
    return over_all([(plain, p)])


def rates(p):
    return (p["tokens_per_second_over_plain"], None, None) if "tokens_per_second_over_plain" in p else as_counted(p)[1]


def paired(data, label, against, key):
    """A row over another, prompt by prompt: the ratio and its interval. Of times any two
    rows that have those of each prompt, else those that the run was told to compare (--against); None for others."""
    named = pipelines(data)
    if label not in named or against not in named or label == against:
        return None
    own, other = named[label], named[against]
    x = data.get("against", {}).get(other["name"], {}).get(own["name"])
    return over_all([(other, own)]) if key == "speed" and "by_prompt" in own else x and x[key]


def expected(a, c, n=5):
    """E(speedup) of chains of n, as GLIDE's paper has it."""
    return (1 - a ** (n + 1)) / ((1 - a) * (n * c + 1)) if a < 1 else (n + 1) / (n * c + 1)


def by_formula(data, name, one_way):
    """The speedup over links of this delay in ms: (c1 + S RTT) MAT / (cn + draft + S RTT), with c and draft as measured without delay."""
    plain, own = ({p["name"]: p for p in data["delays"][0]["pipelines"]}[n] for n in ("autoregressive", name))
    links = 2 * one_way * data["rpc_servers"]
    return (plain["target_milliseconds_per_call"] + links) * own["mat"] / (own["target_milliseconds_per_call"] + own["draft_milliseconds_per_round"] + links)


def products(data):
    """What the target multiplied: weights in blocks (of runs that say how weights were kept), bfloat16, or floats."""
    return "blocks" if data.get("kept_as") == "blocks" else "bfloat16" if data.get("inputs") == "bf16" else "floats"


def of_one_run(a, b):
    return all(of(a) == of(b) for of in (lambda data: runs.about(data).get("commit"), runs.processor))


def kept(data):
    """How the target's weights were in memory. Runs before blocks say only what was asked for, which was bfloat16 for quantised files."""
    return {"blocks": "blocks", "bf16": "bfloat16", "full": "floats"}[data.get("kept_as") or {"auto": "bf16"}.get(data["weights"], data["weights"])]


# What is said of a row, of which p is the pipeline.
WHAT = {
    "label": lambda row, p: row.label,
    "data": lambda row, p: row.link(),
    "name": lambda row, p: f"`{p['name']}`",
    # All prompts together; the interval where the run has the times of each. Groups of prompts of older runs have rates alone.
    "speedup": lambda row, p: in_words(speedup_of(row.plain, p)[0]),
    "speedup [95%]": lambda row, p: in_words(*speedup_of(row.plain, p)),
    OF_RATES: lambda row, p: in_words(rates(p)[0]),
    f"{OF_RATES} [95%]": lambda row, p: in_words(*rates(p)),
    **{name: lambda row, p, key=key: f"{p[key]:.2f}" for name, key in (("MAT", "mat"), ("tau", "tau"), ("acceptance", "acceptance"), ("SWI", "swi"))},
    **{f"{name} [95%]": lambda row, p, key=key: with_interval(p, key)
       for name, key in (("MAT", "mat"), ("tau", "tau"), ("acceptance", "acceptance"), ("SWI", "swi"))},
    "tokens/s": lambda row, p: f"{p['tokens_per_second']:.0f}",
    "same text": lambda row, p: f"{p['identical_to_autoregressive']} of {p['prompts']}",
    "outside the models": lambda row, p: f"{100 * p['overhead_share']:.2f}%",
    "products": lambda row, p: products(row.data),
    # The time of a draft token over that of a pass of the target over one node, both within the run, for a chain of any draft. It
    # includes what the draft computes of accepted tokens, which a plain draft merges into a pass and a conditioned one may repeat.
    "c": lambda row, p: f"{row.c():.2f}",
    "c, 3 digits": lambda row, p: f"{row.c():.3f}",
    "E(speedup)": lambda row, p: f"{expected(p['acceptance'], row.c()):.2f}",
    "draft ms": lambda row, p: f"{p['draft_milliseconds_per_round'] / p['mean_proposed']:.2f} ms",  # of a draft token
    "draft ms per round": lambda row, p: f"{p['draft_milliseconds_per_round']:.3f}",
    "draft tokens": lambda row, p: f"{p['mean_proposed']:.1f}",
    "draft calls per round": lambda row, p: ", ".join(f"{d['model']} {d['calls'] / p['target_calls']:.1f}" for d in p["drafts"]),
    "costs of calls": lambda row, p: ", ".join(f"{d['model']} {d['cost_coefficient']:.3f}" for d in p["drafts"]),  # what SWI takes
    "layers per call": lambda row, p: f"{p['drafts'][0]['layers_per_call']:.2f}",
    "pass": lambda row, p: f"{p['target_milliseconds_per_call'] / row.data['pipelines'][0]['target_milliseconds_per_call']:.1f}",
    "by depth": lambda row, p: " ".join(f"{x:.2f}" if x is not None else "-" for x in p["acceptance_by_depth"][:5]),
    "by confidence": lambda row, p: " ".join(f"{x['accepted'] / x['proposals']:.2f}" if x["proposals"] else "-" for x in p["acceptance_by_confidence"]),
    **{f"SWI by {name}": lambda row, p, name=name: row.by_costs(name).split(" [")[0] for name in ("MS", "PW")},
    **{f"SWI by {name} [95%]": lambda row, p, name=name: row.by_costs(name) for name in ("MS", "PW")},
}
PAIRED = {"speed": "speed", "MAT": "mat", "tau": "tau", "SWI": "swi"}


class Row:
    """A measured pipeline of a file: by a run's label, by its name, or the fastest one as `first`.

    `row[what]` says one of WHAT, or `MAT against LABEL` (in per cent, with its interval), or `MAT over LABEL` (as a ratio); the latter
    are "" where the run has no comparison of these two. A * in LABEL is what follows the comma of the row's own label. Raises ValueError
    for what is neither.
    """

    def __init__(self, file, label):
        self.file, self.label, self.data = file, label, load(file)
        named = {p["name"]: p for p in self.data["pipelines"]} | pipelines(self.data)
        self.plain = self.data["pipelines"][0]
        drafted = [p for p in self.data["pipelines"] if p["name"] != "autoregressive"]
        self.p = max(drafted, key=lambda p: speedup_of(self.plain, p)) if label == "first" else named.get(label)
        if self.p is None:
            raise Missing(f"{label} in {file}")

    def of(self, category):
        """The same pipeline in one category of the prompts."""
        if category:
            found = [p for c in self.data["categories"] if TITLES.get(c["name"], c["name"]) == category for p in c["pipelines"]]
            self.plain = found[0] if found else None
            self.p = next((p for p in found if p["name"] == self.p["name"]), None)
            if self.p is None:
                raise Missing(category)
        return self

    def __getitem__(self, what):
        if what in WHAT:
            return WHAT[what](self, self.p)
        of, how, other = re.fullmatch("(.*?) (against|over) (.*)|.*", what).groups()
        if of not in PAIRED:
            raise ValueError(f"nothing is called '{what}'")
        x = paired(self.data, self.label, other.replace("*", self.label.partition(", ")[2]), PAIRED[of])
        if not x:
            return ""
        if how == "over":
            return "{:.2f}x [{:.2f}, {:.2f}]".format(*x)
        value, low, high = (100 * (y - 1) for y in x)
        return f"{value:+.1f}% [{low:+.1f}, {high:+.1f}]" + (", within the noise" if low <= 0 <= high else "")

    def c(self):
        return self.p["draft_milliseconds_per_round"] / self.p["mean_proposed"] / self.data["pipelines"][0]["target_milliseconds_per_call"]

    def by_costs(self, name):
        x = (self.p.get("swi_by_costs") or {}).get(name)
        return "" if not x else f"{x['value']:.2f}" + (" [{:.2f}, {:.2f}]".format(*x["interval"]) if "interval" in x else "")

    def says(self, *what):
        """Figures in one cell, each with its name but for the name of the pipeline and the speedup."""
        out = []
        for x in what:
            full = x if f"{x} [95%]" not in WHAT else f"{x} [95%]"
            out.append(self[full] if x in ("name", "speedup") else f"{x} {self[full]}")
        return ", ".join(out)

    def link(self):
        faulty = runs.faults(self.data, self.p["name"])
        return f"[data](benchmarks/{self.file}.json)" + (", [faults](benchmarks/README.md#known-faults-of-runs)" if faulty else "")


def rows(file):
    return [Row(file, label) for label in pipelines(load(file))]


def sentence(name):
    """The words of FILE | ROW | WHAT [| CATEGORY], with / for | in a table. Raises ValueError if there is no such figure, Missing if its
    file is not there."""
    parts = re.split(" [|/] ", name)
    if len(parts) not in (3, 4):
        raise ValueError("neither FILE | ROW | WHAT nor the name of a claim")
    said = Row(*parts[:2]).of("".join(parts[3:]))[parts[2]]
    if not said and parts[2] not in WHAT:
        raise ValueError(f"{parts[0]}.json does not compare {parts[1]} with {re.split(' against | over ', parts[2])[1]} prompt by prompt")
    return said.replace(", within the noise", " (within the noise)")


def measured(page, file, words="", cpu=True):
    """Lines below a table: words; commit, date and processor of a file; the link to it; its faults."""
    data = load(file)
    commit, date = (runs.about(data)[key] for key in ("commit", "date"))
    link = os.path.relpath(folder / f"{file}.json", (root / page).parent)
    return ["", f"{words}{'commit' if words.endswith((', ', '; ')) else 'Commit'} {commit}, {date[:10]}{f', {runs.processor(data)}' * cpu}. [Data]({link})."
            + runs.footnote(data)]


def source(page, *files):
    """Where the figures of runs come from: lines below their table."""
    return [line for file in files for line in source_of(page, file)]


def source_of(page, file):
    data = load(file)
    run, inputs = data["run"], "products of " + products(data) + (" (AVX512_BF16)" if products(data) == "bfloat16" else "")
    files = ", ".join(TITLES.get(f, f) for f in dict.fromkeys(run["prompts"]))
    threads = f"{data['threads']} thread" + ("s" if data["threads"] > 1 else "")
    repeats = f", {data['repeat']} runs each" if data["repeat"] > 1 else ""
    link = os.path.relpath(folder / f"paper_{run['name']}.json", (root / page).parent)
    text = (f"{data['prompts']} prompts ({files}), {data['max_new_tokens']} new tokens, temperature {data['temperature']:g}, {threads}, {inputs}{repeats}; "
            f"`{data['target']}` {run['models'].get(data['target'], '')[:8]}, commit {run['commit']}, {run['date']}, {run['machine']['cpu']} "
            f"({run['machine']['cores']} cores). [Data]({link}).")
    if run["section"] in ("cascades", "rules"):
        text += " Measured beside other work: counts are exact, times and costs of calls are rough."
    if run.get("beside"):
        text += f" During the run, the machine also had {run['beside']}."
    if data["left_out"]:
        text += f" Left out, because longer than the target's context: {data['left_out']}."
    return ["", text + runs.footnote(data)]
