# SPDX-License-Identifier: MIT
"""The tables of pages and the sentences with figures, for scripts/pages, by their names. Standard library only."""
import re

import paper
import runs
from figures import (OF_RATES, TITLES, Missing, Row, as_counted, by_formula, by_task, columns, folder, in_words, kept, load,
                     measured, of_one_run, parsed, passes_over_nodes, pipelines, products, root, rows, source, speedup_of,
                     speedup_over_all, table, with_interval)

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


def maker(name):
    """The function that makes a table: one of TABLES, `method: NAME`, or `FILE: COLUMNS` of a run. None if there is no such table."""
    kind, _, rest = name.partition(": ")
    if name not in TABLES and kind == "method" and rest in load("reported")["ours"]:
        return lambda page: method(rest)
    return TABLES.get(name, (lambda page: columns(rest, rows(kind)) + source(page, kind)) if " | " in rest else None)


# ---- the papers' methods

@named(TABLES, "paper: main")
def main(page):
    plain = load("paper_main")["pipelines"][0]
    shown = columns("method = label | pipeline = name | speedup [95%] | tokens/s over plain [95%] | MAT [95%] | tokens/s | same text",
                    sorted(rows("paper_main"), key=lambda row: -speedup_of(row.plain, row.p)[0]))
    return shown[:2] + [f"| plain decoding |  | 1.00x | 1.00x | 1.00 | {plain['tokens_per_second']:.0f} |  |"] + shown[2:] + source(page, "paper_main")


@named(TABLES, "paper: by category")
def by_category(page):
    """Speedups by data set, as the runs counted them."""
    files = ("paper_main", "paper_mt_bench", "paper_spec_bench")
    tasks = by_task(*map(load, files), first="MT-bench, first turns")
    out = [[label, *(in_words(*as_counted(of[label])[1]) if label in of else "" for _, of in tasks)] for label in pipelines(load(files[0]))]
    return table([as_counted(load(files[0])["pipelines"][0])[0], *(title for title, _ in tasks)], out) + source(page, *files)


@named(TABLES, ("paper: mt_bench", "paper_mt_bench", (OF_RATES, "MAT")),
       ("smollm2: copies", "paper_smollm2", ("MAT",), "MAT [95%]", "speedup", "same text"))
def in_categories(page, file, figures, *also):
    """Figures of rows by category of prompts, and more of all prompts."""
    kinds = {TITLES.get(c["name"], c["name"]): c["prompts"] for c in load(file)["categories"]}
    out = [[row.label, *(", ".join(Row(file, row.label).of(kind)[what] for what in figures) for kind in kinds),
            *(row[what] for what in also)] for row in rows(file)]
    return table([", ".join(figures), *(f"{kind} ({prompts})" for kind, prompts in kinds.items()), *also], out) + (
        ["", defined(load(file))] if "speedup" in also else []) + source(page, file)


@named(TABLES, "paper: asd")
def asd(page):
    figures, theirs = ("speedup [95%]", "tokens/s over plain [95%]", "MAT", "acceptance"), load("reported")["skipped"]["speedups"]
    out = [[row.label, row["name"], in_words(theirs[row.label]) if row.label in theirs else "", *(row[what] for what in figures)] for row in rows("paper_asd_t0")]
    return table(["skipped", "pipeline", "paper", *figures], out) + source(page, "paper_asd_t0")


@named(TABLES, "similarity")
def similarity(page):
    """How alike blocks' inputs and outputs are, beside the paper."""
    data, paper = load("similarity"), load("reported")["similarity"]
    figures = ("min", "max", "mean", "median")
    of = [(f"{paper['models']} ({paper['paper']})", paper), *((f"{x['model']}, {x['layers']} layers", x) for x in data["models"])]
    return table(["model", *(f"{block}: {figure}" for block in ("attention", "MLP") for figure in figures)],
                 [[name, *(f"{x[block][figure]:.3f}" for block in ("attention", "mlp") for figure in figures)] for name, x in of]) + measured(
                     page, "similarity", "16 texts of 256 tokens that each model writes at temperature 1. No figure is a time. `bench/similarity.py`, ", cpu=False)


@named(CLAIMS, "asd: found blocks")
def found_blocks():
    data = load("paper_asd_public")
    plain = data["pipelines"][0]
    best = max((p for p in data["pipelines"] if p["name"] in data["found_blocks"]), key=lambda p: speedup_of(plain, p)[0])
    return (f"`{best['name']}` has {in_words(*speedup_of(plain, best))} at {best['drafts'][0]['cost_coefficient']:.2f} passes a draft token, "
            f"after a search of {data['found_blocks_seconds'] / 60:.0f} minutes")


