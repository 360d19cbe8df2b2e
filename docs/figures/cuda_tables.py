# SPDX-License-Identifier: MIT
"""The tables of docs/cuda_performance.md and docs/cuda.md, which scripts/pages writes, of what scripts/gpu measured. Standard library only."""
import collections
import hashlib
import os
import re

import measuring
from figures import folder, load, root, table
from tables import CLAIMS, TABLES, named


def of(section):
    return load(f"cuda_h200_{section}")


def us(x):
    return "" if x is None else "< 0.01" if x < 0.01 else f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 1000 else f"{x:.0f}"


def bars(program, run="cuda_h200_bars"):
    """Name of each timed work of a program to what was measured: twice, of which the slower counts."""
    found = [next(iter(bar.values())) for bar in load(run)[program].values() if isinstance(bar, dict)]
    return {bar["name"]: {"us": max(bar["us_first"], bar["us_second"]), **bar} for bar in found if "us_first" in bar}


@named(TABLES, "ceilings")
def ceilings(page):
    rows = []
    for part, worst, unit in (("memory", min, lambda x: f"{x / 1e12:.2f} TB/s"), ("launches", max, lambda x: f"{x:.2f} us")):
        for name, x in of("ceilings")["ceilings"][part].items():
            rows.append([re.sub(r", (us|TB/s)( |$)", " ", name).strip(), unit(worst(x["first"], x["second"]))])
    for size, x in of("ceilings")["gemm"].items():
        if isinstance(x, dict):
            rows.append([f"bf16 product of cuBLAS, {size} cubed", f"{min(x['tflops_first'], x['tflops_second']):.0f} TFLOP/s"])
    return table(["what", "measured"], rows)


def goal_of(bar):
    """What was aimed at, and what was reached."""
    if "limit" not in bar:
        return ["", ""]
    later = f", then {bar['next_limit']:g}" if "next_limit" in bar else ""
    digits = {"of copy": 2, "TFLOP/s": 0}.get(bar["unit"], 1)
    return [f"{bar['bound']} {bar['limit']:g}{later} {bar['unit']}", f"{bar['value']:.{digits}f} {bar['unit']}: {'met' if bar['pass'] else 'missed'}"]


@named(TABLES, ("verification", "verification"), ("growth", "growth"), ("helpers", "helpers"))
def against_goals(page, program):
    rows = [[name, us(bar["us"]), f"{bar['bytes'] / 1e6:.2f}", us(bar["floor_us"]), *goal_of(bar)] for name, bar in bars(program).items()]
    return table(["work", "us", "MB", "floor us", "goal", "reached"], rows)


def swept():
    """What plans chose and what was fastest, by name."""
    parts = [x for x in of("sweep").values() if isinstance(x, dict)]
    return {name: x for part in parts for name, x in part.items() if isinstance(x, dict) and "best_us" in x}


def shapes():
    """Those of attention, of which each kernel's time is a bar."""
    return [name.removesuffix(", mma.sync") for name in bars("attention") if name.endswith(", mma.sync")]


@named(TABLES, "attention")
def attention(page):
    by_name, best = bars("attention"), swept()
    rows = []
    for shape in shapes():
        kinds = [f"{shape}, mma.sync", f"{shape}, wgmma"]
        mma, wgmma = by_name[kinds[0]], by_name.get(kinds[1])  # the latter not on every device
        fastest = min((k for k in kinds if k in best), key=lambda k: best[k]["best_us"], default=None)
        which = fastest and f"{fastest.rpartition(', ')[2]}, " + re.sub(r"\b1 splits", "1 split", best[fastest]["best"])
        judged = wgmma if wgmma and "limit" in wgmma else mma
        rows.append([shape, us(mma["floor_us"]), us(mma["us"]), us(wgmma and wgmma["us"]), us(fastest and best[fastest]["best_us"]), which or "", *goal_of(judged)])
    return table(["work", "floor us", "mma.sync us", "wgmma us", "fastest of the sweep us", "which", "goal", "reached"], rows)


@named(TABLES, "sweep")
def sweep(page):
    rows = [[name, x["planned"], us(x["planned_us"]), x["best"], us(x["best_us"]), f"{x['planned_us'] / x['best_us']:.2f}x"]
            for name, x in swept().items() if "nodes, B" not in name]
    return table(["work", "planned", "us", "fastest", "us", "planned / fastest"], rows)


def flashinfer(work):
    """Its time for a work of the bars, of the same run; None if it has no counterpart."""
    found = {name: bar["bar"] for part in of("peers").values() if isinstance(part, dict) for name, bar in part.items() if isinstance(bar, dict)}
    bar = found.get(work.replace(", cold", ", all accepted"))
    return bar and max(bar["us_first"], bar["us_second"])


def verified_by_flashinfer(work):
    """Its cast, softmax and kernel for a work of verification."""
    if work.startswith("sample"):
        return flashinfer(f"FlashInfer, cast + softmax + {work}")
    return flashinfer(f"FlashInfer, cast + softmax + chain kernel: {work}")


