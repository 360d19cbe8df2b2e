# SPDX-License-Identifier: MIT
"""Runs of scripts/paper_tables. A Run is one call of `specula compare`; its JSON is docs/benchmarks/paper_NAME.json."""
import dataclasses
import json
import re

# Development prompts of each file of SEARCHED; runs without a search leave the same ones out, so that no run reports a prompt that
# another one has searched on. (None of them is among Spec-Bench's questions, of which 80 are GSM8K's.)
DEV = 6
SEARCHED = ("gsm8k", "humaneval")
FILES = {"gsm8k": "gsm8k/test.jsonl", "humaneval": "humaneval/HumanEval.jsonl", "mt_bench": "mt_bench/question.jsonl",
         "spec_bench": "spec_bench/question.jsonl"}
LENGTHS = (30, 80, 160, 320, 640, 1200)  # words
KINDS_OF_LENGTHS = ("summaries of", "chat behind")


def prompts_by_length(data, words):
    """Prompts of two kinds and several lengths: requests for summaries of so many words, and questions that so many words of
    something else stand before. What differs by the kind is not the length's doing."""
    lines = [json.loads(line) for line in (data / FILES["spec_bench"]).read_text().splitlines()]
    articles = [line["turns"][0].partition(":")[2].split() for line in lines if line["category"] == "summarization"]
    questions = [line["turns"][0] for line in lines if line["category"] in ("writing", "stem", "humanities")][::2]

    def cut(first):
        return " ".join(sum(articles[first:first + 8], [])[:words])
    return ([{"category": f"{KINDS_OF_LENGTHS[0]} {words} words", "turns": [f"Summarize: {cut(3 * i)}"]} for i in range(len(questions))] +
            [{"category": f"{KINDS_OF_LENGTHS[1]} {words} words", "turns": [f"{cut(2 * i + 40)}\n\n{question}"]} for i, question in enumerate(questions)])


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
    temperature: float = 0
    seed: int = 1
    costs: tuple = ()
    search_for: str = "time"
    by_category: bool = False
    categories: str = ""
    target: str = "target"
    pack: str = ""        # smollm2: that model and its drafts
    rows_of: str = ""     # take the rows of this run, its picks instead of its searches
    options: tuple = ()   # of `specula compare`, besides
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
    "best chain of small": "chain:{4,6,8,10,12,15,20,30}@small",
    "best chain of base": "chain:{4,6,8,10,12,15,20,30}@base",
    "Max-Gram alone": "chain:30@max-gram",
    "best cascade of base and small": "cascade:limits={2,4,6,8,12}-{0,4,8,12,16}-{0,1,2,4}@base,small",
    "best cascade of small and Max-Gram": "cascade:limits={1,2,4,8}-30-{0,1,2,4,10}@small,max-gram",
    "best cascade of base and Max-Gram": "cascade:limits={1,2,4,8}-30-{0,1,2,4,10}@base,max-gram",
    # Those of base and Max-Gram are among these, without small: limits=A-0-30-0-B-4.
    "best cascade of all three": "cascade:limits={1,2,4,8}-0-30-{0,1,2}-{0,1,2,4,10}-4@base,small,max-gram",
}
# One neural draft over Max-Gram, on a decoder alone (Table 3): the draft's parameters over the target's.
PARAMETERS = "parameters:plain=0.023,max-gram=0"
PUBLIC_CASCADES = {
    "best chain of the plain draft": "chain:{2,3,4,6,8,10,12}@plain",
    "Max-Gram alone": "chain:30@max-gram",
    "best cascade of both": "cascade:limits={1,2,3,4,6,8}-30-{0,1,2,4}@plain,max-gram",
}
# A review is worth saving where the reviewer is dear: SmolLM2's head, beside its plain draft.
LENIENCE = {f"lenience {n}": f"cascade:limits=4-1-3:lenience={n}@hass,plain" for n in (1, 3, 10)}
# Trees of 20 draft tokens.
RULES = {
    "chain, rejection": "chain:4:draw=sampled:rule=token",
    "chain, block": "chain:4:draw=sampled",
    "chain, shared noise": "chain:4:draw=shared",
    "chain, argmax": "chain:4",
    "chain, cost-aware": "cost-aware:chain:draw=sampled",
    "tree, rejection": "sampled-tree:rule=token",
    "tree, traversal": "sampled-tree",
    "independent tree, k-SEQ": "sampled-tree:draw=iid:rule=k-seq",
    "independent tree, traversal": "sampled-tree:draw=iid",
}

