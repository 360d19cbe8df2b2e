"""Runs of scripts/paper_tables, and the tables that scripts/pages makes of them. Standard library only.

A Run is one call of specula-compare; its JSON is docs/benchmarks/paper_NAME.json. Tables are made of these files and of nothing
else. A table of which a file is not there yet is None: then pages keep what stands there.
"""
import dataclasses
import json
import os
import pathlib
import re

import runs

# Development prompts of each file of SEARCHED; runs without a search leave the same ones out, so that no run reports a prompt that
# another one has searched on. (None of them is among Spec-Bench's questions, of which 80 are GSM8K's.)
DEV = 6
SEARCHED = ("gsm8k", "humaneval")
FILES = {"gsm8k": "gsm8k/test.jsonl", "humaneval": "humaneval/HumanEval.jsonl", "mt_bench": "mt_bench/question.jsonl",
         "spec_bench": "spec_bench/question.jsonl"}
TITLES = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "mt_bench": "MT-bench", "spec_bench": "Spec-Bench",
          "gsm8k/test": "GSM8K", "humaneval/HumanEval": "HumanEval", "math_reasoning": "math reasoning"}


@dataclasses.dataclass
class Run:
    """One comparison. `rows` maps labels to pipelines; a pipeline with braces is a search, of which the pick is the row."""
    name: str
    minutes: float  # about, on two idle cores: what --minutes scales
    rows: dict
    optional: tuple = ()  # labels that are left out where the program or the models do not know them
    against: tuple = ()   # labels of rows that all others are compared with
    prompts: tuple = ("gsm8k", "humaneval")
    limit: int = 30
    repeat: int = 3
    tokens: int = 128
    counts: bool = False  # the table shows counts alone, so the run may be made beside other work
    temperature: float = 0
    seed: int = 1
    costs: tuple = ()
    search_for: str = "time"
    by_category: bool = False
    categories: str = ""
    target: str = "target"
    rows_of: str = ""     # take the rows of this run, its picks instead of its searches
    variants: dict = dataclasses.field(default_factory=dict)  # label -> pipeline with * for each model of build/variants

    def file(self, figures):
        return figures / f"paper_{self.name}.json"


CAPE_COUNTS = "{7-5-3-1,5-3-2-1,4-3-2-0,4-2-1-0,3-2-1-0,2-2-1-0,2-1-1-0,3-1-0-0,2-1-0-0,1-1-0-0,1-0-0-0,0-0-0-0}"
THRESHOLDS = "{0.3,0.5,0.7,0.9,2}-{0.3,0.5,0.7,0.9}"
# Calls of drafters over calls of the target, as the paper of cascades has them: by parameters (FLAN-T5 small 60M and base 220M
# under XXL, 11,300M), and as measured in earlier work. Max-Gram costs nothing there.
MS = "MS:base=0.01947,small=0.00531,max-gram=0"
PW = "PW:base=0.04,small=0.02,max-gram=0"
# Max-Gram costs nothing there, so by these costs no copy is too long: it is not searched, but the longest that the paper tries.
CASCADES = {
    "best chain of small": "chain:small:{4,6,8,10,12,15,20,30}",
    "best chain of base": "chain:base:{4,6,8,10,12,15,20,30}",
    "Max-Gram alone": "max-gram:30",
    "best cascade of base and small": "cascade:base:small:limits={2,4,6,8,12}-{0,4,8,12,16}-{0,1,2,4}",
    "best cascade of base and Max-Gram": "cascade:base:max-gram:limits={1,2,4,8}-30-{0,1,2,4,10}",
    # Those of base and Max-Gram are among these, without small: limits=A-0-30-0-B-4.
    "best cascade of all three": "cascade:base:small:max-gram:limits={1,2,4,8}-0-30-{0,1,2}-{0,1,2,4,10}-4",
}
# A review is worth saving where the reviewer is dear: medium costs a tenth of the target and more.
LENIENCE = {f"lenience {n}": f"cascade:medium:small:limits=8-2-4:lenience={n}" for n in (1, 3, 10)}


