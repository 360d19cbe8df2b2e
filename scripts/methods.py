"""Tables that scripts/pages writes into docs/methods.md and docs/choosing.md: figures of the papers (docs/benchmarks/reported.json)
beside ours, and the decision table. Standard library only.

Ours are those of docs/benchmarks/*.json and of nothing else. A table of which a file is not there is None: then the page keeps
what stands there.
"""
import json
import re

import runs
from paper import TITLES, by_costs, expected, pipelines, step, table, with_interval

SMALLER = "the smaller target `medium`"


class Missing(Exception):
    """A file of figures that is not there."""


class Row:
    """A measured pipeline: of a run's label, or of a name in an older file."""

    def __init__(self, figures, file, name):
        self.file = file
        path = figures / f"{file}.json"
        if not path.exists():
            raise Missing(path)
        self.data = json.loads(path.read_text())
        labelled = pipelines(self.data) if "run" in self.data else {}
        self.p = labelled.get(name) or next((p for p in self.data["pipelines"] if p["name"] == name), None)
        if self.p is None:
            raise Missing(name)

    def link(self):
        return f"[data](benchmarks/{self.file}.json)" + (
            ", [faults](benchmarks/README.md#known-faults-of-runs)" if runs.faults_of_row(self.data, self.p["name"]) else "")

    def of(self, category):
        """The same pipeline in one category of the prompts."""
        for c in self.data["categories"]:
            if TITLES.get(c["name"], c["name"]) == category:
                self.p = next(p for p in c["pipelines"] if p["name"] == self.p["name"])
                return self
        raise Missing(category)

    def figure(self, what):
        """One figure in words."""
        p = self.p
        if what == "name":
            return f"`{p['name']}`"
        if what == "speedup":
            return with_interval(p, "speedup", "x")
        if what == "MAT":
            return "MAT " + with_interval(p, "mat")
        if what == "tau":
            return "tau " + with_interval(p, "tau")
        if what == "acceptance":
            return "acceptance " + with_interval(p, "acceptance")
        if what == "E(speedup)":
            return f"E(speedup) {expected(p['acceptance'], step(self.data, p)):.2f}"
        return f"{what} {by_costs(p, what.removeprefix('SWI by '))}"

    def figures(self, *what):
        return ", ".join(self.figure(x) for x in what)

    def setting(self):
        """Prompts and temperature, as far as the file says so."""
        files = self.data["run"]["prompts"] if "run" in self.data else ("gsm8k", "humaneval")
        temperature = self.data["temperature"]
        how = "greedy" if temperature == 0 else f"temperature {temperature:.2g}"
        inputs = ", bfloat16 products" if self.data["inputs"] == "bf16" else ", products of floats"
        return f"{' and '.join(TITLES.get(f, f) for f in dict.fromkeys(files))}, {how}{inputs}"


# What is ours: file, row, its models in words, its figures.
OURS = {
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
    "cost-aware": [("paper_main", "draft model, cost-aware", "`cost-aware:chain:small`", ("MAT", "speedup")),
                   ("paper_main", "draft model, chain", "the best fixed chain, by a search", ("MAT", "speedup")),
                   ("main_avx2", "draft model, cost-aware", "`cost-aware:chain:small`", ("MAT", "speedup")),
                   ("main_avx2", "draft model, chain", "the best fixed chain, by a search", ("MAT", "speedup"))],
    "rejection": [("temperature_0.8", "sampled-chain:4:rule=token", f"chain of 4, {SMALLER}", ("MAT", "speedup")),
                  ("temperature_0.8", "sampled-tree:rule=token", f"tree of 20 draft tokens, {SMALLER}", ("MAT",))],
    "block": [("temperature_0.8", "sampled-chain:4", f"chain of 4, {SMALLER}", ("MAT", "speedup")),
              ("temperature_0.8", "sampled-chain:4:rule=token", "the same, token by token", ("MAT", "speedup"))],
    "traversal": [("temperature_0.8", "sampled-tree", f"tree of 20 draft tokens, {SMALLER}", ("MAT",)),
                  ("temperature_0.8", "sampled-tree:rule=token", "the same, by rejection", ("MAT",))],
    "k-seq": [("temperature_0.8", "iid-tree:rule=k-seq", f"tree of 20 independent draws, {SMALLER}", ("MAT",)),
              ("temperature_0.8", "iid-tree", "the same, by traversal", ("MAT",))],
    "gumbel": [("temperature_0.8", "shared-chain:4", f"chain of 4, {SMALLER}", ("MAT", "speedup")),
               ("temperature_0.8", "chain:4", "the draft's argmax, by sample-and-match", ("MAT", "speedup"))],
}
FORMS = {"speedup": "{:.2f}x", "over one chain": "{:.2f}x over one chain", "gain": "{} faster"}


def printed(figures):
    """A paper's figures in words."""
    return ", ".join(FORMS.get(name, name + (" {:.2f}" if isinstance(value, float) else " {}")).format(value)
                     for name, value in figures.items())


def method(figures, name):
    reported = json.loads((figures / "reported.json").read_text())["methods"].get(name, [])
    rows = [[f"[{x['paper']}](https://arxiv.org/abs/{x['arxiv']})", x["models"], x["setting"], printed(x["figures"])] for x in reported]
    for file, label, models, what in OURS[name]:
        row = Row(figures, file, label)
        rows.append([f"here ({row.link()})", models, row.setting(), row.figures(*what)])
    return table(["source", "models", "setting", "figures"], rows)


