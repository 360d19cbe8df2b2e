# SPDX-License-Identifier: MIT
"""Tables of our engine on CPUs beside others: weights in blocks (scripts/blocks) and whole texts (scripts/public_model). Standard library only."""
import os

import beside
from figures import TITLES, Missing, load, measured, root, speedup_over_all, table
from tables import CLAIMS, TABLES, defined, named

SETS = {"avx2": "AVX2", "avx-vnni": "AVX-VNNI", "avx512": "AVX512-VNNI"}
CONTEXT = 2048  # tokens of the table of memory
SETTINGS = {"blocks": "blocks", "bf16": "bfloat16", "full": "floats", "half": "half floats", "int16": "16 bits", "int8": "8 bits"}


def blocks(part):
    data = load("blocks")
    if part not in data:
        raise Missing("blocks")
    return data[part]


def blocks_source(page, words):
    return measured(page, "blocks", f"{words}; ")


@named(TABLES, "blocks: passes")
def blocks_passes(page):
    """T(n) of both engines on each instruction set, and over llama.cpp's T(1)."""
    found, data = blocks("passes"), load("blocks")
    out, ns = [], (1, 2, 4, 8)
    for x in [*found, *data.get("threads", [])]:
        for engine, ms in x["ms"].items():
            out.append([x["model"], SETS[x["isa"]], x.get("threads", 1), engine] + [f"{ms[n - 1]:.1f} ({ms[n - 1] / x['ms']['llama.cpp'][0]:.2f})" if n <= len(ms) else "" for n in ns])
    after = list(dict.fromkeys(x["prompt_tokens"] for x in found))
    return table(["model", "instructions", "threads", "engine", *(f"T({n}), ms" for n in ns)], out) + blocks_source(
        page, f"In brackets: over llama.cpp's T(1) of the same instructions and threads. After {' or '.join(map(str, after))} "
        f"tokens, medians of {data['repeat']} turns in which the engines alternate; "
        f"specula with its defaults for blocks, {found[0]['engine']} built for the same instructions")


@named(TABLES, "blocks: memory")
def blocks_memory(page):
    found = blocks("memory")
    out = []
    for x in found:
        peak, loads = ("not run", "") if x["computed"] else (f"{x['peak_bytes'] / 1e6:,.0f} MB", f"{x['load_seconds']:.2f} s")
        out.append([x["model"], SETTINGS[x["weights"]], SETTINGS[x["cache"]], *(f"{x[key] / 1e6:,.0f} MB" for key in ("file_bytes", "weight_bytes", "cache_bytes")), peak, loads])
    return table(["model", "weights kept as", "keys and values as", "file", "weights", "keys and values", "process, at most", "loads in"], out) + blocks_source(
        page, f"{CONTEXT:,} tokens in all, 1 thread. MB: a million bytes. Weights, keys and values, and the file that was not "
        "run, are computed from the sizes of the tensors; the process, at most, is what Linux counts of `specula compare` "
        "(VmHWM), which reads a prompt and writes the rest; the time to load is with the file in the page cache")


@named(TABLES, "blocks: distance")
def blocks_distance(page):
    found = blocks("distance")
    out = [[x["engine"], *(SETTINGS.get(x[key], x[key]) if x["engine"] == "specula" else "its own" if key != "weights" else "blocks" for key in ("weights", "inputs", "cache")),
            f"{x['mean']:.5f}", f"{x['largest']:.4f}", f"{x['same_likeliest']} of {x['rows']}"] for x in found["settings"]]
    return table(["engine", "weights", "inputs of products", "keys and values", "total variation, mean", "largest", "same likeliest token"], out) + blocks_source(
        page, f"SmolLM2-135M-Instruct, Q4_1; the answers to {len(found['prompts'])} prompts "
        f"({', '.join(TITLES[x] for x in found['prompts'])}), "
        f"{found['settings'][0]['rows']} tokens, 1 thread, {SETS[found['isa']]}")