def heads(chain):
    """Trees of 60, 24 and 12 nodes (the root among them) and chains, of both heads."""
    rows = {}
    for head, tree in (("HASS", "hass"), ("EAGLE", "eagle2")):
        model = "hass" if head == "HASS" else "eagle"
        rows[f"{head}, 60 nodes, depth 6"] = f"{tree}:10:5:59"
        rows[f"{head}, 24 nodes, depth 6"] = f"{tree}:6:5:23"
        rows[f"{head}, 12 nodes, depth 5"] = f"{tree}:4:4:11"
        rows[f"{head}, EAGLE's static tree"] = f"static-tree:{model}"
        rows[f"{head}, chain of 5"] = f"{chain}:{model}:5"
    return rows


def asd_rows():
    return {
        "thresholding alone": "asd:every=0:last=0",
        "thresholding and rule 2": "asd:every=0",
        "rules 1 and 2": "asd:alike=2",
        "all rules (the paper's)": "asd",
        "every 2nd, rules 1 and 2": "asd:alike=2:every=2",
        "given blocks": "asd:attention=3-5-7-9-11-13:mlp=3-5-7-9-11-13",
    }


# Grids reach beyond what was picked before on either side: scripts/pages refuses a new run whose pick is at an end of its grid.
MAIN = {
    "HASS, chain": "chain:hass:{2..8}",
    "HASS, tree": "hass:{2,3,4,6}:{2,3,4,5}:{4,6,8,12}",
    "HASS, cost-aware": "cost-aware:chain:hass",
    "EAGLE, chain": "chain:eagle:{2..8}",
    "GLIDE, chain": "chain:glide:{2..8}",
    "GLIDE with CAPE": "glide+cape:{3,4,5,6}:counts={4-2-1-0,3-2-1-0,2-1-0-0,1-1-0-0,1-0-0-0,0-0-0-0}",
    "draft model, chain": "chain:small:{2..10}",
    "draft model, cost-aware": "cost-aware:chain:small",
    "cascade": "cascade:base:small:limits={0,1,2,3,4}-{2,4,6,8,10}-{1,2,3,4}",
    "S2D": "s2d:{4,6,8,10,12}:thresholds={0.7,0.9,2}-{0.5,0.7,0.9,2}",
    "ASD": "asd:{1,2,3,4}:alike=2:every=2",
    "Max-Gram": "max-gram:{2,3,4,6,8,10}",
}

