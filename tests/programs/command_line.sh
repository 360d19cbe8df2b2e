#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: command_line.sh SPECULA EXAMPLES_FOLDER
# Exit codes and messages of the commands; with the model pack also what they print.
set -uo pipefail
specula=$1 examples=$2
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

expect 0 'chain\[:LENGTH' "$specula" run --help
expect 0 '--repeat' "$specula" compare --help
expect 0 '^specula [0-9]*\.[0-9]*\.[0-9]*$' "$specula" --version
expect 0 '^  passes  *measure passes' "$specula" --help
expect 2 'no command; there are run, compare, passes, head, convert, quantize, bigram$' "$specula"
expect 2 'not expected: rum; the nearest are run' "$specula" rum
expect 2 "unknown pipeline 'chian:3'; the nearest are chain, cape, beam$" "$specula" run --pipeline chian:3 --prompt x
also '^Try specula run --help'
expect 2 "unknown pipeline 'EAGLE'; @eagle is a drafter: dynamic-tree@eagle$" "$specula" run --pipeline EAGLE --prompt x
for command in run compare passes head convert quantize bigram; do
  expect 1 '^0$' sh -c '"$1" "$2" --help | grep -c "^.\{101\}"' sh "$specula" $command
  # The manual page and the completion have every option of its help.
  for option in $("$specula" $command --help | grep -o '^  [^ ]*--[a-z-]*' | grep -o -- '--[a-z-]*' | grep -v -- '--help'); do
    for form in man bash; do
      expect 0 . sh -c '"$1" --manual "$2" | tr -d "\\\\" | grep -- "$3"' sh "$specula" $form "$option"
    done
  done
done
# The names of before.
for name in generate compare gguf quantize bigram llama; do ln -s "$(realpath "$specula")" "$scratch/specula-$name"; done
expect 0 'note: specula-generate is the command `specula run` now' "$scratch/specula-generate" --help
expect 0 'command `specula passes` now' "$scratch/specula-compare" --passes 3 --help
expect 0 'command `specula compare` now' "$scratch/specula-llama" --compare=chain --help
expect 0 'command `specula convert` now' "$scratch/specula-gguf" --help
expect 2 'nothing to count' "$scratch/specula-bigram" --output "$scratch/x.json"
expect 2 'model is required' "$scratch/specula-quantize"
expect 2 "unknown pipeline 'nonsense'; the nearest are" "$specula" compare --pipelines 'chain nonsense'
expect 2 'not expected: .*--promt; the nearest are --prompt' "$specula" run --promt x
expect 2 "seed: '-1' must be a whole number from 0" "$specula" run --seed -1 --prompt x
expect 2 "seed: '18446744073709551616' must be" "$specula" run --seed 18446744073709551616 --prompt x
expect 2 "limit: '-1' must be" "$specula" compare --limit -1
expect 2 'stop is empty' "$specula" run --stop '' --prompt x
expect 2 'json does not go with --race' "$specula" run --race --json "$scratch/race.json" --threads 256
also '^note: --threads 256 on [0-9]* core'
if [ -e /dev/full ]; then
  expect 1 'the standard output cannot be written' sh -c '"$1" --help >/dev/full' sh "$specula" run
fi
expect 2 'length is 0' "$specula" run --pipeline chain:0 --prompt x
expect 2 "rule=block: this rule does not keep the target's distribution" "$specula" compare --pipelines cape:rule=block
expect 2 'temperature' "$specula" run --temperature -1 --prompt x
expect 2 'top_p' "$specula" compare --top-p 0
expect 2 '--color sometimes' "$specula" run --color sometimes --prompt x
expect 2 '--style poem' "$specula" run --style poem --prompt x
expect 2 'no-such-option' "$specula" compare --no-such-option
expect 2 'nonsense not in' "$specula" compare --tune nonsense
expect 2 'max-gram can only be the last drafter' "$specula" compare --tune swi --drafters max-gram,small
expect 2 "two drafters are 'small'" "$specula" compare --tune time --drafters small,small
expect 2 "^specula compare: pipeline 'cascade@a,b,c': the last of three drafters" "$specula" compare --tune swi --drafters a,b,c
expect 2 'an empty name' "$specula" compare --tune swi --drafters small,,max-gram
expect 2 "two drafters are 'base'" "$specula" run --pipeline vertical@base,base --prompt x
expect 2 'limits of 3 drafters are 6 numbers' "$specula" compare --pipelines cascade:limits=4-0-10@base,small,max-gram
expect 2 "'chain:{2,3': a { without its }" "$specula" compare --pipelines 'chain:{2,3'
expect 2 "unknown pipeline 'chian:2'" "$specula" compare --search 'chian:{2,3}'
expect 2 "length is 0" "$specula" compare --search 'chain:{0..2}'
expect 2 "search-for is 'speed', must be one of time, mat, tau, swi, PW" "$specula" compare --search-for speed --costs PW:small=0.02
expect 2 "'small=x' must have a number of at least 0" "$specula" compare --costs small=x
expect 2 "the set 'given' names all drafters of no pipeline" "$specula" compare --costs smal=0.02
expect 2 "against 'chain:9' is neither among --pipelines nor a --search" "$specula" compare --against chain:9
expect 2 "batch '4,2': ascending numbers of texts" "$specula" compare --batch 4,2
expect 2 'run text by text, without --batch' "$specula" compare --batch 2 --pipelines chain@layer-skip
expect 2 'batch does not go with --find-blocks' "$specula" compare --batch 2 --find-blocks
expect 2 'dev is for --search, --tune and --find-blocks' "$specula" compare --dev 3
expect 2 'nodes: Value 300 not in range' "$specula" passes --nodes 300
expect 2 'samples 3 goes with --temperature above 0' "$specula" run -n 3 --prompt x
expect 2 'logprobs requires --json' "$specula" run --logprobs 0 --prompt x
expect 2 'repeat-penalty' "$specula" run --repeat-penalty 0 --prompt x
expect 2 'repeat-last-n' "$specula" run --repeat-last-n -1 --prompt x
expect 2 'must be NAME=PATH, or a path' "$specula" compare --draft y=
expect 2 'there are two of the name a' "$specula" run --draft a=y --draft a=z --prompt x
expect 2 'rpc is for --engine llama.cpp, and this run is with cpu' "$specula" run --rpc host:1 --prompt x
expect 2 'weights is for --engine cpu, and this run is with cuda' "$specula" compare --engine cuda --weights full
expect 2 'runs goes with --race' "$specula" run --runs 2 --prompt x
expect 2 'batch does not go with --race' "$specula" run --batch 2 --race
expect 0 '--tokens' "$specula" bigram --help
expect 2 'output is required' "$specula" bigram --text x
expect 2 'nothing to count' "$specula" bigram --output "$scratch/bigram.json"
expect 2 'no-such-option' "$specula" bigram --output "$scratch/bigram.json" --no-such-option
expect 1 'no/such/tokenizer: cannot be opened' "$specula" bigram --tokenizer no/such/tokenizer --text x --output "$scratch/bigram.json"
expect 2 'no target: .*nowhere' "$specula" run --models "$scratch/nowhere" --prompt x

whole=$examples/models
if [ ! -e "$whole/target/model.safetensors" ] || [ ! -e "$whole/s2d/model.safetensors" ] || [ ! -e "$whole/small/model.safetensors" ]; then
  echo 'SKIP: no model pack'
  [ "$failed" -eq 0 ] && exit 77
  exit 1
fi
if command -v python3 >/dev/null; then
  tensors=$(dirname "${BASH_SOURCE[0]}")/../support/tensors.py
  PYTHONPATH=$(dirname "$tensors"):$scratch
  export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
  mkdir "$scratch/whole"
  python3 "$tensors" "$whole" "$scratch/whole"
  whole=$scratch/whole
fi
# The pack with a target that is quicker, for all that is not conditioned on its own: the draft with exits, as a model without.
models=$scratch/models
mkdir "$models" "$models/target"
ln -s "$whole"/s2d/{model.safetensors,tokenizer.model} "$models/target"
sed -z 's/,\s*"exits": \[[^]]*\]//' "$whole/s2d/config.json" >"$models/target/config.json"
for name in base small s2d bigram; do ln -s "$whole/$name" "$models/$name"; done
prompts=$examples/prompts/default.jsonl
expect 2 'no model .tiny.*holds .*small' "$specula" run --models "$models" --pipeline chain@tiny --prompt x
expect 2 'no prompt' "$specula" run --models "$models"
expect 2 "inputs is 'half', must be int16, int8, bf16, full or auto" "$specula" compare --models "$models" --inputs half --pipelines autoregressive
expect 2 "cache is 'bf16', must be full, half or auto" "$specula" compare --models "$models" --cache bf16 --pipelines autoregressive
expect 2 "isa is 'mmx', must be portable, avx2, avx-vnni, avx512 or auto" "$specula" compare --models "$models" --isa mmx --pipelines autoregressive
expect 2 'no prompt' "$specula" run --models "$models" --prompt ''
# Results take the place of old ones in one step, or not at all.
printf 'old' >"$scratch/old.json"
printf 'one\n' >"$scratch/prompts.txt"
expect 2 'prompts.txt is the file of --prompts' "$specula" compare --models "$models" --prompts "$scratch/prompts.txt" \
  --json "$scratch/prompts.txt"
