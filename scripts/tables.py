"""The tables of pages and the sentences with figures, for scripts/pages, by their names. Standard library only."""
import re

import runs
from figures import TITLES, Missing, Row, columns, folder, load, pipelines, root, rows, source, table, with_interval

TABLES = {}  # name: a function of the page
CLAIMS = {}  # name: a function


def named(of, *names):
    """Adds a function to TABLES or CLAIMS by its names, or by tuples of a name and arguments that follow the page."""
    def add(function):
        for name in names:
            name, *arguments = name if isinstance(name, tuple) else (name,)
            of[name] = lambda *page, arguments=arguments: function(*page, *arguments)
        return function
    return add


# ---- the papers' methods

COLUMNS = {  # of a table of a run: the file, and its columns
    "glide": ("paper_glide", "draft = label | pipeline = name | acceptance [95%] | by depth | MAT [95%] | c = c, 3 digits | E(speedup) | speedup [95%] | "
              "against vanilla, in time = speed against vanilla draft"),
    "cape": ("paper_cape", "shape = label | pipeline = name | MAT [95%] | draft tokens | draft ms per round | speedup [95%] | "
             "against the chain of 4 = speed against chain of 4 | against the best chain = speed against best chain"),
    "cascades, MS": ("paper_cascades_ms", "best by SWI with MS = label | pipeline = name | MAT [95%] | MAT against the chain of base = MAT against best chain of base | "
                     "SWI by MS = SWI by MS [95%] | SWI by PW = SWI by PW [95%] | SWI, own c = SWI [95%] | "
                     "own SWI against the chain of base = SWI against best chain of base | draft calls per round"),
    "s2d, target": ("paper_s2d_target", "`target` = label | pipeline = name | layers per call | acceptance [95%] | MAT [95%] | speedup [95%] | "
                    "against exit 1 = speed against exit 1"),
}
COLUMNS["glide at temperature 1"] = ("paper_glide_t1", COLUMNS["glide"][1])
COLUMNS["cascades, PW"] = ("paper_cascades_pw", COLUMNS["cascades, MS"][1].replace("with MS", "with PW"))
COLUMNS["s2d, medium"] = ("paper_s2d_medium", COLUMNS["s2d, target"][1].replace("`target`", "`medium`"))
for table_name, (file, spec) in COLUMNS.items():
    TABLES[f"paper: {table_name}"] = lambda page, file=file, spec=spec: columns(spec, rows(file)) + source(file, page)


@named(TABLES, "paper: main")
def main(page):
    plain = load("paper_main")["pipelines"][0]
    shown = columns("method = label | pipeline = name | speedup [95%] | MAT [95%] | tokens/s | same text",
                    sorted(rows("paper_main"), key=lambda row: -row.p["speedup"]))
    return shown[:2] + [f"| plain decoding |  | 1.00x | 1.00 | {plain['tokens_per_second']:.0f} |  |"] + shown[2:] + source("paper_main", page)


@named(TABLES, "paper: by category")
def by_category(page):
    """Speedups by data set; of Spec-Bench what is not MT-bench."""
    main, mt_bench, spec = (load(f"paper_{name}") for name in ("main", "mt_bench", "spec_bench"))
    parts = [(data, TITLES.get(c["name"], c["name"]), c) for data in (main, spec) for c in data["categories"]]
    parts.insert(len(main["categories"]), (mt_bench, "MT-bench, first turns", mt_bench))
    out = []
    for label in pipelines(main):
        names = [pipelines(data).get(label, {}).get("name") for data, _, _ in parts]
        found = [next((p for p in of["pipelines"] if p["name"] == name), None) for name, (_, _, of) in zip(names, parts)]
        out.append([label] + [with_interval(p, "speedup", "x") if p else "" for p in found])
    heads = ["speedup"] + [f"{title} ({of['prompts']})" for _, title, of in parts]
    return table(heads, out) + [line for name in ("main", "mt_bench", "spec_bench") for line in source(f"paper_{name}", page)]