# Kinds of requests that the tables show; the last two if their run is of the others' commit and processor, since no table mixes these.
KINDS = {"chat": "chat", "gsm8k": "mathematics", "humaneval": "code", "summaries": "summaries", "retrieval": "retrieval"}


def public_sets(section, t=0):
    """Kinds of requests to the files of a section of SmolLM2's runs at a temperature, of those that were measured."""
    files = {title: f"paper_{section}_{name}_t{t}" for name, title in KINDS.items()}
    found = {title: file for title, file in files.items() if (folder / f"{file}.json").exists()}
    if not found:
        raise Missing(f"paper_{section}")
    first = parsed(next(iter(found.values())))
    return {title: file for title, file in found.items() if title not in ("summaries", "retrieval") or of_one_run(first, parsed(file))}


def public_source(sets, page):
    *lines, last = source(page, next(iter(sets.values())))
    counts = (f"{title} {load(file)['prompts']}" for title, file in sets.items())
    return lines + [last + f" Prompts: {', '.join(counts)}."]


DEFINED = "plain decoding's time per token over the pipeline's, all prompts of a column together"
DEFINED_TIMED = DEFINED + " [95%: 10,000 resamplings of the prompts]."


def defined(data):
    """What "speedup" is in a table of `over_all`."""
    timed = "by_prompt" in data["pipelines"][0]
    return "Speedup: " + (DEFINED_TIMED if timed else DEFINED + " (no intervals: these runs kept no times of single prompts).")


@named(CLAIMS, ("public: kept", "public"), ("public: avx2: kept", "public_avx2"))
def public_kept(section):
    """How the weights were in memory, of a table's runs."""
    found = {kept(load(file)) for file in public_sets(section).values()}
    if len(found) > 1:
        raise ValueError("a table of weights that were kept in several ways")
    return f"as {found.pop()}"


@named(TABLES, ("public: temperature 0", "public"), ("public: avx2: temperature 0", "public_avx2"), ("public: avx2: temperature 1", "public_avx2", 1))
def public(page, section, t=0):
    """A public model with its drafts, by kind of request."""
    sets = public_sets(section, t)
    first = next(iter(sets.values()))
    out = []
    for shown in rows(first):
        found = [Row(file, shown.label) for file in sets.values()]
        together = speedup_over_all(*((row.plain, row.p) for row in found))
        out.append([shown.label, shown["name"], *(row["speedup [95%]"] for row in found), together])
    out.append(["plain decoding, tokens/s", "", *(f"{load(file)['pipelines'][0]['tokens_per_second']:.0f}" for file in sets.values()), ""])
    return table(["speedup", "pipeline", *sets, "all together"], out) + ["", defined(load(first))] + public_source(sets, page)


@named(CLAIMS, *((f"public: {label}", label) for label in ("plain draft, cost-aware", "HASS, cost-aware", "plain draft or copies", "HASS or copies")))
def public_together(label):
    """All kinds of requests together."""
    return speedup_over_all(*((row.plain, row.p) for row in (Row(file, label) for file in public_sets("public").values())))


@named(TABLES, "public counts: temperature 0")
def public_counts(page):
    """Tokens per pass of a public model with its drafts, by kind of request."""
    sets = public_sets("public_counts")
    out = [[row.label, f"`{row.p['name']}`", *(Row(file, row.label)["MAT [95%]"] for file in sets.values())] for row in rows(next(iter(sets.values())))]
    return table(["MAT", "pipeline", *sets], out) + public_source(sets, page)


# What the papers compare: a method and the row that it is to be ahead of.
PAIRS = [("HASS", "EAGLE"), ("HASS, tree", "EAGLE, tree"), ("hass-1", "control-1"), ("hass-2", "control-1"), ("S2D, 0.5 0.5", "plain draft, exit 1"),
         ("S2D, 0.5 0.5", "plain draft")]


# How often the draft token at each depth is accepted, its parent being accepted.
CHAINS = ("plain draft, exit 1", "plain draft, exit 2", "plain draft", "EAGLE", "HASS", "control-1", "hass-1", "hass-2")