expect 0 '^one$' cat "$scratch/prompts.txt"
generate_one=("$specula" run --models "$models" --pipeline autoregressive --prompt 'def add(a, b):')
expect 2 'has 8 tokens; with --max-new-tokens 2041 that is 2049 positions, and the target .* was trained for 2048' \
  "${generate_one[@]}" --max-new-tokens 2041 --json "$scratch/old.json"
for sizes in 'full 2.86' 'half 1.43'; do
  expect 1 "a KV cache of 100.* tokens .* needs ${sizes#* } GiB of memory, there are" sh -c 'ulimit -v 1200000 && "$@"' sh \
    "${generate_one[@]}" --max-new-tokens 1000000 --beyond-context --cache "${sizes% *}" --json "$scratch/old.json"
done
expect 0 '^old$' cat "$scratch/old.json"
expect 0 'autoregressive: [1-9]* tokens' "${generate_one[@]}" --max-new-tokens 24 --stop 'never' --stop '"""' \
  --json "$scratch/old.json"
expect 0 '"text": "\\n    ",' cat "$scratch/old.json"
expect 0 '"ended": "stop string"' cat "$scratch/old.json"
# The last of an option given twice counts. The JSON has the tokens.
expect 0 '^[1-9][0-9]* threads*; --threads takes another number' "${generate_one[@]}" --max-new-tokens 9 --pipeline chain:2 --pipeline chain:3 --json "$scratch/old.json"
for text in '"pipeline": "chain:3"' '"prompt_tokens": 8,' '"new_tokens": 9,' '"accepted_draft_tokens": [0-9]' '"threads": [1-9]'; do
  expect 0 "$text" cat "$scratch/old.json"
done
expect 0 '"acceptance_by_depth":\[[01]' sh -c 'tr -d "\n " <"$1"' sh "$scratch/old.json"
expect 0 '^9$' sh -c 'tr -d "\n " <"$1" | sed "s/.*\"tokens\":\[\([0-9,]*\)\].*/\1/" | tr , "\n" | grep -c "[0-9]"' sh "$scratch/old.json"
expect 0 'chain:3: 4 tokens' "${generate_one[@]}" --max-new-tokens 4 --pipeline chain:3 --threads 1
never 'threads'
if command -v python3 >/dev/null; then
  # Ctrl-C ends the text and the run, with the text's figures and the JSON.
  cat >"$scratch/interrupt.py" <<'END'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
seen = b""
while b"add(a, b):\n" not in seen:  # the text has begun
    seen += run.stdout.read(1)
run.send_signal(signal.SIGINT)
print(run.communicate()[1].decode())
sys.exit(run.returncode)
END
  printf '%s\n' '{"prompt": "def add(a, b):"}' '{"prompt": "def two():"}' >"$scratch/two.jsonl"
  expect 130 'autoregressive: interrupted after [0-9]* tokens, ' python3 "$scratch/interrupt.py" "$specula" run --models "$models" --threads 1 \
    --pipeline autoregressive --prompts "$scratch/two.jsonl" --style raw --max-new-tokens 2000 --json "$scratch/old.json"
  expect 0 '"ended": "interrupted"' cat "$scratch/old.json"
  expect 0 '^1$' grep -c '"ended"' "$scratch/old.json"
