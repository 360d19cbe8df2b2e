#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: public_model.sh COMPARE ROOT DATA
# scripts/public_model measures the pack's target, goes on where it was interrupted, says what is missing; scripts/pages makes a table of it.
set -uo pipefail
compare=$1 root=$2 data=$3
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
[ -d "$data" ] || { echo 'SKIP: no data sets'; exit 77; }
[ -e "$root/examples/models/small/config.json" ] || { echo 'SKIP: no model pack'; exit 77; }
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

model=(python3 "$root/scripts/public_model" --compare "$compare" --data "$data")
expect 0 '^usage: scripts/public_model' "${model[@]}" --help
expect 1 'quick measures nothing: it needs --out' "${model[@]}" --quick
expect 1 'no spec_bench/question.jsonl in .*/nowhere' "${model[@]}" --quick --out "$scratch/json" --data "$scratch/nowhere"
expect 0 '^native:1/summaries0/specula/bf16: .*plain .* ms, chain:4@small .* ms' "${model[@]}" --quick --out "$scratch/json"
also '^native:1/code0/specula/bf16: '
expect 0 '"prompt_tokens": ' cat "$scratch/json/public_model.json"
also '"commit"'
if grep -q "$root\|$scratch" "$scratch"/json/public_model.json; then echo 'FAILED: a path of this machine is in the JSON'; failed=1; fi
python3 - "$scratch/json/measured.json" <<'END'
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
done = json.loads(file.read_text())
del done["cells"]["native:1/code0/specula/bf16"]  # as if it had been interrupted
file.write_text(json.dumps(done))
END
expect 0 '^native:1/code0/specula/bf16: ' "${model[@]}" --quick --out "$scratch/json"
if grep -q 'summaries0' "$scratch/out"; then echo 'FAILED: what was measured is measured again'; failed=1; fi
printf '#!/bin/sh\necho "specula-compare: no target" >&2\nexit 2\n' >"$scratch/broken"
chmod +x "$scratch/broken"
expect 0 '^missing: specula, bf16, native:1: specula-compare: no target (exit code 2)' "${model[@]}" --quick --out "$scratch/missing" --compare "$scratch/broken"

# The page.
tree=$scratch/tree
mkdir -p "$tree/docs/benchmarks" && cp "$root"/docs/benchmarks/*.json "$tree/docs/benchmarks"
printf '<!-- table: beside others: native, 1 -->\n<!-- end of table -->\n' >"$tree/docs/models.md"
sed 's/ and changes//' "$scratch/json/public_model.json" >"$tree/docs/benchmarks/public_model.json"
touch "$tree/README.md"
expect 0 '^wrote docs/models.md' env SPECULA_ROOT="$tree" python3 "$root/scripts/pages"
expect 0 '^| specula | BF16 | plain | ' cat "$tree/docs/models.md"
also '^| specula | BF16 | `chain:4@small` |  |  | .* | 4 of 4 |'

# An engine that failed on a prompt has empty cells there, and no mean.
python3 - "$tree/docs/benchmarks/public_model.json" <<'END'
import copy, json, pathlib, sys
file = pathlib.Path(sys.argv[1])
data = json.loads(file.read_text())
row = copy.deepcopy(next(row for row in data["rows"] if row["mode"] == "plain"))
row["engine"], row["prompts"] = "another", row["prompts"][:1]
data["rows"].append(row)
file.write_text(json.dumps(data))
END
expect 0 '^wrote docs/models.md' env SPECULA_ROOT="$tree" python3 "$root/scripts/pages"
expect 0 '^| another | BF16 | plain | [0-9.]* |  | [0-9]* |  |  |  |  |  | ' cat "$tree/docs/models.md"
exit "$failed"