@named(TABLES, ("public counts: pairs", "tokens per pass", [(f"{a} over {b}", a, f"MAT against {b}") for a, b in PAIRS]),
       ("public counts: depths", "accepted at depth 1 to 4", [(label, label, "by depth") for label in CHAINS]))
def public_figures(page, head, wanted):
    sets = public_sets("public_counts")
    return table([head, *sets], [[words, *(Row(file, label)[what] for file in sets.values())] for words, label, what in wanted])


def waiting(p, seconds):
    """A row as it would be if each pass of the target took so much longer."""
    return {"by_prompt": [[tokens, spent + passes * seconds] for tokens, spent, passes in p["by_prompt"]]}


FAR = (0, 0.04, 1)  # seconds


def far_over(other, row, seconds=FAR[-1]):
    """The speed of a row of paper_far over that of another one, on the same prompts, where each pass waits."""
    return speedup_over_all((waiting(other, seconds), waiting(row, seconds)))


def seconds_a_token(p):
    tokens, seconds = (sum(x) for x in list(zip(*p["by_prompt"]))[:2])
    return seconds / tokens


def best_chain(draft, seconds=FAR[-1]):
    """The row of paper_far with the fastest chain of this draft where each pass waits."""
    return min((row for row in rows("paper_far") if row.label.startswith(f"{draft}, chain")), key=lambda row: seconds_a_token(waiting(row.p, seconds)))


@named(TABLES, "far")
def far(page):
    """Speedups where each pass waits, and over the best chain of the same draft."""
    plain, out = load("paper_far")["pipelines"][0], []
    for row in rows("paper_far"):
        draft, _, shape = row.label.partition(", ")
        best = [best_chain(draft, s) for s in FAR]
        if shape.startswith("chain") and row.label not in [chain.label for chain in best]:
            continue
        over = far_over(best[-1].p, row.p) if best[-1].label != row.label else ""
        out.append([row.label, row["MAT"], *(far_over(plain, row.p, s) for s in FAR), over])
    heads = [f"a pass waits {s * 1e3:g} ms" if s else "no wait" for s in FAR]
    return table(["draft and shape", "MAT", *heads, f"over the draft's best chain, {FAR[-1]:g} s"], out) + [
        "", f"Each pass of the target is counted with its time and the wait. Speedup: {DEFINED_TIMED}"] + source(page, "paper_far")


@named(TABLES, "public: lengths")
def public_lengths(page):
    """Acceptance by the length of the prompt, in requests of two kinds."""
    out = [[f"{label}, {kind} N words", *(with_interval(Row("paper_public_lengths", label).of(f"{kind} {n} words").p, "acceptance") for n in paper.LENGTHS)]
           for label in (row.label for row in rows("paper_public_lengths")) for kind in paper.KINDS_OF_LENGTHS]
    return table(["acceptance", *(f"N = {n}" for n in paper.LENGTHS)], out) + source(page, "paper_public_lengths")


@named(TABLES, "smollm2: memory")
def smollm2_memory(page):
    """What a public model takes, as a file and as a folder, by how its weights are kept."""
    out = []
    for weights, words in (("bf16", "bfloat16"), ("full", "float")):
        for kind, form in (("_gguf", "GGUF, Q4_1"), ("", "folder, bfloat16")):
            data = load(f"paper_smollm2_{weights}{kind}")
            p, size = data["pipelines"][0], data["memory_mib"]
            first = p["new_tokens"] * (1 / p["tokens_per_second_with_prefill"] - 1 / p["tokens_per_second"]) / p["prompts"]
            out.append([form, words, f"{data['load_seconds']:.1f} s", f"{size['at_most']:.0f} MiB",
                        f"{first:.2f} s after {data['prompt_tokens'] / p['prompts']:.0f} tokens", f"{p['tokens_per_second']:.0f}"])
    return table(["files", "weights in memory", "loads in", "memory, at most", "first token", "plain decoding, tokens/s"], out) + source(page, "paper_smollm2_bf16")


# ---- the papers' figures beside ours, as reported.json lists them

FORMS = {"speedup": "{:.2f}x", "over one chain": "{:.2f}x over one chain", "gain": "{} faster"}


def printed(x):
    """The figures of a paper."""
    return ", ".join(FORMS.get(key, key + (" {:.2f}" if isinstance(value, float) else " {}")).format(value) for key, value in x["figures"].items())