def choosing(figures):
    """Which drafter and shape for which situation, each with what was measured."""
    def at(file, label, *what, category=None):
        row = Row(figures, file, label)
        text = (row.of(category) if category else row).figures(*(what or ("speedup",)))
        return re.sub(r" \[[^]]*\]", "", text), row.link()  # the files have the intervals

    rows = []

    def add(situation, use, text, *cells):
        shown = [cell[0] for cell in cells]
        links = list(dict.fromkeys(cell[1] for cell in cells))
        rows.append([situation, use, text.format(*shown), ", ".join(links)])

    main, avx2, spec = "paper_main", "main_avx2", "paper_spec_bench"
    add("costs and acceptance unknown", "`cost-aware:chain:DRAFT`", "{}; the best fixed length, found by a search, {}",
        at(main, "draft model, cost-aware"), at(main, "draft model, chain"))
    add("passes bound by memory: a few nodes cost little", "a longer chain", "{}",
        at(main, "draft model, chain", "name", "MAT", "speedup"))
    add("passes bound by arithmetic: every node costs", "`cost-aware`; else short chains", "{}; the best fixed chain, {}",
        at(avx2, "draft model, cost-aware"), at(avx2, "draft model, chain", "name", "speedup"))
    add("further nodes are free", "`DynamicTree` over a head", "60 nodes: {}; chain of 5: {} (in time, on this CPU: {} and {})",
        at("paper_hass_t0", "HASS, 60 nodes, depth 6", "MAT"), at("paper_hass_t0", "HASS, chain of 5", "MAT"),
        at("paper_hass_t0", "HASS, 60 nodes, depth 6"), at("paper_hass_t0", "HASS, chain of 5"))
    add("you can train a draft on the target's own text", "a small model, `ModelDrafter`", "{}, {}",
        at(main, "draft model, chain", "MAT"), at(main, "draft model, chain"))
    add("you can train, but only on text written by people", "a HASS head", "{}, GLIDE {}",
        at(main, "HASS, tree", "name", "speedup"), at(main, "GLIDE, chain"))
    add("no training; text that repeats itself, such as code", "`max-gram`, or `cost-aware:max-gram`", "HumanEval {}, GSM8K {}",
        at(main, "Max-Gram", category="HumanEval"), at(main, "Max-Gram", category="GSM8K"))
    add("prompts longer than the draft was trained for", "`max-gram` or a head; any other draft under `cost-aware`",
        "retrieval: Max-Gram {}, head {}; plain draft {}, under `cost-aware` {}",
        at(spec, "Max-Gram", category="rag"), at(spec, "HASS, cost-aware", category="rag"), at(spec, "draft model, chain", category="rag"),
        at(spec, "draft model, cost-aware", category="rag"))
    add("no second model, no training, no repetition", "ASD, if the target has layers to spare; on this one it loses", "{}", at(main, "ASD"))
    add("one draft for targets of several sizes", "a draft with early exits, and each target's best exit",
        "16 layers: all layers {}, S2D's thresholds {}; 8 layers: exit 1 {}, S2D's thresholds {}",
        at("paper_s2d_target", "all layers"), at("paper_s2d_target", "S2D, 0.5 0.5 0 (the paper's)"),
        at("paper_s2d_medium", "exit 1"), at("paper_s2d_medium", "S2D, 0.5 0.5 0 (the paper's)"))
    add("several drafts, and a pass costs the same over any number of nodes", "`cascade` over Max-Gram", "{}; best chain {}",
        at("paper_cascades_ms", "best cascade of base and Max-Gram", "SWI by MS"), at("paper_cascades_ms", "best chain of base", "SWI by MS"))
    add("several drafts, in time on this CPU", "`cascade` of two models, or the better of them", "{}; chain {}",
        at(main, "cascade"), at(main, "draft model, chain"))
    add("temperature 1", "a sampled chain, `sampled-chain:DRAFT`", "HASS {}, small {}, GLIDE {}, not on the same prompts",
        at("paper_hass_t1", "HASS, chain of 5"), at("paper_glide_t1", "vanilla draft"), at("paper_glide_t1", "GLIDE"))
    add("temperature 0.8, small target", "`cost-aware:sampled-chain`", "{}; greedy chain of 2: {}",
        at("temperature_0.8", "cost-aware:sampled-chain"), at("temperature_0.8", "chain:2"))
    add("one seed must give one text, whichever draft", "`Draw::shared` with `GumbelCoupling`", "{}; independent draws, by block verification: {}",
        at("temperature_0.8", "shared-chain:4", "MAT"), at("temperature_0.8", "sampled-chain:4", "MAT"))
    rows.append(["no tree mask, or a recurrent target", "a chain, with `PathVerifier`",
                 "not measured; the target runs once for a chain, and once for each leaf of a tree", ""])
    peers = json.loads((figures / "cuda_h100_peers.json").read_text())
    batch = next(x for x in peers["verification"] if x["name"].startswith("B = 64") and "alpha" in x["name"])
    add("batches on a GPU", "`specula::cuda`, with your engine's loop",
        f"64 chains of 4, rejection: {batch['ours_us']:.0f} us, FlashInfer's from logits {batch['verify_us']:.0f} us "
        f"(H100, {peers['date']}, older kernels)", ("", "[data](benchmarks/cuda_h100_peers.json)"))
    return table(["situation", "use", "measured", "from"], rows)


def tables(root):
    """Name of a table to a function of the page that gives its lines, or None where its figures are not there."""
    figures = root / "docs" / "benchmarks"

    def waits(make):
        try:
            return make()
        except Missing:
            return None

    of = {f"method: {name}": (lambda name=name: method(figures, name)) for name in OURS}
    of["choosing"] = lambda: choosing(figures)
    return {name: (lambda page, make=make: waits(make)) for name, make in of.items()}
