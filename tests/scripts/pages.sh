#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: pages.sh ROOT
#
# The tables and programs of the pages are those of the JSON and of examples/, and scripts/pages --check detects differences.
# CITATION.cff and the badges have the version of the headers.
# Tables of the papers: tests/programs/paper_tables.sh.
set -euo pipefail
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
root=$1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
export SPECULA_INTERVALS=$copy/intervals  # drawn once, not forty times
python3 "$root/scripts/pages" --check

cp -r "$root/docs" "$root/README.md" "$copy"
cp -r "$root/include" "$copy"
mkdir "$copy/examples" && cp -r "$root"/examples/{cuda,[0-9][0-9]_*.cpp} "$copy/examples"
(cd "$root" && cp --parents examples/models/*/MODEL_CARD.md tests/batch/recipes.cpp "$copy")
export SPECULA_ROOT=$copy

# Most of the time is a start of scripts/pages: so several faults are looked for at once, which have nothing to do with each other.
saved=$copy/saved
save() { rm -rf "$saved" && mkdir "$saved" && cp -r "$copy"/{docs,README.md} "$saved"; }
restore() { rm -r "$copy"/{docs,README.md} && cp -r "$saved"/{docs,README.md} "$copy"; }
# edit FILE SED: which must change it.
edit() {
  cp "$copy/$1" "$copy/before"
  sed -i -E "$2" "$copy/$1"
  ! cmp -s "$copy/$1" "$copy/before" || { echo "error: $2 changes nothing in $1"; exit 1; }
}
# set_in FILE PYTHON: changes the JSON `x` of docs/benchmarks.
set_in() {
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts:$root/docs/figures python3 - "$copy/docs/benchmarks/$1" "$2" "$copy" <<'END'
import json, pathlib, sys
file, copy = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3])
x = json.loads(file.read_text())
exec(sys.argv[2])
file.write_text(json.dumps(x))
END
}
# refuses WHAT REGEX [WHAT REGEX]...: the check fails, and for each WHAT says a line with REGEX.
refuses() {
  local status=0
  python3 "$root/scripts/pages" --check >"$copy/said" 2>&1 || status=$?
  while [ $# -gt 0 ]; do
    if [ "$status" -ne 1 ] || ! grep -qE -- "$2" "$copy/said"; then
      cat "$copy/said"
      echo "error: not noticed: $1"
      exit 1
    fi
    shift 2
  done
}

# A page that differs from its sources: they changed, or it was edited.
edit docs/benchmarks/cuda_h200_bars.json 's/"us_first": 44.5673317,/"us_first": 54.5673317,/'
edit docs/cuda.md 's/\| max_gram, 8,192 tokens, 10 draft tokens, B = 64 \| 5.82 \|/| max_gram, 8,192 tokens, 10 draft tokens, B = 64 | 4.69 |/'
edit docs/benchmarks/README.md 's/( over plain \| rag -->)[0-9.]*x<!--/\19.99x<!--/'
for model in small base s2d; do edit examples/models/$model/MODEL_CARD.md 's/^(\| answers_gsm8k \|) 34.0%/\1 44.0%/'; done
set_in cuda_h200_sources.json '
from cuda_tables import digest
same = [name for name, measured in x["sha256"].items() if (copy / name).exists() and digest((copy / name).read_text()) == measured]
x["sha256"][same[0]] = 16 * "0"  # as if another one had been measured
(copy / "changed").write_text(same[0].replace("include/specula/", "").replace("cuda/", "", 1))'
edit examples/cuda/sample_and_verify.cu 's/emits/takes/'
edit README.md 's/^int main\(\) \{$/int main(int) {/'
edit tests/batch/recipes.cpp 's/Something urgent takes/Something urgent gets/'
edit docs/benchmarks/reported.json 's/"E\(speedup\)": 1.46/"E(speedup)": 1.56/'
set_in main_avx2.json 'next(p for p in x["pipelines"] if p["name"] == "chain:3@small")["new_tokens"] *= 10'
edit docs/choosing.md 's/(\| skipping layers [^|]*\| <!-- [^>]* -->)[0-9.]+x/\18.88x/'
refuses 'a figure that changed' '^\+.*\b54\.6\b' 'a figure typed into a page' '^-.* B = 64 \| 4\.69 \|' 'a figure within a sentence' '^-.*9\.99x' \
  'a card that says another share of the target than the page' '^\+.*of which the target wrote 7 tenths' \
  'a header that changed since it was measured' "^\\+.*\`$(cat "$copy/changed")\`" 'a program that changed' '^\+.*takes %d tokens' \
  'a program that was changed in the page' '^-int main\(int\)' 'a function that changed' '^\+.*Something urgent gets' \
  'a figure of a paper that changed' '^\+.*LLAMA-68m for Vicuna-7B .* E\(speedup\) 1.56 \|' \
  'a figure of ours that changed' '^\+.*the best fixed chain, by a search .* 18.60x \|' 'the same in a sentence' '^\+.*the best fixed chain, .*`chain:3@small`<.*>18.60x<.* \|' \
  'a figure typed into the decision table' '^-.*8\.88x'
python3 "$root/scripts/pages" >/dev/null
python3 "$root/scripts/pages" --check  # all that was noticed was written
[ "$(grep -c 'Something urgent gets' "$copy/docs/server.md")" = 1 ]
save

# Figures that are not there: what stands on the page is kept.
rm "$copy"/docs/benchmarks/{main_avx2,paper_spec_bench,paper_cape}.json
printf '\n<!-- table: paper_cape: shape = label | speedup -->\n<!-- end of table -->\n' >>"$copy/docs/llama_cpp.md"
python3 "$root/scripts/pages" >/dev/null
grep -q 'the best fixed chain, .*`chain:3@small`<.*>18.60x<.* |' "$copy/docs/choosing.md"
refuses 'a figure of the decision table that is not there' "^docs/choosing.md: 'main_avx2 / draft model, cost-aware / speedup' has no figures" \
  'a table without its figures' "^docs/methods.md: the table 'method: cost-aware' has no figures" \
  'a sentence without its figures' "^docs/benchmarks/README.md: 'paper_spec_bench \| Max-Gram \| tokens/s over plain \| rag' has no figures" \
  'an empty table' "^docs/llama_cpp.md: the table 'paper_cape: shape = label \| speedup' has no figures"
restore

# Runs: what is wrong with them is in known.json, or refused.
set_in paper_hass_t0.json 'x["run"]["commit"] += " and changes"'
set_in paper_asd_t0.json 'x["run"]["commit"] = "1234567 and changes"'
cp "$copy/docs/benchmarks/verification.json" "$copy/docs/benchmarks/poems.json"
set_in verification.json 'x["context"]["num_cpus"] += 1'
set_in paper_main.json '
search = next(s for s in x["searches"] if s["search"] == x["run"]["rows"]["Max-Gram"])
search["search"] = x["run"]["rows"]["Max-Gram"] = "chain:{1," + search["picked"].partition(":")[2].partition("@")[0] + "}@max-gram"'
refuses 'a run of changes that are in no commit' 'paper_hass_t0.json: measured with changes to ' \
  'another such run under the name of one that is known' 'paper_asd_t0.json: measured with changes to 1234567' \
  'a run of no commit' 'poems.json: it does not say which commit was measured' \
  'another run of no commit' 'verification.json: it does not say which commit was measured' \
  'a pick at an end of its grid' 'paper_main.json: picked at an end of its grid: `chain:'
restore
set_in paper_main.json 'x["run"]["commit"] = "1234567"'
set_in known.json '
x["runs"]["paper_asd_t1.json"]["faults"].append("it was measured on a Sunday")
x["runs"]["poems.json"] = {"run": "1234567, 2026-01-01", "faults": []}
del x["runs"]["paper_asd_t0.json"]'
refuses 'a list that was not mended with the run' 'known.json lists another run of paper_main.json' \
  'an entry that is not true' 'known.json lists of paper_asd_t1.json what is no longer so: it was measured on a Sunday' \
  'an entry of no run' 'known.json lists poems.json, which is not there' 'a fault that is not listed' 'paper_asd_t0.json: measured with changes to'
restore
grep -q 'Known faults of this run: measured with changes to' "$copy/docs/asd.md"
grep -q '^| \[paper_asd_t0.json\](paper_asd_t0.json) | measured with changes' "$copy/docs/benchmarks/README.md"

# A table is of one commit and processor, and no note has a program's error text.
set_in paper_mt_bench.json 'x["run"]["commit"] = "1234567"'
set_in paper_public_humaneval_t0.json 'x["run"]["machine"]["cpu"] = "a Z80"'
set_in paper_cape.json 'x["run"]["beside"] = "a program that ended with -8"'
set_in paper_hass_t0.json 'x["run"]["beside"] = "no rest. Missing: a model"'
refuses 'columns of several commits' "^docs/benchmarks/README.md: the table 'paper: by category' mixes commit 1234567 on " \
  'columns of several processors' "^docs/models.md: the table 'public: temperature 0' mixes commit " \
  'an error in a note' '^docs/glide.md: .*has the text of an error in its note: ended with -8' \
  'a note of what is missing' "^docs/hass.md: the table 'paper_hass_t0: .*has the text of an error in its note: Missing"
restore
set_in cuda_h200_bars.json 'x["commit"] = "1234567"'
python3 "$root/scripts/pages" >/dev/null
grep -q '| H200, 1234567: us |' "$copy/docs/cuda_performance.md"  # a column may say that it is of another commit
refuses 'columns of several commits on a GPU' "the table 'attention' mixes commit 1234567 on NVIDIA H200"
if grep "the table 'goals' mixes" "$copy/said"; then echo 'error: refused although the heads name the commits'; exit 1; fi
restore
set_in paper_public_chat_t0.json 'x["run"]["absent"] = ["GLIDE (no model: the file is no GGUF file)"]'
python3 "$root/scripts/pages" --check  # what could not be measured has no row, and no word in the note
restore

# "Within the noise" is said by an interval; figures are not typed into the prose and the tables of some pages.
printf '%s\n' 'Both are equally fast, within the noise of the machine.' 'The head is 1.31x as fast.' >>"$copy/docs/hass.md"
printf 'The gain is within\nits interval.\n' >>"$copy/docs/glide.md"
printf '\n| what | here |\n|---|---|\n| gain | +3 %% |\n' >>"$copy/docs/claims.md"
refuses 'noise without an interval' '^docs/hass.md: typed, not generated from a comparison: ' 'the same in other words, over two lines' '^docs/glide.md: typed' \
  'a typed speedup' '^docs/hass.md: a figure that is typed: ' 'a typed figure of ours in a table' '^docs/claims.md: a figure that is typed: '
restore
cat >>"$copy/docs/claims.md" <<'END'

## 2.5x

Brackets are 95% intervals. The paper has <!-- theirs: HASS, Table 2 -->3.24x<!-- end -->; `--share 3%` is code.

```sh
echo 3x
```

| what | paper |
|---|---|
| gain | +3% |
END
echo 'The head is 1.31x as fast.' >>"$copy/docs/llama_cpp.md"  # not such a page
python3 "$root/scripts/pages" --check
edit docs/claims.md 's/(<!-- theirs: HASS, Table 2 -->3.24x)<!-- end -->/\1/'
refuses 'half of a mark' '^docs/claims.md: half of a generated part: <!-- theirs: HASS, Table 2 -->'
restore
edit docs/hass.md 's/ \| tau against EAGLE, chain of 5 -->/ | tau against HASS, chain of 5 -->/'
refuses 'a comparison that was not made' 'does not compare HASS, chain of 5 with HASS, chain of 5 prompt by prompt'
restore
# Of times any two rows that have those of each prompt are compared, of counts only those that the run was asked to.
echo 'Rule 1: <!-- figure: paper_asd_public / rules 1 and 2 / speed against thresholding and rule 2 --><!-- end -->.' >>"$copy/docs/asd.md"
python3 "$root/scripts/pages" >/dev/null
grep -qE '^Rule 1: <!-- .* -->[-+][0-9.]+% \[' "$copy/docs/asd.md"
edit docs/asd.md 's/speed against thresholding and rule 2 -->/MAT against thresholding and rule 2 -->/'
refuses 'a comparison of counts that was not made' 'does not compare rules 1 and 2 with thresholding and rule 2 prompt by prompt'
restore
edit docs/glide.md 's/^(<!-- table: paper_glide: .*) \| E\(speedup\) \|/\1 | rhyme |/'
refuses 'a column of no figure' "docs/glide.md: no such figure: paper_glide: .*: nothing is called 'rhyme'"
restore

# c is one quantity for every kind of draft: the time of a draft token over that of a pass of the target, within the run.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts:$root/docs/figures python3 - "$copy" <<'END'
import json, pathlib, re, sys
docs = pathlib.Path(sys.argv[1], "docs")
data = json.loads((docs / "benchmarks/paper_glide.json").read_text())
plain, *drafted = data["pipelines"]
table = re.search(r"<!-- table: paper_glide: [^\n]*-->(.*?)<!-- end of table -->", (docs / "glide.md").read_text(), re.S)[1]
rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("|")]
column = rows[0].index("c")
for p in drafted:
    shown = next(row[column] for row in rows if row[2] == f"`{p['name']}`")
    c = p["draft_milliseconds_per_round"] / p["mean_proposed"] / plain["target_milliseconds_per_call"]
    assert abs(float(shown) - c) < 6e-4, (p["name"], shown, c)
END

# What the pages name in code spans is there: functions, types, options, files. Names of others are listed.
PYTHONDONTWRITEBYTECODE=1 python3 - "$root" <<'END'
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
theirs = set("""llama_set_adapters_lora llama_memory_ llama_state_ llama_memory_seq_keep --draft-max examples/speculative __threadfence compute_90 INT32_MAX
    BlockHistogram BlockScan WarpReduce WarpScan TreeSpeculativeSamplingTargetOnly top_p_renorm_probs RejectionSampler SpecDecodeWorker sample_tokens aux_hidden_states
    verify_draft_tokens num_speculative_tokens --speculative-config max_num_batched_tokens SinglePositionMultiTokenCandidateGenerator
    _plan YourDrafter my_sampler gsm8k/test humaneval/HumanEval reference""".split())  # in the last line, what stands for several, or for a reader's
files = [f for folder in ("include", "examples", "tools", "tests", "bench", "scripts", "cmake", "docs") for f in (root / folder).rglob("*") if f.is_file()]
files += [f for f in root.iterdir() if f.is_file()]
paths = {"/" + str(x) for f in files for x in (f.relative_to(root), *f.relative_to(root).parents)}
source = (".hpp .cpp .cuh .cu .h .c .py .sh .cmake .txt .json .in .rs .go .html").split()
text = "\n".join(f.read_text(errors="ignore") for f in files if (f.suffix in source or f.parent == root / "scripts") and f.parent.name != "benchmarks" and f.name != "pages.sh")
known, options = set(re.findall(r"\w+", text)), set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", text))
known |= {f.stem for f in files if f.suffix in source} | {f"bench_{f.stem}" for f in files if f.parent == root / "bench"}

def dead(page):
    """Names in the code spans of a page that are neither in the tree nor listed."""
    out = []
    for span in re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```|<!--.*?-->", "", page, flags=re.M | re.S)):
        names = re.findall(r"\b(\w+)\(\)", span) + [x for x in re.findall(r"\b[A-Za-z]\w*", span) if re.search("[a-z][A-Z]|_", x)]
        out += [x for x in names if x not in known] + [x for x in re.findall(r"(?<![\w-])--[a-z][\w-]*", span) if x not in options]
        for x in re.findall(r"(?<![\w/.~*-])(?:[\w.-]+/)+[\w.-]*(?![\w*.-])", span):
            x = re.sub(r"^\./", "", x).rstrip("/")
            if not x.startswith(("build/", "work/", "-I")) and not any(path.endswith("/" + x) for path in paths):
                out.append(x)
    return [x for x in out if x not in theirs]

assert set(dead("`SpeculatorX`, `Chain::length_of_old()`, `unspeculate()`, `--not-an-option 3`, `shape/gone.hpp`\n```\nNotHere\n```")) == {
    "SpeculatorX", "length_of_old", "unspeculate", "--not-an-option", "shape/gone.hpp"}
assert not dead("`Chain`, `shape/chain.hpp`, `--pipelines`, `docs/benchmarks/paper_*.json`")
sys.exit("\n".join(f"{page.relative_to(root)}: nothing is called {name}" for page in (root / "README.md", *sorted((root / "docs").rglob("*.md")))
                   for name in dict.fromkeys(dead(page.read_text()))) or None)
END

# Every table and figure of the papers that measures something has a row in docs/claims.md, and every row ends in one of five ways.
PYTHONDONTWRITEBYTECODE=1 python3 - "$root/docs/claims.md" <<'END'
import re, sys
ENDS = ("shown", "contradicted", "needs a GPU", "not here", "not shown")
OF = {"GLIDE with a CAPE": ("Table 1 2 3 4 5", "Figure 1b 4 5 6 7 8 9"), "Cascade Speculative Drafting": ("Table 1 2 3", "Figure 2 3"), "HASS": ("Table 1 2 3", "Figure 1 4 5"),
      "Sorted Speculative Decoding": ("Table 1 2 3 4 5", "Figure 2 3 4"), "Adaptive self-speculation": ("Table 1 3 4 5", "")}
wanted = {paper: {f"{kind} {number}" for kind, *numbers in (x.split() for x in of if x) for number in numbers} for paper, of in OF.items()}
assert sum(map(len, wanted.values())) == 35

def problems(page):
    out = []
    for paper, *body in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", page, re.M):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in re.sub("<!--.*?-->", "", body[0]).splitlines() if line.startswith("|")][2:]
        named = {f"{kind} {number}" for row in rows for kind, numbers in re.findall(r"(Table|Figure)s? (\w+(?: and \w+)?)", row[0]) for number in numbers.split(" and ")}
        out += [f"{paper}: {what} has no row" for what in sorted(wanted[paper] - named)] + [f"{paper}: there is no {what}" for what in sorted(named - wanted[paper])]
        for row in rows:
            end = re.match(r"\*\*(.*?)\*\*(.*)", row[4])
            if not end or end[1] not in ENDS:
                out.append(f"{paper}, {row[0]}: its end is none of five: {row[4]}")
            elif end[1] == "not shown" and not re.match(", (because|by the same cause)", end[2]) or end[1] in ("needs a GPU", "not here") and not end[2].startswith(": "):
                out.append(f"{paper}, {row[0]}: without the reason, or the experiment")
    return out

page = open(sys.argv[1]).read()
assert problems(page.replace("| Figure 7 |", "| Figure 77 |", 1)) == ["GLIDE with a CAPE: Figure 7 has no row", "GLIDE with a CAPE: there is no Figure 77"]
assert any("its end is none of five" in x for x in problems(page.replace("| **not shown**", "| **half shown**", 1)))
assert any("without the reason" in x for x in problems(page.replace("**not shown**, because", "**not shown**", 1)))
sys.exit("\n".join(problems(page)) or None)
END

# A speedup over all prompts is a ratio of times, each weighted by the tokens written. With the time of each prompt it has an interval.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts:$root/docs/figures python3 - <<'END'
from figures import over_all, speedup_over_all

def row(prompts, timed):
    tokens, seconds = (sum(x) for x in zip(*prompts))
    sums = {"new_tokens": tokens, "target_calls": 10, "target_milliseconds_per_call": 1e3 * seconds / 10 * 0.6, "draft_milliseconds_per_round": 1e3 * seconds / 10 * 0.3,
            "overhead_share": 0.1}
    return sums | ({"by_prompt": prompts} if timed else {})

plain, own = [[100, 2.0], [100, 2.0], [20, 0.4]], [[100, 1.0], [50, 1.0], [20, 0.1]]
for timed in (False, True):
    a, b = row(plain, timed), row(own, timed)
    assert abs(over_all([(a, b)])[0] - (4.4 / 220) / (2.1 / 170)) < 1e-9  # the mean of the prompts' ratios would be 2.33
    assert abs(over_all([(a, b), (a, row(own[:1], timed) | ({"by_prompt": own} if timed else {}))])[0] - (4.4 / 220) / ((2.1 if timed else 1.55) / (170 if timed else 135))) < 1e-9
assert over_all([(row(plain, False), row(own, False))])[1:] == (None, None) and speedup_over_all((row(plain, False), row(own, False))) == "1.62x"
value, low, high = over_all([(row(plain, True), row(own, True))])
assert 1 <= low < value < high <= 4 and over_all([(row(plain, True), row(own, True))]) == (value, low, high)
twice = [[n, 2 * s] for n, s in own]
assert all(abs(x - 2) < 1e-9 for x in over_all([(row(twice, True), row(own, True))]))  # paired: the same prompts of both
END

# What a run calls speedup: today that, with the rates beside it; in older runs those, which is all that their groups of prompts have.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts:$root/docs/figures python3 - <<'END'
from figures import OF_RATES, as_counted, rates, speedup_of, table
group = {"speedup": 2.0, "intervals": {"speedup": (1.5, 2.5)}}
assert as_counted(group) == (OF_RATES, (2.0, 1.5, 2.5)) and rates(group) == (2.0, 1.5, 2.5)
now = group | {"tokens_per_second_over_plain": 3.0}
assert as_counted(now)[0] == "speedup" and speedup_of({}, now) == (2.0, 1.5, 2.5) and rates(now)[0] == 3.0
try:
    speedup_of({}, group)
except ValueError as reason:
    assert OF_RATES in str(reason)
else:
    raise SystemExit("a group of an older run has a speedup")
assert table(["speedup [95%]", "MAT [95%]"], [["2.00x", "3.00 [2.00, 4.00]"]])[0] == "| speedup | MAT [95%] |"
END

# Which picks are at an end.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts:$root/docs/figures python3 - <<'END'
from runs import at_ends
assert at_ends("chain:{2..10}@small", "chain:10@small") == ["{2..10}"] and at_ends("chain:{2..10}@small", "chain:2@small") == ["{2..10}"]
assert at_ends("chain:{1..10}@small", "chain:1@small") == []  # no shorter chain
assert at_ends("cape:{3,4,5}:fixed={1,2,3}@glide", "cape:4:fixed=1@glide") == ["{1..3}"]  # without any it is a chain
assert at_ends("cape:{3,4,5}:counts={2-1-0-0,1-0-0-0,0-0-0-0}@glide", "cape:4:counts=0-0-0-0@glide") == []
assert at_ends("chain:{2,3,4}:exits={0.5,0.7,2}-{0,0.5,0.9}@s2d", "chain:3:exits=2-0@s2d") == []
assert at_ends("chain:{2,3,4}:exits={0.5,0.7,2}-{0,0.5,0.9}@s2d", "chain:3:exits=0.5-0.9@s2d") == ["{0.5..2}", "{0..0.9}"]
assert at_ends("cascade:limits={2,4,8}-{0,2,4}-{1,2,4}@a,b", "cascade:limits=4-2-1@a,b") == ["{1..4}"]
assert at_ends("chain:{3}@small", "chain:3@small") == []  # no search
END

version=$(sed -n 's/^#define SPECULA_VERSION_[A-Z]* //p' "$root/include/specula/version.hpp" | paste -sd.)
grep -qx "version: $version" "$root/CITATION.cff"

# badge NAME WORDS: the README's badge says what the sources say.
badge() { grep -q "<title>$1: $2</title>" "$root/docs/pictures/badge_$3.svg" || { echo "error: badge_$3.svg does not say $2"; exit 1; }; }
badge version "$version" version
badge C++ "$(sed -n 's/.*cxx_std_\([0-9]*\).*/\1/p' "$root/CMakeLists.txt" | head -n 1)" cpp
badge license "$(sed -n 's/ License$//p' "$root/LICENSE" | head -n 1)" license
badge compilers "$(sed -n 's/.*g++ \([0-9]*\) or clang \([0-9]*\).*/g++ \1+, clang \2+/p' "$root/docs/support.md" | head -n 1)" compilers
badge CUDA "$(sed -n 's/.*\(sm_[0-9]*\) (Ampere) and later.*/\1+/p' "$root/docs/support.md" | head -n 1)" cuda