fi
# Tokens that the files beside the weights name end the text in every program: here the line break, the first new token.
mkdir "$scratch/stops" && ln -s "$models"/target/* "$scratch/stops" && echo '{"eos_token_id": [2, 3]}' >"$scratch/stops/generation_config.json"
expect 0 'chain:3: 1 tokens' "$specula" run --models "$models" --target "$scratch/stops" --pipeline chain:3 --prompt 'def add(a, b):' \
  --max-new-tokens 24 --json "$scratch/old.json"
expect 0 '"ended": "stop token"' cat "$scratch/old.json"
printf '%s\n' '{"prompt": "def add(a, b):"}' >"$scratch/add.jsonl"
expect 0 '^chain:3 .*1/1' "$specula" compare --models "$models" --target "$scratch/stops" --prompts "$scratch/add.jsonl" --max-new-tokens 24 \
  --pipelines chain:3 --json "$scratch/old.json"
expect 0 '"new_tokens": 1,' cat "$scratch/old.json"
# What a GGUF's vocabulary is read as, where that is not what the file says.
if command -v python3 >/dev/null; then
  "$specula" convert "$models/small" "$scratch/small.gguf" --type q8_0 >/dev/null
  python3 - "$scratch/small.gguf" <<'END'
import pathlib, sys
file, key = pathlib.Path(sys.argv[1]), b"tokenizer.ggml.eos_token_id"
bytes_ = bytearray(file.read_bytes())
at = bytes_.index(key) + len(key) + 4  # behind its type
bytes_[at:at + 4] = b"\xff" * 4
file.write_bytes(bytes_)
END
  expect 0 "note: .*small.gguf: key 'tokenizer.ggml.eos_token_id': 4294967295 is none of 2048 tokens, so it counts as absent" \
    "$specula" run --target "$scratch/small.gguf" --pipeline autoregressive --prompt 'def add(a, b):' --max-new-tokens 4
fi
# Which tokens came from a draft, what the target says of them, and several texts of a prompt, of which each has draws of its own.
if command -v python3 >/dev/null; then
  for batch in '' '--batch 2'; do
    # shellcheck disable=SC2086  # words
    expect 0 'chain:3: 12 tokens' "${generate_one[@]}" --pipeline chain:3 --max-new-tokens 12 --logprobs 2 --json "$scratch/logprobs.json" $batch
    expect 0 '^right' python3 -c 'import json, sys
text = json.load(open(sys.argv[1]))["prompts"][0]
tokens, logs, top = text["tokens"], text["logprobs"], text["top_logprobs"]
drafted = text.get("from_draft")  # not known of a batch
right = (drafted is None or sum(drafted) == text["accepted_draft_tokens"] > 0 and len(drafted) == 12) and len(logs) == len(top) == 12 and all(
    -20 < log < 0 and best[0] == {"token": token, "logprob": log} and best[1]["logprob"] <= log for token, log, best in zip(tokens, logs, top))
print("right" if right else text)' "$scratch/logprobs.json"
  done
  for batch in '' '--batch 2'; do
    # shellcheck disable=SC2086  # words
    expect 0 'tokens' "${generate_one[@]}" --max-new-tokens 12 --temperature 1 -n 3 --json "$scratch/samples.json" $batch
    expect 0 '^\[1, 2, 3\] 3' python3 -c 'import json, sys
texts = json.load(open(sys.argv[1]))["prompts"]
print([text["sample"] for text in texts], len({text["text"] for text in texts}))' "$scratch/samples.json"
  done
fi
# Penalties and biases: of the target and its draft, so that text and number of passes are those of plain decoding with them.
if command -v python3 >/dev/null; then
  penalised=("${generate_one[@]}" --max-new-tokens 24 --repeat-penalty 1.3 --presence-penalty 0.5 --frequency-penalty 0.2 --repeat-last-n 32)
  expect 0 'autoregressive: 24 tokens' "${penalised[@]}" --pipeline autoregressive --json "$scratch/penalised.json"
  for how in '--pipeline chain:3' '--pipeline dynamic-tree:3:2:8@small' '--pipeline chain:3 --batch 2'; do
    # shellcheck disable=SC2086  # words
    expect 0 'tokens' "${penalised[@]}" $how --json "$scratch/again.json"
    expect 0 '^right' python3 -c 'import json, sys
one, two = (json.load(open(file)) for file in sys.argv[1:])
a, b = one["prompts"][0], two["prompts"][0]
asked = {"repetition": 1.3, "presence": 0.5, "frequency": 0.2, "last": 32}
right = a["tokens"] == b["tokens"] and b["target_calls"] < 24 and {key: round(value, 6) for key, value in two["penalties"].items()} == asked
print("right" if right else (a, b))' "$scratch/penalised.json" "$scratch/again.json"
  done
  banned=$(python3 -c 'import json, sys
print(*(f"--logit-bias {token}=-inf" for token in sorted(set(json.load(open(sys.argv[1]))["prompts"][0]["tokens"]))))' "$scratch/penalised.json")
  # shellcheck disable=SC2086  # words
  expect 0 'tokens' "${generate_one[@]}" --max-new-tokens 24 --pipeline chain:3 $banned --json "$scratch/banned.json"
  expect 0 '^0' python3 -c 'import json, sys
penalised, banned = (set(json.load(open(file))["prompts"][0]["tokens"]) for file in sys.argv[1:])
print(len(penalised & banned))' "$scratch/penalised.json" "$scratch/banned.json"
fi
expect 2 '--logit-bias 2048=1: the token must be in \[0, 2047\]' "${generate_one[@]}" --logit-bias 2048=1
for bias in 7 7= x=1 -1=1 7=inf 7=nan =1; do
  expect 2 "logit-bias $bias: must be TOKEN=BIAS" "$specula" run --prompt x --logit-bias "$bias"
done
# Several texts at once are those one by one, in the order of the prompts, also where a stop string ends them.
printf '%s\n' '{"prompt": "def add(a, b):"}' '{"prompt": "Question: What is 2 + 3?"}' '{"prompt": "def two():"}' >"$scratch/three.jsonl"
several=("$specula" run --models "$models" --prompts "$scratch/three.jsonl" --stop '"""' --max-new-tokens 16)
expect 0 '3 texts, 2 at once' "${several[@]}" --pipeline cost-aware:chain:3@small --batch 2 --json "$scratch/several.json"
also '^=== text 3$'
expect 0 'chain:3: ' "${several[@]}" --pipeline chain:3 --json "$scratch/single.json"
for json in several single; do grep '"\(text\|ended\|new_tokens\)"' "$scratch/$json.json" >"$scratch/$json.txt"; done
expect 0 'stop string' cat "$scratch/several.txt"
expect 0 same sh -c 'cmp "$1" "$2" && echo same' sh "$scratch/several.txt" "$scratch/single.txt"
expect 2 'engine: gpu not in {auto,cpu,cuda,llama.cpp}' "$specula" run --models "$models" --prompt x --engine gpu
# Built without CUDA, or without a GPU here, or a text.
expect 0 . sh -c '"$@" 2>&1 | grep -E "built without CUDA|: CUDA: |tokens/s"' sh "$specula" run --models "$models" --prompt x \
  --max-new-tokens 2 --engine cuda
expect 2 'run text by text, without --batch' "$specula" run --models "$models" --prompt x --batch 2 --pipeline adaptive-chain:2@layer-skip
# A text that fails ends alone, and a draft that fails is told: models whose rows are NaN after one token, a byte of a snowman.
if command -v python3 >/dev/null; then
  cat >"$scratch/poison.py" <<'END'
import pathlib, struct, sys, tensors
config, model = tensors.read(sys.argv[1])
name = "model.embed_tokens.weight"
(_, (rows, width), weights), (_, (_, groups), exponents) = model.pop(name), model.pop(name + ".exponents")
model["lm_head.weight"], model["lm_head.weight.exponents"] = ("I8", [rows, width], weights), ("I8", [rows, groups], exponents)
powers = [2.0 ** e for e in struct.unpack(f"{rows * groups}b", exponents) for _ in range(width // groups)]
values = [w * p for w, p in zip(struct.unpack(f"{rows * width}b", weights), powers)]
def pieces(data):  # of a SentencePiece model: its first fields, whose first field is the text
    while data[0] == 10:
        size, start = (data[1], 2) if data[1] < 128 else (data[1] - 128 + 128 * data[2], 3)
        yield data[start + 2:start + 2 + data[start + 1]]
        data = data[start + size:]
token = list(pieces(pathlib.Path(sys.argv[1], "tokenizer.model").read_bytes())).index(b"<0xE2>")
values[token * width] = float("nan")
model[name] = ("F32", [rows, width], struct.pack(f"{rows * width}f", *values))
out = pathlib.Path(sys.argv[2])
out.mkdir()
(out / "tokenizer.model").symlink_to(pathlib.Path(sys.argv[1], "tokenizer.model").resolve())
tensors.write(out, {**config, "tie_word_embeddings": False}, model)
END
  python3 "$scratch/poison.py" "$models/target" "$scratch/bad-target"
  python3 "$scratch/poison.py" "$models/small" "$scratch/bad-draft"
  printf '%s\n' '{"prompt": "def add(a, b):"}' '{"prompt": "\u2603"}' '{"prompt": "def two():"}' '{"prompt": "x \u2603 = 1"}' >"$scratch/snow.jsonl"
  for batch in '' '--batch 1' '--batch 3'; do
    # shellcheck disable=SC2086  # words
    expect 1 '^specula run: prompt 2 failed: .*NaN' "$specula" run --models "$models" --target "$scratch/bad-target" --pipeline autoregressive \
      --prompts "$scratch/snow.jsonl" --max-new-tokens 6 --json "$scratch/snow.json" $batch
    also '^specula run: prompt 4 failed: .*NaN'
    expect 0 '^4 texts, 2 of them failed' python3 -c 'import json, sys
texts = json.load(open(sys.argv[1]))["prompts"]
bad = ["failed" in t for t in texts]
assert bad == [False, True, False, True] and all(t.get("new_tokens", 6) == 6 for t in texts) and "NaN" in texts[1]["failed"], texts
print(len(texts), "texts,", sum(bad), "of them failed")' "$scratch/snow.json"
    # shellcheck disable=SC2086  # words
    expect 0 '^note: drafting ended in 2 of 4 texts: the draft.s row after node' "$specula" run --models "$models" --draft "$scratch/bad-draft" --pipeline chain:3 \
      --prompts "$scratch/snow.jsonl" --max-new-tokens 6 --json "$scratch/snow.json" $batch
    expect 0 '^\[False, True, False, True\]' python3 -c 'import json, sys
print(["draft_error" in t for t in json.load(open(sys.argv[1]))["prompts"]])' "$scratch/snow.json"
  done
  expect 1 '^specula compare: the draft failed: the draft.s row after node' "$specula" compare --models "$models" --draft "$scratch/bad-draft" \
    --pipelines chain:3 --prompts "$scratch/snow.jsonl" --max-new-tokens 6
fi
# A model with a chat template: turns of a file, each after the answer before it; a system message; raw; a conversation.
mkdir "$scratch/chat" && ln -s "$models"/target/* "$scratch/chat"
printf '%s' "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}" \
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" >"$scratch/chat/chat_template.jinja"
printf '%s\n' '{"turns": ["What is 2 + 3?", "And twice that?"]}' >"$scratch/turns.jsonl"
chat=("$specula" run --models "$models" --target "$scratch/chat" --pipeline chain:4@max-gram --max-new-tokens 6)
expect 0 '^> What is 2 + 3?$' "${chat[@]}" --prompts "$scratch/turns.jsonl" --json "$scratch/turns.json" --trace "$scratch/turns"
also '^> And twice that?$'
expect 0 '"prompt": "And twice that?"' cat "$scratch/turns.json"
# Turns have the same draws one by one and in batches of any size.
printf '%s\n' '{"turns": ["What is 2 + 3?", "And twice that?", "And half?"]}' '{"turns": ["One?"]}' '{"turns": ["Two?", "Three?"]}' \
  >"$scratch/talks.jsonl"
for batch in '' '--batch 1' '--batch 2' '--batch 4'; do
  # shellcheck disable=SC2086  # words
  expect 0 'tokens' "${chat[@]}" --prompts "$scratch/talks.jsonl" --temperature 1 --seed 7 --json "$scratch/talks.json" $batch
  grep '"\(prompt\|text\|ended\|new_tokens\)"' "$scratch/talks.json" >"$scratch/talks${batch#--batch }.txt"
done
for batch in 1 2 4; do
  expect 0 same sh -c 'cmp "$1" "$2" && echo same' sh "$scratch/talks.txt" "$scratch/talks$batch.txt"
done
expect 0 '^6$' grep -c '"new_tokens"' "$scratch/talks.txt"
expect 0 '^> one$' "${chat[@]}" --prompt one --system 'Be brief.'
expect 0 '^one' "${chat[@]}" --prompt one --raw
expect 0 '^Question: one$' "${chat[@]}" --prompt one --style question
expect 0 'speculation: .*same text' "${chat[@]}" --prompts "$scratch/turns.jsonl" --race
expect 0 '^chain:2 ' "$specula" compare --models "$models" --target "$scratch/chat" --prompts "$scratch/turns.jsonl" --max-new-tokens 6 \
  --pipelines chain:2 --system 'Be brief.' --json "$scratch/chat.json"
expect 0 '"style": "chat"' cat "$scratch/chat.json"
also '"system": "Be brief."'
expect 2 '--chat excludes --raw' "${chat[@]}" --prompt one --raw --chat
expect 2 '--raw excludes --system' "${chat[@]}" --prompt one --raw --system x
expect 2 'style code does not go with --chat and --system' "${chat[@]}" --prompt one --chat --style code
expect 2 '--chat: the target .*/target has no chat template' "$specula" run --models "$models" --pipeline chain --prompt x --chat
expect 2 '--system: the target .*/target has no chat template' "$specula" compare --models "$models" --system x
if script -qec true /dev/null >/dev/null 2>&1; then
  printf 'One?\n\nTwo?\n/exit\nnot this\n' >"$scratch/lines"
  mkdir "$scratch/brief" && ln -s "$models/small"/{model.safetensors,tokenizer.model} "$scratch/brief"
  sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 64/' "$models/small/config.json" >"$scratch/brief/config.json"
  # shellcheck disable=SC2016  # $1 is the inner shell's
  expect 0 'ends an answer while it is written' sh -c 'echo /help | script -qec "$1" /dev/null' sh "${chat[*]}"
  # A draft of fewer positions is told when they are used up, not before.
  expect 1 '^0$' sh -c 'echo One? | script -qec "$1" /dev/null | grep -c "was trained for"' sh "${chat[*]} --pipeline chain:2 --draft $scratch/brief"
  expect 0 "note: the draft 'small' was trained for 64 positions" sh -c 'echo One? | script -qec "$1" /dev/null' sh \
    "${chat[*]} --pipeline chain:2 --draft $scratch/brief --max-new-tokens 60"
  # shellcheck disable=SC2016
  expect 0 'One question a line; /exit or Ctrl-D ends' sh -c 'script -qec "$1" /dev/null <"$2"' sh "${chat[*]}" "$scratch/lines"
  [ "$(grep -c 'chain:4@max-gram: [0-9]* tokens' "$scratch/out")" -eq 2 ] || { echo 'FAILED: a conversation of two questions'; failed=1; }
  expect 2 'batch goes with --prompts or --prompt' script -qec "${chat[*]} --batch 2" /dev/null
  expect 2 'json and --trace go with a prompt' script -qec "${chat[*]} --json $scratch/turns.json" /dev/null