SECTIONS = {
    "main": [
        Run("main", 20, MAIN, optional=("GLIDE with CAPE",), by_category=True, against=("EAGLE, chain", "draft model, chain", "HASS, chain")),
        Run("mt_bench", 6, {}, rows_of="main", prompts=("mt_bench",), limit=5, by_category=True,
            categories="writing,roleplay,reasoning,math,coding,extraction,stem,humanities"),
        Run("spec_bench", 12, {}, rows_of="main", prompts=("spec_bench",), limit=8, by_category=True,
            categories="translation,summarization,qa,math_reasoning,rag"),  # what is not MT-bench's
    ],
    "glide": [
        Run("glide", 3, {"vanilla draft": "chain:small:5", "GLIDE": "chain:glide:5"}, against=("vanilla draft",),
            variants={"*": "chain:*:5"}),
        Run("glide_t1", 3, {"vanilla draft": "sampled-chain:small:5", "GLIDE": "sampled-chain:glide:5"}, temperature=1,
            against=("vanilla draft",), variants={"*": "sampled-chain:*:5"}),
    ],
    "cape": [
        Run("cape", 10, {
            "chain of 4": "glide:4",
            "best chain": "glide:{2..8}",
            "CAPE, 7 5 3 1": "glide+cape:4",
            "CAPE, counts for this machine": f"glide+cape:{{2,3,4,5,6}}:counts={CAPE_COUNTS}",
            "fixed K = 4": "glide+cape:4:fixed=4",
            "best fixed K": "glide+cape:{2,3,4,5}:fixed={0,1,2,3}",
            "beam 4": "glide+beam4:4:4",
            "beam 8": "glide+beam4:8:4",
        }, optional=("CAPE, counts for this machine",), against=("chain of 4", "best chain")),
    ],
    "cascades": [
        Run("cascades_ms", 10, CASCADES, costs=(MS, PW), search_for="MS", repeat=1, limit=8, counts=True,
            against=("best chain of base", "best cascade of base and Max-Gram")),
        Run("cascades_pw", 10, CASCADES, costs=(MS, PW), search_for="PW", repeat=1, limit=8, counts=True,
            against=("best chain of base", "best cascade of base and Max-Gram")),
        Run("cascades_lenience", 1, {"chain of medium": "chain:medium:4", "chain of small": "chain:small:10", **LENIENCE}, repeat=1, limit=8, counts=True,
            against=("chain of medium", "lenience 1")),
    ],
    "s2d": [Run(f"s2d_{target}", 8, {
        "exit 1": "s2d:{1..5}:thresholds=0",
        "exit 2": "s2d:{1..5}:thresholds=2-0",
        "all layers": "s2d:{1..5}:thresholds=2-2",
        "S2D, 0.5 0.5 0 (the paper's)": "s2d:3:thresholds=0.5-0.5",
        "S2D, thresholds for this target": f"s2d:{{1..4}}:thresholds={THRESHOLDS}",
    }, target=target, against=("exit 1", "all layers"),
        variants={"*, exits": "s2d:*:3:thresholds=0.5-0.5", "*, all layers": "chain:*:3"} if target == "target" else {}) for target in ("target", "medium")],
    "asd": [Run(f"asd_t{str(t).replace('.', '')}", 4, asd_rows(), optional=("given blocks",), temperature=t, limit=15)
            for t in (0, 0.2, 0.6, 1)],
    "hass": [Run(f"hass_t{t}", 9, heads("chain" if t == 0 else "sampled-chain"), temperature=t, limit=20,
                 optional=("HASS, EAGLE's static tree", "EAGLE, EAGLE's static tree"),
                 against=tuple(x for x in heads("chain") if x.startswith("EAGLE,")),
                 variants={"*, 60 nodes": "hass:*:10:5:59", "*, 12 nodes": "hass:*:4:4:11"} if t == 0 else {})
             for t in (0, 1)],
}
VARIANTS = {"glide": ("glide-", "vanilla-"), "hass": ("hass-", "eagle-"), "s2d": ("s2d-",)}  # of which models of build/variants a section has rows


# ---- tables

def load(figures, name):
    file = figures / f"paper_{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def table(heads, rows):
    return ["| " + " | ".join(map(str, r)) + " |" for r in [heads, ["---"] * len(heads), *rows]]


def pipelines(data):
    """Labels of the measured rows, with their figures."""
    by_name = {p["name"]: p for p in data["pipelines"]}
    picks = {s["search"]: s["picked"] for s in data.get("searches", [])}
    return {label: by_name[picks.get(spec, spec)] for label, spec in data["run"]["rows"].items()}


def with_interval(p, key, unit=""):
    low, high = p["intervals"][key] if "intervals" in p else (None, None)
    return f"{p[key]:.2f}{unit}" + (f" [{low:.2f}, {high:.2f}]" if low is not None else "")


def step(data, p):
    """The time of a draft token over that of a pass of the target over one node, both within the run: c, for a chain of any draft.
    It includes what the draft computes of accepted tokens, which a plain draft merges into a pass and a conditioned one may repeat."""
    return p["draft_milliseconds_per_round"] / p["mean_proposed"] / data["pipelines"][0]["target_milliseconds_per_call"]


def by_costs(p, name):
    x = (p.get("swi_by_costs") or {}).get(name)
    return "" if not x else f"{x['value']:.2f}" + (" [{:.2f}, {:.2f}]".format(*x["interval"]) if "interval" in x else "")


def paired(data, label, against, key):
    """A row over another, prompt by prompt: the ratio and its interval. None if the run did not compare them."""
    named = pipelines(data)
    if label not in named or against not in named or label == against:
        return None
    x = data.get("against", {}).get(named[against]["name"], {}).get(named[label]["name"])
    return x and x[key]