@named(TABLES, "paper: mt_bench")
def mt_bench(page):
    data = load("paper_mt_bench")
    out = [[label] + [f"{q['speedup']:.2f}x, {q['mat']:.2f}" for c in data["categories"] for q in c["pipelines"] if q["name"] == p["name"]]
           for label, p in pipelines(data).items()]
    return table(["speedup, MAT"] + [f"{c['name']} ({c['prompts']})" for c in data["categories"]], out) + source("paper_mt_bench", page)


@named(TABLES, "paper: cascades, lenience")
def lenience(page):
    costs = next(row for row in rows("paper_cascades_lenience") if len(row.p["drafts"]) > 1).p["drafts"]
    shown = ", ".join(f"{d['model']} {d['cost_coefficient']:.3f}" for d in costs)
    return columns(f" = label | pipeline = name | MAT [95%] | draft calls per round | SWI [95%], c: {shown} = SWI [95%] | "
                   "SWI against lenience 1 | SWI against the chain of medium = SWI against chain of medium | same text",
                   rows("paper_cascades_lenience")) + source("paper_cascades_lenience", page)


@named(TABLES, "paper: asd")
def asd(page):
    files = {t: f"paper_asd_t{t}".replace(".", "") for t in (0, 0.2, 0.6, 1)}
    out = []
    for row in rows(files[0]):
        there = [Row(file, row.label) if row.label in pipelines(load(file)) else {"speedup [95%]": "", "MAT": ""} for file in files.values()]
        out.append([row.label, row["name"]] + [x[what] for x in there for what in ("speedup [95%]", "MAT")])
    heads = ["skipped", "pipeline"] + [x for t in files for x in (f"T = {t}: speedup [95%]", "MAT")]
    return table(heads, out) + [line for file in files.values() for line in source(file, page)]


@named(TABLES, ("paper: hass", 0), ("paper: hass at temperature 1", 1))
def hass(page, t):
    file = f"paper_hass_t{t}"
    out = []
    for row in rows(file):
        eagle = row.label.replace("HASS", "EAGLE")
        out.append([row[what] for what in ("label", "name", "tau [95%]", f"tau against {eagle}", "MAT [95%]", "acceptance, 3 digits", "draft tokens",
                                           "speedup [95%]", f"speed against {eagle}")])
    return table(["head and shape", "pipeline", "tau [95%]", "tau against EAGLE", "MAT [95%]", "acceptance", "draft tokens", "speedup [95%]",
                  "speed against EAGLE"], out) + source(file, page)


# Runs with a smaller target whose drafts are no longer in the repository: what each draft sees and was trained on.
GLIDE_MEDIUM = {f"{kind}{width}": (sees, "target's") for width in ("64", "128", "128x2") for kind, sees in (("vanilla", "no"), ("glide", "yes"))}
GLIDE_MEDIUM |= {"vanilla128-people": ("no", "people's"), "glide": ("yes", "people's")}


@named(TABLES, ("glide on medium: greedy", "glide_greedy", "chain:5"), ("glide on medium: temperature 1", "glide_temperature_1", "chain:5:draw=sampled"))
def glide_medium(page, file, chain):
    out = []
    for draft, (sees, text) in GLIDE_MEDIUM.items():
        row = Row(file, f"{chain}@{draft}")
        out.append([f"`{draft}`", sees, text] + [row[what] for what in ("acceptance, 3 digits", "by depth", "MAT", "c, 3 digits", "E(speedup)")])
    return table(["draft", "sees the target", "text", "acceptance", "by depth", "MAT", "c", "E(speedup)"], out)


# ---- the papers' figures (reported.json) beside ours

