"""The plots of scripts/plots: what each shows of docs/benchmarks, and how. Only drawing needs matplotlib, titles and texts do not.

A figure is a function of its JSON files that returns a Plot. Sizes are in pixels of a plot that is WIDTH wide; y grows downwards.
"""
import dataclasses
import io
import json
import re
import textwrap

WIDTH = 680
LABEL, VALUE, SMALL, TITLE = 14.5, 13.5, 13, 18  # sizes of text: half of it is still legible on a phone
SALT = "specula"

# Placeholders that scripts/plots replaces: name of the class, colour on a light and on a dark page.
THEME = {
    "#010101": ("ink", "#1f2328", "#e6edf3"),
    "#020202": ("muted", "#59636e", "#9da7b3"),
    "#030303": ("grid", "#d8dee4", "#30363d"),
    "#040404": ("blue", "#0b63ce", "#58a6ff"),
    "#050505": ("orange", "#b54a00", "#f0953f"),
    "#060606": ("green", "#157f3b", "#4ac26b"),
    "#070707": ("violet", "#7c3aed", "#b88cff"),
    "#080808": ("pink", "#bf2a72", "#f778ba"),
    "#090909": ("silver", "#77818c", "#8b949e"),
}
INK, MUTED, GRID, BLUE, ORANGE, GREEN, VIOLET, PINK, SILVER = THEME


class BadLayout(Exception):
    pass


def even_lines(note):
    """As few lines as fit, of nearly the same length."""
    lines = textwrap.wrap(note, 94)
    return next(x for x in (textwrap.wrap(note, n) for n in range(40, 95)) if len(x) <= len(lines))


@dataclasses.dataclass
class Plot:
    title: str
    notes: list   # below the title: what, where, when
    alt: str      # what a reader would see, in words
    body: float   # height below the notes
    draw: object  # of a Canvas

    @property
    def lines(self):
        return [line for note in self.notes for line in even_lines(note)]

    @property
    def top(self):
        return 44 + 18 * len(self.lines)


@dataclasses.dataclass
class Figure:
    data: tuple
    of: object

    def make(self, folder):
        return self.of(*(json.loads((folder / f"{name}.json").read_text()) for name in self.data))


FIGURES = {}


def figure(*data):
    def add(of):
        FIGURES[of.__name__] = Figure(data, of)
        return of
    return add


# ---- drawing

def height_of(plot):
    return round(plot.top + plot.body)


class Canvas:
    def __init__(self, plot):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Page
        self.height = height_of(plot)
        self.page = Page(figsize=(WIDTH / 72, self.height / 72), dpi=72)
        FigureCanvasAgg(self.page)
        self.page.patch.set_alpha(0)
        self.top = plot.top
        self.text(12, 26, plot.title, TITLE, weight="bold")
        for i, line in enumerate(plot.lines):
            self.text(12, 48 + 18 * i, line, SMALL, MUTED)

    def text(self, x, y, what, size=VALUE, colour=INK, **more):
        return self.page.text(x / WIDTH, 1 - y / self.height, what, size=size, color=colour, **{"va": "baseline", **more})

    def axes(self, left, top, width, height, grid="x"):
        """Axes without a frame, in a place below the notes."""
        ax = self.page.add_axes([left / WIDTH, 1 - (self.top + top + height) / self.height, width / WIDTH, height / self.height])
        ax.patch.set_alpha(0)
        for side in ax.spines.values():
            side.set_visible(False)
        ax.tick_params(length=0, labelsize=SMALL, labelcolor=MUTED, pad=6)
        ax.grid(axis=grid, color=GRID, linewidth=1)
        ax.set_axisbelow(True)
        return ax

    def rows(self, ax, labels):
        """Rows from the top, with labels at the left, or without."""
        ax.set_ylim(len(labels) - 0.5, -0.5)
        ax.set_yticks(range(len(labels)), labels)
        ax.tick_params(axis="y", labelsize=LABEL, labelcolor=INK, pad=8)


def axis_name(ax, x=None, y=None):
    if x:
        ax.set_xlabel(x, size=SMALL, color=MUTED, labelpad=8)
    if y:
        ax.set_ylabel(y, size=SMALL, color=MUTED, labelpad=8)


def interval(ax, y, low, high, colour=INK, width=1.6):
    ax.plot([low, high], [y, y], color=colour, linewidth=width, solid_capstyle="butt", zorder=3)


def beside(ax, x, y, what, colour=INK, dx=7.0, dy=0.0, ha="left", size=VALUE, va="center_baseline", **more):
    """A text some pixels from a point of the data."""
    return ax.annotate(what, (x, y), (dx, -dy), textcoords="offset points", ha=ha, va=va, size=size, color=colour, annotation_clip=False, **more)