def gain(data, label, against, key):
    """How much a row is above another, in per cent, and whether the difference is significant."""
    x = paired(data, label, against, key)
    if not x:
        return ""
    value, low, high = x
    text = f"{100 * (value - 1):+.1f}% [{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]"
    return text + (", within the noise" if low <= 1 <= high else "")


def same(p):
    return f"{p['identical_to_autoregressive']} of {p['prompts']}"


def depths(p, most=5):
    return " ".join(f"{x:.2f}" if x is not None else "-" for x in p["acceptance_by_depth"][:most])


def source(data, page, root, figures):
    """Where the figures come from: a line below each table."""
    run = data["run"]
    link = os.path.relpath(figures / f"paper_{run['name']}.json", (root / page).parent)
    files = ", ".join(TITLES.get(f, f) for f in dict.fromkeys(run["prompts"]))
    threads = f"{data['threads']} thread" + ("s" if data["threads"] > 1 else "")
    repeats = f", {data['repeat']} runs each" if data["repeat"] > 1 else ""
    inputs = "products of bfloat16 (AVX512_BF16)" if data["inputs"] == "bf16" else "products of floats"
    text = (f"{data['prompts']} prompts ({files}), {data['max_new_tokens']} new tokens, temperature {data['temperature']:g}, {threads}, {inputs}{repeats}; "
            f"`{data['target']}` {run['models'].get(data['target'], '')[:8]}, commit {run['commit']}, {run['date']}, {run['machine']['cpu']} "
            f"({run['machine']['cores']} cores). [Data]({link}).")
    if run_counts(run["name"]):
        text += " Measured beside other work: counts are exact, c is rough."
    if data["left_out"]:
        text += f" Left out, because longer than the target's context: {data['left_out']}."
    if run.get("absent"):
        text += " Missing: " + "; ".join(run["absent"]) + "."
    if run.get("kept"):
        text += f" Kept from that run: {run['kept']}."
    return ["", text + runs.footnote(data)]


def run_counts(name):
    return any(run.counts for section in SECTIONS.values() for run in section if run.name == name)


def main_table(load, src):
    data = load("main")
    if not data:
        return None
    rows = sorted(pipelines(data).items(), key=lambda x: -x[1]["speedup"])
    plain = data["pipelines"][0]
    out = [["plain decoding", "", "1.00x", "1.00", f"{plain['tokens_per_second']:.0f}", ""]]
    out += [[label, f"`{p['name']}`", with_interval(p, "speedup", "x"), with_interval(p, "mat"), f"{p['tokens_per_second']:.0f}", same(p)]
            for label, p in rows]
    return table(["method", "pipeline", "speedup [95%]", "MAT [95%]", "tokens/s", "same text"], out) + src(data)


def categories_table(load, src):
    """Speedups by data set; of Spec-Bench what is not MT-bench."""
    parts = [load(name) for name in ("main", "mt_bench", "spec_bench")]
    if not all(parts):
        return None
    main, mt_bench, spec = parts
    columns = [(TITLES.get(c["name"], c["name"]), main, c["pipelines"], c["prompts"]) for c in main["categories"]]
    columns.append(("MT-bench, first turns", mt_bench, mt_bench["pipelines"], mt_bench["prompts"]))
    columns += [(TITLES.get(c["name"], c["name"]), spec, c["pipelines"], c["prompts"]) for c in spec["categories"]]
    rows = []
    for label in pipelines(main):
        row = [label]
        for _, data, of, _ in columns:
            name = pipelines(data)[label]["name"] if label in pipelines(data) else None
            found = next((p for p in of if p["name"] == name), None)
            row.append(with_interval(found, "speedup", "x") if found else "")
        rows.append(row)
    return table(["speedup"] + [f"{title} ({n})" for title, _, _, n in columns], rows) + src(main) + src(mt_bench) + src(spec)


def mt_bench_table(load, src):
    data = load("mt_bench")
    if not data:
        return None
    rows = []
    for label, p in pipelines(data).items():
        row = [label]
        for category in data["categories"]:
            own = next(x for x in category["pipelines"] if x["name"] == p["name"])
            row.append(f"{own['speedup']:.2f}x, {own['mat']:.2f}")
        rows.append(row)
    return table(["speedup, MAT"] + [f"{c['name']} ({c['prompts']})" for c in data["categories"]], rows) + src(data)