fi
printf '{{ messages[0].content }}' >"$scratch/chat/chat_template.jinja"  # needs the engine
"${chat[@]}" --prompt one >"$scratch/out" 2>&1 || also 'chat_template.jinja: a chat template that this program does not know'
expect 0 '^one' "${chat[@]}" --prompt one --raw
# A draft of as many tokens that mean something else, and one whose tokens are not known.
mkdir "$scratch/other" && ln -s "$models"/small/* "$scratch/other" && echo '{"@@": 5}' >"$scratch/other/added_tokens.json"
for program in "$specula run --prompt x --pipeline" "$specula compare --pipelines"; do
  # shellcheck disable=SC2086  # words
  expect 2 "does not have the target's vocabulary: token 5 is '.*' in the target .*/target and '@@' in the draft .*/other" \
    $program chain:2 --models "$models" --draft "$scratch/other"
done
mkdir "$scratch/unknown" && ln -s "$models"/small/config.json "$models"/small/model.safetensors "$scratch/unknown"
expect 0 "^note: the draft 'small' has no tokenizer" "$specula" run --models "$models" --draft "$scratch/unknown" --pipeline chain:2 \
  --prompt 'def add(a, b):' --max-new-tokens 4
# Vocabularies of different sizes: refused by their configs, and not cut below what the tokenizer needs.
mkdir "$scratch/narrow" && sed 's/"vocab_size": 2048/"vocab_size": 2000/' "$models/small/config.json" >"$scratch/narrow/config.json"
narrow=("$specula" run --models "$models" --pipeline chain --draft "$scratch/narrow" --prompt x)
expect 2 "target .* has 2048 tokens, that of the draft 'small' 2000: --cut-vocabulary takes" "${narrow[@]}"
expect 2 'would leave 2000 tokens, the tokenizer of .*/target has 2048' "${narrow[@]}" --cut-vocabulary
# A draft with exits is checked as well.
mkdir "$scratch/exits" "$scratch/exits/s2d" && ln -s "$models/target" "$scratch/exits/target"
sed 's/"vocab_size": 2048/"vocab_size": 2000/' "$models/s2d/config.json" >"$scratch/exits/s2d/config.json"
for pipeline in chain:4:exits=0.5-0@s2d cost-aware:chain:exits=0.5-0@s2d; do
  expect 2 "that of the draft 's2d' 2000: --cut-vocabulary takes" "$specula" run --models "$scratch/exits" --pipeline "$pipeline" --prompt x
  expect 2 "that of the draft 's2d' 2000: --cut-vocabulary takes" "$specula" compare --models "$scratch/exits" --pipelines "$pipeline"
done
# A head that reads lower layers too, but makes nothing of them, drafts what the one without them does.
if command -v python3 >/dev/null && [ -e "$whole/hass/model.safetensors" ]; then
  mkdir "$scratch/heads" "$scratch/heads/lower" && ln -s "$whole/target" "$whole/hass" "$scratch/heads"
  python3 - "$whole/hass" "$scratch/heads/lower" <<'END'
import struct, sys, tensors
config, head = tensors.read(sys.argv[1])
hidden = config["hidden_size"]
rows = [[0] * (2 * hidden) + [0x3f80 * (r == c) for c in range(hidden)] for r in range(hidden)]  # 1 in bfloat16
matrix = b"".join(struct.pack(f"<{3 * hidden}H", *row) for row in rows)
tensors.write(sys.argv[2], {**config, "feature_layers": [3, 5]}, {**head, "model.feature_fc.weight": ("BF16", [hidden, 3 * hidden], matrix)})
END
  expect 0 '^chain:3@lower ' "$specula" compare --models "$scratch/heads" --prompts "$prompts" --limit 1 --max-new-tokens 24 --inputs full \
    --pipelines 'chain:3@hass chain:3@lower' --json "$scratch/heads.json"
  expect 0 '^alike' python3 -c 'import json, sys
_, one, other = json.load(open(sys.argv[1]))["pipelines"]
print("alike" if one["acceptance_by_depth"] == other["acceptance_by_depth"] and 0 < one["acceptance"] < 1 else (one, other))' \
    "$scratch/heads.json"
fi
# A published EAGLE-3 head: by its folder alone it is @eagle3, and the text is the target's. Other heads are refused by the key.
if command -v python3 >/dev/null; then
  mkdir "$scratch/eagle3" "$scratch/peagle"
  python3 - "$scratch/eagle3" "$scratch/peagle" <<'END'
import json, pathlib, struct, sys, tensors
def matrix(rows, cols, scale):
    return "F32", [rows, cols], struct.pack(f"<{rows * cols}f", *(scale * ((7 * i * i + i) % 31 - 15) for i in range(rows * cols)))
norm = ("F32", [192], struct.pack("<192f", *[1.0] * 192))
parts = {"fc": matrix(192, 576, 0.002), "norm": norm, "lm_head": matrix(64, 192, 0.01)}
for name, rows, cols in (("q", 32, 384), ("k", 32, 384), ("v", 32, 384), ("o", 192, 32)):
    parts[f"midlayer.self_attn.{name}_proj"] = matrix(rows, cols, 0.003)
for name, rows, cols in (("gate", 16, 192), ("up", 16, 192), ("down", 192, 16)):
    parts[f"midlayer.mlp.{name}_proj"] = matrix(rows, cols, 0.005)
for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
    parts[f"midlayer.{name}"] = norm
head = {name + ".weight": part for name, part in parts.items()}
head["d2t"] = ("I64", [64], struct.pack("<64q", *(9 * i for i in range(64))))
config = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 2048, "draft_vocab_size": 64, "hidden_size": 192, "intermediate_size": 16,
          "num_attention_heads": 1, "head_dim": 32, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}
tensors.write(sys.argv[1], config, head)
pathlib.Path(sys.argv[2], "config.json").write_text(json.dumps({**config, "architectures": ["PEagleDraftModel"]}))
END
  expect 0 '^chain:3@eagle3 ' "$specula" compare --models "$models" --draft "$scratch/eagle3" --prompts "$prompts" --limit 1 --max-new-tokens 9 \
    --pipelines 'chain:3@eagle3 dynamic-tree@eagle3'
  expect 0 '^as the file says  *1, 2, 3 ' sh -c '"$@"; [ $? -le 1 ]' sh "$specula" head "$models/target" "$scratch/eagle3" --tokens 40 --threads 1
  expect 0 '^second and third draft tokens, 38 rows' sh -c '"$@"; [ $? -le 1 ]' sh "$specula" head "$models/target" "$scratch/eagle3" --tokens 40 --threads 1
  # What its user says of it goes before its file.
  expect 0 '^chain:3@other ' "$specula" compare --models "$models" --draft "rule=$scratch/eagle3" --prompts "$prompts" --limit 1 --max-new-tokens 9 \
    --draft "other=$scratch/eagle3,layers=states,norm_output=true" --pipelines 'chain:3@rule chain:3@other'
  expect 0 '^states  *0, 1, 2 (as asked)$' sh -c '"$@"; [ $? -le 1 ]' sh "$specula" head "$models/target" "$scratch/eagle3,layers=states" --tokens 8
  mkdir "$scratch/far" && cp "$scratch/eagle3/model.safetensors" "$scratch/far"
  sed 's/\[0, 1, 2\]/[0, 1, 60]/' "$scratch/eagle3/config.json" >"$scratch/far/config.json"
  expect 1 'it reads state 61 of its target' "$specula" head "$models/target" "$scratch/far" --tokens 8
  expect 0 '^states  *0, 1, 2 (as asked)$' sh -c '"$@"; [ $? -le 1 ]' sh "$specula" head "$models/target" "$scratch/far,layers=0-1-2" --tokens 8
  expect 0 '^chain:3@far ' "$specula" compare --models "$models" --draft "far=$scratch/far,layers=0-1-2" --prompts "$prompts" --limit 1 --max-new-tokens 9 \
    --pipelines chain:3@far
  expect 2 'eagle3,layers=1-2: layers= names 2 states, the head reads 3' "$specula" run --models "$models" --draft "$scratch/eagle3,layers=1-2" --prompt x
  expect 2 "layers= is 'inputs', expected states, outputs, or numbers" "$specula" compare --models "$models" --draft "$scratch/eagle3,layers=inputs"
  expect 2 "norm_output= is 'no', expected true or false" "$specula" head "$models/target" "$scratch/eagle3,norm_output=no"
  expect 1 'it reads state 9 of its target (as asked), which has 4 layers' "$specula" run --models "$models" --draft "$scratch/eagle3,layers=1-2-9" --prompt x
  expect 1 'it reads state 9 of its target (as asked), which has 4 layers' "$specula" head "$models/target" "$scratch/eagle3,layers=1-2-9"
  expect 2 'is no EAGLE-3 head: layers= and norm_output= say nothing of it' "$specula" run --models "$models" --draft "$models/small,norm_output=true" --prompt x
  expect 2 "is no EAGLE-3 head (docs/heads.md has the formats)" "$specula" head "$models/target" "$models/small" --tokens 40
  expect 2 "no model 'eagle3'" "$specula" run --models "$models" --draft "head=$scratch/eagle3" --pipeline chain:3@eagle3 --prompt x
  expect 1 "key 'architectures': 'PEagleDraftModel' is a draft head that other programs trained" "$specula" run --models "$models" --draft "$scratch/peagle" --prompt x
