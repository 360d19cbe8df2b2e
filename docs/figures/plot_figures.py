# SPDX-License-Identifier: MIT
"""What each plot of scripts/plots shows of docs/benchmarks. A plot is a function of its JSON files that returns a Plot."""
import dataclasses
import re

from cuda_tables import bars, flashinfer, shapes, verified_by_flashinfer
from figures import TITLES, as_counted, by_formula, by_task, load, of_one_run, passes_over_nodes, pipelines, products, speedup_of

INK, BLUE, ORANGE, GREEN, VIOLET, PINK, SILVER = ("#010101", "#040404", "#050505", "#060606", "#070707", "#080808", "#090909")  # scripts/plots has their values


@dataclasses.dataclass
class Series:
    """Points (value, low, high), of which low and high may be None: one for each label of a panel of rows, or None; else over `x`."""
    name: str
    points: list
    colour: object = BLUE  # or a function of the value
    marker: str = "o"
    text: object = None    # of a value, written beside its point
    x: list = None
    x_bounds: list = None  # intervals of x
    line: str = "-"        # "" joins no points; within rows, "-" joins this series' points with those of the one before


@dataclasses.dataclass
class Panel:
    series: list
    title: str = ""
    labels: list = None    # a panel of rows
    axis: str = ""
    y_axis: str = ""
    bars: bool = False
    reference: float = None
    log: bool = False
    limits: tuple = None
    ticks: dict = None     # of x: value to text
    y_ticks: dict = None
    y_log: bool = False
    y_limits: tuple = None
    diagonal: bool = False


@dataclasses.dataclass
class Plot:
    title: str
    notes: list  # below the title: what, where, when
    panels: list
    columns: int = 1
    row: int = 30       # pixels of a label
    height: int = 300   # of a panel of lines

    @property
    def alt(self):
        """What a reader would see, in words."""
        parts = []
        for panel in self.panels:
            for s in [s for s in panel.series if s.marker != ","]:  # which are lines of a formula
                of = panel.labels or [f"{x:g}" for x in s.x]
                said = ", ".join(f"{str(label).replace(chr(10), ' ')} {(s.text or '{:.2f}'.format)(p[0])}" for label, p in zip(of, s.points) if p)
                parts.append(": ".join(filter(None, [panel.title.replace("\n", " "), s.name, said])))
        return f"{self.title}. {'; '.join(parts)}."


FIGURES = {}  # name: (files, function)


def figure(*files):
    def add(of):
        FIGURES[of.__name__] = (files, of)
        return of
    return add


def plot(name):
    files, of = FIGURES[name]
    return of(*map(load, files))


# ---- words and points

INSTRUCTIONS = {"avx2": "AVX2", "avx-vnni": "AVX-VNNI", "avx512": "AVX512-VNNI"}
PACK = "The repository's target of 26 million parameters"


def bounds(p, key):
    return (p[key], *p["intervals"][key]) if "intervals" in p else (p[key], None, None)


def speedups(data):
    """Of each row, with its interval if the run has the times of each prompt."""
    return {label: speedup_of(data["pipelines"][0], p) for label, p in pipelines(data).items()}


def with_intervals(points):
    return ", with 95% intervals" if any(point[1] is not None for point in points) else ""


def prompts_of(data):
    return f"{data['prompts']} prompts ({', '.join(TITLES[f] for f in dict.fromkeys(data['run']['prompts']))})"


def inputs_of(data):
    return {"floats": "float"}.get(products(data), products(data)) + " products"


def temperature(data):
    return "greedy" if data["temperature"] == 0 else f"temperature {data['temperature']:.1g}"


def commits(*all_runs):
    dates, of = (list(dict.fromkeys(data["run"][key] for data in all_runs)) for key in ("date", "commit"))
    return f"{' and '.join(dates)}, commit{'s' if len(of) > 1 else ''} {', '.join(of)}"


def where(*all_runs):
    data = all_runs[0]
    threads = f"{data['threads']} thread" + ("s" if data["threads"] > 1 else "")
    return f"{threads} of an {data['run']['machine']['cpu']}, {inputs_of(data)}; {commits(*all_runs)}"