@named(CLAIMS, *((f"the paper: {name}", name) for name in ("cascades", "glide", "hass", "s2d")))
def the_paper(name):
    """What it says, for a sentence."""
    said = {}
    for x in load("reported")["methods"][name]:
        said.setdefault((x["paper"], x["setting"]), []).append(f"{x['models']}, {printed(x)}")
    return "; ".join(f"{paper} ({setting}): {'; '.join(rows)}" for (paper, setting), rows in said.items())


def method(name):
    out = []
    for x in load("reported")["methods"].get(name, []):
        out.append([f"[{x['paper']}](https://arxiv.org/abs/{x['arxiv']})", x["models"], x["setting"], printed(x)])
    for x in load("reported")["ours"][name]:
        data = (row := Row(x["file"], x["row"])).data
        files = dict.fromkeys(data["run"]["prompts"] if "run" in data else ("gsm8k", "humaneval"))
        setting = (f"{' and '.join(TITLES.get(f, f) for f in files)}, " + ("greedy" if data["temperature"] == 0 else f"temperature {data['temperature']:.2g}")
                   + {"bfloat16": ", bfloat16 products"}.get(products(data), f", products of {products(data)}"))
        out.append([f"here ({row.link()})", x["models"], setting, row.says(*x["figures"])])
    return table(["source", "models", "setting", "figures"], out)


# ---- other projects, as peers.json lists them

@named(TABLES, "peers")
def peers(page):
    """What each project has."""
    data = load("peers")
    return table(["", *data["columns"]], [[x["row"], *x["cells"]] for x in data["rows"]])


# ---- benchmarks of the CPU, and of compilers

@named(TABLES, "forwards")
def forwards(page):
    """What a pass over n nodes costs."""
    times = passes_over_nodes()
    nodes = sorted(set().union(*times.values()))
    out = []
    for (hidden, rounded), at in sorted(times.items()):
        out.append([f"{hidden}, {'bfloat16' if rounded else 'float'} inputs, ms"] + [f"{at[n]:.2f}" for n in nodes])
        out.append(["over one node", 1] + [f"{at[n] / at[1]:.2f}" for n in nodes[1:]])
    return table(["hidden size", *nodes], out) + measured(page, "forward")


@named(TABLES, "verification on a CPU")
def verification(page):
    """Rules on cold rows, beside a streaming read of the rows that they need."""
    at = {run["name"].removesuffix("/9/manual_time"): run for run in load("verification")["benchmarks"]}
    rules = {"verification/rejection_accepted": "rejection, all accepted", "verification/rejection_mixed": "rejection, with the draft's rows after a rejection",
             "verification/block_accepted": "block, all accepted", "verification/block_mixed": "block, with the draft's rows that it reads",
             "verification/rejection_top_k_top_p": "rejection, top-k 50 and top-p 0.95", "verification/rejection_top_p": "rejection, top-p 0.95 alone, a flat row",
             "verification/greedy": "greedy", "on_avx2/rejection_accepted": "rejection by AVX2, all accepted"}
    out = []
    for name, words in rules.items():
        big, small = (at.get(f"{name}/{vocab}", {}) for vocab in (128256, 32000))
        out.append([words, f"{big['rows']:.1f}", f"{big['row_us']:.1f}", f"{big['over_stream']:.2f}", f"{small['over_stream']:.2f}" if small else "",
                    f"{big['naive_over_this']:.1f}" if "naive_over_this" in big else ""])
    data = load("verification")
    return table(["9 nodes, V = 128,256", "rows needed", "us per row", "over a streaming read", "the same, V = 32,000", "direct implementation over this"], out) + [
        "", f"{data['context']['date'][:10]}. [Data](verification.json).{runs.footnote(data)}"]


@named(CLAIMS, "bench: llama.cpp")
def bench_llama_cpp():
    """Verification beside a sampler chain, and the bookkeeping of a cache."""
    data = load("llama_cpp")
    at = {run["name"].removesuffix("/manual_time"): run for run in data["benchmarks"] if run.get("aggregate_name", "median") == "median"}
    chain, greedy = at["verification/default_chain"], at["verification/greedy"]
    books = (at[f"bookkeeping/{n}/8"] for n in (4096, 512))
    said = (f"{run['bookkeeping_us']:.0f} us of a round of {run['round_us'] / 1e3:.0f} ms after {n} tokens" for n, run in zip(("4,096", "512"), books))
    return (f"per position {chain['this_us']:.0f} us, llama.cpp's default sampler chain (top-k 40, top-p 0.95, min-p 0.05, temperature 0.8) {chain['chain_over_this']:.1f} times "
            f"as long; greedy {greedy['this_us']:.0f} us, {greedy['chain_over_this']:.1f} times. Copies and removals of sequences of a tree of 8 leaves on the pack's "
            f"target: {', '.join(said)}")