@named(CLAIMS, "gpu chains")
def gpu_chains():
    work = "B = 64, 4 drafts, rejection, alpha .7"
    return f"{us(bars('verification')[work]['us'])} us; FlashInfer, from the target's logits, {us(verified_by_flashinfer(work))} us"


@named(TABLES, "flashinfer, verification")
def flashinfer_verification(page):
    rows = [[name, us(bar["us"]), us(its), f"{its / bar['us']:.2f}x"] for name, bar in bars("verification").items() if (its := verified_by_flashinfer(name))]
    return table(["work", "ours us", "FlashInfer us", "FlashInfer / ours"], rows)


@named(TABLES, "flashinfer, attention")
def flashinfer_attention(page):
    by_name, rows = bars("attention"), []
    for shape in shapes():
        ours = min(by_name[f"{shape}, {kind}"]["us"] for kind in ("mma.sync", "wgmma"))
        its = [flashinfer(f"FlashInfer, {kind}: {shape}") for kind in ("custom mask", "prefix + masked tail + merge")]
        if all(its):
            rows.append([shape, us(ours), *(f"{us(x)} ({x / ours:.2f}x)" for x in its)])
    return table(["work", "ours us, the faster kernel", "FlashInfer, custom mask", "FlashInfer, prefix + tail + merge"], rows)


# Peers' times on an H100; those with a star each with its ratio to ours then: above 1 ours is the faster one.
@named(TABLES,
       ("peers, verification", "verification", {"chain kernel alone us": "chain_us", "from f32 logits us": "verify_f32_us", "verify us": "verify_us*",
                                                "verify, both us": "verify_both_us*"}),
       ("peers, sampling", "sampling", {"from probabilities alone us": "probs_us", "softmax + sample, f32 us": "softmax_f32_us",
                                        "cast + softmax + sample us": "softmax_us*", "cast + sample from logits us": "from_logits_us*"}),
       ("peers, trees", "trees", {"its kernel alone us": "kernel_us", "cast + softmax + kernel us": "softmax_us*", "and its scratch zeroed us": "zeroed_us*"}))
def against_peers(page, part, shown):
    def cell(x, key):
        its = x.get(key.rstrip("*"))
        return f"{us(its)} ({its / x['ours_us']:.2f}x)" if its and key.endswith("*") else us(its)

    return table(["work", "ours us", *shown], [[x["name"], us(x["ours_us"])] + [cell(x, key) for key in shown.values()] for x in load("cuda_h100_peers")[part]])


@named(TABLES, "peers, attention")
def peers_attention(page):
    rows = []
    for x in load("cuda_h100_peers")["attention"]:
        ours = min(x["ours_mma_us"], x["ours_wgmma_us"])
        rows.append([f"{x['nodes']} nodes, B = {x['batch']}, L = {x['context']}",
                     f"{us(x['ours_mma_us'])} / {us(x['ours_wgmma_us'])}", f"{us(x['ours_pages_mma_us'])} / {us(x['ours_pages_wgmma_us'])}",
                     *(f"{us(x[k])} ({x[k] / ours:.2f}x)" for k in ("fa2_mask_us", "fa2_merge_us", "xqa_us", "cudnn_merge_us")), us(x["cudnn_prefix_us"])])
    return table(["work", "ours us, mma.sync / wgmma", "ours, pages of 16", "FlashInfer, custom mask", "FlashInfer, prefix + tail + merge",
                  "FlashInfer XQA, tree", "cuDNN prefix + tail + merge", "cuDNN prefix alone us"], rows)


@named(TABLES, "checked")
def checked(page):
    rows = []
    for program, part, items in [(program, part, list(items.values())) for program, parts in of("check").items() if isinstance(parts, dict)
                                 for part, items in parts.items() if isinstance(items, dict) and items]:
        error = max(max(x.get("error", 0), x.get("variants_error", 0)) for x in items)
        rows.append([program, part, f"{sum(x.get('cases', x.get('draws', x.get('variants', 0) + 1)) for x in items):,}",
                     sum(x.get("differ", 0) for x in items) if "differ" in items[0] else "", f"{error:.1e}" if error else "",
                     f"{sum(not x['pass'] for x in items)} of {len(items)}"])
    return table(["program", "part", "cases or draws", "differ", "largest error", "checks failed"], rows)


@named(TABLES, "sanitizers")
def sanitizers(page):
    data, at = of("sanitize"), {}
    for x in data["sanitize"]:
        at.setdefault(x["tool"], {})[x["program"]] = "ran out of time" if x["status"] == 124 else f"{x['reports']} reports"
    programs = list(dict.fromkeys(x["program"] for x in data["sanitize"]))
    return table(["tool", *programs], [[tool, *(its.get(program, "") for program in programs)] for tool, its in at.items()])