def expected(a, c, n=5):
    """The paper's E(speedup) of chains of n."""
    return (1 - a ** (n + 1)) / ((1 - a) * (n * c + 1)) if a < 1 else (n + 1) / (n * c + 1)


def glide_table(load, src, name):
    data = load(name)
    if not data:
        return None
    rows = []
    for label, p in pipelines(data).items():
        c = step(data, p)
        rows.append([label, f"`{p['name']}`", with_interval(p, "acceptance"), depths(p), with_interval(p, "mat"), f"{c:.3f}",
                     f"{expected(p['acceptance'], c):.2f}", with_interval(p, "speedup", "x"), gain(data, label, "vanilla draft", "speed")])
    return table(["draft", "pipeline", "acceptance [95%]", "by depth", "MAT [95%]", "c", "E(speedup)", "speedup [95%]", "against vanilla, in time"],
                 rows) + src(data)


# Runs with a smaller target whose drafts are no longer in the repository: what each draft sees and was trained on.
GLIDE_MEDIUM = {f"{kind}{width}": (sees, "target's") for width in ("64", "128", "128x2") for kind, sees in (("vanilla", "no"), ("glide", "yes"))}
GLIDE_MEDIUM |= {"vanilla128-people": ("no", "people's"), "glide": ("yes", "people's")}


def glide_medium_table(figures, file, chain):
    path = figures / f"{file}.json"
    if not path.exists():
        return None
    data = json.loads(path.read_text())
    by_name = {p["name"]: p for p in data["pipelines"]}
    rows = []
    for draft, (sees, text) in GLIDE_MEDIUM.items():
        p = by_name[f"{chain}:{draft}:5"]
        c = step(data, p)
        rows.append([f"`{draft}`", sees, text, f"{p['acceptance']:.3f}", depths(p), f"{p['mat']:.2f}", f"{c:.3f}", f"{expected(p['acceptance'], c):.2f}"])
    return table(["draft", "sees the target", "text", "acceptance", "by depth", "MAT", "c", "E(speedup)"], rows)


def cape_table(load, src):
    data = load("cape")
    if not data:
        return None
    rows = [[label, f"`{p['name']}`", with_interval(p, "mat"), f"{p['mean_proposed']:.1f}", f"{p['draft_milliseconds_per_round']:.3f}",
             with_interval(p, "speedup", "x"), gain(data, label, "chain of 4", "speed"), gain(data, label, "best chain", "speed")]
            for label, p in pipelines(data).items()]
    return table(["shape", "pipeline", "MAT [95%]", "draft tokens", "draft ms per round", "speedup [95%]", "against the chain of 4", "against the best chain"],
                 rows) + src(data)


def cascades_table(load, src, name, costs):
    data = load(name)
    if not data:
        return None
    rows = []
    for label, p in pipelines(data).items():
        rows.append([label, f"`{p['name']}`", with_interval(p, "mat"), gain(data, label, "best chain of base", "mat"), by_costs(p, "MS"), by_costs(p, "PW"),
                     with_interval(p, "swi"), gain(data, label, "best chain of base", "swi"), calls_of(p)])
    return table([f"best by {costs}", "pipeline", "MAT [95%]", "MAT against the chain of base", "SWI by MS", "SWI by PW", "SWI, own c",
                  "own SWI against the chain of base", "draft calls per round"], rows) + src(data)


def calls_of(p):
    return ", ".join(f"{d['model']} {d['calls'] / p['target_calls']:.1f}" for d in p["drafts"])