@named(TABLES, "eigen")
def eigen(page):
    """Our kernels against Eigen's, compiled for any x86-64 and for the machine itself; medians of processor time, each ratio from one run."""
    out = []
    for file, compiled in (("eigen", "any x86-64"), ("eigen_native", "this machine")):
        of = {run["run_name"].split("/repeats:")[0]: run for run in load(file)["benchmarks"] if run.get("aggregate_name") == "median"}
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
        line.replace("[Data]", "Data: [eigen.json](benchmarks/eigen.json), [eigen_native.json]") for line in measured(page, "eigen_native")]


def batch_source(page, data):
    return measured(page, "batch", f"1 thread, processor time, {data['repetitions']} repetitions in random order; "
                    "products of bfloat16 where the machine has them; ")


@named(TABLES, ("batch: pack", "pack"), ("batch: smollm2", "SmolLM2-135M-Instruct"))
def batch(page, model):
    """Rounds of 1 to 32 texts."""
    data = load("batch")
    if model not in data["models"]:
        raise Missing("batch")
    of = data["models"][model]["rounds"]
    sizes = sorted(of["plain"], key=int)
    out = [["plain decoding, tokens/s", *(f"{of['plain'][n]['tokens_per_second']:.0f}" for n in sizes)]]
    for key, title in (("plain_again", "plain decoding once more"), ("chain_1", "chains of 1"), ("chain_2", "chains of 2"), ("chain_4", "chains of 4"),
                       ("budget", "one budget")):
        out.append([title] + ["{:.2f}x [{:.2f}, {:.2f}]".format(*of[key][n]["over_plain"]) for n in sizes])
    out.append(["one budget, tokens per text and round"] + [f"{of['budget'][n]['tokens_per_text_and_round']:.2f}" for n in sizes])
    out.append(["library beside the passes"] + [f"{100 * of['budget'][n]['library_share']:.1f}%" for n in sizes])
    return table(["texts", *sizes], out) + batch_source(page, data)


@named(TABLES, "method: batches")
def method_batches(page):
    """The paper's batches beside ours."""
    data, reported = load("batch"), load("reported")["batches"]
    sizes = sorted(next(iter(data["models"].values()))["rounds"]["plain"], key=int)
    out = [[f"[{x['paper']}](https://arxiv.org/abs/{x['arxiv']})", x["models"]] + [f"{x['speedups'][n]:.2f}x" if n in x["speedups"] else "" for n in sizes]
           for x in reported]
    for name, model in data["models"].items():
        of, title = model["rounds"], f"{name}, `{model['draft'].rpartition('/')[2]}`"
        fixed = [max(of[f"chain_{k}"][n]["over_plain"][0] for k in (1, 2, 4)) for n in sizes]
        out.append(["here", f"{title}: the best of chains of 1, 2, 4"] + [f"{x:.2f}x" for x in fixed])
        out.append(["here", f"{title}: one budget"] + [f"{of['budget'][n]['over_plain'][0]:.2f}x" for n in sizes])
    return table(["source", "models; texts at once:", *sizes], out) + batch_source(page, data)


@named(TABLES, "batch: passes")
def batch_passes(page):
    """T(n) of a pass over n rows, and a merged pass against one of a single text."""
    data = load("batch")
    out = []
    for name, model in data["models"].items():
        for which, passes in model["passes"].items():
            at = {(p["texts"], p["rows"], p["context"]): p["ms"] for p in passes}
            counts = sorted(rows for texts, rows, context in at if texts == 1 and context == 128)
            out.append([f"{name}, {which}, ms"] + [f"{at[1, n, 128]:.2f}" if n == 1 else f"{at[1, n, 128] / at[1, 1, 128]:.2f}" for n in counts])
            for context in (128, 2000):
                out.append([f"of as many texts over one, {context} tokens each"] +
                           [f"{at[n, n, context] / at[1, n, context]:.2f}" if (n, n, context) in at and n > 1 else "" for n in counts])
    return table(["rows (the first in ms, others over it)", *counts], out) + batch_source(page, data)