def apart(values, gap):
    """Places near the values, in their order, and at least the gap from each other."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    places = [values[i] for i in order]
    for _ in range(400):
        for i in range(1, len(places)):
            short = gap - (places[i] - places[i - 1])
            if short > 1e-9:
                places[i - 1] -= short / 2
                places[i] += short / 2
    out = [0.0] * len(values)
    for i, place in zip(order, places):
        out[i] = place
    return out


def end_labels(ax, ends, gap=16):
    """Names of lines at their right ends, moved apart; of (x, y, text, colour)."""
    to = ax.transData
    pixels = [to.transform((x, y))[1] for x, y, _, _ in ends]
    for (x, y, what, colour), old, new in zip(ends, pixels, apart(pixels, gap)):
        beside(ax, x, y, what, colour, dx=9, dy=old - new, va="center")


def render(plot):
    """The SVG as matplotlib writes it. Raises BadLayout if a text overlaps another one or leaves the page."""
    import matplotlib
    with matplotlib.rc_context({
            **matplotlib.rcParamsDefault, "backend": "agg", "svg.fonttype": "none", "svg.hashsalt": SALT, "font.family": "DejaVu Sans",
            "axes.unicode_minus": False, "path.simplify": False}):
        canvas = Canvas(plot)
        plot.draw(canvas)
        canvas.page.canvas.draw()
        check_layout(canvas.page)
        out = io.StringIO()
        canvas.page.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}, transparent=True)
    return out.getvalue()


def check_layout(page):
    from matplotlib.text import Text
    renderer = page.canvas.get_renderer()
    texts = [t for t in page.findobj(Text) if t.get_text().strip() and t.get_visible()]
    seen = []
    for text in texts:
        box = text.get_window_extent(renderer)
        if box.x0 < 0 or box.y0 < 0 or box.x1 > page.bbox.width or box.y1 > page.bbox.height:
            raise BadLayout(f"a text leaves the plot: '{text.get_text()}'")
        for other, its in seen:
            if box.x0 < its.x1 - 1 and its.x0 < box.x1 - 1 and box.y0 < its.y1 - 2 and its.y0 < box.y1 - 2 \
                    and not (text.get_rotation() or other.get_rotation()):
                raise BadLayout(f"texts overlap: '{text.get_text()}' and '{other.get_text()}'")
        seen.append((text, box))


def bars(canvas, rows, axis, unit="x", digits=2, left=200, row=30, reference=None, steps=None):
    """Bars of (label, value, low, high, colour); low and high may be None."""
    right = 78
    ax = canvas.axes(left, 0, WIDTH - left - right, row * len(rows))
    canvas.rows(ax, [r[0] for r in rows])
    most = max(r[3] or r[1] for r in rows)
    ax.set_xlim(0, most)
    if steps:
        ax.set_xticks(steps)
    for y, (_, value, low, high, colour) in enumerate(rows):
        ax.barh(y, value, height=0.62, color=colour, alpha=0.85, linewidth=0)
        if low is not None and high > low:
            interval(ax, y, low, high)
        end = max(value, high or 0)
        if reference is not None and end < reference < end + 50 * most / (WIDTH - left - right):  # 50: a number's width
            end = reference
        beside(ax, end, y, f"{value:.{digits}f}{unit}", weight="bold" if y == 0 else "normal")
    if reference is not None:
        ax.axvline(reference, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
    axis_name(ax, axis)
    return ax


BARS_BELOW = 54  # of bars: the axis


def cells(canvas, labels, columns, left=190, row=38, gap=8, head=0):
    """A column for each (title, limits, reference, text of a value, [(value, low, high)]): dots with intervals, numbers above them.
    Values on the wrong side of the reference are orange."""
    width = (WIDTH - left - 14 - gap * (len(columns) - 1)) / len(columns)
    for i, (title, limits, reference, text, values) in enumerate(columns):
        ax = canvas.axes(left + i * (width + gap), head, width, row * len(labels), grid="y")
        canvas.rows(ax, labels if i == 0 else [""] * len(labels))
        ax.grid(False)
        ax.set_xlim(*limits)
        ax.set_xticks([])
        for y in range(len(labels) + 1):
            ax.axhline(y - 0.5, color=GRID, linewidth=1)
        for y, (value, low, high) in enumerate(values):
            if reference is not None:
                ax.plot([reference] * 2, [y - 0.02, y + 0.46], color=SILVER, linewidth=1.2, linestyle=(0, (3, 2)))
            colour = ORANGE if reference is not None and value < reference else BLUE
            if low is not None:
                interval(ax, y + 0.22, low, high, colour, 2)
            ax.plot([value], [y + 0.22], "o", color=colour, markersize=6.5, markeredgewidth=0, clip_on=False)
            ax.annotate(text(value), (0.5, y - 0.36), xycoords=("axes fraction", "data"), ha="center", va="top", size=VALUE,
                        color=colour)
        if head > 40:
            canvas.text(left + i * (width + gap) + width / 2 - 6, canvas.top + head - 8, title, VALUE, rotation=32, ha="left",
                        rotation_mode="anchor")
        elif head:
            canvas.text(left + i * (width + gap) + width / 2, canvas.top + head - 9, title, VALUE, ha="center", linespacing=1.15)


# ---- data

TITLES = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "mt_bench": "MT-bench", "spec_bench": "Spec-Bench"}


def span(values, *more):
    """Limits of an axis that shows all of these intervals."""
    low = min(*(v[1] if v[1] is not None else v[0] for v in values), *more)
    high = max(*(v[2] if v[2] is not None else v[0] for v in values), *more)
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def pipelines(data):
    """Labels of the measured rows, with their figures: of a search, its pick."""
    by_name = {p["name"]: p for p in data["pipelines"]}
    picks = {s["search"]: s["picked"] for s in data.get("searches", [])}
    return {label: by_name[picks.get(spec, spec)] for label, spec in data["run"]["rows"].items()}


def bounds(p, key):
    return (p[key], *p["intervals"][key])


def prompts_of(data):
    return f"{data['prompts']} prompts ({', '.join(TITLES[f] for f in dict.fromkeys(data['run']['prompts']))})"


def inputs_of(data):
    return "bfloat16 products" if data["inputs"] == "bf16" else "float products"


def temperature(data):
    return "greedy" if data["temperature"] == 0 else f"temperature {data['temperature']:.1g}"


def commits(*runs):
    """When and from what these were measured."""
    dates, of = (list(dict.fromkeys(data["run"][key] for data in runs)) for key in ("date", "commit"))
    return f"{' and '.join(dates)}, commit{'s' if len(of) > 1 else ''} {', '.join(of)}"


def where(*runs):
    data = runs[0]
    threads = f"{data['threads']} thread" + ("s" if data["threads"] > 1 else "")
    return f"{threads} of an {data['run']['machine']['cpu']}, {inputs_of(data)}; {commits(*runs)}"


def shade(value):
    return BLUE if value >= 1 else ORANGE


def listed(items):
    """Items in a sentence."""
    if any("," in x or " and " in x for x in items):
        return "; ".join(items)
    return ", ".join(items[:-1]) + f" and {items[-1]}" if len(items) > 1 else items[0]


def times(value, digits=2):
    return f"{value:.{digits}f}x"


# ---- by method, on the model pack's target

def method_rows(main, key):
    plain = main["pipelines"][0]
    rows = [(label, *bounds(p, key), shade(p["speedup"])) for label, p in pipelines(main).items()]
    return sorted(rows + [("plain decoding", plain[key], None, None, SILVER)], key=lambda r: -r[1])


@figure("paper_main")
def speedup(main):
    rows = method_rows(main, "speedup")
    plain = main["pipelines"][0]
    return Plot(
        "Speedup by method, with 95% intervals",
        [f"Wall clock against plain decoding ({plain['tokens_per_second']:.0f} tokens/s), {temperature(main)}; {prompts_of(main)}",
         f"The repository's target of 26 million parameters, {where(main)}"],
        f"Bar chart of the speedup over plain decoding by method, wall clock with 95% intervals, {prompts_of(main)}: "
        + listed([f"{label} {times(value)}" for label, value, *_ in rows]) + ".",
        30 * len(rows) + BARS_BELOW,
        lambda canvas: bars(canvas, rows, "tokens per second, over plain decoding's", reference=1, steps=[0, 1, 2, 3]))


@figure("paper_main")
def mat(main):
    rows = method_rows(main, "mat")
    return Plot(
        "Tokens per pass of the target (MAT), with 95% intervals",
        [f"Accepted draft tokens and the token after them, on average; {temperature(main)}, {prompts_of(main)}",
         f"The repository's target of 26 million parameters, {where(main)}"],
        f"Bar chart of MAT, the mean number of tokens per pass of the target, by method, with 95% intervals, {prompts_of(main)}: "
        + listed([f"{label} {value:.2f}" for label, value, *_ in rows]) + ".",
        30 * len(rows) + BARS_BELOW,
        lambda canvas: bars(canvas, rows, "tokens per pass of the target", unit="", reference=1, steps=[0, 1, 2, 3, 4]))


@figure("paper_main", "paper_mt_bench", "paper_spec_bench")
def speedup_by_task(main, mt_bench, spec):
    names = {"gsm8k/test": "GSM8K", "humaneval/HumanEval": "HumanEval", "math_reasoning": "math", "qa": "QA", "rag": "RAG"}
    columns = [(names.get(c["name"], c["name"]), main, c["pipelines"], c["prompts"]) for c in main["categories"]]
    columns.append(("MT-bench", mt_bench, mt_bench["pipelines"], mt_bench["prompts"]))
    columns += [(names.get(c["name"], c["name"]), spec, c["pipelines"], c["prompts"]) for c in spec["categories"]]
    labels = [label for label, _ in sorted(pipelines(main).items(), key=lambda x: -x[1]["speedup"])]
    table = []
    for title, data, of, prompts in columns:
        by_name = {p["name"]: p for p in of}
        table.append((f"{title} ({prompts})", [bounds(by_name[pipelines(data)[label]["name"]], "speedup") for label in labels]))
    slow = [f"{label} on {title.split(' (')[0]} {times(values[i][0])}" for title, values in table for i, label in enumerate(labels) if values[i][0] < 1]
    best = [f"{title.split(' (')[0]}: {labels[max(range(len(labels)), key=lambda i: values[i][0])]} {times(max(v[0] for v in values))}" for title, values in table]
    limits = span([v for _, values in table for v in values], 1)
    return Plot(
        "Speedup by method and task, with 95% intervals",
        ["Over plain decoding (dashed line); orange: slower than it. In brackets: prompts. The five on the right are "
         "Spec-Bench's; its summarization and RAG prompts are longer than the rows that the drafts were trained on",
         f"The repository's target of 26 million parameters, {where(main, mt_bench, spec)}"],
        f"Speedups over plain decoding of {len(labels)} methods on {len(columns)} tasks. The fastest of each task: {'; '.join(best)}. "
        f"Slower than plain decoding: {'; '.join(slow)}.",
        38 * len(labels) + 96 + 14,
        lambda canvas: cells(canvas, labels, [(title, limits, 1, lambda v: f"{v:.2f}", values) for title, values in table], head=96, gap=4))


@figure("paper_main", "main_avx2")
def speedup_by_processor(bf16, avx2):
    here, there = pipelines(bf16), pipelines(avx2)
    labels = sorted(here, key=lambda label: -here[label]["speedup"])

    def draw(canvas):
        ax = canvas.axes(200, 26, WIDTH - 200 - 30, 34 * len(labels))
        canvas.rows(ax, labels)
        ax.set_xlim(0.9, 3.3)
        ax.set_xticks([1, 1.5, 2, 2.5, 3], ["1x", "1.5x", "2x", "2.5x", "3x"])
        ax.axvline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        for y, label in enumerate(labels):
            for p, colour, dy in ((there[label], VIOLET, 0.17), (here[label], BLUE, -0.17)):
                value, low, high = bounds(p, "speedup")
                interval(ax, y + dy, low, high, colour, 2)
                ax.plot([value], [y + dy], "o", color=colour, markersize=7, markeredgewidth=0)
        for p, colour, what in ((there, VIOLET, "AVX2"), (here, BLUE, "AVX512_BF16")):
            beside(ax, p[labels[0]]["speedup"], -0.5, what, colour, dx=0, dy=-4, ha="center", va="bottom")
        axis_name(ax, "speedup over plain decoding on the same processor")

    return Plot(
        "Speedup by processor, with 95% intervals",
        [f"The same target and methods, {temperature(bf16)}; lengths and trees chosen on each processor",
         f"AVX512_BF16: {bf16['prompts']} prompts, {commits(bf16)}",
         f"AVX2 (Zen 3): {avx2['prompts']} prompts, {commits(avx2)}",
         "GSM8K and HumanEval, 1 thread of an AMD EPYC"],
        "Speedups over plain decoding on a processor with bfloat16 products (AVX512_BF16) and on one with AVX2 alone: "
        + listed([f"{label} {times(here[label]['speedup'])} and {times(there[label]['speedup'])}" for label in labels]) + ".",
        26 + 34 * len(labels) + BARS_BELOW, draw)


# ---- proposals

@figure("paper_hass_t0", "paper_cape")
def mat_by_nodes(heads, cape):
    rows, shapes = pipelines(heads), pipelines(cape)
    series = [
        ("HASS, trees", VIOLET, "o", [rows[f"HASS, {x}"] for x in ("chain of 5", "12 nodes, depth 5", "24 nodes, depth 6", "60 nodes, depth 6")]),
        ("EAGLE, trees", GREEN, "s", [rows[f"EAGLE, {x}"] for x in ("chain of 5", "12 nodes, depth 5", "24 nodes, depth 6", "60 nodes, depth 6")]),
        ("GLIDE, beams", PINK, "^", [shapes[x] for x in ("chain of 4", "beam 4", "beam 8")]),
        ("GLIDE, CAPE", BLUE, "D", [shapes[x] for x in ("CAPE, counts for this machine", "CAPE, 7 5 3 1")]),
    ]

    static = [(VIOLET, "o", rows["HASS, EAGLE's static tree"]), (GREEN, "s", rows["EAGLE, EAGLE's static tree"])]

    def panel(canvas, top, key, name, ticks, low, high, shown, glide_at):
        ax = canvas.axes(62, top, WIDTH - 62 - 130, 210, grid="both")
        ax.set_xscale("log")
        ax.set_xlim(3.6, 64)
        ax.minorticks_off()
        ax.set_xticks([4, 6, 8, 11, 16, 23, 32, 59], ["4", "6", "8", "11", "16", "23", "32", "59"])
        ax.set_ylim(low, high)
        ax.set_yticks(ticks, [shown(t) for t in ticks])
        ends = []
        for label, colour, mark, points in series:
            x = [p["mean_proposed"] for p in points]
            y = [p[key] for p in points]
            ax.plot(x, y, color=colour, linewidth=2, marker=mark, markersize=7, markeredgewidth=0, zorder=3)
            for p in points:
                ax.plot([p["mean_proposed"]] * 2, p["intervals"][key], color=colour, linewidth=1.6)
            ends.append((x[-1], y[-1], label, colour))
        for colour, mark, p in static:
            ax.plot([p["mean_proposed"]] * 2, p["intervals"][key], color=colour, linewidth=1.6)
            ax.plot([p["mean_proposed"]], [p[key]], mark, color=colour, markersize=7, markeredgewidth=0)
        beside(ax, static[0][2]["mean_proposed"], static[1][2][key], "static trees", MUTED, dx=-2, dy=19)
        ax.set_title(name, size=VALUE, color=INK, loc="left", pad=8)
        end_labels(ax, ends[:2])
        for (x, y, label, colour), (dx, dy, ha) in zip(ends[2:], glide_at):
            beside(ax, x, y, label, colour, dx=dx, dy=dy, ha=ha)
        return ax

    def draw(canvas):
        panel(canvas, 30, "mat", "Tokens per pass of the target (MAT)", [2, 3, 4, 5], 2, 5.6, lambda t: f"{t:g}", [(9, -5, "left"), (9, 5, "left")])
        ax = panel(canvas, 310, "speedup", "Speedup, wall clock", [0, 1, 2], 0, 2.5, lambda t: f"{t:g}x", [(-9, 14, "right"), (-9, 31, "right")])
        ax.axhline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        beside(ax, 3.7, 1, "plain decoding", MUTED, dx=0, dy=9, size=SMALL)
        axis_name(ax, "draft tokens per pass of the target (logarithmic)")

    hass = series[0][3]
    return Plot(
        "MAT and speedup by the number of draft tokens",
        [f"MAT: tokens per pass of the target. 95% intervals; {temperature(heads)}",
         f"HASS and EAGLE: {heads['prompts']} prompts (GSM8K, HumanEval); GLIDE: {cape['prompts']}",
         f"The repository's target of 26 million parameters, {where(heads, cape)}"],
        "MAT and speedup against the number of draft tokens per pass. MAT rises with it, the speedup falls: HASS "
        + listed([f"{p['mean_proposed']:.0f} draft tokens: MAT {p['mat']:.2f}, {times(p['speedup'])}" for p in hass])
        + "; GLIDE with CAPE " + listed([f"{p['mean_proposed']:.0f} draft tokens: MAT {p['mat']:.2f}, {times(p['speedup'])}" for p in series[3][3]]) + ".",
        30 + 210 + 70 + 210 + BARS_BELOW, draw)


@figure("forward")
def pass_time(measured):
    at, spread = {}, {}
    for run in measured["benchmarks"]:
        name = re.match(r"extend/hidden:(\d+)/nodes:(\d+)/context:256/threads:1/bf16:([01])/", run["name"])
        if name and run["aggregate_name"] in ("median", "cv"):
            of = at if run["aggregate_name"] == "median" else spread
            of.setdefault((int(name[1]), name[3] == "1"), {})[int(name[2])] = run["real_time"]
    sizes = {256: ORANGE, 384: BLUE, 512: GREEN}
    context = measured["context"]

    def draw(canvas):
        for i, rounded in enumerate((False, True)):
            ax = canvas.axes(46 + i * 334, 34, 206, 300, grid="both")
            ax.set_xscale("log", base=2)
            ax.set_yscale("log", base=2)
            ax.minorticks_off()
            ticks = [1, 2, 4, 8, 16, 32]
            ax.set_xlim(0.94, 34)
            ax.set_ylim(0.62, 34)
            ax.set_xticks(ticks, [str(t) for t in ticks])
            ax.set_yticks(ticks, [f"{t}x" for t in ticks])
            ax.plot(ticks, ticks, color=SILVER, linewidth=1.2, linestyle=(0, (4, 3)))
            ends = [(32, 32, "n passes", MUTED)]
            for hidden, colour in sizes.items():
                cost, cv = at[hidden, rounded], spread[hidden, rounded]
                nodes = sorted(cost)
                ratio = [cost[n] / cost[1] for n in nodes]
                ax.plot(nodes, ratio, color=colour, linewidth=2, marker="o", markersize=5.5, markeredgewidth=0, zorder=3)
                for n, r in zip(nodes[1:], ratio[1:]):
                    error = r * (cv[n] ** 2 + cv[1] ** 2) ** 0.5
                    ax.plot([n, n], [r - error, r + error], color=colour, linewidth=1.4)
                ends.append((32, ratio[-1], f"{hidden}: {ratio[-1]:.1f}x", colour))
            ax.set_title("bfloat16 inputs" if rounded else "float inputs", size=VALUE, color=INK, loc="left", pad=8)
            end_labels(ax, ends)
            axis_name(ax, "nodes n in the pass")

    values = [f"hidden size {h}, {'bfloat16' if r else 'float'} inputs {times(at[h, r][8] / at[h, r][1])} for 8 nodes and {times(at[h, r][32] / at[h, r][1])} for 32"
              for h, r in sorted(at)]
    return Plot(
        "Time of a pass over n nodes, relative to one node",
        ["Lines: hidden sizes 256 (6.3 million parameters, in the cache), 384 (the model pack's target, 26 million) and 512 "
         "(25 million). Medians of 5 runs, with one standard deviation",
         f"1 thread of an {context['cpu']}, context of 256 tokens; {context['date'][:10]}, commit {context['commit']}"],
        "Time of a forward pass over n nodes relative to a pass over one, on logarithmic axes: " + listed(values) + ".",
        34 + 300 + BARS_BELOW, draw)


@figure("paper_main")
def acceptance_by_depth(main):
    chains = {"draft model, chain": BLUE, "cascade": ORANGE, "Max-Gram": GREEN, "HASS, chain": VIOLET, "EAGLE, chain": PINK,
              "GLIDE, chain": SILVER, "S2D": INK}
    rows = pipelines(main)

    def depths(label):  # those of a proposal that is as long as most
        return [a for a in rows[label]["acceptance_by_depth"][:6] if a is not None]

    def draw(canvas):
        ax = canvas.axes(56, 10, WIDTH - 56 - 165, 330, grid="y")
        ax.set_xlim(0.85, 6.05)
        ax.set_xticks(range(1, 7))
        ax.set_ylim(0.5, 1)
        ax.set_yticks([0.5, 0.6, 0.7, 0.8, 0.9, 1], ["50%", "60%", "70%", "80%", "90%", "100%"])
        ends = []
        for label, colour in chains.items():
            y = depths(label)
            ax.plot(range(1, len(y) + 1), y, color=colour, linewidth=2, marker="o", markersize=6, markeredgewidth=0)
            ends.append((len(y), y[-1], label, colour))
        end_labels(ax, [e for e in ends if e[0] == 6])
        for x, y, label, colour in ends:
            if x < 6:
                beside(ax, x, y, label, colour, dx=2, dy=17)
        axis_name(ax, "depth of the draft token in the proposal")

    return Plot(
        "Acceptance rate by depth of the draft token",
        [f"Of draft tokens whose parent was accepted, in chains; {temperature(main)}, {prompts_of(main)}",
         f"The repository's target of 26 million parameters, {where(main)}",
         "No intervals by depth in the data; the axis begins at 50%"],
        "Acceptance rate by depth, first to last: " + listed([f"{label} {' '.join(f'{a:.2f}' for a in depths(label))}" for label in chains]) + ".",
        10 + 330 + BARS_BELOW, draw)


# ---- single methods

@figure("paper_s2d_target", "paper_s2d_medium")
def s2d_thresholds(target, medium):
    kinds = {"exit 1": ("exit 1", PINK), "exit 2": ("exit 2", ORANGE), "all layers": ("all layers", GREEN),
             "S2D, 0.5 0.5 0 (the paper's)": ("S2D", BLUE), "S2D, thresholds for this target": ("S2D, tuned", BLUE)}

    def panel(canvas, left, data, title, xlim, ylim, xticks, yticks, offsets):
        ax = canvas.axes(left, 34, 270, 330, grid="both")
        ax.set_xlim(*xlim)
        ax.set_ylim(*ylim)
        ax.set_xticks(xticks)
        ax.set_yticks(yticks, [f"{t:g}x" for t in yticks])
        rows = pipelines(data)
        searched = {s["search"]: s for s in data["searches"]}
        for label, (name, colour) in kinds.items():
            for c in searched.get(data["run"]["rows"][label], {"candidates": []})["candidates"]:
                ax.plot([c["mat"]], [c["speedup"]], "o", markersize=5.5, markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.3, alpha=0.6)
            p = rows[label]
            ax.plot([p["mat"]] * 2, p["intervals"]["speedup"], color=colour, linewidth=1.6)
            ax.plot(p["intervals"]["mat"], [p["speedup"]] * 2, color=colour, linewidth=1.6)
            ax.plot([p["mat"]], [p["speedup"]], "o", color=colour, markersize=9, markeredgewidth=0, zorder=4)
            dx, dy, ha = offsets[label]
            beside(ax, p["mat"], p["speedup"], name, colour, dx=dx, dy=dy, ha=ha, weight="bold")
        ax.axhline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        ax.set_title(title, size=VALUE, color=INK, loc="left", pad=8)
        axis_name(ax, "tokens per pass of the target (MAT)")

    paper, tuned = list(kinds)[3:]

    def draw(canvas):
        panel(canvas, 52, target, "26 million parameters", (1.5, 3.1), (0.9, 2.06), [1.5, 2, 2.5, 3], [1, 1.25, 1.5, 1.75, 2],
              {"exit 1": (9, 13, "left"), "exit 2": (9, 13, "left"), "all layers": (0, -37, "center"), paper: (0, 40, "center"), tuned: (-15, -22, "right")})
        panel(canvas, 390, medium, "6.3 million, in the cache", (1.5, 3.1), (0.84, 1.14), [1.5, 2, 2.5, 3], [0.9, 1, 1.1],
              {"exit 1": (-4, 69, "center"), "exit 2": (0, 88, "center"), "all layers": (-10, -66, "left"), paper: (0, -86, "center"), tuned: (8, 62, "right")})

    parts = [f"`{data['target']}`: " + ", ".join(f"{label} MAT {p['mat']:.2f} {times(p['speedup'])}" for label, p in pipelines(data).items())
             for data in (target, medium)]
    return Plot(
        "S2D: speedup against MAT, by exit and threshold",
        [f"One draft with three exits, for two targets. Large: {prompts_of(target)}, with 95% intervals; "
         f"small: every candidate on {target['searches'][0]['development_prompts']} development prompts. S2D: the paper's thresholds, 0.5 0.5 0",
         f"{temperature(target).capitalize()}, {where(target, medium)}"],
        "Speedup against MAT of one early-exit draft on two targets. " + ". ".join(parts) + ".",
        34 + 330 + BARS_BELOW, draw)


@figure("hass_ablation", "hass_ablation_12")
def hass_ablation(wide, narrow):
    def name(pipeline):
        head = re.sub(r":.*", "", pipeline.removeprefix("hass:")).removeprefix("small-")
        more = ", 800 steps" if head.endswith("-800") else ""
        head = head.removesuffix("-800")
        if head == "start":
            return "EAGLE, before the 400 steps"
        if head == "eagle":
            return "EAGLE" + more
        n, k, w = re.fullmatch(r"n(\d)(?:-k(\d+))?-w([\d.]+)", head).groups()
        return f"{n} pass{'es' if n != '1' else ''}, " + (f"K = {k}, w = {w}" if k else "w = 0") + more

    tau = [{name(p["name"]): p["tau"] for p in data["pipelines"][1:]} for data in (wide, narrow)]
    labels = sorted(tau[0], key=lambda label: -tau[0][label])

    def draw(canvas):
        for i, (of, title, limits, ticks) in enumerate(zip(tau, ("tree of 60 nodes", "tree of 12 draft tokens"), ((5.2, 5.78), (4.3, 5.03)),
                                                           ([5.2, 5.4, 5.6], [4.4, 4.6, 4.8, 5.0]))):
            ax = canvas.axes(276 + i * 208, 28, 148, 28 * len(labels))
            canvas.rows(ax, labels if i == 0 else [""] * len(labels))
            ax.set_xlim(*limits)
            ax.set_xticks(ticks)
            base = of["EAGLE"]
            ax.axvline(base, color=SILVER, linewidth=1.3, linestyle=(0, (4, 3)))
            for y, label in enumerate(labels):
                colour = SILVER if label.startswith("EAGLE") else VIOLET
                ax.plot([base, of[label]], [y, y], color=colour, linewidth=2)
                ax.plot([of[label]], [y], "o", color=colour, markersize=8, markeredgewidth=0)
                beside(ax, max(of[label], base), y, f"{of[label]:.2f}", dx=9)
            ax.set_title(title, size=VALUE, color=INK, loc="left", pad=8)
            axis_name(ax, "tau, tokens per pass")

    return Plot(
        "HASS: tokens per pass by passes of alignment, K and w",
        [f"Heads of 328,000 parameters, each trained 400 more steps than one EAGLE head (800 where it says so)",
         f"Smaller target (medium), {temperature(wide)}, {wide['prompts']} prompts (GSM8K, HumanEval); 2026-11-22",
         "Dashed: EAGLE's head with 400 more steps. No intervals in the data; the axes do not begin at zero"],
        f"tau of HASS heads by their training, on a tree of 60 nodes and on one of 12 draft tokens: "
        + listed([f"{label} {tau[0][label]:.2f} and {tau[1][label]:.2f}" for label in labels]) + ".",
        28 + 28 * len(labels) + BARS_BELOW, draw)


@figure("paper_hass_t0", "paper_hass_t1")
def hass_gain(greedy, sampled):
    def gains(data):
        rows = pipelines(data)
        out = {}
        for label in rows:
            if label.startswith("HASS, "):
                shape = label.removeprefix("HASS, ")
                x = data["against"][rows[f"EAGLE, {shape}"]["name"]][rows[label]["name"]]
                out[shape] = [tuple(100 * (v - 1) for v in x[key]) for key in ("tau", "speed")]
        return out

    both = [gains(greedy), gains(sampled)]
    labels = list(both[0])

    def draw(canvas):
        limits = span([x for gain in both for of in gain.values() for x in of], 0)
        columns = [(f"{'tau' if key == 0 else 'speed'},\n{'greedy' if t == 0 else 'temperature 1'}", limits, 0, lambda v: f"{v:+.1f}%",
                    [both[t][label][key] for label in labels]) for t in (0, 1) for key in (0, 1)]
        cells(canvas, labels, columns, left=180, head=40)

    return Plot(
        "What HASS gains over EAGLE, by shape of the proposal",
        ["Ratios of tau (tokens per pass) and of speed on the same prompts, with 95% intervals; dashed: no gain",
         f"Greedy: {greedy['prompts']} prompts, {inputs_of(greedy)}; temperature 1: {sampled['prompts']} prompts, {inputs_of(sampled)}",
         f"The repository's target of 26 million parameters, GSM8K and HumanEval, 1 thread of an {greedy['run']['machine']['cpu']}; {commits(greedy, sampled)}"],
        "Gain of HASS over EAGLE in tau and in speed: " + "; ".join(
            f"{label}: greedy {both[0][label][0][0]:+.1f}% and {both[0][label][1][0]:+.1f}%, temperature 1 {both[1][label][0][0]:+.1f}% and "
            f"{both[1][label][1][0]:+.1f}%" for label in labels) + ".",
        40 + 38 * len(labels) + 14, draw)


@figure("paper_cape")
def cape(data):
    rows = pipelines(data)
    labels = list(rows)

    def draw(canvas):
        mats, speeds = ([bounds(rows[x], key) for x in labels] for key in ("mat", "speedup"))
        cells(canvas, [label.replace(", counts for this machine", ", tuned") for label in labels], [
            ("tokens per pass (MAT)", span(mats), None, lambda v: f"{v:.2f}", mats),
            ("draft tokens per pass", (0, 22), None, lambda v: f"{v:.1f}", [(rows[x]["mean_proposed"], None, None) for x in labels]),
            ("speedup", span(speeds, 1), 1, times, speeds)], left=150, head=28)

    return Plot(
        "CAPE, fixed widths and beams over GLIDE's draft",
        [f"With 95% intervals; {temperature(data)}, {prompts_of(data)}. Dashed: plain decoding",
         f"The repository's target of 26 million parameters, {where(data)}"],
        "Shapes over GLIDE's draft: " + "; ".join(f"{x}: MAT {rows[x]['mat']:.2f}, {rows[x]['mean_proposed']:.1f} draft tokens, {times(rows[x]['speedup'])}"
                                                  for x in labels) + ".",
        28 + 38 * len(labels) + 14, draw)


@figure("paper_asd_t0", "paper_asd_t02", "paper_asd_t06", "paper_asd_t1")
def asd(*runs):
    labels = list(pipelines(runs[0]))
    table = [(f"temperature {data['temperature']:.1g}", [bounds(pipelines(data)[x], "speedup") for x in labels]) for data in runs]

    def draw(canvas):
        cells(canvas, labels, [(title, span([v for _, of in table for v in of], 1), 1, times, values) for title, values in table], left=200, head=28)

    return Plot(
        "ASD: speedup by rules of skipping and temperature",
        ["The target with skipped layers as its own draft, with 95% intervals; orange: slower than plain decoding",
         f"{prompts_of(runs[0])}; model pack's target",
         where(*runs)],
        "Speedups of ASD over plain decoding at temperatures " + listed([f"{d['temperature']:.1g}" for d in runs]) + ": "
        + "; ".join(f"{x} {', '.join(times(values[i][0]) for _, values in table)}" for i, x in enumerate(labels)) + ".",
        28 + 38 * len(labels) + 14, draw)


def dumbbells(canvas, labels, columns, left, row, head):
    """Forecast and measurement side by side: of (title, limits, ticks, text, [(predicted, measured)])."""
    width = (WIDTH - left - 20 - 34 * (len(columns) - 1)) / len(columns)
    for i, (title, limits, ticks, text, values) in enumerate(columns):
        ax = canvas.axes(left + i * (width + 34), head, width, row * len(labels))
        canvas.rows(ax, labels if i == 0 else [""] * len(labels))
        ax.tick_params(axis="y", labelsize=SMALL)
        ax.set_xlim(*limits)
        ax.set_xticks(ticks, [text(t) for t in ticks])
        if limits[0] < 1 < limits[1]:
            ax.axvline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        for y, (predicted, measured) in enumerate(values):
            ax.plot([predicted, measured], [y, y], color=SILVER, linewidth=1.5)
            ax.plot([predicted], [y], "o", markerfacecolor="none", markeredgecolor=VIOLET, markersize=9, markeredgewidth=1.8)
            ax.plot([measured], [y], "o", color=BLUE, markersize=7, markeredgewidth=0)
        ax.set_title(title, size=VALUE, color=INK, loc="left", pad=8)


@figure("cascades_swi")
def cascades_swi(data):
    of = data["forecasts"]
    labels = [re.sub(r":limits=", ":\nlimits=", x["name"]) for x in of]

    def draw(canvas):
        dumbbells(canvas, labels, [
            ("SWI", (1.7, 3.7), [2, 2.5, 3, 3.5], lambda t: f"{t:g}", [(x["predicted"]["swi"], x["measured"]["swi"]) for x in of]),
            ("speedup, wall clock", (0.15, 1.25), [0.25, 0.5, 0.75, 1], times_short, [(x["predicted"]["speedup"], x["measured"]["speedup"]) for x in of]),
        ], left=232, row=42, head=28)

    return Plot(
        "Cascades tuned for SWI: forecasts and measurements",
        ["Violet rings: forecast from acceptance rates; blue dots: measured. SWI: speedup by counted calls, as if "
         "nodes were free; they are not on this machine, hence the speedups below plain decoding (dashed)",
         f"Smaller target (medium), {data['prompts']} prompts (GSM8K), {temperature(data)}, 1 thread, {inputs_of(data)}; no intervals in the data"],
        "SWI and speedup, predicted and measured, of pipelines tuned for SWI: "
        + "; ".join(f"{x['name']} SWI {x['predicted']['swi']:.2f} and {x['measured']['swi']:.2f}, speedup {times(x['predicted']['speedup'])} and "
                    f"{times(x['measured']['speedup'])}" for x in of) + ".",
        28 + 42 * len(of) + 34, draw)


def times_short(value):
    return f"{value:g}x"


# ---- a smaller target

@figure("greedy")
def speedup_medium(data):
    rows = sorted(((p["name"].replace("autoregressive", "plain decoding"), p["speedup"], None, None,
                    SILVER if p["name"] == "autoregressive" else shade(p["speedup"])) for p in data["pipelines"]), key=lambda r: -r[1])
    return Plot(
        "Speedup on a smaller target, whose weights are in the cache",
        [f"Target medium (6.3 million parameters): every node costs arithmetic. Orange: slower than plain decoding",
         f"{data['prompts']} prompts (GSM8K, HumanEval), {temperature(data)}, {data['threads']} thread of an AMD EPYC (Zen 4), {inputs_of(data)}",
         "2026-11-21; no intervals in the data"],
        f"Bar chart of the speedup over plain decoding by pipeline on a smaller target: " + listed([f"{n} {times(v)}" for n, v, *_ in rows]) + ".",
        30 * len(rows) + BARS_BELOW,
        lambda canvas: bars(canvas, rows, "tokens per second, over plain decoding's", left=316, reference=1, steps=[0, 0.5, 1, 1.5]))


@figure("llama_cpp_peers")
def llama_cpp(data):
    def name(program):
        program = re.sub(r" --spec-draft-n-max (\d)", r", \1 tokens", program)
        program = program.replace(" --lookup-cache-static", ", static cache").replace("specula-llama ", "")
        return program.replace("llama-completion", "plain decoding, llama-completion").replace("autoregressive", "plain decoding, specula")

    speeds = data["best"]["tokens_per_second"]
    rows = sorted(((name(p), v, None, None, BLUE if p.startswith("specula-llama") else VIOLET) for p, v in speeds.items()), key=lambda r: -r[1])

    def draw(canvas):
        canvas.text(12, canvas.top + 6, "specula", SMALL, BLUE, weight="bold")
        canvas.text(78, canvas.top + 6, "and", SMALL, MUTED)
        canvas.text(110, canvas.top + 6, "llama.cpp's own programs", SMALL, VIOLET, weight="bold")
        canvas.top += 20
        bars(canvas, rows, "tokens per second of decoding (dashed: llama.cpp's plain decoding)", unit="", digits=0, left=296, reference=speeds["llama-completion"],
             steps=[0, 500, 1000, 1500])

    both = {ours: [f"{n} {v:.0f}" for n, v, _, _, c in rows if (c == BLUE) == ours] for ours in (True, False)}
    return Plot(
        "Inside llama.cpp: specula and llama.cpp's own speculation",
        [f"The best settings of each, no intervals; {data['best']['tokens']:,} tokens, greedy, bfloat16 GGUF of medium and small",
         f"60 prompts (GSM8K, HumanEval), {data['threads']} threads of an AMD EPYC (AVX2), {data['engine'].split(',')[0].replace(' both sides', '')}; {data['date']}"],
        f"Tokens per second inside llama.cpp. specula: {listed(both[True])}. llama.cpp's own programs: {listed(both[False])}.",
        20 + 30 * len(rows) + BARS_BELOW, draw)


# ---- GPU

def device_of(data):
    return data["device"].split(",")[0]


def commit_of(data, counts):
    """Where and when, and what changed since."""
    return [f"{device_of(data)}, {data['date'][:10]}, commit {data['commit']}"] + (
        ["Our kernels have been rewritten since then and not been measured again"] if data["commit"] == counts["before"] else [])


def measured_bars(data, program):
    of = [next(iter(b.values())) for b in data[program].values() if isinstance(b, dict)]
    return {b["name"]: b for b in of if "us_first" in b}


def slower(bar):
    return max(bar["us_first"], bar["us_second"])


def us(value):
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


@figure("cuda_h100_bars", "cuda_h100_peers", "cuda_counts")
def verification_gpu(data, peers, counts):
    ours = measured_bars(data, "verification")
    ranges = {}  # name of ours -> peer, its kernel alone, all that the work needs
    names = {"B = 1, 4 drafts, all accepted": "B = 1, 4 drafts, rejection, cold", "B = 1, 4 drafts, alpha .7": "B = 1, 4 drafts, rejection, alpha .7",
             "B = 64, 4 drafts, all accepted": "B = 64, 4 drafts, rejection, all accepted",
             "B = 64, 4 drafts, alpha .7": "B = 64, 4 drafts, rejection, alpha .7",
             "top-p .95, B = 1, all accepted": "top-p .95: B = 1, 4 drafts, rejection",
             "top-p .95, B = 64, all accepted": "top-p .95: B = 64, 4 drafts, rejection"}
    for x in peers["verification"]:
        ranges[names[x["name"]]] = ("FlashInfer", x["chain_us"], x["verify_both_us"])
    for x in peers["trees"]:
        tree = "B = 1, 64-node tree" if x["name"] == "B = 1" else "B = 64, 64-node trees"
        ranges[f"{tree}, depth 6, sample-and-match"] = ("SGLang", x["kernel_us"], x["zeroed_us"])
    for x in peers["sampling"]:
        ranges[f"sample, {x['name']}"] = ("FlashInfer", x["probs_us"], min(x["softmax_us"], x.get("from_logits_us", x["softmax_us"])))
    order = sorted(ours, key=lambda n: (n not in ranges, n.startswith("sample"), "top-p" in n, "tree" in n, "B = 64" in n or "64 rows" in n))

    def shown(name):
        out = name.replace(", cold", ", all accepted").replace(" .", " 0.").replace(", 4 drafts", "").replace(", depth 6", "")
        if out.startswith("top-p 0.95: "):
            out = out.removeprefix("top-p 0.95: ") + ", top-p 0.95"
        return out.replace("64-node trees", "64 nodes").replace("64-node tree", "64 nodes")

    def draw(canvas):
        ax = canvas.axes(282, 34, WIDTH - 282 - 24, 36 * len(order))
        canvas.rows(ax, [shown(n) for n in order])
        ax.tick_params(axis="y", labelsize=VALUE)
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xlim(0.07, 6000)
        ax.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1000"])
        for y, name in enumerate(order):
            if name in ranges:
                _, alone, whole = ranges[name]
                ax.plot([alone, whole], [y + 0.2] * 2, color=ORANGE, linewidth=3, solid_capstyle="butt")
                ax.plot([alone, whole], [y + 0.2] * 2, "|", color=ORANGE, markersize=9, markeredgewidth=2)
            floor, mine = ours[name]["floor_us"], slower(ours[name])
            ax.plot([floor, mine], [y - 0.12] * 2, color=BLUE, linewidth=1)
            ax.plot([floor], [y - 0.12], "|", color=INK, markersize=12, markeredgewidth=2.4)
            ax.plot([mine], [y - 0.12], "o", color=BLUE, markersize=8, markeredgewidth=0)
            beside(ax, mine, y - 0.12, us(mine), BLUE, dx=8, dy=-2)
        canvas.text(232, canvas.top + 14, "| memory floor", SMALL, INK)
        canvas.text(348, canvas.top + 14, "specula", SMALL, BLUE, weight="bold")
        canvas.text(424, canvas.top + 14, "FlashInfer; for trees SGLang", SMALL, ORANGE, weight="bold")
        axis_name(ax, "microseconds (logarithmic)")

    return Plot(
        "Verification and sampling on a GPU",
        ["Vocabulary of 128,256, bf16 logits, 4 draft tokens or trees; B sequences. Floor: bytes needed at the copy's speed",
         "Peers: from their kernel alone, given probabilities, to all it needs from bf16 logits. SGLang's verifies by another rule",
         *commit_of(data, counts)],
        f"Times of verification and sampling kernels on one {device_of(data)} of {data['date'][:10]}, with the memory floor and peers, in microseconds: "
        + "; ".join(f"{shown(n)}: {us(slower(ours[n]))}, floor {us(ours[n]['floor_us'])}"
                    + (f", {ranges[n][0]} {us(ranges[n][1])} (kernel alone) to {us(ranges[n][2])}" if n in ranges else "") for n in order) + ".",
        34 + 36 * len(order) + BARS_BELOW, draw)


@figure("cuda_h100_bars", "cuda_h100_peers", "cuda_counts")
def attention_gpu(data, peers, counts):
    floors = measured_bars(data, "attention")
    rows = [(f"{x['nodes']} nodes, B = {x['batch']}, L = {x['context']}", x) for x in peers["attention"]]
    kinds = [("fa2_mask_us", "FlashInfer, custom mask", "v", ORANGE), ("xqa_us", "FlashInfer XQA", "s", PINK),
             ("fa2_merge_us", "FlashInfer, 3 launches", "^", GREEN), ("cudnn_merge_us", "cuDNN, 3 launches", "D", VIOLET)]

    def floor(name):
        return floors[f"{name}, mma.sync"]["floor_us"]

    def ours(x):
        return min(x["ours_mma_us"], x["ours_wgmma_us"])

    def draw(canvas):
        ax = canvas.axes(206, 62, WIDTH - 206 - 24, 34 * len(rows))
        canvas.rows(ax, [name for name, _ in rows])
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xlim(0.95, 7)
        ax.set_xticks([1, 1.5, 2, 3, 4, 6], ["1x", "1.5x", "2x", "3x", "4x", "6x"])
        ax.axvline(1, color=INK, linewidth=2)
        for y, (name, x) in enumerate(rows):
            for key, _, mark, colour in kinds:
                ax.plot([x[key] / floor(name)], [y + 0.12], mark, markerfacecolor="none", markeredgecolor=colour, markersize=7.5, markeredgewidth=1.8)
            ax.plot([ours(x) / floor(name)], [y - 0.05], "o", color=BLUE, markersize=9, markeredgewidth=0, zorder=4)
            beside(ax, ours(x) / floor(name), y - 0.05, times(ours(x) / floor(name)), BLUE, dx=0, dy=-12, ha="center", size=SMALL - 1)
        x0 = 24
        for line, parts in enumerate(([("specula, faster of 2 kernels", "o", BLUE, True)] + [(k[1], k[2], k[3], False) for k in kinds[:2]],
                                      [(k[1], k[2], k[3], False) for k in kinds[2:]])):
            x0 = 24
            for what, mark, colour, full in parts:
                canvas.page.add_artist(marker(x0 / WIDTH, 1 - (canvas.top + 9 + 22 * line) / canvas.height, mark, colour, full))
                t = canvas.text(x0 + 9, canvas.top + 14 + 22 * line, what, SMALL, colour)
                x0 += 9 + t.get_window_extent(canvas.page.canvas.get_renderer()).width + 22
        axis_name(ax, "time over the memory floor (logarithmic)")

    return Plot(
        "Tree attention on a GPU, over the memory floor",
        ["32 query heads on 8 KV heads of 128, bf16; B sequences with L tokens of context",
         "3 launches: an unmasked prefix, a masked tail, a merge (cuDNN's queries were packed beforehand)",
         *commit_of(data, counts)],
        f"Times of tree attention on one {device_of(data)} of {data['date'][:10]}, over the memory floor. specula: "
        + "; ".join(f"{name} {times(ours(x) / floor(name))}" for name, x in rows) + ". Peers: "
        + "; ".join(f"{label} {times(min(x[key] / floor(name) for name, x in rows))} to {times(max(x[key] / floor(name) for name, x in rows))}, slower than "
                    f"specula in {sum(x[key] > ours(x) for _, x in rows)} of {len(rows)}" for key, label, _, _ in kinds) + ".",
        62 + 34 * len(rows) + BARS_BELOW, draw)


def marker(x, y, mark, colour, full):
    from matplotlib.lines import Line2D
    return Line2D([x], [y], marker=mark, color=colour, markersize=8, markeredgewidth=0 if full else 1.8,
                  markerfacecolor=colour if full else "none", markeredgecolor=colour, linestyle="none")