SMALLER = "the smaller target `medium`"
OURS = {  # file, row, its models in words, its figures
    "chain": [("paper_glide_t1", "vanilla draft", "`small` for `target`", ("acceptance", "E(speedup)", "speedup")),
              ("paper_main", "draft model, chain", "`small` for `target`", ("MAT", "speedup"))],
    "cascades": [("paper_cascades_ms", "best chain of base", "`target`, base alone", ("SWI by MS",)),
                 ("paper_cascades_ms", "best cascade of base and Max-Gram", "`target`, base and Max-Gram", ("SWI by MS", "MAT")),
                 ("paper_cascades_ms", "best cascade of all three", "`target`, base, small and Max-Gram", ("SWI by MS", "MAT"))],
    "glide": [("paper_glide_t1", "GLIDE", "`glide` for `target`", ("acceptance", "E(speedup)", "speedup")),
              ("paper_main", "GLIDE, chain", "`glide` for `target`", ("MAT", "speedup")),
              ("paper_main", "GLIDE with CAPE", "`glide` for `target`", ("MAT", "speedup"))],
    "hass": [("paper_hass_t0", "EAGLE, 60 nodes, depth 6", "`eagle` for `target`, 60 nodes", ("tau", "speedup")),
             ("paper_hass_t0", "HASS, 60 nodes, depth 6", "`hass` for `target`, 60 nodes", ("tau", "speedup")),
             ("paper_hass_t0", "HASS, chain of 5", "`hass` for `target`, chain of 5", ("tau", "speedup"))],
    "s2d": [("paper_s2d_medium", "S2D, 0.5 0.5 0 (the paper's)", "one draft, `medium`", ("MAT", "speedup")),
            ("paper_s2d_target", "S2D, 0.5 0.5 0 (the paper's)", "the same draft, `target`", ("MAT", "speedup"))],
    "asd": [("paper_asd_t0", "rules 1 and 2", "`target`, rules 1 and 2", ("speedup",)),
            ("paper_asd_t0", "all rules (the paper's)", "`target`, all rules", ("speedup",)),
            ("paper_main", "ASD", "`target`, every second layer", ("MAT", "speedup"))],
    "dynamic tree": [("paper_hass_t0", "EAGLE, EAGLE's static tree", "`eagle`, static tree, `target`", ("tau", "speedup")),
                     ("paper_hass_t0", "EAGLE, 60 nodes, depth 6", "`eagle`, dynamic tree of 60 nodes, `target`", ("tau", "speedup")),
                     ("paper_main", "HASS, tree", "`hass`, dynamic tree of six draft tokens, `target`", ("tau", "speedup"))],
    "max-gram": [("paper_main", "Max-Gram", "Max-Gram, `target`", ("tau", "speedup"))],
    "cost-aware": [("paper_main", "draft model, cost-aware", "`cost-aware:chain@small`", ("MAT", "speedup")),
                   ("paper_main", "draft model, chain", "the best fixed chain, by a search", ("MAT", "speedup")),
                   ("main_avx2", "draft model, cost-aware", "`cost-aware:chain@small`", ("MAT", "speedup")),
                   ("main_avx2", "draft model, chain", "the best fixed chain, by a search", ("MAT", "speedup"))],
    "rejection": [("temperature_0.8", "chain:4:draw=sampled:rule=token", f"chain of 4, {SMALLER}", ("MAT", "speedup")),
                  ("temperature_0.8", "sampled-tree:rule=token", f"tree of 20 draft tokens, {SMALLER}", ("MAT",))],
    "block": [("temperature_0.8", "chain:4:draw=sampled", f"chain of 4, {SMALLER}", ("MAT", "speedup")),
              ("temperature_0.8", "chain:4:draw=sampled:rule=token", "the same, token by token", ("MAT", "speedup"))],
    "traversal": [("temperature_0.8", "sampled-tree", f"tree of 20 draft tokens, {SMALLER}", ("MAT",)),
                  ("temperature_0.8", "sampled-tree:rule=token", "the same, by rejection", ("MAT",))],
    "k-seq": [("temperature_0.8", "sampled-tree:draw=iid:rule=k-seq", f"tree of 20 independent draws, {SMALLER}", ("MAT",)),
              ("temperature_0.8", "sampled-tree:draw=iid", "the same, by traversal", ("MAT",))],
    "gumbel": [("temperature_0.8", "chain:4:draw=shared", f"chain of 4, {SMALLER}", ("MAT", "speedup")),
               ("temperature_0.8", "chain:4", "the draft's argmax, by sample-and-match", ("MAT", "speedup"))],
}
FORMS = {"speedup": "{:.2f}x", "over one chain": "{:.2f}x over one chain", "gain": "{} faster"}