@named(TABLES, "blocks: texts")
def blocks_texts(page):
    found = blocks("texts")
    out = []
    for x in found:
        plain, own = x["pipelines"][0], x["pipelines"][-1]
        out.append([SETS[x["isa"]], SETTINGS[x["inputs"]], f"{x['temperature']:g}", f"{own['identical_to_autoregressive']} of {own['prompts']}", f"{own['mat']:.2f}",
                    *(f"{sum(x[0] for x in p['by_prompt']) / sum(x[1] for x in p['by_prompt']):.0f}" for p in (plain, own)), speedup_over_all((plain, own))])
    of = found[0]["pipelines"]
    return table(["instructions", "inputs", "temperature", "same text", "MAT", "plain decoding, tokens/s", "with drafts, tokens/s", "speedup"], out) + ["", defined({"pipelines": of})] + blocks_source(
        page, f"SmolLM2-135M-Instruct, Q4_1, `{of[-1]['name']}` with [its "
        f"drafts]({os.path.relpath(root / 'examples/smollm2/README.md', (root / page).parent)}); "
        f"{of[0]['prompts']} prompts (equally many of GSM8K, HumanEval and MT-bench), {found[0]['max_new_tokens']} new tokens, "
        "1 thread, one run")


@named(CLAIMS, "blocks: a draft or copies")
def blocks_gain():
    """Greedy, on the widest instructions."""
    x = next(x for x in blocks("texts") if (x["isa"], x["inputs"], x["temperature"]) == ("avx512", "int16", 0))
    return speedup_over_all((x["pipelines"][0], x["pipelines"][-1]))


@named(CLAIMS, ("blocks: rise, specula", "specula"), ("blocks: rise, llama.cpp", "llama.cpp"))
def blocks_rise(engine):
    """T(4) / T(1) of SmolLM2."""
    rises = [x["ms"][engine][3] / x["ms"][engine][0] for x in blocks("passes") if x["model"].startswith("SmolLM2")]
    low, high = (f"{x:.1f}" for x in (min(rises), max(rises)))
    return low if low == high else f"{low} to {high}"


# ---- computed from measured passes

CORES, BANDWIDTH = 8, 60e9  # of a desktop; bytes per second that its cores share
HEAD = 0.03  # a draft token of a trained head over a pass of its target
RATES = (0.5, 0.7, 0.8, 0.9)


def whole(of, engine):
    """T(n) of all layers."""
    few, more = (x["ms"][engine] for x in of)
    return [a + blocks("large")["more"] * (b - a) for a, b in zip(few, more)]


@named(TABLES, "blocks: large")
def blocks_large(page):
    """T(n) of a model of eight billion parameters, computed from passes of some of its layers."""
    found = blocks("large")
    ns = (1, 2, 4, 5, 8)
    out = [[SETS[of[0]["isa"]], engine, *(f"{x:.0f}" if n == 1 else f"{x:.0f} ({x / ms[0]:.2f})" for n, x in ((n, ms[n - 1]) for n in ns))]
           for of in found["passes"] for engine in ("specula", "llama.cpp") for ms in [whole(of, engine)]]
    return table(["instructions", "engine", *(f"T({n}), ms" for n in ns)], out) + blocks_source(
        page, f"Computed: passes of random models with {' and '.join(map(str, found['layers']))} layers of {found['model']} "
        "and its LM head were measured, and what two layers add was counted for all of its 32. "
        f"In brackets: over T(1). 1 thread, medians of {found['repeat']} turns in which the engines alternate")


def gain(ms, rate, draft):
    """The best speedup of chains: of 1 to 7 draft tokens that are accepted at this rate and take `draft` ms each."""
    return max((sum(rate ** i for i in range(k + 1)) * ms[0] / (ms[k] + k * draft), k) for k in range(1, len(ms)))


@named(TABLES, "blocks: drafts")
def blocks_drafts(page):
    """What a draft would bring, computed from T(n)."""
    found = blocks("large")
    one = {x["isa"]: x["ms"] for x in blocks("passes") if x["model"] == "random 1B, Q4_K_M"}
    out = []
    for of in found["passes"]:
        for engine in ("specula", "llama.cpp"):
            ms, isa = whole(of, engine), of[0]["isa"]
            for draft, cost in (("a head", HEAD * ms[0]), ("a model of 1B", one[isa][engine][0] if isa in one else None)):
                if cost is not None:
                    out.append([SETS[isa], engine, f"{draft}, {cost:.0f} ms a token", *("{:.2f}x with {}".format(*gain(ms, rate, cost)) for rate in RATES)])
    return table(["instructions", "engine", "draft", *(f"acceptance {rate}" for rate in RATES)], out) + blocks_source(
        page, "Computed, not measured: the expected tokens of a chain over the time of its pass and its draft tokens, "
        "relative to T(1), by T(n) of the table above; with the best number of draft tokens, of 1 to 7. "
        f"A head is taken to cost {HEAD} passes of its target a token; the model of 1B what its T(1) is at Q4_K_M in the same engine")