@named(TABLES, "compile times")
def compile_times(page):
    data = load("compile_times")
    out = [[name, f"{x['lines']:,}", f"{x['seconds']['-O0']:.1f}", f"{x['seconds']['-O2']:.1f}", x["mib"]["-O2"]] for name, x in data["units"].items()]
    return table(["translation unit", "preprocessed lines", "`-O0`, s", "`-O2`, s", "`-O2`, MiB"], out) + measured(page, "compile_times", f"{data['compiler']}; ")


@named(TABLES, "compile times: nvcc")
def compile_times_of_kernels(page):
    data = load("compile_times")
    out = [[f"[{name}.cu](../examples/cuda/{name}.cu)", f"{x['seconds']:.0f}", x["mib"]] for name, x in data["kernels"].items()]
    return table(["program", "s", "MiB"], out) + measured(page, "compile_times", f"`-std=c++17 -arch=sm_90a`, processor seconds; nvcc: {data['nvcc']}; ")


@named(TABLES, "shapes by name")
def shapes_by_name(page):
    """The registry's rows: values with their defaults, and what each is. A name links to the section of its type."""
    text = (root / "include/specula/runtime/registry.hpp").read_text()
    fields, words = {}, r'"(?:[^"]*"\s*")*[^"]*"'
    for name, body in re.findall(r"constexpr (?:std::array|PipelineField) (k\w+)(\{.*?\});", text, re.S):
        found = re.findall(r'\{"([\w-]+)", Kind::(\w+), "([^"]*)"((?:, [^,{}]+)*)\}|\b(k[A-Z]\w+)', body)
        fields[name] = [f for *row, other in found for f in (fields.get(other, []) if other else [row])]
    sections = {}
    for file in ("shapes.md", "cascades.md", "asd.md"):
        for title in re.findall(r"^## (.*)", (root / "docs" / file).read_text(), re.M):
            for part in re.split(r"[:,] ", title):
                sections.setdefault(part.replace(" ", ""), f"{file}#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"))

    def value(key, kind, default, rest):
        paying = re.search(r', "([^"]*)"$', rest)
        also = f" (cost-aware: {paying.group(1)})" if paying else ""
        if kind == "word":
            first, *others = default.split("|")
            return f"`{key}={first}`" + (f" (or {', '.join(f'`{x}`' for x in others)})" if others else "")
        if kind == "size":
            return f"{key.upper().replace('-', '_')} {default}{also}"
        return (f"`{key}={default}`" if default else f"`{key}`") + also

    entries = re.findall(rf'PipelineEntry\{{\s*"([\w-]+)",\s*(k\w+),\s*({words})', text)
    read = sum(len(all_of) for name, all_of in fields.items() if name in {values for _, values, _ in entries})
    written = sum(len(re.findall(r"PipelineField\{|\bk(?:Draw|Lenience)\b", text[text.index(f" {values}{{"):].split(";")[0])) for _, values, _ in entries)
    if len(entries) != text.count("PipelineEntry{") or read != written:
        raise SystemExit(f"registry.hpp: {len(entries)} of {text.count('PipelineEntry{')} rows and {read} of {written} values were read")
    out = []
    for name, values, summary in entries:
        link = sections.get("".join(w.capitalize() for w in name.split("-")))
        out.append([f"[`{name}`]({link})" if link else f"`{name}`", ", ".join(value(*f) for f in fields[values]), re.sub(r'"\s*"|^"|"$', "", summary)])
    return table(["shape", "sizes and keys, with their defaults", "what it is"], out)


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
                  "instructions per token: typed, and more if named"], out) + measured(
        page, "run_time_pipelines", f"Medians of {data['prompts'] * data['repetitions']} pairs of runs ({data['prompts']} prompts, {data['tokens']} new tokens), "
        "processor time, 1 thread; the model pack; ")


@named(TABLES, "llama.cpp: types")
def llama_cpp_types(page):
    """What passes and drafts cost inside llama.cpp, by type of weights."""
    data, out, texts = load("llama_cpp_types"), [], {}
    for x in data["texts"]:
        texts[x["type"], x["same_bits"]] = [in_words(speedup_of(x["pipelines"][0], p)[0]) for p in x["pipelines"][1:]]
    for run in [x for x in data["passes"] if x["prompt_tokens"] == data["passes"][0]["prompt_tokens"]]:
        p, key = run["passes"][0], (run["type"], run["same_bits"])
        best = next(b for b in p["best"] if b["acceptance_rate"] == 0.8)
        out.append([run["type"].upper(), "`--same-bits`" if run["same_bits"] else "", f"{p['microseconds'][0] / 1000:.1f} ms",
                    *(f"{p['ratios'][n - 1]:.2f}" for n in (2, 3, 4, 5, 8)), p["pays_from"] or "never", f"{best['nodes']}: {best['speedup']:.2f}x", *texts.get(key, ["", ""])])
    return table(["weights", "", "T(1)", *(f"T({n})" for n in (2, 3, 4, 5, 8)), "drafts pay from acceptance", "best nodes at 0.8",
                  *(f"`{x['name']}`" for x in data["texts"][0]["pipelines"][1:])], out) + llama_cpp_source(page, "types")