@named(TABLES, *((f"method: {name}", name) for name in OURS))
def method(page, name):
    out = []
    for x in load("reported")["methods"].get(name, []):
        said = [FORMS.get(key, key + (" {:.2f}" if isinstance(value, float) else " {}")).format(value) for key, value in x["figures"].items()]
        out.append([f"[{x['paper']}](https://arxiv.org/abs/{x['arxiv']})", x["models"], x["setting"], ", ".join(said)])
    for file, label, models, what in OURS[name]:
        row, data = Row(file, label), load(file)
        files = dict.fromkeys(data["run"]["prompts"] if "run" in data else ("gsm8k", "humaneval"))
        setting = (f"{' and '.join(TITLES.get(f, f) for f in files)}, " + ("greedy" if data["temperature"] == 0 else f"temperature {data['temperature']:.2g}")
                   + (", bfloat16 products" if data["inputs"] == "bf16" else ", products of floats"))
        out.append([f"here ({row.link()})", models, setting, row.says(*what)])
    return table(["source", "models", "setting", "figures"], out)


# Situation, what to use, words for its figures (`file: row | figure`, and `| category` where it is of one).
CHOICES = [
    ("costs and acceptance unknown", "`cost-aware:chain@DRAFT`", "{}; the best fixed length, found by a search, {}",
     "paper_main: draft model, cost-aware | speedup", "paper_main: draft model, chain | speedup"),
    ("passes bound by memory: a few nodes cost little", "a longer chain", "{}", "paper_main: draft model, chain | name,MAT,speedup"),
    ("passes bound by arithmetic: every node costs", "`cost-aware`; else short chains", "{}; the best fixed chain, {}",
     "main_avx2: draft model, cost-aware | speedup", "main_avx2: draft model, chain | name,speedup"),
    ("further nodes are free", "`DynamicTree` over a head", "60 nodes: {}; chain of 5: {} (in time, on this CPU: {} and {})",
     "paper_hass_t0: HASS, 60 nodes, depth 6 | MAT", "paper_hass_t0: HASS, chain of 5 | MAT",
     "paper_hass_t0: HASS, 60 nodes, depth 6 | speedup", "paper_hass_t0: HASS, chain of 5 | speedup"),
    ("you can train a draft on the target's own text", "a small model, `ModelDrafter`", "{}", "paper_main: draft model, chain | MAT,speedup"),
    ("you can train, but only on text written by people", "a HASS head", "{}, GLIDE {}",
     "paper_main: HASS, tree | name,speedup", "paper_main: GLIDE, chain | speedup"),
    ("no training; text that repeats itself, such as code", "`chain@max-gram`, or `cost-aware:chain:10@max-gram`", "HumanEval {}, GSM8K {}",
     "paper_main: Max-Gram | speedup | HumanEval", "paper_main: Max-Gram | speedup | GSM8K"),
    ("prompts longer than the draft was trained for", "Max-Gram or a head; any other draft under `cost-aware`",
     "retrieval: Max-Gram {}, head {}; plain draft {}, under `cost-aware` {}",
     *(f"paper_spec_bench: {x} | speedup | rag" for x in ("Max-Gram", "HASS, cost-aware", "draft model, chain", "draft model, cost-aware"))),
    ("no second model, no training, no repetition", "ASD, if the target has layers to spare; on this one it loses", "{}", "paper_main: ASD | speedup"),
    ("one draft for targets of several sizes", "a draft with early exits, and each target's best exit",
     "16 layers: all layers {}, S2D's thresholds {}; 8 layers: exit 1 {}, S2D's thresholds {}",
     "paper_s2d_target: all layers | speedup", "paper_s2d_target: S2D, 0.5 0.5 0 (the paper's) | speedup",
     "paper_s2d_medium: exit 1 | speedup", "paper_s2d_medium: S2D, 0.5 0.5 0 (the paper's) | speedup"),
    ("several drafts, and a pass costs the same over any number of nodes", "`cascade` over Max-Gram", "{}; best chain {}",
     "paper_cascades_ms: best cascade of base and Max-Gram | SWI by MS", "paper_cascades_ms: best chain of base | SWI by MS"),
    ("several drafts, in time on this CPU", "`cascade` of two models, or the better of them", "{}; chain {}",
     "paper_main: cascade | speedup", "paper_main: draft model, chain | speedup"),
    ("temperature 1", "a sampled chain, `chain:draw=sampled@DRAFT`", "HASS {}, small {}, GLIDE {}, not on the same prompts",
     "paper_hass_t1: HASS, chain of 5 | speedup", "paper_glide_t1: vanilla draft | speedup", "paper_glide_t1: GLIDE | speedup"),
    ("temperature 0.8, small target", "`cost-aware:chain:draw=sampled`", "{}; greedy chain of 2: {}",
     "temperature_0.8: cost-aware:chain:draw=sampled | speedup", "temperature_0.8: chain:2 | speedup"),
    ("one seed must give one text, whichever draft", "`Draw::shared` with `GumbelCoupling`", "{}; independent draws, by block verification: {}",
     "temperature_0.8: chain:4:draw=shared | MAT", "temperature_0.8: chain:4:draw=sampled | MAT"),
]