def shade(value):
    return BLUE if value >= 1 else ORANGE


def times(value):
    return f"{value:.2f}x"


def span(points, *more):
    """Limits of an axis that shows all of these."""
    low = min(*(min(p[0], p[0] if p[1] is None else p[1]) for p in points), *more)
    high = max(*(max(p[0], p[0] if p[2] is None else p[2]) for p in points), *more)
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


def ticks(*values, form="{:g}"):
    return {value: form.format(value) for value in values}


def dots(title, labels, points, text=times, reference=1, colour=shade, limits=None):
    """A panel of dots with intervals and numbers above them; orange ones are on the wrong side of the reference."""
    return Panel([Series("", points, colour, text=text)], title, labels, reference=reference, ticks={},
                 limits=limits or span(points, *([] if reference is None else [reference])))


# ---- SmolLM2 with its drafts

@figure("paper_public_chat_t0", "paper_public_gsm8k_t0", "paper_public_humaneval_t0", "paper_public_summaries_t0")
def public(*sets):
    """With summaries as the table has them: if they are of the others' commit and processor."""
    sets, titles = sets if of_one_run(sets[0], sets[-1]) else sets[:-1], ("Chat", "Mathematics", "Code", "Summaries")
    found = [speedups(data) for data in sets]
    labels = sorted(found[0], key=lambda label: -sum(points[label][0] for points in found))
    limits = (0, 1.3 * max(point[2] or point[0] for points in found for point in points.values()))
    return Plot("SmolLM2-135M-Instruct: speedup" + with_intervals(found[0].values()),
                [f"Plain decoding's time per token (dashed line: 1x) over the pipeline's, all prompts of a kind together, {temperature(sets[0])}; "
                 f"{', '.join(prompts_of(data) for data in sets)}", where(*sets)],
                [Panel([Series("", [points[label] for label in labels], shade, text=times)], title, labels, bars=True, reference=1,
                       limits=limits, ticks=ticks(0, 1, 2, form="{:g}x")) for title, points in zip(titles, found)], columns=len(sets), row=34)