fi
# The pack's trained heads: specula run looks at them when it has read a prompt, and refuses another order of states.
pack=$examples/models
if [ -e "$pack/eagle3/model.safetensors" ]; then
  long='Question: Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. Each clip costs 2 dollars, and
she pays 10 dollars for a box in which she carries them to school. How many dollars does she have left at the end of May, after she has given
half of them to her brother, who wants to buy a book?'
  for head in eagle3 eagle31; do
    expect 0 "^chain:3@$head: 8 tokens" "$specula" run --models "$pack" --pipeline chain:3@$head --prompt "$long" --max-new-tokens 8
    never '^warning'
  done
  expect 0 "^warning: the head 'eagle3' is right at [1-9] of the prompt's last 64 tokens: layers= probably names other states" \
    "$specula" run --models "$pack" --draft "$pack/eagle3,layers=16-1-0" --pipeline chain:3@eagle3 --prompt "$long" --max-new-tokens 8
  expect 1 "^specula run: the head 'eagle3' is right at none of the prompt's last 64 tokens: layers= probably names other states" \
    "$specula" run --models "$pack" --draft "$pack/eagle31,layers=0-0-0" --pipeline chain:3@eagle3 --prompt "$long" --max-new-tokens 8
  also '; specula head looks at more'
  # A later prompt fails alone: the answers before and after it are there.
  printf '%s\n' '{"prompt": "Hi"}' "{\"prompt\": \"$(echo $long)\"}" '{"prompt": "Hello"}' >"$scratch/refused.jsonl"
  expect 1 "^specula run: prompt 2 failed: the head 'eagle3' is right at none" "$specula" run --models "$pack" --prompts "$scratch/refused.jsonl" \
    --draft "$pack/eagle31,layers=0-0-0" --pipeline chain:3@eagle3 --max-new-tokens 8 --json "$scratch/refused.json"
  expect 0 '^8 0 8$' python3 -c "import json; print(*(len(p['tokens']) for p in json.load(open('$scratch/refused.json'))['prompts']))"
  expect 0 '^another reading is better beyond doubt; this selects it: --draft .*/eagle31,layers=2-8-13$' \
    sh -c '"$@"; [ $? -le 1 ]' sh "$specula" head "$pack/target" "$pack/eagle31,layers=13-8-2" --tokens 65 --threads 1
  # Rows by position: as many as tokens, but for each text's first; their agreement and loss are the table's.
  expect 0 '^298 tokens; losses in nats' "$specula" head "$pack/target" "$pack/eagle31" --tokens 300 --threads 1 --json "$scratch/rows.json"
  also "^as the file says .* $(python3 -c "
import json
texts = json.load(open('$scratch/rows.json'))['texts']
assert [len(text[key]) for text in texts for key in ('tokens', 'target', 'losses')] == [256, 255, 255, 44, 43, 43]
same = [head == target for text in texts for head, target in zip(text['head'], text['target'], strict=True)]
losses = [loss for text in texts for loss in text['losses']]
print(f'{sum(same) / len(same):.3f}  *{sum(losses) / len(losses):.3f}')")\$"
fi
# Drafts of a draft vocabulary: a head whose LM head is some rows of the target's, and a draft over the target's embedding with
# one of its own. Greedy text is the target's; at 8 bits and expanded they are the same drafts.
if command -v python3 >/dev/null && [ -e "$whole/hass/model.safetensors" ]; then
  mkdir "$scratch/some" "$scratch/some/head" "$scratch/some/over" && ln -s "$whole/target" "$whole/hass" "$scratch/some"
  python3 - "$whole" "$scratch/some" <<'END'
import struct, sys
from tensors import read, write
tokens = [token for token in range(2048) if token % 3 != 1]
ids = {"draft_tokens": ("I32", [len(tokens)], struct.pack(f"<{len(tokens)}i", *tokens))}
config, tensors = read(sys.argv[1] + "/hass")
write(sys.argv[2] + "/head", {**config, "draft_vocab_size": len(tokens)}, {**tensors, **ids})
config, tensors = read(sys.argv[1] + "/small")
for part in "", ".exponents":
    dtype, (rows, cols), values = tensors.pop("model.embed_tokens.weight" + part)
    width = len(values) // rows
    some = b"".join(values[width * token:width * (token + 1)] for token in tokens)
    tensors["lm_head.weight" + part] = (dtype, [len(tokens), cols], some)
hidden = config["hidden_size"]
eye = b"".join(struct.pack("<384H", *(0x3f80 * (r == c) for c in range(384))) for r in range(hidden))
config.update(architectures=["SpeculaDraft"], model_type="specula_draft", target_hidden_size=384,
              draft_vocab_size=len(tokens), tie_word_embeddings=False)
write(sys.argv[2] + "/over", config, {**tensors, **ids, "model.embed_projection.weight": ("BF16", [hidden, 384], eye)})
END
  for name in head over; do
    expect 0 'model.safetensors: [0-9]* bytes' "$specula" quantize "$scratch/some/$name" "$scratch/some/$name-eight"
    expect 0 'model.safetensors: [0-9]* bytes' "$specula" quantize "$scratch/some/$name-eight" "$scratch/some/$name-wide" --expand
    expect 0 'rounding error is 0.00%' "$specula" quantize "$scratch/some/$name-wide" "$scratch/some/$name-again"
    expect 0 '^same$' sh -c 'cmp "$1" "$2" && echo same' sh "$scratch/some/$name-eight/model.safetensors" "$scratch/some/$name-again/model.safetensors"
    expect 2 'is a draft that needs its target' "$specula" quantize "$scratch/some/$name" "$scratch/out" --tokens x
  done
  expect 0 'chain:3@over-again .*2/2' "$specula" compare --models "$scratch/some" --prompts "$prompts" --limit 2 --max-new-tokens 24 --inputs full \
    --pipelines 'chain:3@hass chain:3@head chain:3@head-eight chain:3@head-wide dynamic-tree@head chain:3@over chain:3@over-again' \
    --json "$scratch/some.json"
  for name in chain:3@head chain:3@head-wide dynamic-tree@head chain:3@over; do also "^$name .*2/2"; done
  expect 0 '^alike' python3 -c 'import json, sys
_, hass, head, eight, wide, tree, over, again = json.load(open(sys.argv[1]))["pipelines"]
depth = "acceptance_by_depth"
print("alike" if head[depth] == eight[depth] == wide[depth] and over[depth] == again[depth]
      and 0 < head["acceptance"] <= hass["acceptance"] else (hass, head, eight, wide, over, again))' "$scratch/some.json"
  expect 0 'chain:3:draw=sampled@head .*/2' "$specula" compare --models "$scratch/some" --prompts "$prompts" --limit 2 --max-new-tokens 12 \
    --temperature 1 --top-p 0.9 --pipelines 'chain:3:draw=sampled@head chain:3:draw=sampled@over cape@head'
  expect 1 "over/config.json: target_hidden_size is 384, the target's hidden_size is [0-9]*: the draft is made for another target" \
    "$specula" run --models "$models" --draft "$scratch/some/over" --pipeline chain --prompt x
fi
# A draft whose vocabulary is padded.
if command -v python3 >/dev/null; then
  mkdir "$scratch/padded"
  python3 - "$models/small" "$scratch/padded" <<'END'