@named(TABLES, "choosing")
def choosing(page):
    """Which drafter and shape for which situation, each with what was measured."""
    out = []
    for situation, use, words, *cells in CHOICES:
        said, links = [], {}
        for cell in cells:
            label, what, *category = cell.partition(": ")[2].split(" | ")
            row = Row(cell.partition(": ")[0], label).of("".join(category))
            said.append(re.sub(r" \[[^]]*\]", "", row.says(*what.split(","))))  # the files have the intervals
            links[row.link()] = None
        out.append([situation, use, words.format(*said), ", ".join(links)])
    out.append(["no tree mask, or a recurrent target", "a chain, with `PathVerifier`",
                "not measured; the target runs once for a chain, and once for each leaf of a tree", ""])
    peers = load("cuda_h100_peers")
    batch = next(x for x in peers["verification"] if x["name"].startswith("B = 64") and "alpha" in x["name"])
    out.append(["batches on a GPU", "`specula::cuda`, with your engine's loop",
                f"64 chains of 4, rejection: {batch['ours_us']:.0f} us, FlashInfer's from logits {batch['verify_us']:.0f} us "
                f"(H100, {peers['date']}, older kernels)", "[data](benchmarks/cuda_h100_peers.json)"])
    return table(["situation", "use", "measured", "from"], out)


# ---- benchmarks of the CPU, and of compilers

def medians(file):
    """Google Benchmark's, by the case's name, and where they come from."""
    data = load(file)
    context = data["context"]
    return ({run.get("run_name", run["name"]): run for run in data["benchmarks"] if run.get("aggregate_name") == "median"},
            f"Commit {context['commit']}, {context['date'][:10]}, {context['cpu']}.")


@named(TABLES, "forwards")
def forwards(page):
    """What a pass over n nodes costs."""
    runs_, source_ = medians("forward")
    times = {}
    for name, run in runs_.items():
        if at := re.match(r"extend/hidden:(\d+)/nodes:(\d+)/context:256/threads:1/bf16:([01])/", name):
            times.setdefault((int(at[1]), at[3] == "1"), {})[int(at[2])] = run["real_time"]
    nodes = sorted(set().union(*times.values()))
    out = []
    for (hidden, rounded), at in sorted(times.items()):
        out.append([f"{hidden}, {'bfloat16' if rounded else 'float'} inputs, ms"] + [f"{at[n]:.2f}" for n in nodes])
        out.append(["over one node", 1] + [f"{at[n] / at[1]:.2f}" for n in nodes[1:]])
    return table(["hidden size", *nodes], out) + ["", f"{source_} [Data](forward.json)."]