@figure("blocks", "public_model")
def passes(data, beside):
    """Why drafts pay in one engine and not in another."""
    models = list(dict.fromkeys(x["model"] for x in data["passes"]))
    chosen, panels = [models[0], models[-1]], []
    for model in chosen:
        found = [x for x in data["passes"] if x["model"] == model]
        theirs = {} if model != models[0] else beside.get("openvino_passes", {})
        least = min(theirs, key=lambda kind: theirs[kind][0], default=None)
        most = 1.08 * max(max(ms) for ms in [*(ms for x in found for ms in x["ms"].values()), *(theirs[kind] for kind in [least] if kind)])
        for x in found:
            series = [Series(engine, [(y, None, None) for y in x["ms"][engine]], colour, marker, text="{:.1f} ms".format, x=list(range(1, len(x["ms"][engine]) + 1)))
                      for engine, colour, marker in (("specula", BLUE, "o"), ("llama.cpp", ORANGE, "s"))]
            if least and x is found[-1]:
                series.append(Series(f"OpenVINO ({least.upper()}, from the run of whole texts)", [(y, None, None) for y in theirs[least]], GREEN, "^", text="{:.1f} ms".format,
                                     x=list(range(1, len(theirs[least]) + 1))))
            panels.append(Panel(series, f"{model.partition(',')[0].replace('-Instruct', '')}\n{INSTRUCTIONS[x['isa']]}", axis="tokens in the pass", y_axis="T(n), ms" if x is found[0] else "",
                                ticks=ticks(*(n for n in (1, 2, 4, 8) if n <= len(x["ms"]["specula"]))), y_limits=(0, most)))
    return Plot("T(n): time of a pass over n tokens, by engine and instruction set",
                [f"A draft of n - 1 tokens pays if the pass over n costs less than the tokens that it brings. {' and '.join(chosen)}, weights of 4 bits",
                 f"1 thread of an {data['machine']['cpu']}; medians of {data['repeat']} turns in which the engines alternate; "
                 f"{data['date']}, commit {data['commit']}"],
                panels, columns=len(panels) // len(chosen), height=200)


# ---- by method, on the model pack's target

@figure("paper_main")
def speedup(main):
    shown = sorted(speedups(main).items(), key=lambda pair: -pair[1][0])
    labels, points = [label for label, _ in shown], [point for _, point in shown]
    at = sum(point[0] > 1 for point in points)
    labels.insert(at, "plain decoding")
    points.insert(at, (1, None, None))
    return Plot("Speedup by method" + with_intervals(points),
                [f"Time per token of plain decoding over the method's, all prompts together ({main['pipelines'][0]['tokens_per_second']:.0f} tokens/s), {temperature(main)}; {prompts_of(main)}",
                 f"{PACK}, {where(main)}"],
                [Panel([Series("", points, lambda value: SILVER if value == 1 else shade(value), text=times)], labels=labels, bars=True, reference=1)])


@figure("paper_main", "paper_mt_bench", "paper_spec_bench")
def speedup_by_task(main, mt_bench, spec):
    labels = sorted(pipelines(main), key=lambda label: -speedups(main)[label][0])
    found = [(title, [as_counted(of[label])[1] for label in labels]) for title, of in by_task(main, mt_bench, spec, "MT-bench")]
    limits = span([point for _, points in found for point in points], 1)
    return Plot(
        as_counted(main["pipelines"][0])[0].capitalize() + ", by method and task, with 95% intervals",
        ["Dashed line: plain decoding; orange: slower than it. In brackets: prompts. The last five are "
         "Spec-Bench's; its summarization and RAG prompts are longer than the rows that the drafts were trained on", f"{PACK}, {where(main, mt_bench, spec)}"],
        [dots(title, labels, points, "{:.2f}".format, limits=limits) for title, points in found], columns=4, row=36)


# ---- proposals

@figure("paper_hass_t0", "paper_cape")
def mat_by_nodes(heads, cape):
    rows, gains = {**pipelines(heads), **pipelines(cape)}, {**speedups(heads), **speedups(cape)}
    trees = ("chain of 5", "12 nodes, depth 5", "24 nodes, depth 6", "60 nodes, depth 6")
    lines = {("HASS, trees", VIOLET, "o"): [f"HASS, {x}" for x in trees], ("EAGLE, trees", GREEN, "s"): [f"EAGLE, {x}" for x in trees],
             ("HASS, static tree", VIOLET, "P"): ["HASS, EAGLE's static tree"], ("EAGLE, static tree", GREEN, "X"): ["EAGLE, EAGLE's static tree"],
             ("GLIDE, beams", PINK, "^"): ["chain of 4", "beam 4", "beam 8"], ("GLIDE, CAPE", BLUE, "D"): ["CAPE, counts for this machine", "CAPE, 7 5 3 1"]}

    def panel(title, points, reference, **more):
        series = [Series(name, [points[x] for x in labels], colour, marker, x=[rows[x]["mean_proposed"] for x in labels])
                  for (name, colour, marker), labels in lines.items()]
        return Panel(series, title, log=True, ticks=ticks(4, 6, 8, 11, 16, 23, 32, 59), reference=reference,
                     axis="draft tokens per pass of the target (logarithmic)", **more)

    return Plot(
        "MAT and speedup by the number of draft tokens",
        [f"MAT: tokens per pass of the target. 95% intervals; {temperature(heads)}; HASS and EAGLE: {heads['prompts']} prompts (GSM8K, HumanEval); "
         f"GLIDE: {cape['prompts']}", f"{PACK}, {where(heads, cape)}"],
        [panel("Tokens per pass of the target (MAT)", {x: bounds(rows[x], "mat") for x in rows}, None), panel("Speedup (dashed: plain decoding)", gains, 1)], height=250)


@figure("forward")
def pass_time(measured):
    at, spread = passes_over_nodes(), passes_over_nodes("cv")

    def points(kind):
        for n, time in sorted(at[kind].items()):
            ratio, error = time / at[kind][1], (spread[kind][n] ** 2 + spread[kind][1] ** 2) ** 0.5 if n > 1 else 0
            yield ratio, ratio * (1 - error), ratio * (1 + error)

    powers, context = (1, 2, 4, 8, 16, 32), measured["context"]
    panels = [Panel([Series(f"hidden size {h}", list(points((h, rounded))), colour, x=sorted(at[h, rounded]))
                     for h, colour in ((256, ORANGE), (384, BLUE), (512, GREEN))], f"{'bfloat16' if rounded else 'float'} inputs", log=True, y_log=True,
                    diagonal=True, ticks=ticks(*powers), y_ticks=ticks(*powers, form="{}x"), axis="nodes n in the pass") for rounded in (False, True)]
    return Plot(
        "Time of a pass over n nodes, relative to one node",
        ["Hidden sizes 256 (6.3 million parameters, in the cache), 384 (the model pack's target, 26 million) and 512 (25 million). Dashed: n passes. "
         "Medians of 5 runs, with one standard deviation",
         f"1 thread of an {context['cpu']}, context of 256 tokens; {context['date'][:10]}, commit {context['commit']}"], panels, columns=2, height=330)


@figure("paper_main")
def acceptance_by_depth(main):
    chains = {"draft model, chain": BLUE, "cascade": ORANGE, "Max-Gram": GREEN, "HASS, chain": VIOLET, "EAGLE, chain": PINK, "GLIDE, chain": SILVER, "S2D": INK}
    series = []
    for label, colour in chains.items():
        y = [a for a in pipelines(main)[label]["acceptance_by_depth"][:6] if a is not None]
        series.append(Series(label, [(a, None, None) for a in y], colour, x=list(range(1, len(y) + 1))))
    percents = ticks(*(x / 10 for x in range(5, 11)), form="{:.0%}")
    return Plot(
        "Acceptance rate by depth of the draft token",
        [f"Of draft tokens whose parent was accepted, in chains; {temperature(main)}, {prompts_of(main)}. No intervals by depth in the data; the axis begins at "
         "50%. Max-Gram's rate rises since only long matches reach deep tokens",
         f"{PACK}, {where(main)}"],
        [Panel(series, axis="depth of the draft token in the proposal", ticks=ticks(*range(1, 7)), y_ticks=percents)], height=360)


# ---- single methods

@figure("paper_s2d_target")
def s2d_thresholds(data):
    kinds = {"exit 1": ("exit 1", PINK, "o"), "exit 2": ("exit 2", ORANGE, "s"), "all layers": ("all layers", GREEN, "^"),
             "S2D, 0.5 0.5 0 (the paper's)": ("S2D", BLUE, "D"), "S2D, thresholds for this target": ("S2D, tuned", VIOLET, "P")}
    rows, series = pipelines(data), []
    for label, (name, colour, marker) in kinds.items():
        series.append(Series(name, [speedups(data)[label]], colour, marker, x=[rows[label]["mat"]], x_bounds=[rows[label]["intervals"]["mat"]]))
    return Plot(
        "S2D: speedup against MAT, by exit and threshold",
        [f"One draft with three exits; {prompts_of(data)}, with 95% intervals. S2D: the paper's thresholds, 0.5 0.5 0",
         f"{PACK}, {temperature(data)}, {where(data)}"],
        [Panel(series, axis="tokens per pass of the target (MAT)", y_axis="speedup", reference=1)], height=340)


@figure("paper_hass_t0", "paper_hass_t1")
def hass_gain(greedy, sampled):
    panels = []
    for data, how in ((greedy, "greedy"), (sampled, "temperature 1")):
        rows = pipelines(data)
        shapes = [label.removeprefix("HASS, ") for label in rows if label.startswith("HASS, ")]
        for key in ("tau", "speed"):
            points = [tuple(100 * (v - 1) for v in data["against"][rows[f"EAGLE, {x}"]["name"]][rows[f"HASS, {x}"]["name"]][key]) for x in shapes]
            panels.append(dots(f"{key},\n{how}", shapes, points, "{:+.1f}%".format, 0, lambda value: BLUE if value >= 0 else ORANGE))
    limits = span([point for panel in panels for point in panel.series[0].points], 0)
    return Plot(
        "What HASS gains over EAGLE, by shape of the proposal",
        ["Ratios of tau (tokens per pass) and of speed on the same prompts, with 95% intervals; dashed: no gain",
         f"Greedy: {greedy['prompts']} prompts, {inputs_of(greedy)}; temperature 1: {sampled['prompts']} prompts, {inputs_of(sampled)}; GSM8K and HumanEval",
         f"{PACK}, 1 thread of an {greedy['run']['machine']['cpu']}; {commits(greedy, sampled)}"],
        [dataclasses.replace(panel, limits=limits) for panel in panels], columns=4, row=38)


@figure("paper_cape")
def cape(data):
    rows = pipelines(data)
    labels = [label.replace(", counts for this machine", ", tuned") for label in rows]
    return Plot(
        "CAPE, fixed widths and beams over GLIDE's draft",
        [f"With 95% intervals; {temperature(data)}, {prompts_of(data)}. Dashed: plain decoding", f"{PACK}, {where(data)}"],
        [dots("tokens per pass (MAT)", labels, [bounds(p, "mat") for p in rows.values()], "{:.2f}".format, None, BLUE),
         dots("draft tokens per pass", labels, [(p["mean_proposed"], None, None) for p in rows.values()], "{:.1f}".format, None, BLUE),
         dots("speedup", labels, list(speedups(data).values()))], columns=3, row=38)


@figure("paper_asd_t0", "paper_asd_t02", "paper_asd_t06", "paper_asd_t1")
def asd(*all_runs):
    labels = list(pipelines(all_runs[0]))
    found = [[speedups(data)[x] for x in labels] for data in all_runs]
    limits = span([point for points in found for point in points], 1)
    return Plot(
        "ASD: speedup by rules of skipping and temperature",
        [f"The target with skipped layers as its own draft{with_intervals(found[0])}; orange: slower than plain decoding (dashed)",
         f"{prompts_of(all_runs[0])}; model pack's target, {where(*all_runs)}"],
        [dots(f"temperature {data['temperature']:.1g}", labels, points, limits=limits) for data, points in zip(all_runs, found)], columns=4, row=38)


@figure("paper_cascades_ms")
def cascades(data):
    rows = pipelines(data)
    labels = [label.replace(" of ", "\nof ") for label in rows]
    by_parameters = [(x["value"], *x["interval"]) for x in (p["swi_by_costs"]["MS"] for p in rows.values())]
    return Plot(
        "Cascades, chains and copies, each the best by SWI",
        [f"SWI: the speedup if a pass costs the same over any number of nodes; calls of drafts cost what they do in the paper, by parameters, or here. "
         f"With 95% intervals; {temperature(data)}, {prompts_of(data)}", f"{PACK}, {where(data)}"],
        [dots(title, labels, points, "{:.2f}".format, None, BLUE) for title, points in (
            ("tokens per pass (MAT)", [bounds(p, "mat") for p in rows.values()]), ("SWI, the paper's costs", by_parameters),
            ("SWI, own costs", [bounds(p, "swi") for p in rows.values()]))], columns=3, row=42)


@figure("rpc_pack")
def several_machines(data):
    looks = {"chain:8:exit=0@small": ("draft model, chain of 8", BLUE, "o"), "dynamic-tree:3:3:11@small": ("draft model, tree", GREEN, "^"),
             "chain:6@max-gram": ("Max-Gram", ORANGE, "s"), "cost-aware:chain@small": ("cost-aware chain", VIOLET, "D")}
    delays, series = [d["one_way_milliseconds"] for d in data["delays"]], []
    for k, (name, (words, colour, marker)) in enumerate(looks.items()):
        if not name.startswith("cost-aware"):
            x = [max(delays) * i / 40 for i in range(41)]
            series.append(Series("", [(by_formula(data, name, d), None, None) for d in x], colour, ",", x=x))
        points = [speedup_of(d["pipelines"][0], p) for d in data["delays"] for p in d["pipelines"] if p["name"] == name]
        series.append(Series(words, points, colour, marker, x=[d + 0.7 * (k - 1.5) for d in delays], line=""))  # side by side
    return Plot(
        f"A target split over {data['rpc_servers']} servers with slow links, its draft at home",
        [f"Speedup over plain decoding on the same links (dashed) by the links' delay{with_intervals(points)}. Lines: (c1 + S RTT) MAT / (cn + draft + S RTT), of the "
         "passes without delay, S = 2 servers",
         f"{data['prompts']} texts of {data['max_new_tokens']} tokens, greedy; 26 million parameters (F16), a draft of 0.8 million; llama.cpp's RPC servers behind a "
         f"delaying proxy, one thread of an {data['machine']['cpu'].split(',')[0]}; {data['date']}, commit {data['commit']}"],
        [Panel(series, axis="delay of one way, ms", y_axis="speedup", reference=1, ticks={d: f"{d:g}" for d in delays})])


# ---- GPU

def gpu_notes(data):
    return [f"{data['device'].split(',')[0]}, {data['date'][:10]}, commit {data['commit']}"]


@figure("cuda_h200_bars", "cuda_h200_peers")
def verification_gpu(data, peers):
    ours = bars("verification")
    theirs = {n: time for n in ours if (time := verified_by_flashinfer(n))}
    order = sorted(ours, key=lambda n: (n not in theirs, n.startswith("sample"), "top-p" in n, "tree" in n, "B = 64" in n or "64 rows" in n))

    def shown(name):
        out = name.replace(", cold", ", all accepted").replace(" .", " 0.").replace(", 4 drafts", "").replace(", depth 6", "").replace("64-node trees", "64 nodes")
        return re.sub(r"^top-p 0.95: (.*)", r"\1, top-p 0.95", out.replace("64-node tree", "64 nodes"))

    series = [Series("memory floor", [(ours[n]["floor_us"], None, None) for n in order], INK, "|"),
              Series("specula", [(ours[n]["us"], None, None) for n in order], BLUE, text="{:.3g}".format),
              Series("FlashInfer", [(theirs[n], None, None) if n in theirs else None for n in order], ORANGE, "v", line="")]
    return Plot(
        "Verification and sampling on a GPU",
        ["Vocabulary of 128,256, bf16 logits, 4 draft tokens or trees; B sequences. Floor: bytes needed at the copy's speed. FlashInfer: cast, softmax and kernel",
         *gpu_notes(data)],
        [Panel(series, labels=[shown(n) for n in order], log=True, axis="microseconds (logarithmic)", ticks=ticks(0.1, 1, 10, 100, 1000))], row=36)


@figure("cuda_h200_bars", "cuda_h200_peers")
def attention_gpu(data, peers):
    at = bars("attention")
    labels = [shape for shape in shapes() if flashinfer(f"FlashInfer, custom mask: {shape}")]

    def over_floor(time_of):
        return [(time_of(label) / at[f"{label}, mma.sync"]["floor_us"], None, None) for label in labels]

    series = [Series("specula, faster of 2 kernels", over_floor(lambda n: min(at[f"{n}, {kind}"]["us"] for kind in ("mma.sync", "wgmma"))), BLUE)] + [
        Series(name, over_floor(lambda n, kind=kind: flashinfer(f"FlashInfer, {kind}: {n}")), colour, marker, line="") for kind, name, marker, colour in (
            ("custom mask", "FlashInfer, custom mask", "v", ORANGE), ("prefix + masked tail + merge", "FlashInfer, 3 launches", "^", GREEN))]
    return Plot(
        "Tree attention on a GPU, over the memory floor",
        ["32 query heads on 8 KV heads of 128, bf16; B sequences with L tokens of context. 3 launches: an unmasked prefix, a masked tail, a merge",
         *gpu_notes(data)],
        [Panel(series, labels=labels, log=True, reference=1, axis="time over the memory floor (logarithmic)", ticks=ticks(1, 1.5, 2, 3, 4, 6, form="{:g}x"))], row=34)