import sys, tensors
config, small = tensors.read(sys.argv[1])
tensors.write(sys.argv[2], {**config, "vocab_size": 2056},
              {name: (dtype, [2056, *shape[1:]], part + bytes(len(part) // 2048 * 8)) if shape[0] == 2048 else (dtype, shape, part)
               for name, (dtype, shape, part) in small.items()})
END
  padded=("$specula" compare --models "$models" --draft "$scratch/padded" --prompts "$prompts" --limit 1 --max-new-tokens 8 --pipelines chain:2)
  expect 2 "target .* has 2048 tokens, that of the draft 'small' 2056: --cut-vocabulary takes" "${padded[@]}"
  expect 0 '^chain:2 .*1/1' "${padded[@]}" --cut-vocabulary
fi
# Results on the standard output, also where that is a file.
if [ -e /dev/stdout ]; then
  "$specula" compare --models "$models" --prompts "$prompts" --limit 1 --max-new-tokens 4 --pipelines chain:2 --json /dev/stdout \
    >"$scratch/both.txt" 2>/dev/null
  expect 0 '^chain:2 .*1/1' cat "$scratch/both.txt"
  also '"identical_to_autoregressive": 1'
fi
# A file that cannot be replaced, as it is a mount point, is written where it is.
if unshare -rm true 2>/dev/null; then
  printf 'old' >"$scratch/mounted.json"
  # shellcheck disable=SC2016  # $1 is the inner shell's
  expect 0 'autoregressive: 4 tokens' unshare -rm sh -c 'mount --bind "$1" "$1" && shift && "$@"' sh "$scratch/mounted.json" \
    "${generate_one[@]}" --max-new-tokens 4 --json "$scratch/mounted.json"
  expect 0 '"new_tokens": 4' cat "$scratch/mounted.json"
  for left in "$scratch"/*unfinished*; do
    [ ! -e "$left" ] || { echo "FAILED: $left is left over"; failed=1; }
  done
fi
if [ -e /dev/full ]; then
  expect 1 'the text cannot be written' sh -c '"$@" >/dev/full' sh "${generate_one[@]}" --max-new-tokens 4
fi
expect 1 'no/such/prompts' "$specula" compare --models "$models" --prompts no/such/prompts
expect 1 'no/such/folder/x.json: cannot be opened for writing' "$specula" compare --models "$models" --json no/such/folder/x.json
expect 1 'no/such/folder/x.html: cannot be opened for writing' "$specula" compare --models "$models" --html no/such/folder/x.html
expect 1 "$scratch: is a folder, must be a file" "$specula" compare --models "$models" --html "$scratch"
expect 2 'html .*prompts.txt is the file of --prompts' "$specula" compare --models "$models" --prompts "$scratch/prompts.txt" \
  --html "$scratch/prompts.txt"
expect 2 'html and --json are the same file' "$specula" compare --models "$models" --html "$scratch/x" --json "$scratch/x"
printf 'old' >"$scratch/old.html"
expect 2 'html .*old.html is the file of --json' "$specula" compare --models "$models" --html "$scratch/old.html" --json "$scratch/./old.html"
expect 2 'was trained for 2048' "$specula" compare --models "$models" --pipelines chain:2 --max-new-tokens 2040 --html "$scratch/old.html"
expect 0 '^old$' cat "$scratch/old.html"
expect 0 'chain:2: 8 tokens' "$specula" run --models "$models" --pipeline chain:2 --prompt 'def add(a, b):' --max-new-tokens 8
expect 0 'speculation: .*same text' "$specula" run --models "$whole" --race --prompts "$prompts" --limit 2 --max-new-tokens 12
expect 0 'speculation: .*same text' "$specula" run --models "$whole" --race --prompts "$prompts" --limit 2 --max-new-tokens 12 --temperature 0.8
expect 0 'dynamic-tree:3:2:12 .*2/2' "$specula" compare --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 12 --temperature 0.8 \
  --pipelines 'cape beam:3:3 dynamic-tree:3:2:12 cost-aware:cape cost-aware:dynamic-tree'
expect 0 'cascade@base,small,max-gram .*2/2' "$specula" compare --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 12 --temperature 0.8 \
  --pipelines 'vertical@base,small cascade@base,small,max-gram'
also 'vertical@base,small .*2/2'
expect 0 'max-gram: 8 tokens' "$specula" run --models "$models" --pipeline chain:10@max-gram --prompt 'def add(a, b):' --max-new-tokens 8
expect 0 'vertical@base,small: 8 tokens' "$specula" run --models "$models" --pipeline vertical@base,small --prompt 'def add(a, b):' \
  --max-new-tokens 8
expect 2 'no model .tiny.*holds .*small' "$specula" run --models "$models" --pipeline horizontal@tiny,small --prompt x

# Drafts that are conditioned on the target.
expect 0 'cape@glide .*2/2' "$specula" compare --models "$whole" --prompts "$prompts" --limit 2 --max-new-tokens 12 --batch 1,3 --json "$scratch/batch.json" \
  --pipelines 'chain@glide cape@glide beam@glide horizontal@glide,max-gram dynamic-tree@eagle dynamic-tree@hass cost-aware:dynamic-tree@hass vertical@glide,small'
for name in chain@glide 'beam@glide' 'horizontal@glide,max-gram' dynamic-tree@eagle dynamic-tree@hass 'vertical@glide,small'; do
  also "^$name .*2/2"
  also "^3  $name .*2/2"  # three texts at once, of two prompts: those that each is alone
done
expect 0 '^\[1, 3\] 9 9$' python3 -c 'import json, sys
all = json.load(open(sys.argv[1]))["batches"]
print([b["texts"] for b in all], *(sum(p["identical_to_alone"] == 2 and p["tokens_per_second"][0] > 0 for p in b["pipelines"]) for b in all))' "$scratch/batch.json"
expect 0 'chain:3:draw=sampled@hass .*/2' "$specula" compare --models "$whole" --prompts "$prompts" --limit 2 --max-new-tokens 12 \
  --temperature 1 --pipelines 'dynamic-tree@hass chain:3:draw=sampled@hass chain:3:draw=sampled@glide'
also '^dynamic-tree@hass .*2/2'
# What a pass of each model costs, and its products of it.
expect 0 '^nodes   *us  products  beside  T(n)/T(1)  rows differ by$' \
  "$specula" passes --models "$whole" --prompts "$prompts" --nodes 2 --repeat 2 --pipelines 'chain@small chain@hass chain@glide' --json "$scratch/passes.json"
for model in target small hass glide; do also "^$model:$"; done
also '^2  .* 0$'
also '^target: drafts that cost nothing'
expect 0 '^target 2 small 2 hass 2 glide 2$' python3 -c 'import json, sys
print(*(x for p in json.load(open(sys.argv[1]))["passes"] for x in (p["name"], len(p["product_microseconds"]))))' "$scratch/passes.json"
# Drafts that are a part of a model, and chains that learn where to end.
expect 0 'layer-skip .*2/2' "$specula" compare --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 12 \
  --pipelines 'chain:2:exits=0.5-0@s2d adaptive-chain:3:exits=2-0:end=heuristic@s2d adaptive-chain:4:end=paper:alike=0.9@layer-skip adaptive-chain cost-aware:chain:exits=0.5-0@s2d cost-aware:chain@layer-skip'
for name in chain:2:exits=0.5-0@s2d adaptive-chain:3:exits=2-0:end=heuristic@s2d adaptive-chain cost-aware:chain:exits=0.5-0@s2d cost-aware:chain@layer-skip; do also "^$name .*2/2"; done
expect 0 'chain:2:exits=0.5-0:leave=sample:draw=sampled@s2d ' "$specula" compare --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 12 \
  --temperature 1 --pipelines 'chain:2:exits=0.5-0:leave=sample:draw=sampled@s2d adaptive-chain:end=paper:draw=sampled@layer-skip'
expect 0 'static-tree@hass .*2/2' "$specula" compare --models "$whole" --prompts "$prompts" --limit 2 --max-new-tokens 12 \
  --json "$scratch/parts.json" --pipelines 'static-tree static-tree@hass static-tree:choices=0-1-0.0@glide cascade:lenience=5@base,hass
  cascade:lenience=2@glide,hass,max-gram adaptive-chain:end=paper:attention=2-4:mlp=4@layer-skip chain:4:exits=0.4-2@s2d cape:4:counts=3-2-1-0@hass'
for name in static-tree static-tree:choices=0-1-0.0@glide cascade:lenience=5@base,hass cascade:lenience=2@glide,hass,max-gram \
  adaptive-chain:end=paper:attention=2-4:mlp=4@layer-skip chain:4:exits=0.4-2@s2d cape:4:counts=3-2-1-0@hass; do also "^$name .*2/2"; done
expect 0 '"acceptance_by_confidence"' cat "$scratch/parts.json"
expect 0 'cascade:draw=sampled:lenience=3@base,hass' "$specula" compare --models "$whole" --prompts "$prompts" --limit 2 --max-new-tokens 12 \
  --temperature 0.8 --pipelines 'cascade:draw=sampled:lenience=3@base,hass static-tree:draw=sampled@hass'
expect 2 'attention of layer 99, the layers are 1 to' "$specula" run --models "$whole" --pipeline adaptive-chain:end=paper:attention=2-99@layer-skip --prompt x
expect 2 "'s2d': 8 thresholds, must be fewer than its exits, " "$specula" run --models "$models" --pipeline chain:4:exits=0.5-2-2-2-2-2-2-2@s2d --prompt x
expect 2 "pipeline 'chain:small:4': 'small' is neither a size nor key=value; drafters come after an @" "$specula" run --models "$models" --pipeline chain:small:4 --prompt x
expect 2 'must be fewer than its exits, 1' "$specula" run --models "$models" --pipeline chain:4:exits=0.5@small --prompt x
expect 2 "'glide' reads the target's keys and values: it does nothing by itself" "$specula" run --models "$whole" \
  --pipeline autoregressive@glide --prompt x

# Intervals, comparisons, categories, given costs.
expect 0 '^chain:2  *[0-9.]*x \[[0-9.]*, [0-9.]*\] .*' "$specula" compare --models "$models" --prompts "$prompts" --limit 3 --max-new-tokens 8 \
  --repeat 2 --pipelines 'chain:{2,3} chain:2@max-gram' --against chain:2 --by-category --costs PW:small=0.02,max-gram=0 --json "$scratch/intervals.json"
also '^against chain:2 '
also '^speedup  *prompts/default (3)'
also 'SWI by PW'
for text in '"intervals": {' '"swi_by_costs": {' '"categories": \[' '"resamples": 10000' '"within_noise": '; do
  expect 0 "$text" cat "$scratch/intervals.json"
done
expect 0 '^autoregressive  *1.00x  ' "$specula" compare --models "$models" --prompts "$prompts" --limit 1 --max-new-tokens 4  # one prompt: no interval
# Searches: on development prompts, reported on others.
search=("$specula" compare --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 8)
expect 0 '^2 prompts to report on, 3 to develop on' "${search[@]}" --dev 3 --dry-run --search 'chain:{2..3}@{small,base}' --pipelines chain:10@max-gram
also '^pipeline chain:10@max-gram'
also '^search chain:{2..3}@{small,base}: 4 candidates'
also '^  chain:3@base'
expect 0 '^  picked chain:[23]@small of 2: .* on 2 development prompts; next chain:[23]@small with' "${search[@]}" --dev 2 \
  --search 'chain:{2,3}@small' --search 'cascade:limits={1,2}-0-1@base,small' --search-for mat --against 'chain:{2,3}@small' \
  --json "$scratch/searched.json"
also '^against chain:[23]@small '
also '^chain:[23]@small .*2/2'
expect 0 '"picked": "chain:[23]@small"' cat "$scratch/searched.json"
also '"dev": 2'
expect 2 'default.jsonl: of 40 prompts, --skip 30 and --dev 10 leave no prompt to report on' "${search[@]}" --skip 30 --search 'chain:{2,3}'
expect 2 "no prompt is of the category 'poems'" "${search[@]}" --categories poems
expect 2 'no model .tiny' "${search[@]}" --search 'chain@{small,tiny}' --dry-run
head -c 9000 /dev/zero | tr '\0' 'x' >"$scratch/long.txt"
printf '\n---\nshort\n' >>"$scratch/long.txt"
expect 2 'and the target .* was trained for 2048' "$specula" compare --models "$models" --prompts "$scratch/long.txt" --pipelines chain:2 --dry-run
expect 0 '^1 prompts to report on' "$specula" compare --models "$models" --prompts "$scratch/long.txt" --pipelines chain:2 --dry-run --leave-out-long

# A measurement has one thread unless it is told otherwise.
one=("$specula" compare --models "$models" --prompts "$prompts" --limit 1 --max-new-tokens 4)
expect 0 '^1 thread; --threads takes another number' "${one[@]}" --pipelines chain:2
expect 0 '^chain:2 ' "${one[@]}" --pipelines chain:2 --threads 2
never 'takes another number'

# The race: coloured on request, and the median of several runs.
race=("$specula" run --models "$whole" --race --prompts "$prompts" --limit 1)
expect 0 'speculation: .* in the median of 2 runs (.*), same text' "${race[@]}" --max-new-tokens 8 --runs 2
also '^run 2 of 2: '
also '^--- cost-aware:chain@small$'
expect 0 '^24 tokens, [0-9]* of them drafted, [0-9]* calls of the target' "${race[@]}" --max-new-tokens 24 --pipeline chain:4@small
expect 0 '.\[32mgreen.\[0m: drafted and accepted' "${race[@]}" --max-new-tokens 8 --color always
expect 0 '^--- cost-aware:chain@small$' "${race[@]}" --max-new-tokens 8 --draft "$models/small"

TERM=xterm "${race[@]}" --max-new-tokens 8 >"$scratch/pipe.out" 2>&1  # no terminal: no escape codes
expect 0 'speculation: .*same text' cat "$scratch/pipe.out"
expect 1 '^0$' grep -c "$(printf '\033')" "$scratch/pipe.out"
expect 0 'speculation: .*, other text.* (prompt 1 from token [0-9]* on)$' "${race[@]}" --max-new-tokens 24 --temperature 1 --pipeline chain:2:draw=sampled
if command -v python3 >/dev/null; then
  # On a terminal: side by side if it is wide enough and takes escape codes. The screen's contents are not
  # interpreted, only searched.
  # usage: on_terminal COLUMNS COMMAND...
  on_terminal() {
    python3 -c 'import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 30, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
try:
    while part := os.read(terminal, 65536):
        sys.stdout.buffer.write(part)
except OSError:  # the end, on Linux
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))' "$@"
  }
  short=("${race[@]}" --max-new-tokens 8 --pipeline chain:4@small)
  # A long prompt shows how far it is read, on a terminal.
  expect 0 '\[#*\.*\]  *[0-9]*%  .* left' on_terminal 90 env TERM=xterm "$specula" run --models "$models" --threads 1 --pipeline autoregressive \
    --prompt "$(printf 'def add(a, b): %.0s' $(seq 150))" --max-new-tokens 2
  expect 0 'plain decoding .* | .*chain:4@small' on_terminal 120 env TERM=xterm "${short[@]}"
  also 'measured one after the other, shown [0-9]* times slower'
  also 'tokens/s, 8 tokens in [0-9.]* s, done .* | .*tokens/s, 8 tokens in [0-9.]* s, done'
  also '.\[32m'
  also 'speculation: .*x plain decoding (.* tokens/s against .*), same text'
  for narrow in 'on_terminal 90 env TERM=xterm NO_COLOR=1' 'on_terminal 120 env TERM=dumb'; do
    # shellcheck disable=SC2086  # words
    expect 0 '^--- chain:4@small' $narrow "${short[@]}"
    also '^speculation: .*same text'
    cp "$scratch/out" "$scratch/narrow.out"
    expect 1 '^0$' grep -c "$(printf '\033')" "$scratch/narrow.out"
  done
  expect 0 '.\[1m--- chain:4@small' on_terminal 90 env TERM=xterm "${short[@]}"
