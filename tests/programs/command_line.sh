#!/usr/bin/env bash
# usage: command_line.sh GENERATE COMPARE EXAMPLES_FOLDER
# Exit codes and messages of the programs; with the model pack also what they print.
set -uo pipefail
generate=$1 compare=$2 examples=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect CODE TEXT COMMAND...: runs it, wants that exit code and TEXT (a basic regular expression) in its output.
expect() {
  local code=$1 text=$2 got
  shift 2
  "$@" >"$scratch/out" 2>&1 </dev/null
  got=$?
  if [ "$got" -ne "$code" ] || ! grep -q -- "$text" "$scratch/out"; then
    printf 'FAILED: %s\n  exit code %s, expected %s with "%s"; it printed:\n' "$*" "$got" "$code" "$text"
    sed 's/^/  | /' "$scratch/out"
    failed=1
  fi
}

expect 0 'sampled-chain\[' "$generate" --help
expect 0 '--repeat' "$compare" --help
expect 2 'known are autoregressive' "$generate" --pipeline nonsense --prompt x
expect 2 'known are autoregressive' "$compare" --pipelines chain,nonsense
expect 2 'length is 0' "$generate" --pipeline chain:0 --prompt x
expect 2 'rule is .block., must be one of' "$compare" --pipelines cape:rule=block
expect 2 'temperature' "$generate" --temperature -1 --prompt x
expect 2 'top_p' "$compare" --top-p 0
expect 2 '--color sometimes' "$generate" --color sometimes --prompt x
expect 2 '--style poem' "$generate" --style poem --prompt x
expect 2 'no-such-option' "$compare" --no-such-option
expect 2 'no target: .*nowhere' "$generate" --models "$scratch/nowhere" --prompt x

models=$examples/models
if [ ! -e "$models/target/model.safetensors" ] || [ ! -e "$models/small/model.safetensors" ]; then
  echo 'SKIP: no model pack'
  [ "$failed" -eq 0 ] && exit 77
  exit 1
fi
prompts=$examples/prompts/default.jsonl
expect 2 'no model .tiny.*holds .*small' "$generate" --models "$models" --pipeline chain:tiny --prompt x
expect 2 'no prompt' "$generate" --models "$models"
expect 1 'no/such/prompts' "$compare" --models "$models" --prompts no/such/prompts
expect 1 'no/such/folder/x.json' "$compare" --models "$models" --json no/such/folder/x.json
expect 0 'chain:2: 8 tokens' "$generate" --models "$models" --pipeline chain:2 --prompt 'def add(a, b):' --max-new-tokens 8
expect 0 'speculation: .*same text' "$generate" --models "$models" --race --prompts "$prompts" --limit 2 --max-new-tokens 12
expect 0 'speculation: .*same text' "$generate" --models "$models" --race --prompts "$prompts" --limit 2 --max-new-tokens 12 --temperature 0.8
expect 0 'dynamic-tree:3:2:12 .*2/2' "$compare" --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 12 --temperature 0.8 \
  --pipelines cape,beam:3:3,dynamic-tree:3:2:12,cost-aware,cost-aware:dynamic-tree
expect 1 'cannot be created' "$generate" --models "$models" --prompt x --trace "$prompts"
expect 0 'dot only: .dot. is not on the PATH' env PATH=/nonexistent "$generate" --models "$models" --pipeline cape:2 --prompt x \
  --max-new-tokens 4 --trace "$scratch/trace/one"
expect 0 '^  n0 -> n1' cat "$scratch/trace/one/round-0001.dot"
expect 0 'speculation: .*same text' "$generate" --models "$models" --race --prompts "$prompts" --limit 2 --max-new-tokens 4 \
  --trace "$scratch/trace/race"
expect 0 'digraph proposal' cat "$scratch/trace/race/prompt-02-round-0001.dot"
if command -v dot >/dev/null; then
  expect 0 '</svg>' cat "$scratch/trace/race/prompt-02-round-0001.svg"
fi
expect 0 'chain:3 .*4/4' "$compare" --models "$models" --pipelines chain:3,sampled-chain --prompts "$prompts" --prompts "$prompts" --limit 2 \
  --max-new-tokens 12 --temperature 0.7 --seed 5 --json "$scratch/figures.json"
for key in identical_to_autoregressive tokens_per_second_with_prefill acceptance_by_depth mat_per_verified_node; do
  expect 0 "\"$key\"" cat "$scratch/figures.json"
done
exit "$failed"
