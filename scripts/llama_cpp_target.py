"""Runs of scripts/llama_cpp_tables, and the tables that scripts/pages makes of them. Standard library only.

All figures are in docs/benchmarks/llama_cpp_target.json. A table whose figures are not there yet is None: then the page keeps
what stands there.
"""
import json
import re

from paper import table, with_interval

FILE = "llama_cpp_target.json"
LENGTHS = (1, 2, 3, 4)
ROWS = [*(f"chain:small:{n}" for n in LENGTHS), *(f"max-gram:{n}" for n in LENGTHS), "cost-aware:chain:small", "cost-aware:chain:base",
        "cost-aware:max-gram"]
DRAFTS = ("small", "base")
FORMS = {"Q8_0": "q8_0", "Q4_0": "q4_0"}  # of the target: as pages call it, and as specula-gguf does
# Of programs that draft as one of our pipelines does, the one at the same length. An older llama-cli completes, too.
PEERS = {"autoregressive": ("llama-completion", "llama-cli"), "chain:small:{}": ("llama-speculative-simple",), "max-gram:{}": ("llama-lookup",)}


# ---- clocks of the programs: tokens and seconds of decoding in what one of them printed, None where it says nothing of them

def last(pattern, text):
    found = re.findall(pattern, text)  # the last: a text that a model writes may hold anything
    return found[-1] if found else None


def own_clock(text):
    """Of specula-llama with one pipeline."""
    found = last(r"(\d+) tokens, ([\d.]+) tokens/s \(", text)
    return found and (int(found[0]), int(found[0]) / float(found[1]))


def peers_clock(text):
    """Of llama.cpp's programs. Those that speculate print what they decoded and the target's own passes below; those of the one
    that does not are a token each."""
    found = last(r"decoded +(\d+) tokens in .* speed: +([\d.]+) t/s", text)  # their seconds have fewer digits
    if found:
        return int(found[0]), int(found[0]) / float(found[1])
    found = last(r"(?<!prompt )\beval time = +([\d.]+) ms / +(\d+) runs", text)
    return found and (int(found[1]), float(found[0]) / 1000)


def features(system_info):
    """The extensions that libllama was built with, from its "CPU : AVX = 1 | AVX2 = 1 | ... |"."""
    return [name for name, on in re.findall(r"(\w+) = (\w+)", system_info) if on == "1"]


# ---- tables

def where(data, page_link, more):
    """Where the figures come from: a line below each table."""
    machine = data["machine"]
    text = (f"`{data['target']}`, {more}, {data['threads']} thread{'s' if data['threads'] > 1 else ''}, {data['engine']} with "
            f"{', '.join(data['built_with'])}; commit {data['commit']}, {data['date']}, {machine['cpu']} ({machine['cores']} cores). [Data]({page_link}).")
    return ["", text]


def counted(data, repeats):
    each = data["prompts"] // len(data["prompt_files"])
    return (f"prompts {data['skipped'] + 1} to {data['skipped'] + each} of each of {' and '.join(data['prompt_files'])}, {data['max_new_tokens']} new "
            f"tokens, greedy, {repeats} run{'s' if repeats > 1 else ''} each")


def passes_table(data, link):
    """T(n) of libllama in each form, and of our own decoder."""
    columns = [(f"llama.cpp, {name}", form["passes"][0]) for name, form in data["forms"].items()]
    first = next(iter(data["forms"].values()))["passes"]
    columns += [("`specula::cpu::Decoder`", own) for own in first[1:]]
    rows = []
    for n in range(len(columns[0][1]["ratios"])):
        row = [n + 1]
        for _, column in columns:
            row += [f"{column['microseconds'][n]:.0f}", f"{column['ratios'][n]:.2f}"]
        rows.append(row)
    heads = ["nodes"] + [x for name, _ in columns for x in (f"{name}: us", "T(n)/T(1)")]
    inputs = {"bf16": "rounded to bfloat16", "full": "in floats"}[data["inputs"]]
    return table(heads, rows) + where(data, link, f"after {data['prompt_tokens']} tokens, medians of {data['turns']} turns; inputs of our products {inputs}")


def speedups_table(data, link):
    forms = data["forms"]
    names = [p["name"] for p in next(iter(forms.values()))["pipelines"]]
    rows = []
    for name in names:
        row = [f"`{name}`"]
        for form in forms.values():
            p = next(p for p in form["pipelines"] if p["name"] == name)
            row += [with_interval(p, "speedup", "x") if name != "autoregressive" else "1.00x", f"{p['tokens_per_second']:.0f}",
                    f"{p['identical_to_autoregressive']} of {p['prompts']}"]
        rows.append(row)
    heads = ["pipeline"] + [x for name in forms for x in (f"{name}: speedup [95%]", "tokens/s", "same text")]
    return table(heads, rows) + where(data, link, counted(data, data["repeat"]))


def peers_table(data, link):
    forms = {name: form["peers"] for name, form in data["forms"].items() if form.get("peers")}
    if not forms:
        return None
    rows = []
    for ours in dict.fromkeys(name for peers in forms.values() for name in peers):
        row, peer = [f"`{ours}`"], ""
        for peers in forms.values():
            x = peers.get(ours)
            peer = peer or (x and x["peer"])
            row += [f"{x['ours']:.0f}", f"{x['theirs']:.0f}", f"{x['ours'] / x['theirs']:.2f}"] if x else ["", "", ""]
        rows.append([row[0], f"`{peer}`", *row[1:]])
    heads = ["same length of draft", "llama.cpp's program"] + [x for name in forms for x in (f"{name}: `specula-llama`", "llama.cpp", "ratio")]
    missing = f" Missing: {', '.join(data['absent'])}." if data.get("absent") else ""
    lines = table(heads, rows) + where(data, link, counted(data, 1) + "; tokens per second of decoding by each program's own clock")
    return lines[:-1] + [lines[-1] + missing]


def tables(root):
    """Name of a table to a function of the page that gives its lines, or None where its figures are not there."""
    file = root / "docs" / "benchmarks" / FILE
    make = {"passes": passes_table, "speedups": speedups_table, "peers": peers_table}

    def filled(page, of):
        return of(json.loads(file.read_text()), f"benchmarks/{FILE}") if file.exists() else None

    return {"llama.cpp: " + name: (lambda page, of=of: filled(page, of)) for name, of in make.items()}