@named(TABLES, "eigen")
def eigen(page):
    """Our kernels against Eigen's, compiled for any x86-64 and for the machine itself; medians of processor time, each ratio from one run."""
    out = []
    for file, compiled in (("eigen", "any x86-64"), ("eigen_native", "this machine")):
        of, source_ = medians(file)
        of = {name.split("/repeats:")[0]: run for name, run in of.items()}
        at = {name: run["cpu_time"] for name, run in of.items()}
        for n in (16, 256, 1024):
            ours, rounded = at[f"panels/best/tokens:{n}"], at.get(f"rounded/tokens:{n}")
            its = at[f"whole/tokens:{n}"]
            out.append([f"products of a layer, {n} tokens", compiled, f"{ours:.0f} us", f"{its:.0f} us", f"{its / ours:.2f}x",
                        f"{its / at[f'panels/portable/tokens:{n}']:.2f}x", f"{its / rounded:.2f}x" if rounded else ""])
        for name, sizes in (("rms_norm", (384, 4096)), ("swiglu", (1024, 11008)), ("softmax", (256, 1024))):
            for size in sizes:
                ours, its = at[f"{name}/ours/size:{size}"], at[f"{name}/eigen/size:{size}"]
                out.append([f"{name}, {size} values", compiled, f"{ours:.0f} ns", f"{its:.0f} ns", f"{its / ours:.2f}x", "", ""])
        same = (f"{of[f'ends/{side}/size:33']['same']:,.0f}" for side in ("ours", "eigen"))
        out.append(["swiglu, of 10,000 values: same bits at an array's end", compiled, *same, "", "", ""])
    return table(["work", "Eigen compiled for", "ours", "Eigen", "Eigen / ours", "Eigen / our portable", "Eigen / our bfloat16 inputs"], out) + [
        "", f"{source_} Data: [eigen.json](benchmarks/eigen.json), [eigen_native.json](benchmarks/eigen_native.json)."]


@named(TABLES, "compile times")
def compile_times(page):
    data = load("compile_times")
    out = [[name, f"{x['lines']:,}", f"{x['seconds']['-O0']:.1f}", f"{x['seconds']['-O2']:.1f}", x["mib"]["-O2"]] for name, x in data["units"].items()]
    return table(["translation unit", "preprocessed lines", "`-O0`, s", "`-O2`, s", "`-O2`, MiB"], out) + [
        "", f"{data['compiler']}; commit {data['commit']}, {data['date']}, {data['machine']['cpu']}. "
        "[Data](benchmarks/compile_times.json)." + runs.footnote(data)]


@named(TABLES, "run-time pipelines")
def run_time_pipelines(page):
    data = load("run_time_pipelines")
    out = []
    for name, x in data["pipelines"].items():
        count = x.get("instructions_per_token")
        ratios = [f"{middle:.3f} [{low:.3f}, {high:.3f}]" for middle, (low, high) in (x["named"], x["typed again"])]
        out.append([f"`{name}`", f"{x['microseconds_per_token']:.0f}", *ratios,
                    f"{count['typed']:,}, {count['named'] - count['typed']:+,}" if count else "not counted"])
    return table(["pipeline", "typed, us/token", "named over typed [95%]", "typed again over typed [95%]",
                  "instructions per token: typed, and more if named"], out) + [
        "", f"Medians of {data['prompts'] * data['repetitions']} pairs of runs ({data['prompts']} prompts, {data['tokens']} "
        f"new tokens), processor time, 1 thread; the model pack; commit {data['commit']}, {data['date']}, "
        f"{data['machine']['cpu']}. [Data](benchmarks/run_time_pipelines.json)." + runs.footnote(data)]


@named(TABLES, "known faults")
def known_faults(page):
    """The runs of which something is known to be wrong."""
    return table(["run", "what is wrong"], [[f"[{name}]({name})", runs.in_words(data)] for name, data in runs.read(folder).items() if runs.faults(data)])


# ---- sentences

def card(name, pattern):
    """What the card of a model of the pack says of its training."""
    text = (root / "examples/models" / name / "MODEL_CARD.md").read_text()
    return re.findall(pattern, " ".join(text.split()))


def of_target(name):
    """The tenths of its rows that the target wrote."""
    return round(sum(float(x) for x in card(name, r"\| answers_\w+ \| ([\d.]+)% \|")) / 10)


def began_as(name):
    found = card(name, r"Started from (draft |the draft [^`]*)?`(\w+)`")
    return "" if not found else f"a draft for `{found[0][1]}`" if found[0][0] else f"`{found[0][1]}`"