@named(TABLES, "blocks: cores")
def blocks_cores(page):
    """T(n) on several cores, computed from one core's."""
    found = blocks("large")
    size = next(x["weight_bytes"] for x in blocks("memory") if x["model"] == found["model"])
    memory, out = size / BANDWIDTH * 1e3, []
    for of in found["passes"]:
        ms = whole(of, "specula")
        node = (ms[7] - ms[3]) / 4 / CORES
        at = {n: max(memory, n * node) for n in (1, 4, 8)}
        out.append([SETS[of[0]["isa"]], f"{node:.1f}", f"{memory:.0f}", *(f"{x:.0f} ({x / at[1]:.2f})" for x in at.values())])
    return table(["instructions", "a node's arithmetic, ms", "weights from memory, ms", "T(1), ms", "T(4), ms", "T(8), ms"], out) + blocks_source(
        page, f"Computed, not measured: {found['model']} on {CORES} cores that share {BANDWIDTH / 1e9:.0f} GB/s. A node costs "
        f"an {CORES}th of what it adds on one core from four nodes to eight; a pass costs the longer of "
        "its nodes' arithmetic and of reading the weights once. In brackets: over T(1)")


# ---- beside others (scripts/public_model)

ALONE = {"llama.cpp": "`scripts/public_model --only llama.cpp`", "OpenVINO GenAI": "`scripts/public_model --only openvino`"}


def compared(on):
    data = load("public_model")
    if on not in data["beside"]:
        raise Missing("public_model")
    return data, data["beside"][on]


def shown(mode):
    return f"`{mode}`" if ":" in mode else mode


def per_second(value):
    return f"{value:.0f}" if value else ""


def times(value):
    return f"{value:.2f}x" if value else ""


def beside_source(page, data, ons, words):
    least = min(data["prompts"][on] for on in ons)
    threads = list(dict.fromkeys(int(on.split(":")[1]) for on in ons))
    return measured(
        page, "public_model", f"{words}{least} prompt{'s' * (least > 1)} of each kind (MT-bench, GSM8K, HumanEval, "
        f"Spec-Bench's summaries), {data['new_tokens']} new tokens, greedy, the prompt's time not counted; "
        f"{' or '.join(map(str, threads))} thread{'s' * (threads != [1])} of an {data['machine']['cpu']}, ", cpu=False)


@named(TABLES, "beside others: front page")
def beside_front(page):
    data, found = compared("native:1")
    kinds, means = found["kinds"], found["means"]
    out = [[f"specula, {how}", *(per_second(of[key]) for of in kinds.values()), per_second(means[key])] for how, key in (("plain decoding", "plain"), (f"`{data['pipeline']}`", "best"))]
    for engine in dict.fromkeys(name for of in kinds.values() for name in of["others"]):
        theirs = [of["others"].get(engine) for of in kinds.values()]
        mean = beside.average(x and x["tokens_per_second"] for x in theirs)
        out.append([f"{engine}: {ALONE[engine]}", *(f"{per_second(x['tokens_per_second'])} ({x['weights'].upper()}, {x['mode']})" if x else "" for x in theirs), per_second(mean)])
    out.append(["with drafts, over the fastest other", *(times(of["ratio"]) for of in kinds.values()), times(means["ratio_of_means"])])
    out.append(["with drafts, over plain decoding", *(times(of["gain"]) for of in kinds.values()), times(means["gain"])])
    link = os.path.relpath(root / "docs/models.md", (root / page).parent)
    return table(["tokens/s", *kinds, "mean"], out) + beside_source(
        page, data, ["native:1"], f"{data['model'].partition('.')[0]}; specula keeps the 4 bits of its file (Q4_1). Other engines ran by their own programs. In brackets: the type of weights, of 4, 8 and 16 bits, and the way of "
        f"drafting that were fastest for this kind. [All types and ways, and how far each is from the model's floats]({link}#beside-what-one-would-take-instead). ")