@named(TABLES, "summary")
def summary(page):
    """A line for each kind of work."""
    chosen = {
        "verification": ["B = 1, 4 drafts, rejection, cold", "B = 64, 4 drafts, rejection, alpha .7", "B = 64, 64-node trees, depth 6, sample-and-match",
                         "B = 64, 4 drafts, greedy", "sample, 64 rows"],
        "growth": ["growth of one dynamic-tree step (10 rows, top 10, best 10 of 100, links)", "rerank 510 -> 59"],
        "attention": ["8 nodes, B = 32, L = 4k, mma.sync", "64 nodes, B = 4, L = 32k, wgmma"],
        "helpers": ["compaction of 8 tokens, 32 layers, B = 64", "max_gram, 8,192 tokens, 10 draft tokens, B = 64"],
    }
    return table(["work", "us", "floor us"], [[name, us(bars(program)[name]["us"]), us(bars(program)[name]["floor_us"])]
                                              for program, names in chosen.items() for name in names])


# ---- what changed since

@named(TABLES, "goals")
def goals(page):
    """What is aimed at, between what was measured before and now."""
    rows = []
    for x in load("cuda_goals")["goals"]:
        then, now = (min(found[x["name"] + kind]["us"] for kind in ("", ", mma.sync", ", wgmma") if x["name"] + kind in found)
                     for found in (bars(x["program"], "cuda_h100_bars"), bars(x["program"])))
        rows.append([x["name"], us(then), f"{x['us']:g}", us(now), "met" if now <= x["us"] else f"{now / x['us']:.2f} times"])
    then, now = (load(run)["commit"] for run in ("cuda_h100_bars", "cuda_h200_bars"))
    return table(["work", f"H100, {then}: us", "goal us", f"H200, {now}: us", "goal"], rows)


def sources_of(header, text_of):
    """The headers of ours that `header` includes, itself too."""
    found, open_ = set(), [header]
    while open_:
        path = open_.pop()
        if path not in found and text_of(path) is not None:
            found.add(path)
            for near, name in re.findall(r'^#include (?:"([^"]+)"|<(specula/[^>]+)>)', text_of(path), re.M):
                ours = name or (near if near.startswith("specula/") else "")
                open_.append(f"include/{ours}" if ours else os.path.normpath(os.path.join(os.path.dirname(path), near)))
    return found


def here(path):
    return (root / path).read_text() if (root / path).exists() else None


def digest(text):
    text = re.sub(r"\s*//[^\n]*|\s+(?=\n)", "", text)  # comments change no kernel
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@named(TABLES, "changed")
def changed(page):
    kinds = {"sampling": ["sample"], "verification": ["verify", "verify_matching"], "verification, sharded": ["verify_sharded"],
             "growth": ["grow", "tree_links"], "attention": ["tree_attention", "tree_attention_wgmma"], "compaction": ["compact_kv"],
             "similarity": ["layer_similarity"], "distillation": ["top_k_distillation"], "Max-Gram": ["max_gram"]}
    files = {kind: set().union(*(sources_of(f"include/specula/cuda/api/{h}.cuh", here) for h in headers))
             for kind, headers in kinds.items()}
    shared = set.intersection(*files.values())
    rows = []
    for kind, its in [("all", shared)] + [(kind, its - shared) for kind, its in files.items()]:
        new = sorted(f for f in its if of("sources")["sha256"].get(f) != digest(here(f)))
        rows.append([kind, f"{len(new)} of {len(its)}", ", ".join(f"`{re.sub('^include/specula/(cuda/)?', '', f)}`" for f in new)])
    return table(["figures of", "changed", "headers"], rows)


@named(TABLES, "device code")
def device_code(page):
    """Lines of code that only a device runs, by header."""
    counts, lines = collections.Counter(), 0
    for file in sorted((root / "include/specula/cuda").rglob("*.cuh")):
        conditions = []  # of each #if: whether its branch is for devices alone
        for line in file.read_text().splitlines():
            word = line.split("//")[0].strip()
            if word.startswith("#if"):
                conditions.append(re.search("__CUDA_ARCH_|HAS_WGMMA", word) is not None and not word.startswith("#ifndef"))
            elif word.startswith(("#else", "#elif")):
                conditions[-1] = False
            elif word.startswith("#endif"):
                conditions.pop()
            elif word:
                lines += 1
                counts[str(file.relative_to(root / "include/specula/cuda"))] += any(conditions)
    largest = sorted((+counts).items(), key=lambda x: (-x[1], x[0]))
    rows = [[f"`{name}`", str(n)] for name, n in largest[:8]]
    return table(["header", "lines under `__CUDA_ARCH__`"], [*rows, [f"{len(largest) - 8} others", str(sum(n for _, n in largest[8:]))],
                                                             ["all", f"{sum(counts.values())} of {lines:,}"]])


def record(commit):
    """Writes what `changed` compares with: the CUDA headers of the commit that was measured."""
    def text_of(path):
        return measuring.git("show", f"{commit}:{path}")

    listed = measuring.git("ls-tree", "-r", "--name-only", commit, "include/specula/cuda/api").split()
    files = sorted(set().union(*(sources_of(f, text_of) for f in listed)))
    measuring.write(folder / "cuda_h200_sources.json", {"section": "sources", "commit": commit, "sha256": {f: digest(text_of(f)) for f in files}})