@named(TABLES, "llama.cpp: bits")
def llama_cpp_bits(page):
    """What rows differ by without the option, and what it costs."""
    data, out = load("llama_cpp_types"), []
    for kind in dict.fromkeys(x["type"] for x in data["passes"]):
        ours = sorted((x for x in data["passes"] if x["type"] == kind), key=lambda x: (x["same_bits"], x["prompt_tokens"]))
        plain, same = ours[:2], ours[2:]
        most = [f"{max(y for x in half for y in x['passes'][0]['row_differences']):.2g}" for half in (plain, same)]
        out.append([kind.upper(), *most, *(f"{b['passes'][0]['microseconds'][n - 1] / a['passes'][0]['microseconds'][n - 1]:.2f}x"
                                           for a, b in zip(plain, same) for n in (1, 4))])
    tokens = sorted({x["prompt_tokens"] for x in data["passes"]})
    return table(["weights", "rows differ by", "with `--same-bits`", *(f"T({n}) after {t} tokens" for t in tokens for n in (1, 4))], out) + llama_cpp_source(page, "types")


@named(TABLES, "llama.cpp: texts")
def llama_cpp_texts(page):
    data = load("llama_cpp_bits")
    runs_ = {(x["same_bits"], x["temperature"]): {p["name"]: p for p in x["pipelines"]} for x in data["texts"]}
    out = [[f"`{name}`", *(f"{x[name]['identical_to_autoregressive']} of {x[name]['prompts']}" for x in runs_.values())]
           for name in list(next(iter(runs_.values())))[1:]]
    return table(["same text as plain decoding", *(f"{'`--same-bits`' if bits else 'without'}, temperature {heat:g}" for bits, heat in runs_)], out) + llama_cpp_source(page, "bits")


def llama_cpp_source(page, name):
    return measured(page, f"llama_cpp_{name}", f"SmolLM2-135M-Instruct, 1 thread; {load(f'llama_cpp_{name}')['texts'][0]['engine']}, ")


@named(TABLES, ("several machines", "rpc_pack"), ("several machines: SmolLM2", "rpc_smollm2"))
def several_machines(page, file):
    """Speedups at each delay, and those by the formula where the proposals are the same at all delays."""
    data, out = load(file), []
    at = [(d["one_way_milliseconds"], {p["name"]: p for p in d["pipelines"]}) for d in data["delays"]]
    for name in [name for name in at[0][1] if name != "autoregressive"]:
        mats = list(dict.fromkeys(f"{of[name]['mat']:.2f}" for _, of in at))
        out.append([f"`{name}`", " to ".join(dict.fromkeys((min(mats), max(mats))))]
                   + [in_words(speedup_of(of["autoregressive"], of[name])[0]) + (f" of {by_formula(data, name, d):.2f}x" if d and "cost-aware" not in name else "") for d, of in at]
                   + [f"{min(of[name]['identical_to_autoregressive'] for _, of in at)} of {data['prompts']}"])
    plain = ", ".join(f"{1e3 / of['autoregressive']['tokens_per_second']:.0f}" for _, of in at)
    return table(["pipeline", "MAT"] + [f"{d:g} ms" for d, _ in at] + ["same text"], out) + measured(
        page, file, f"Plain decoding: {plain} ms per token. {data['prompts']} texts of {data['max_new_tokens']} tokens, greedy, "
        f"{data['rpc_servers']} servers, one thread each; ")


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
    found = "".join(card(name, r"Started from (the draft .*? for an earlier target|`\w+`)"))
    return "a draft for an earlier target" if found.startswith("the draft") else found


def listed(models):
    models = [f"`{m}`" for m in models]
    return " and ".join(filter(None, [", ".join(models[:-1]), models[-1]]))


DRAFTS = ("small", "base", "s2d", "glide", "eagle", "hass")