def lenience_table(load, src):
    data = load("cascades_lenience")
    if not data:
        return None
    rows = [[label, f"`{p['name']}`", with_interval(p, "mat"), calls_of(p), with_interval(p, "swi"), gain(data, label, "lenience 1", "swi"),
             gain(data, label, "chain of medium", "swi"), same(p)] for label, p in pipelines(data).items()]
    costs = ", ".join(f"{d['model']} {d['cost_coefficient']:.3f}" for d in next(p for p in data["pipelines"] if len(p["drafts"]) > 1)["drafts"])
    return table(["", "pipeline", "MAT [95%]", "draft calls per round", f"SWI [95%], c: {costs}", "SWI against lenience 1", "SWI against the chain of medium",
                  "same text"], rows) + src(data)


def s2d_table(load, src, target):
    data = load(f"s2d_{target}")
    if not data:
        return None
    rows = []
    for label, p in pipelines(data).items():
        rows.append([label, f"`{p['name']}`", f"{p['drafts'][0]['layers_per_call']:.2f}", with_interval(p, "acceptance"), with_interval(p, "mat"),
                     with_interval(p, "speedup", "x"), gain(data, label, "exit 1", "speed")])
    return table([f"`{target}`", "pipeline", "layers per call", "acceptance [95%]", "MAT [95%]", "speedup [95%]", "against exit 1"], rows) + src(data)


def asd_table(load, src):
    data = {t: load(f"asd_t{str(t).replace('.', '')}") for t in (0, 0.2, 0.6, 1)}
    if not all(data.values()):
        return None
    rows = []
    for label in pipelines(data[0]):
        row = [label, f"`{pipelines(data[0])[label]['name']}`"]
        for t in data:
            p = pipelines(data[t]).get(label)
            row += [with_interval(p, "speedup", "x"), f"{p['mat']:.2f}"] if p else ["", ""]
        rows.append(row)
    return table(["skipped", "pipeline"] + [x for t in data for x in (f"T = {t}: speedup [95%]", "MAT")], rows) + \
        [line for d in data.values() for line in src(d)]


def hass_table(load, src, t):
    data = load(f"hass_t{t}")
    if not data:
        return None
    rows = []
    for label, p in pipelines(data).items():
        eagle = label.replace("HASS", "EAGLE")
        rows.append([label, f"`{p['name']}`", with_interval(p, "tau"), gain(data, label, eagle, "tau"), with_interval(p, "mat"),
                     f"{p['acceptance']:.3f}", f"{p['mean_proposed']:.1f}", with_interval(p, "speedup", "x"), gain(data, label, eagle, "speed")])
    return table(["head and shape", "pipeline", "tau [95%]", "tau against EAGLE", "MAT [95%]", "acceptance", "draft tokens", "speedup [95%]",
                  "speed against EAGLE"], rows) + src(data)


def tables(root):
    """Name of a table to a function of the page that gives its lines, or None where its figures are not there."""
    figures = root / "docs" / "benchmarks"
    of = {
        "main": main_table, "by category": categories_table, "mt_bench": mt_bench_table,
        "glide": lambda l, s: glide_table(l, s, "glide"), "glide at temperature 1": lambda l, s: glide_table(l, s, "glide_t1"),
        "cape": cape_table,
        "cascades, MS": lambda l, s: cascades_table(l, s, "cascades_ms", "SWI with MS"),
        "cascades, PW": lambda l, s: cascades_table(l, s, "cascades_pw", "SWI with PW"),
        "cascades, lenience": lenience_table,
        "s2d, target": lambda l, s: s2d_table(l, s, "target"), "s2d, medium": lambda l, s: s2d_table(l, s, "medium"),
        "asd": asd_table, "hass": lambda l, s: hass_table(l, s, 0), "hass at temperature 1": lambda l, s: hass_table(l, s, 1),
    }
    return {"paper: " + name: (lambda page, make=make: make(lambda name: load(figures, name), lambda data: source(data, page, root, figures)))
            for name, make in of.items()} | {
        f"glide on medium: {name}": (lambda page, file=file, chain=chain: glide_medium_table(figures, file, chain))
        for name, file, chain in (("greedy", "glide_greedy", "chain"), ("temperature 1", "glide_temperature_1", "sampled-chain"))}


def words(text):
    """Names in a pipeline, braces expanded or not."""
    return set(re.findall(r"[A-Za-z][A-Za-z0-9_-]*", text))
