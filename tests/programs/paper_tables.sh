#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: paper_tables.sh SPECULA ROOT DATA
# scripts/paper_tables runs, resumes, and keeps the JSON of runs that it cannot measure; scripts/pages makes tables of it.
set -uo pipefail
specula=$1 root=$2 data=$3
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
[ -d "$data" ] || { echo 'SKIP: no data sets'; exit 77; }
[ -e "$root/examples/models/hass/config.json" ] || { echo 'SKIP: no model pack'; exit 77; }
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

mkdir "$scratch/models"
PYTHONDONTWRITEBYTECODE=1 python3 "$root/tests/support/tensors.py" "$root/examples/models" "$scratch/models"
tables=(python3 "$root/scripts/paper_tables" --specula "$specula" --data "$data" --variants "$scratch/none" --models "$scratch/models")
expect 0 '^usage: scripts/paper_tables' "${tables[@]}" --help
expect 1 "nothing is called 'poems'" "${tables[@]}" --only poems
expect 1 'quick measures nothing: it needs --out' "${tables[@]}" --quick
expect 0 '^glide, about 1 minutes' "${tables[@]}" --only glide --minutes 2 --list --out "$scratch/listed"
also "specula compare --models MODELS .*--limit 10 "
expect 1 'no prompts at .*nowhere' "${tables[@]}" --data "$scratch/nowhere"
expect 0 '^glide_t1, about 3 minutes' "${tables[@]}" --only glide_t1 --list --out "$scratch/listed"
if grep -q '^glide,' "$scratch/out"; then echo 'FAILED: a single run brings another'; failed=1; fi

# A training that was broken off has an export, too.
mkdir -p "$scratch/variants/glide-half" && ln -s "$scratch/models/glide" "$scratch/variants/glide-half/export"
touch "$scratch/variants/glide-half/checkpoint.pt"
half=("${tables[@]}" --variants "$scratch/variants" --only glide --list --out "$scratch/listed")
expect 0 'chain:5@small chain:5@glide --skip' "${half[@]}"
touch "$scratch/variants/glide-half/finished"
expect 0 'chain:5@small chain:5@glide chain:5@glide-half --skip' "${half[@]}"

quick=("${tables[@]}" --quick --out "$scratch/json")
expect 0 '^main: measured' "${quick[@]}" --only main,glide
also '^spec_bench: measured'
also '^glide_t1: measured'
expect 0 '^glide: up to date' "${quick[@]}" --only glide
also '^glide_t1: up to date'
expect 0 '^glide_t1: measured' "${quick[@]}" --only glide_t1 --again
expect 0 '"commit"' cat "$scratch/json/paper_glide.json"
also '"models": {'
if grep -q "$root\|$scratch" "$scratch"/json/*.json; then echo 'FAILED: a path of this machine is in a JSON'; failed=1; fi

# Without the models: the JSON is kept.
cp "$scratch/json/paper_glide.json" "$scratch/kept.json"
mkdir "$scratch/few" && ln -s "$scratch/models/target" "$scratch/models/small" "$scratch/few"
expect 0 "^glide: not measured: no model 'glide'.*; its JSON is kept" "${quick[@]}" --only glide --models "$scratch/few"
cmp "$scratch/json/paper_glide.json" "$scratch/kept.json" || failed=1
# So it is of drafts that are in no checkout, where the others of the run are there: for a target of the name, with none of them.
mkdir -p "$scratch/cache/specula"
expect 0 'bytes' "$specula" convert "$scratch/models/small" "$scratch/cache/specula/SmolLM2-135M-Instruct.Q4_1.gguf"
for run in heads public_glide_gsm8k_t0; do
  cp "$scratch/kept.json" "$scratch/json/paper_$run.json"
  expect 0 "^$run: not measured: .*; its JSON is kept" env XDG_CACHE_HOME="$scratch/cache" "${quick[@]}" --only $run
  cmp "$scratch/json/paper_$run.json" "$scratch/kept.json" || failed=1
done

# The pages.
tree=$scratch/tree
mkdir -p "$tree/docs" "$tree/examples" && cp "$root/README.md" "$tree" && cp -r "$root"/docs/. "$tree/docs" && cp -r "$root"/{include,CMakeLists.txt,LICENSE} "$tree"
cp -r "$root"/examples/{cuda,[0-9][0-9]_*.cpp} "$tree/examples"
(cd "$root" && cp --parents examples/models/*/MODEL_CARD.md tests/batch/recipes.cpp "$tree")
rm -f "$tree"/docs/benchmarks/paper_*.json
export SPECULA_ROOT=$tree SPECULA_INTERVALS=$scratch/intervals
pages=(python3 "$root/scripts/pages")
cp "$tree/docs/glide.md" "$scratch/before.md"
"${pages[@]}" >/dev/null  # nothing was measured: the existing tables are kept
cmp "$tree/docs/glide.md" "$scratch/before.md" || failed=1
expect 1 "docs/glide.md: the table 'paper_glide: .*' has no figures" "${pages[@]}" --check
cp "$root"/docs/benchmarks/paper_*.json "$tree/docs/benchmarks"
cp "$scratch"/json/paper_{main,glide,glide_t1}.json "$tree/docs/benchmarks"  # quick ones of others lack categories
# As if of the commit and processor of the runs beside which they stand in a table, which are others.
python3 - "$tree/docs/benchmarks" "$root/docs/benchmarks" <<'END'
import json, pathlib, sys
to, of = map(pathlib.Path, sys.argv[1:])
known = json.loads((to / "known.json").read_text())
for name in ("main", "glide", "glide_t1"):
    data = json.loads((to / f"paper_{name}.json").read_text())
    data["run"].update({key: json.loads((of / "paper_mt_bench.json").read_text())["run"][key] for key in ("commit", "machine")})
    (to / f"paper_{name}.json").write_text(json.dumps(data))
    known["runs"].pop(f"paper_{name}.json", None)
(to / "known.json").write_text(json.dumps(known))
END
expect 1 'pages differ' "${pages[@]}" --check
expect 0 'wrote docs/glide.md' "${pages[@]}"
"${pages[@]}" --check || failed=1
expect 0 '^| vanilla draft | `chain:5@small` |' cat "$tree/docs/glide.md"
also '(benchmarks/paper_glide.json)'
expect 0 '^| HASS, chain | .*x \[' cat "$tree/docs/benchmarks/README.md"
also '(paper_main.json)'
sed -i 's/^| vanilla draft | `chain:5@small` |/& 9.99/' "$tree/docs/glide.md"
expect 1 '9.99' "${pages[@]}" --check
sed -i 's/table: paper_glide: .* -->/table: paper: poems -->/' "$tree/docs/glide.md"
expect 1 'no such table: paper: poems' "${pages[@]}" --check
exit "$failed"