fi

# Pages: the JSON in them is that of --json, whatever the prompts hold.
if command -v python3 >/dev/null; then
  cat >"$scratch/page.py" <<'END'
import html.parser, json, re, sys
class Page(html.parser.HTMLParser):
    """Open elements, the JSON, and what would be loaded from elsewhere."""
    def __init__(self, text):
        super().__init__()
        self.open, self.data, self.scripts, self.outside = [], None, 0, []
        self.feed(text)
        self.close()
        assert not self.open, self.open
    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "input", "link", "img", "br"):
            self.open.append((tag, dict(attributes)))
        self.scripts += tag == "script"
        self.outside += [value for name, value in attributes if name in ("src", "href")]
    def handle_endtag(self, tag):
        assert self.open and self.open.pop()[0] == tag, tag
    def handle_data(self, text):
        if self.open and self.open[-1] == ("script", {"id": "data", "type": "application/json"}):
            assert self.data is None
            self.data = json.loads(text)
def read(file):
    text = open(file, encoding="ascii").read()
    page = Page(text)
    assert text.startswith("<!doctype html>") and page.scripts == 2 and not page.outside, (page.scripts, page.outside)
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert not re.search(r"@DATA@|/\* page\.|@import|url\(", text)
    return page.data
END
  # shellcheck disable=SC2016  # Python
  printf '%s\n' '{"prompt": "def f():\n    \"\"\"</script><b>&amp; \u00e9\u4e2d\u0007", "category": "a </script><b>"}' \
    '{"question": "What is 2 + 3?", "category": "b"}' '{"question": "What is 2 + 4?", "category": "b"}' >"$scratch/odd.jsonl"
  expect 0 '^chain:2 ' "$specula" compare --models "$models" --prompts "$scratch/odd.jsonl" --max-new-tokens 8 --by-category --against chain:2 \
    --pipelines 'chain:{2,3}' --json "$scratch/page.json" --html "$scratch/old.html"
  expect 0 '^3 pipelines, 2 categories, as in the JSON' python3 -c 'import json, sys, page
data = page.read(sys.argv[1])
assert data == json.load(open(sys.argv[2]))
assert data["categories"][0]["name"] == "a </script><b>" and data["machine"]["cores"] > 0 and "against" in data
print(len(data["pipelines"]), "pipelines,", len(data["categories"]), "categories, as in the JSON")' "$scratch/old.html" "$scratch/page.json"
  expect 0 '^chain:3 ' "$specula" compare --models "$models" --prompts "$prompts" --limit 1 --max-new-tokens 4 --pipelines chain:3 --html "$scratch/one.html"
  expect 0 '^None' python3 -c 'import sys, page; print(page.read(sys.argv[1]).get("intervals"))' "$scratch/one.html"
  # Every byte of the prompt is in the page's tokens, and the rounds are the text that --json has.
  expect 0 'rounds traced to .*trace.html' "$specula" run --models "$models" --prompts "$scratch/odd.jsonl" --pipeline cape:3 --max-new-tokens 12 \
    --trace "$scratch/trace/odd" --json "$scratch/odd.json"
  expect 0 '^3 texts, [1-9][0-9]* rounds' python3 -c 'import json, sys, page