# Where a pass waits, nodes cost nothing: chains of all lengths, and the shapes that the papers give such machines.
FAR_TREES = {"tree of 11": "dynamic-tree:3:3:11", "tree of 23": "dynamic-tree:6:5:23", "tree of 60": "dynamic-tree:10:5:59"}
FAR = {
    **{f"{draft}, chain of {n}": f"chain:{n}@{draft}" for draft in ("small", "base", "glide", "eagle", "hass") for n in (4, 6, 8, 12, 16, 24, 32)},
    **{f"{draft}, {tree}": f"{shape}@{draft}" for draft in ("small", "eagle", "hass") for tree, shape in FAR_TREES.items()},
    **{f"{draft}, CAPE, {counts}": f"cape:4:counts={counts.replace(' ', '-')}@{draft}" for draft in ("small", "glide") for counts in ("7 5 3 1", "2 1 1 0")},
    "base, cascade with Max-Gram": "cascade:limits=2-30-1@base,max-gram",
    "base, cascade with small and Max-Gram": "cascade:limits=4-0-30-1-4-4@base,small,max-gram",
}


def heads(chain):
    """Trees of 60, 24 and 12 nodes (the root among them) and chains, of both heads."""
    shapes = {"60 nodes, depth 6": "dynamic-tree:10:5:59", "24 nodes, depth 6": "dynamic-tree:6:5:23", "12 nodes, depth 5": "dynamic-tree:4:4:11",
              "EAGLE's static tree": "static-tree", "chain of 5": chain}
    return {f"{head}, {name}": f"{shape}@{head.lower()}" for head in ("HASS", "EAGLE") for name, shape in shapes.items()}


def asd_rows():
    return {
        "thresholding alone": "adaptive-chain:end=paper:every=0:last=0@layer-skip",
        "thresholding and rule 2": "adaptive-chain:end=paper:every=0@layer-skip",
        "rules 1 and 2": "adaptive-chain:end=paper:alike=2@layer-skip",
        "all rules (the paper's)": "adaptive-chain:end=paper@layer-skip",
        "every 2nd, rules 1 and 2": "adaptive-chain:end=paper:alike=2:every=2@layer-skip",
        "given blocks": "adaptive-chain:end=paper:attention=3-5-7-9-11-13:mlp=3-5-7-9-11-13@layer-skip",
    }


def asd_public_rows():
    """The same on 30 layers: the paper's threshold, and the one that is found for this model."""
    rows = {label: spec for label, spec in asd_rows().items() if label != "given blocks"}
    found = "alike={0.985,0.99,0.993,0.996,0.998,2}"
    return {**rows, "thresholding and rule 2, threshold found": f"adaptive-chain:end=paper:every=0:{found}@layer-skip",
            "all rules, threshold found": f"adaptive-chain:end=paper:{found}@layer-skip"}


# SmolLM2 with its drafts (examples/smollm2, and those of tools/train/smollm2_drafts.sh that are not there), one run for
# each set of prompts, so that each can be resumed. Counts do not depend on what else runs; times do.
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
PUBLIC_SETS = {"gsm8k": ("gsm8k", ""), "humaneval": ("humaneval", ""), "chat": ("mt_bench", ""), "summaries": ("spec_bench", "summarization"),
               "retrieval": ("spec_bench", "rag")}
PUBLIC_COUNTS = {
    "Max-Gram": "chain:4@max-gram",
    "plain draft": "chain:4@plain",
    "plain draft, exit 1": "chain:4:exits=0@plain",
    "plain draft, exit 2": "chain:4:exits=2-0@plain",
    "S2D, 0.5 0.5": "chain:4:exits=0.5-0.5@plain",
    "HASS": "chain:4@hass",
    "HASS, tree": "dynamic-tree:6:5:23@hass",
    "EAGLE": "chain:4@eagle",
    "EAGLE, tree": "dynamic-tree:6:5:23@eagle",
}
PUBLIC_GLIDE = {
    "plain draft": "chain:4@plain",
    "plain draft, exit 1": "chain:4:exits=0@plain",
    "GLIDE": "chain:4@glide",
    "without cross attention": "chain:4@glide-control",
    "CAPE": "cape:4:counts=2-1-1-0@glide",
}
# Heads of speculators' trainer (docs/heads.md), in build/smollm2, where tests/cpu/eagle3/speculators_heads.py says.
HEADS = {f"{what}, {shape}": f"{spec}@{head}" for what, head in (("EAGLE-3", "eagle3"), ("fc_norm and norm_output", "eagle31"))
         for shape, spec in (("chain of 1", "chain:1"), ("chain of 2", "chain:2"), ("cost-aware", "cost-aware:chain:8"))}
