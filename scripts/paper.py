"""Runs of scripts/paper_tables. A Run is one call of specula-compare; its JSON is docs/benchmarks/paper_NAME.json."""
import dataclasses

# Development prompts of each file of SEARCHED; runs without a search leave the same ones out, so that no run reports a prompt that
# another one has searched on. (None of them is among Spec-Bench's questions, of which 80 are GSM8K's.)
DEV = 6
SEARCHED = ("gsm8k", "humaneval")
FILES = {"gsm8k": "gsm8k/test.jsonl", "humaneval": "humaneval/HumanEval.jsonl", "mt_bench": "mt_bench/question.jsonl",
         "spec_bench": "spec_bench/question.jsonl"}


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
        Run("cascades_ms", 10, CASCADES, costs=(MS, PW), search_for="MS", repeat=1, limit=8,
            against=("best chain of base", "best cascade of base and Max-Gram")),
        Run("cascades_pw", 10, CASCADES, costs=(MS, PW), search_for="PW", repeat=1, limit=8,
            against=("best chain of base", "best cascade of base and Max-Gram")),
        Run("cascades_lenience", 1, {"chain of medium": "chain:medium:4", "chain of small": "chain:small:10", **LENIENCE}, repeat=1, limit=8,
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