data, run = page.read(sys.argv[1]), json.load(open(sys.argv[2]))
spell = lambda tokens: "".join(data["bytes"][str(t)] for t in tokens).encode("latin-1").decode()
assert data["pipeline"] == "cape:3" and len(data["texts"]) == len(run["prompts"])
total = 0
for text, one in zip(data["texts"], run["prompts"]):
    assert one["prompt"] in spell(text["prompt"]), (one["prompt"], spell(text["prompt"]))
    tokens = []
    for r in text["rounds"]:
        assert r["tokens"][0] == (tokens or text["prompt"])[-1]
        assert len(r["tokens"]) == len(r["parents"]) == len(r["draft"]) == len(r["target"])
        assert all(0 <= p <= 1 for p in r["target"] + r["draft"] + [r["next_target"]])
        tokens += ([r["tokens"][n] for n in r["accepted"][1:]] + [r["next"]])[:r["emitted"]]
    assert len(tokens) == one["new_tokens"] and spell(tokens).startswith(one["text"]), (spell(tokens), one["text"])
    assert len(text["rounds"]) == one["target_calls"]
    total += len(text["rounds"])
print(len(data["texts"]), "texts,", total, "rounds")' "$scratch/trace/odd/trace.html" "$scratch/odd.json"
  expect 0 'rounds traced to' "$specula" run --models "$models" --race --runs 2 --limit 2 --max-new-tokens 4 --pipeline chain:2 --trace "$scratch/trace/odd"
  expect 0 '^2$' python3 -c 'import sys, page; print(len(page.read(sys.argv[1])["texts"]))' "$scratch/trace/odd/trace.html"
fi

# Tuning: measured, predicted, run.
tune=("$specula" compare --models "$models" --prompts "$prompts" --limit 2 --max-new-tokens 8)
expect 0 'SWI predicted' "$specula" compare --models "$whole" "${tune[@]:4}" --tune swi --drafters glide,max-gram --dev 1
expect 2 'no model .tiny' "${tune[@]}" --tune swi --drafters tiny,max-gram
expect 0 'SWI predicted' "${tune[@]}" --tune time --dev 1
for name in chain@base chain@small chain@max-gram cascade@base,max-gram cascade@small,max-gram cascade@base,small,max-gram; do
  also "^${name%@*}:[a-z0-9=-]*@${name#*@} .*2/2"
done
expect 0 '^2 prompts to report on, 10 to develop on' "${tune[@]}" --tune swi --drafters small,max-gram --dry-run
expect 0 'SWI predicted' "${tune[@]}" --tune swi --drafters small,max-gram --pipelines chain:3 --dev 1 --json "$scratch/tuned.json"
also '^chain:3 .*2/2'
also '^recommended: '
expect 0 '"tuned_for": "swi"' cat "$scratch/tuned.json"
expect 0 '"draft_calls_per_round"' cat "$scratch/tuned.json"
expect 0 '^likeliest token as with all blocks' "${tune[@]}" --find-blocks --dev 2
also 'the best: chain:[1-4]:.*@layer-skip'
also '^chain:1:.*@layer-skip .*2/2'

# Weights at 8 bits: written, expanded, written again; what bfloat16 holds is the same model.
expect 2 'is not a folder' "$specula" quantize "$scratch/nowhere" "$scratch/out"
expect 2 "the folder to write is the model's own" "$specula" quantize "$whole/small" "$whole/small"
expect 2 'does not go with --expand' "$specula" quantize "$whole/small" "$scratch/out" --expand --tokens x
expect 0 'rounding error is 0.[0-9]*%' "$specula" quantize "$whole/small" "$scratch/eight"
expect 0 '^## Weights at 8 bits' cat "$scratch/eight/MODEL_CARD.md"
expect 0 'wide/model.safetensors: [0-9]* bytes' "$specula" quantize "$scratch/eight" "$scratch/wide" --expand
expect 0 'rounding error is 0.00%' "$specula" quantize "$scratch/wide" "$scratch/again"
expect 0 '^same$' sh -c 'cmp "$1" "$2" && echo same' sh "$scratch/eight/model.safetensors" "$scratch/again/model.safetensors"
expect 0 '^same$' sh -c 'cmp "$1" "$2" && echo same' sh "$whole/small/config.json" "$scratch/again/config.json"
for draft in eight wide; do
  expect 0 'chain:3: 24 tokens, ' "$specula" run --models "$models" --draft "$scratch/$draft" --pipeline chain:3 --prompt 'def add(a, b):' \
    --max-new-tokens 24
  grep -o '24 tokens, [0-9]* calls' "$scratch/out" >"$scratch/$draft.calls"
done
expect 0 '^same$' sh -c 'cmp "$1" "$2" && echo same' sh "$scratch/eight.calls" "$scratch/wide.calls"

# A table of bigrams, written and put to use.
printf 'one two one two' >"$scratch/text.txt"
pack=$scratch/pack
mkdir "$pack" && ln -s "$models/target" "$pack/target"
expect 0 '1 documents, .* of 2048 tokens have a next one' "$specula" bigram --text "$scratch/text.txt" \
  --tokenizer "$models/target/tokenizer.model" --output "$pack/bigram/bigram.json"
expect 0 '^40 documents' "$specula" bigram --text "$prompts" --tokenizer "$models/target/tokenizer.model" --output "$pack/bigram/bigram.json"
table=("$specula" run --models "$pack" --pipeline chain:bigram=table@max-gram --prompt 'def add(a, b):' --max-new-tokens 8)
expect 0 'chain:bigram=table@max-gram: 8 tokens' "${table[@]}"
sed -i 's/"vocabulary":"[0-9a-f]*"/"vocabulary":"0123456789abcdef"/' "$pack/bigram/bigram.json"
expect 1 "bigram.json: a table of other tokens than the target's; bigram=text" "${table[@]}"
printf '{"vocab_size":2,"next":[1,-1]}' >"$pack/bigram/bigram.json"
expect 1 'bigram.json: a table of 2 tokens, the target has 2048; bigram=text' "${table[@]}"
table[5]=chain@max-gram
expect 1 'bigram.json: a table of 2 tokens, the target has 2048; bigram=text' "${table[@]}"
table[5]=chain:bigram=text@max-gram
expect 0 'chain:bigram=text@max-gram: 8 tokens' "${table[@]}"
expect 0 'chain:bigram=both@max-gram: 8 tokens' "$specula" run --models "$pack" --target "$models/target" \
  --pipeline chain:bigram=both@max-gram --prompt 'def add(a, b):' --max-new-tokens 8
expect 2 'there is no table of bigrams for this target; write one with specula bigram' "$specula" run --models "$pack" \
  --target "$models/target" --pipeline chain:bigram=table@max-gram --prompt x
table[5]=chain:bigram=table@max-gram
printf '{"vocab_size":2,' >"$pack/bigram/bigram.json"
expect 1 'bigram.json: ' "${table[@]}"
expect 2 'text.txt is the file of --text' "$specula" bigram --text "$scratch/text.txt" --output "$scratch/text.txt"
expect 2 'is a folder, must be a file' "$specula" bigram --text "$scratch" --output "$scratch/bigram.json"
expect 1 'no/such/text: cannot be opened' "$specula" bigram --text no/such/text --output "$scratch/bigram.json"
expect 1 'default.jsonl' "$specula" bigram --text "$scratch/text.txt" --output "$prompts/bigram.json"
expect 1 'cannot be created' "$specula" run --models "$whole" --prompt x --trace "$prompts"
if [ -e /proc/self ]; then expect 1 'trace /proc: cannot be written to' "$specula" run --models "$whole" --prompt x --trace /proc; fi
expect 0 'dot only: .dot. is not on the PATH' env PATH=/nonexistent "$specula" run --models "$whole" --pipeline cape:2 --prompt x \
  --max-new-tokens 4 --trace "$scratch/trace/one"
expect 0 '^  n0 -> n1' cat "$scratch/trace/one/round-0001.dot"
expect 0 'speculation: .*same text' "$specula" run --models "$whole" --race --prompts "$prompts" --limit 2 --max-new-tokens 4 \
  --trace "$scratch/trace/race"
expect 0 'digraph proposal' cat "$scratch/trace/race/prompt-02-round-0001.dot"
if command -v dot >/dev/null; then
  expect 0 '</svg>' cat "$scratch/trace/race/prompt-02-round-0001.svg"
fi
oddly_named=$scratch/$(printf 'p\377.jsonl')  # no UTF-8
cp "$prompts" "$oddly_named"
expect 0 'chain:3 .*4/4' "$specula" compare --models "$models" --pipelines 'chain:3 chain:2:draw=sampled' --prompts "$prompts" --prompts "$oddly_named" --limit 2 \
  --max-new-tokens 12 --temperature 0.7 --seed 5 --json "$scratch/figures.json"
for key in identical_to_autoregressive tokens_per_second_with_prefill acceptance_by_depth mat_per_verified_node; do
  expect 0 "\"$key\"" cat "$scratch/figures.json"
done
exit "$failed"