PUBLIC_TIMES = {
    "plain draft": "chain:3@plain",
    "plain draft, cost-aware": "cost-aware:chain:8@plain",
    "HASS, cost-aware": "cost-aware:chain:6@hass",
    "Max-Gram, cost-aware": "cost-aware:chain:10@max-gram",
    "plain draft or copies": "cost-aware:chain:8@plain,max-gram",
    "HASS or copies": "cost-aware:chain:6@hass,max-gram",
}


LENGTH_ROWS = {"plain draft": "chain:3@plain", "HASS": "chain:3@hass", "GLIDE": "chain:3@glide", "copies": "chain:3@max-gram"}
BETTER = ("plain draft, cost-aware", "Max-Gram, cost-aware")  # what their stack is compared with


def sampled(rows):
    """Chains whose draft tokens are drawn, for temperatures above 0."""
    return {label: re.sub(r"(chain(:\d+)?)(?=.*@(?!max-gram))", r"\1:draw=sampled", spec) for label, spec in rows.items()}


def public(name, minutes, rows, limit, repeat, variants={}, needed=(), **more):
    """A section on SmolLM2: a run for each set and temperature. Rows may be missing, but for those that are `needed`."""
    return [Run(f"{name}_{what}_t{t}", minutes, sampled(rows) if t else rows, variants=sampled(variants) if t else variants,
                optional=tuple(label for label in rows if label not in needed), temperature=t, target=SMOLLM2, pack="smollm2", prompts=(file,),
                limit=-(-limit // 8) if what == "chat" else limit, by_category=what == "chat", repeat=repeat, tokens=96, categories=categories, **more)
            for t in (0, 1) for what, (file, categories) in PUBLIC_SETS.items()]


# The folder is what `specula convert` makes of the file, as build/smollm2/target.
COPIES = {"copies, cost-aware": "cost-aware:chain:10@max-gram", "Max-Gram": "chain:4@max-gram"}
CHATS = "writing,roleplay,reasoning,math,coding,extraction,stem,humanities,summarization"
# Grids reach beyond what was picked before on either side: scripts/pages refuses a new run whose pick is at an end of its grid.
MAIN = {
    "HASS, chain": "chain:{2..8}@hass",
    "HASS, tree": "dynamic-tree:{2,3,4,6}:{2,3,4,5}:{4,6,8,12}@hass",
    "HASS, cost-aware": "cost-aware:chain@hass",
    "EAGLE, chain": "chain:{2..8}@eagle",
    "GLIDE, chain": "chain:{2..8}@glide",
    "GLIDE with CAPE": "cape:{3,4,5,6}:counts={4-2-1-0,3-2-1-0,2-1-0-0,1-1-0-0,1-0-0-0,0-0-0-0}@glide",
    "draft model, chain": "chain:{2..10}@small",
    "draft model, cost-aware": "cost-aware:chain@small",
    "cascade": "cascade:limits={0,1,2,3,4}-{2,4,6,8,10}-{1,2,3,4}@base,small",
    "S2D": "chain:{4,6,8,10,12}:exits={0.7,0.9,2}-{0.5,0.7,0.9,2}@s2d",
    "every 2nd layer skipped": "adaptive-chain:{1,2,3,4}:end=paper:alike=2:every=2@layer-skip",
    "Max-Gram": "chain:{2,3,4,6,8,10}@max-gram",
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
        Run("glide", 3, {"vanilla draft": "chain:5@small", "GLIDE": "chain:5@glide"}, against=("vanilla draft",),
            variants={"*": "chain:5@*"}),
        Run("glide_t1", 3, {"vanilla draft": "chain:5:draw=sampled@small", "GLIDE": "chain:5:draw=sampled@glide"}, temperature=1,
            against=("vanilla draft",), variants={"*": "chain:5:draw=sampled@*"}),
    ],
    "cape": [
        Run("cape", 10, {
            "chain of 4": "chain:4@glide",
            "best chain": "chain:{2..8}@glide",
            "CAPE, 7 5 3 1": "cape:4@glide",
            "CAPE, counts for this machine": f"cape:{{2,3,4,5,6}}:counts={CAPE_COUNTS}@glide",
            "fixed K = 4": "cape:4:fixed=4@glide",
            "best fixed K": "cape:{2,3,4,5}:fixed={0,1,2,3}@glide",
            "beam 4": "beam:4:4@glide",
            "beam 8": "beam:8:4@glide",
        }, optional=("CAPE, counts for this machine",), against=("chain of 4", "best chain")),
    ],
    "cascades": [
        Run("cascades_ms", 10, CASCADES, costs=(MS, PW), search_for="MS", repeat=1, limit=8,
            against=("best chain of base", "best cascade of base and Max-Gram")),
        Run("cascades_pw", 10, CASCADES, costs=(MS, PW), search_for="PW", repeat=1, limit=8,
            against=("best chain of base", "best cascade of base and Max-Gram")),
        Run("cascades_public", 20, PUBLIC_CASCADES, costs=(PARAMETERS,), search_for="parameters", prompts=("gsm8k",), limit=30, repeat=1, tokens=96,
            target="SmolLM2-135M-Instruct.Q4_1.gguf", pack="smollm2", against=("best chain of the plain draft",)),
        Run("lenience", 6, {"chain of hass": "chain:4@hass", "chain of plain": "chain:4@plain", **LENIENCE}, repeat=1, limit=8, tokens=96,
            target=SMOLLM2, pack="smollm2", against=("chain of hass", "lenience 1")),
    ],
    "far": [Run("far", 15, FAR, repeat=1, limit=20)],
    "rules": [Run("rules", 5, RULES, temperature=0.8, repeat=1, limit=50, against=("chain, rejection", "tree, rejection", "independent tree, k-SEQ"))],
    "s2d": [
        Run("s2d_target", 8, {
            "exit 1": "chain:{1..5}:exits=0@s2d",
            "exit 2": "chain:{1..5}:exits=2-0@s2d",
            "all layers": "chain:{1..5}:exits=2-2@s2d",
            "S2D, 0.5 0.5 0 (the paper's)": "chain:3:exits=0.5-0.5@s2d",
            "S2D, thresholds for this target": f"chain:{{1..4}}:exits={THRESHOLDS}@s2d",
        }, against=("exit 1", "all layers"), variants={"*, exits": "chain:3:exits=0.5-0.5@*", "*, all layers": "chain:3@*"}),
    ],
    "asd": [Run(f"asd_t{str(t).replace('.', '')}", 4, asd_rows(), optional=("given blocks",), temperature=t, limit=15)
            for t in (0, 0.2, 0.6, 1)] + [
        Run("asd_public", 30, asd_public_rows(), limit=15, repeat=1, tokens=96, target=SMOLLM2, pack="smollm2", against=("thresholding alone",),
            options=("--find-blocks",))],
    "smollm2": [Run("smollm2", 12, COPIES, target=SMOLLM2, pack="smollm2", prompts=("spec_bench",), limit=10, by_category=True, categories=CHATS)] + [
        Run(f"smollm2_{weights}{kind}", 2, COPIES, target=target, pack="smollm2", prompts=("spec_bench",), limit=5, repeat=1, by_category=True,
            categories="summarization", options=("--weights", weights)) for weights in ("bf16", "full") for kind, target in (("", "target"), ("_gguf", SMOLLM2))],
    "public": public("public", 8, PUBLIC_TIMES, limit=15, repeat=3, against=BETTER),
    "public_avx2": public("public_avx2", 6, {label: PUBLIC_TIMES[label] for label in (*BETTER, "plain draft or copies")}, limit=15, repeat=3, against=BETTER,
                          options=("--isa", "avx2")),
    "public_counts": public("public_counts", 25, PUBLIC_COUNTS, limit=60, repeat=1, variants={"*": "chain:4@*"},
                            against=("EAGLE", "EAGLE, tree", "control-1", "plain draft, exit 1", "plain draft")),
    "public_glide": public("public_glide", 8, PUBLIC_GLIDE, limit=60, repeat=1, needed=("GLIDE", "CAPE"), against=("without cross attention", "plain draft, exit 1", "GLIDE")),
    "heads": [Run("heads", 8, HEADS, optional=tuple(HEADS), prompts=("gsm8k", "mt_bench"), limit=15, tokens=96, target=SMOLLM2, pack="smollm2")],
    "public_lengths": [Run("public_lengths", 15, LENGTH_ROWS, optional=("GLIDE",), prompts=("lengths",), limit=15, repeat=1, tokens=64,
                           by_category=True, target=SMOLLM2, pack="smollm2")],
    "hass": [Run(f"hass_t{t}", 9, heads("chain:5" if t == 0 else "chain:5:draw=sampled"), temperature=t, limit=20,
                 optional=("HASS, EAGLE's static tree", "EAGLE, EAGLE's static tree"),
                 against=tuple(x for x in heads("chain:5") if x.startswith("EAGLE,")),
                 variants={"*, 60 nodes": "dynamic-tree:10:5:59@*", "*, 12 nodes": "dynamic-tree:4:4:11@*"} if t == 0 else {})
             for t in (0, 1)],
}
VARIANTS = {"glide": ("glide-", "vanilla-"), "hass": ("hass-", "eagle-"), "s2d": ("s2d-",), "public_counts": ("hass-", "control")}  # of which models of build/variants a section has rows