@named(TABLES, ("beside others: native, 1", 1), ("beside others: native, 2", 2))
def beside_others(page, threads):
    """A public model in our engine and in those that a user would take instead."""
    on = f"native:{threads}"
    data, found = compared(on)
    kinds, out = list(found["kinds"]), []
    for row in [row for row in data["rows"] if (row["isa"], row["threads"]) == ("native", threads)]:
        speeds = [beside.speed(row, kind) for kind in kinds]
        apart = row["total_variation"]
        same = "" if row["mode"] == beside.PLAIN else "{} of {}".format(*row["same"])
        out.append([row["engine"], row["weights"].upper(), shown(row["mode"]), *map(per_second, speeds), per_second(beside.average(speeds)), same, f"{apart['mean']:.4f}" if apart else ""])
    flags = "; ".join(f"{engine}: {how}" for engine, how in data["flags"].items())
    programs = "; ".join(f"{mode} `{' '.join(words)}`" for mode, words in data["llama_cpp"].items())
    return table(["engine", "weights", "how", *(f"{kind}, tokens/s" for kind in kinds), "mean", "same text", "total variation"], out) + [
        "", f"llama.cpp: {programs}. OpenVINO GenAI's prompt lookup: {data['lookup_tokens']} draft tokens. {flags}."] + beside_source(page, data, [on], "")


@named(TABLES, "beside others: gains")
def beside_gains(page):
    """What the pipeline gains over plain decoding, by instruction set and threads."""
    data = load("public_model")
    ons, out = list(data["beside"]), []
    for on, found in data["beside"].items():
        isa, threads = on.split(":")
        kinds, means = found["kinds"], found["means"]
        out.append([SETS[data["sets"][-1] if isa == "native" else isa], threads, per_second(means["plain"]), per_second(means["best"]), *(times(of["gain"]) for of in kinds.values()), times(means["gain"])])
    return table(["instructions", "threads", "plain decoding, tokens/s", "with drafts, tokens/s", *kinds, "mean"], out) + beside_source(
        page, data, ons, f"{data['model'].partition('.')[0]}, Q4_1, `{data['pipeline']}`; kinds and mean: its speed over plain decoding's. ")


@named(TABLES, "beside others: reading")
def beside_reading(page):
    """Prompts: tokens per second until the first new token, by instruction set, and over llama.cpp's fastest type."""
    data = load("public_model")
    found = {}
    for x in data["reading"]:
        if x["threads"] == 1:
            found.setdefault((x["model"], x["isa"], x["tokens"]), []).append((x["engine"], x["weights"], x["tokens"] / sorted(x["seconds"])[len(x["seconds"]) // 2]))
    out, turns = [], min(len(x["seconds"]) for x in data["reading"])
    for (model, isa, tokens), those in sorted(found.items(), key=lambda pair: (pair[0][0] != data["model"].partition(".")[0], pair[0][1] != "native", pair[0][1], pair[0][2])):
        of = {engine: [(speed, weights) for name, weights, speed in those if name == engine] for engine in ("specula", "llama.cpp", "OpenVINO GenAI")}
        own = next((speed for speed, weights in of["specula"] if weights in (beside.FOUR_BITS, "q4_k_m")), None)
        most = max(of["llama.cpp"], default=None)
        out.append([model, SETS[data["sets"][-1] if isa == "native" else isa], f"{tokens:,}",
                    *(", ".join(f"{weights.upper()} {speed:.0f}" for speed, weights in some) for some in of.values()), times(own and most and own / most[0])])
    note = measured(
        page, "public_model", f"Until the first new token, 1 thread, medians of {turns} turn{'s' * (turns > 1)}; llama.cpp "
        "built for the same instructions, OpenVINO GenAI with all of the processor's. "
        "The random model has the shapes of Llama 3.2 1B. ")
    return table(["model", "instructions", "tokens", *(f"{engine}, tokens/s" for engine in ("specula", "llama.cpp", "OpenVINO GenAI")), "4 bits over llama.cpp's fastest type"],
                 out) + note