def listed(models):
    models = [f"`{m}`" for m in models]
    return " and ".join(filter(None, [", ".join(models[:-1]), models[-1]]))


DRAFTS = ("small", "base", "s2d", "glide", "eagle", "hass")


@named(CLAIMS, "drafts")
def drafts():
    """What each draft of the pack was trained on."""
    both = [name for name in DRAFTS if of_target(name)]
    if len({of_target(name) for name in both}) != 1:
        raise ValueError("drafts of different shares of the target's text: say which")
    starts = {}  # the weights that they began with
    for name in both:
        starts.setdefault(began_as(name), []).append(name)
    own = ", ".join(f"{listed(names)} began as {start}" for start, names in starts.items() if start)
    return (f"{listed(both)} were trained on rows of which the target wrote {of_target(both[0])} tenths ({own}), "
            f"{listed([name for name in DRAFTS if name not in both])} on text written by people alone")


@named(CLAIMS, *((f"trained: {name}", name) for name in DRAFTS))
def trained(name):
    by = f"{of_target(name)} tenths of the rows written by the target" if of_target(name) else "text written by people"
    start = f", after beginning as {began_as(name)}" if began_as(name) else ", from scratch"
    return f"{int(card(name, r'[0-9]+ steps, ([0-9]+) tokens')[0]) / 1e6:.1f} million tokens, {by}{start}"


@named(CLAIMS, "llama.cpp")
def llama_cpp_best():
    """specula's best over llama.cpp's best, for each kind of draft."""
    rate = load("llama_cpp_peers")["best"]["tokens_per_second"]

    def best(program, static, copies=None):
        return max(speed for name, speed in rate.items() if name.startswith(program) and ("--bigram" in name or "static" in name) == static
                   and copies in (None, "@max-gram" in name))

    kinds = [best("specula-llama", static, copies) / best(theirs, static)
             for copies, theirs, static in ((True, "llama-lookup", False), (True, "llama-lookup", True), (False, "llama-speculative", False))]
    return f"{min(kinds):.2f} to {max(kinds):.2f}"


@named(CLAIMS, "h100 chains")
def h100_chains():
    x = next(x for x in load("cuda_h100_peers")["verification"] if x["name"] == "B = 64, 4 drafts, alpha .7")
    return f"{x['ours_us']:.0f} us; FlashInfer, from the target's logits {x['verify_us']:.0f} us, from ready probabilities {x['chain_us']:.0f} us"


@named(CLAIMS, "h100 trees")
def h100_trees():
    x = next(x for x in load("cuda_h100_peers")["trees"] if x["name"] == "B = 64")
    return (f"{x['ours_us']:.0f} us; SGLang's kernel, by another rule, {x['kernel_us']:.0f} us from ready probabilities of all 4,096 rows, "
            f"{x['softmax_us']:.0f} us with PyTorch's softmax before it")


def glide_pairs(file):
    """Rows with cross attention and the same draft without it."""
    chain = "chain:5" if file == "glide_greedy" else "chain:5:draw=sampled"
    names = [(f"glide{x}", f"vanilla{x}") for x in ("64", "128", "128x2")] + [("glide", "vanilla128-people")]
    return [[Row(file, f"{chain}@{name}") for name in pair] for pair in names]


@named(CLAIMS, ("glide points", "glide_greedy"), ("glide points at temperature 1", "glide_temperature_1"))
def glide_points(file):
    """What cross attention adds to the acceptance."""
    gains = [100 * (a.p["acceptance"] - b.p["acceptance"]) for a, b in glide_pairs(file)]
    return f"{min(gains):.0f} to {max(gains):.0f}"


@named(CLAIMS, "glide dearer")
def glide_dearer():
    """How much dearer it makes a draft token."""
    factors = [a.c() / b.c() for a, b in glide_pairs("glide_greedy")]
    return f"{min(factors):.1f} to {max(factors):.1f}"


@named(CLAIMS, "known")
def known():
    all_runs = runs.read(folder)
    return f"{sum(bool(runs.faults(data)) for data in all_runs.values())} of {len(all_runs)}"