# Where each pass waits a second or 40 ms: rows of paper_far over others of it, or over the best chain of the same draft.
FAR_CLAIMS = [(label, over, seconds) for seconds in FAR[1:] for label, over in (
    ("glide, CAPE, 7 5 3 1", ""), ("glide, CAPE, 7 5 3 1", "glide, chain of 4"), ("small, CAPE, 7 5 3 1", ""), ("small, CAPE, 7 5 3 1", "small, chain of 4"),
    ("hass, tree of 60", ""), ("hass, tree of 60", "plain decoding"), ("hass, tree of 60", "eagle, tree of 60"),
    ("base, cascade with Max-Gram", ""), ("base, cascade with small and Max-Gram", ""))]


def far_name(label, over, seconds):
    return f"far: {label}" + (f" over {over}" if over else "") + ("" if seconds == FAR[-1] else f" at {seconds * 1e3:g} ms")


@named(CLAIMS, *((far_name(*claim), *claim) for claim in FAR_CLAIMS))
def far_over_other(label, over, seconds):
    if over == "plain decoding":
        other = load("paper_far")["pipelines"][0]
    else:
        other = (Row("paper_far", over) if over else best_chain(label.partition(", ")[0], seconds)).p
    return far_over(other, Row("paper_far", label).p, seconds)


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


@named(CLAIMS, "several machines")
def over_links():
    """The fastest pipeline over links of 20 ms each way, with its speedup."""
    at = next(d["pipelines"] for d in load("rpc_pack")["delays"] if d["one_way_milliseconds"] == 20)
    own = max(at, key=lambda p: speedup_of(at[0], p)[0])
    return f"{in_words(*speedup_of(at[0], own))} (`{own['name']}`)"


@named(TABLES, "one rule")
def one_rule(page):
    """A round through specula.h, called by ctypes, beside transformers' own rule."""
    data = load("one_rule")
    run, rows = data["run"], []
    for size in data["sizes"]:
        us = size["median_us"]
        rows.append([f"{size['vocab']:,}", *(f"{us[name]:,.0f}" for name in ("block", "token", "transformers")), f"{us['transformers'] / us['token']:.0f}"])
    return table(["vocabulary", "`block`, microseconds", "`token`", "transformers", "times as long as `token`"], rows) + [
        "", f"One text, {run['drafted']} drawn draft tokens, float logits of both models; medians of {run['rounds']} rounds in turns, 1 thread of an "
        f"{run['machine']['cpu']}, commit {run['commit']}, {run['date']}; transformers {run['versions']['transformers']}, PyTorch {run['versions']['torch'].partition('+')[0]}. "
        f"`bench/one_rule.py`, [data](benchmarks/one_rule.json)."]


@named(TABLES, "lossy rules")
def lossy_rules(page):
    """What each rule gains and costs; exact ones for comparison."""
    data, exact = load("lossy_rules"), {"rejection": "`Rejection`, exact", "block": "`Block`, exact", "match": "`SampleAndMatch`, exact", "typical": "`Typical`"}
    run, rows = data["run"], []
    for of in data["rules"]:
        name, _, lenience = of["rule"].partition(" ")
        figure = {key: "{:.{n}f} [{:.{n}f}, {:.{n}f}]".format(*of[key], n=digits) for key, digits in (("mat", 2), ("acceptance", 3), ("total_variation", 3), ("nats", 2))}
        rows.append([f"`Lenient{{{lenience}}}`" if lenience else exact[name], of["draft"], figure["mat"], figure["acceptance"],
                     figure["total_variation"] if of["total_variation"][0] > 1e-4 else "0", figure["nats"]])
    return table(["rule", "draft tokens", "MAT", "acceptance", "total variation", "nats a token"], rows) + measured(
        page, "lossy_rules", f"Pack: `small` for `target`, chains of 4, temperature 1; {run['texts']} texts of {run['tokens']} tokens that each rule "
        "wrote, no prompt [95%: resamplings of the texts]. No figure is a time. `bench/lossy_rules.py`, ", cpu=False)


@named(CLAIMS, "h100 trees")
def h100_trees():
    x = next(x for x in load("cuda_h100_peers")["trees"] if x["name"] == "B = 64")
    return (f"{x['ours_us']:.0f} us; SGLang's kernel, by another rule, {x['kernel_us']:.0f} us from ready probabilities of all 4,096 rows, "
            f"{x['softmax_us']:.0f} us with PyTorch's softmax before it")
