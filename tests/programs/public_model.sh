#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: public_model.sh SPECULA ROOT DATA
# scripts/public_model measures the pack's target, goes on where it was interrupted, ends where an engine fails;
# scripts/pages makes a table of it.
set -uo pipefail
specula=$1 root=$2 data=$3
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
[ -d "$data" ] || { echo 'SKIP: no data sets'; exit 77; }
[ -e "$root/examples/models/small/config.json" ] || { echo 'SKIP: no model pack'; exit 77; }
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

model=(python3 "$root/scripts/public_model" --specula "$specula" --data "$data")
expect 0 '^usage: scripts/public_model' "${model[@]}" --help
expect 1 'quick measures nothing: it needs --out' "${model[@]}" --quick
expect 1 'no mt_bench/question.jsonl in .*/nowhere' "${model[@]}" --quick --out "$scratch/json" --data "$scratch/nowhere"
expect 0 '^left: native:1 0 of 1 rounds. The same command goes on' "${model[@]}" --quick --out "$scratch/json" --minutes 0.000001
also 'no round is complete yet: nothing is written'
[ ! -e "$scratch/json/public_model.json" ] || { echo 'FAILED: a round that has no cells was written'; failed=1; }
expect 0 '^native:1/0/specula/q4_1: plain .* ms, chain:4@small .* ms' "${model[@]}" --quick --out "$scratch/json"
also '^native:1/0/specula/q4_1/60: [0-9]* tokens in .* s'
expect 0 '"native:1": 1' cat "$scratch/json/public_model.json"
also '"commit"'
if grep -q "$root\|$scratch" "$scratch"/json/public_model.json; then echo 'FAILED: a path of this machine is in the JSON'; failed=1; fi
python3 - "$scratch"/json/cells_*.json <<'END'
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
done = json.loads(file.read_text())
del done["cells"]["native:1/0/specula/q4_1"]  # as if it had been interrupted
file.write_text(json.dumps(done))
END
expect 0 '^native:1/0/specula/q4_1: ' "${model[@]}" --quick --out "$scratch/json"
never 'q4_1/60'
expect 0 '^native:1/0/specula/q4_1/60: ' "${model[@]}" --quick --out "$scratch/json" --again
never '^left'
printf '#!/bin/sh\necho "specula compare: no target" >&2\nexit 2\n' >"$scratch/broken"
chmod +x "$scratch/broken"
expect 1 '^native:1/0/specula/q4_1/60: public_model: specula compare: no target (exit code 2)' "${model[@]}" --quick --out "$scratch/missing" --specula "$scratch/broken"

# The pages: of this run, and of one with another engine, which had no text of one kind.
tree=$scratch/tree
export SPECULA_INTERVALS=$scratch/intervals
mkdir -p "$tree/docs/benchmarks" && cp "$root"/docs/benchmarks/*.json "$tree/docs/benchmarks"
printf '<!-- table: beside others: %s -->\n<!-- end of table -->\n' 'front page' >"$tree/README.md"
printf '<!-- table: beside others: %s -->\n<!-- end of table -->\n' 'native, 1' gains reading >"$tree/docs/models.md"
sed 's/ and changes//' "$scratch/json/public_model.json" >"$tree/docs/benchmarks/public_model.json"
expect 0 '^wrote docs/models.md' env SPECULA_ROOT="$tree" python3 "$root/scripts/pages"
expect 0 '^| specula | Q4_1 | plain | [0-9]* | [0-9]* | [0-9]* | [0-9]* | [0-9]* |  |  |$' cat "$tree/docs/models.md"
also '^| specula | Q4_1 | `chain:4@small` | .* | 4 of 4 |  |$'
expect 0 '^| specula, plain decoding | [0-9]* | [0-9]* | [0-9]* | [0-9]* | [0-9]* |$' cat "$tree/README.md"
also '^| with drafts, over the fastest other |  |  |  |  |  |$'
python3 - "$root/scripts" "$tree/docs/benchmarks/public_model.json" <<'END'
import json, pathlib, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import beside
file = pathlib.Path(sys.argv[2])
data = json.loads(file.read_text())
kinds, pipeline = list(data["beside"]["native:1"]["kinds"]), data["pipeline"]
one = {kind: [[8, 1.0]] * 10 for kind in kinds[1:]}
data["rows"].append({**data["rows"][0], "engine": "llama.cpp", "weights": "q4_0", "mode": "llama-lookup", "texts": one, "same": [30, 30]})
data["prompts"]["native:1"] = 10
data["beside"]["native:1"] = beside.beside(data["rows"], kinds, pipeline)
file.write_text(json.dumps(data))
END
expect 0 '^wrote docs/models.md' env SPECULA_ROOT="$tree" python3 "$root/scripts/pages"
expect 0 '^| llama.cpp | Q4_0 | llama-lookup |  | 8 | 8 | 8 |  | 30 of 30 |  |$' cat "$tree/docs/models.md"
expect 0 '^| llama.cpp: `scripts/public_model --only llama.cpp` |  | 8 (Q4_0, llama-lookup) | 8 (Q4_0, llama-lookup) | 8 (Q4_0, llama-lookup) |  |$' cat "$tree/README.md"
also '^| with drafts, over the fastest other |  | [0-9.]*x | [0-9.]*x | [0-9.]*x |  |$'
exit "$failed"
