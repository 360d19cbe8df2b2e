#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: command_line.sh SPECULA DISTANCE EXAMPLES_FOLDER [RPC_SERVER]
# Exit codes and messages of the commands inside llama.cpp, of `specula convert` and of specula-distance, and what they do with the model pack.
set -uo pipefail
specula=$1 distance=$2 examples=$3 rpc_server=${4:-}
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

expect 0 '--type' "$specula" convert --help
expect 2 'model is required' "$specula" convert
expect 2 "type 'q4_k', must be f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or auto" "$specula" convert x y --type q4_k
expect 2 'no/such: there is no such file or folder' "$specula" convert no/such "$scratch/x.gguf"
inside() { "$specula" "$1" --engine llama.cpp "${@:2}"; }
expect 2 '--target is required with --engine llama.cpp' inside run --prompt x
expect 2 "unknown pipeline 'nonsense'; the nearest are" inside run -m x --pipeline nonsense
expect 2 "no draft 'small': give --draft small=FILE" inside run -m x --pipeline chain
expect 2 "no draft 'small': give --draft small=FILE; drafts are a, b" inside compare -m x --draft b=y --draft a=x --pipelines chain
expect 2 'nodes: Value 300 not in range' inside passes -m x --nodes 300
expect 2 'no target: .*/nowhere is no GGUF file and has no config.json' inside passes -m x --nodes 4 --beside "$scratch/nowhere" --prompt x
expect 2 'weights is for --engine cpu, and this run is with llama.cpp' inside compare -m x --weights full
expect 2 'weights is for --engine cpu or --beside, and this run is with llama.cpp' inside passes -m x --weights full
expect 2 'cut-vocabulary is for --engine cpu or cuda' inside run -m x --cut-vocabulary --prompt x
expect 2 'rpc-delays requires --rpc' inside compare -m x --rpc-delays 5 --pipelines chain:4@max-gram
expect 2 "endpoint 'host', must be HOST:PORT" inside run -m x --rpc host --pipeline chain:4@max-gram --prompt x
expect 2 "endpoint 'host', must be HOST:PORT" inside compare -m x --rpc host --rpc-delays 5 --pipelines chain:4@max-gram
expect 1 'RPC server 127.0.0.1:1: cannot be connected to' inside run -m x --rpc 127.0.0.1:1 --pipeline chain:4@max-gram --prompt x
expect 1 'no/such.gguf: libllama cannot load this' inside run -m no/such.gguf --prompt x

models=$examples/models
if [ ! -e "$models/base/model.safetensors" ] || [ ! -e "$models/small/model.safetensors" ]; then
  echo 'SKIP: no model pack'
  [ "$failed" -eq 0 ] && exit 77
  exit 1
fi
# A draft of the pack as the target, which is quicker.
expect 0 'bytes' "$specula" convert "$models/base" "$scratch/target.gguf"
expect 0 'bytes' "$specula" convert "$models/small" "$scratch/small.gguf"
# One thread unless said otherwise: ggml's threads wait in loops, which takes ten times as long beside another test.
models_of=(--engine llama.cpp -m "$scratch/target.gguf" --draft "$scratch/small.gguf" --threads 1)
run=("$specula" run "${models_of[@]}") compare=("$specula" compare "${models_of[@]}")
question=$'Question: What is 3 + 4?\nAnswer:'
expect 0 'Question: What is 3 + 4?' "${run[@]}" --prompt "$question" --max-new-tokens 24
also '^cost-aware:chain@small: 24 tokens, .* calls of the target, .* tokens/s (.* with the prompt)'
expect 0 '^cost-aware:chain@other: 4 tokens' "$specula" run --engine llama.cpp -m "$scratch/target.gguf" --draft "other=$scratch/small.gguf" \
  --prompt "$question" --max-new-tokens 4 --threads 2 --draft-threads 1
# Without --engine the own decoder reads what it can; a file of another network is llama.cpp's, here in vain.
expect 0 'autoregressive: 4 tokens' "$specula" run -m "$scratch/target.gguf" --threads 1 --prompt "$question" --max-new-tokens 4 --pipeline autoregressive
never 'note: --engine'
LC_ALL=C sed 's/llama/lxama/g' "$scratch/target.gguf" >"$scratch/other.gguf"
expect 1 "^note: --engine llama.cpp, since specula's own decoder does not read the target: " "$specula" run -m "$scratch/other.gguf" --prompt x
also 'libllama cannot load this as a model'
# Another pipeline, another number of threads: the same text.
text() { "${run[@]}" --prompt "$question" --max-new-tokens 24 "$@" 2>"$scratch/err"; }
plain=$(text --pipeline autoregressive)
for options in 'chain:3' 'chain:10@max-gram --threads 2' 'cost-aware:chain --threads 2 --draft-threads 1'; do
  # shellcheck disable=SC2086  # options are words
  if [ "$(text --pipeline $options)" != "$plain" ]; then
    echo "FAILED: $options writes another text than plain decoding"
    failed=1
  fi
done
if [ "$(text --pipeline chain:3 --same-bits)" != "$(text --pipeline autoregressive --same-bits)" ]; then
  echo 'FAILED: with --same-bits, chain:3 writes another text than plain decoding'
  failed=1
fi
# So it is with penalties and biases, which are those of the target and of its draft.
penalties='--repeat-penalty 1.2 --frequency-penalty 0.3 --logit-bias 15=-inf --logit-bias 20=0.5'
# shellcheck disable=SC2086  # words
if [ "$(text --pipeline chain:3 --same-bits $penalties)" != "$(text --pipeline autoregressive --same-bits $penalties)" ] ||
  [ "$(text --pipeline autoregressive --same-bits $penalties)" = "$(text --pipeline autoregressive --same-bits)" ]; then
  echo 'FAILED: with penalties, chain:3 writes another text than plain decoding, or they change nothing'
  failed=1
fi
# A text keeps to a grammar, with a draft as without, alone and beside others.
echo 'root ::= " " [a-c]+ "."' >"$scratch/letters.gbnf"
grammar=(--grammar "$scratch/letters.gbnf")
kept=$(text --pipeline autoregressive --same-bits "${grammar[@]}")
if [ "$(text --pipeline chain:3 --same-bits "${grammar[@]}")" != "$kept" ] || ! [[ ${kept#"$question"} =~ ^\ [a-c]+\.?$ ]]; then
  echo "FAILED: with a grammar, chain:3 writes another text than plain decoding, or it is not the grammar's: $kept"
  failed=1
fi
if [ "$(text --pipeline chain:3 -n 3 --batch 2 --temperature 1 "${grammar[@]}" | grep -cE '^Answer: [a-c]+\.?$')" != 3 ]; then
  echo 'FAILED: in a batch texts do not keep to the grammar'
  failed=1
fi
expect 2 '--grammar is for --engine llama.cpp' "$specula" run --engine cpu -m "$scratch/target.gguf" "${grammar[@]}" --prompt x
echo 'root ::= (' >"$scratch/wrong.gbnf"
expect 2 'libllama cannot read the grammar' "${run[@]}" --grammar "$scratch/wrong.gbnf" --prompt x
expect 2 'grammar: File does not exist: ' "${run[@]}" --grammar "$scratch/none.gbnf" --prompt x
# Likewise an instance of a JSON schema, of which the grammar is made.
cat >"$scratch/schema.json" <<'END'
{"type": "object", "properties": {"digit": {"type": "integer", "minimum": 3, "maximum": 5}, "word": {"enum": ["yes", "no"]},
 "code": {"type": "string", "pattern": "^[a-c]{2,3}$"}}, "required": ["digit", "word", "code"], "additionalProperties": false}
END
echo '{"type": "number", "$ref": "#/nowhere"}' >"$scratch/wrong.json"
cat >"$scratch/fits.py" <<'END'
import json, re, sys
x = json.loads(open(sys.argv[1]).read()[len(sys.argv[2]):])
print("fits" if set(x) == {"digit", "word", "code"} and 3 <= x["digit"] <= 5 and x["word"] in ("yes", "no") and re.fullmatch("[a-c]{2,3}", x["code"]) else x)
END
schema=("${run[@]}" --prompt "$question" --max-new-tokens 80 --json-schema "$scratch/schema.json")
if ! "${schema[@]}" 2>&1 | grep -q 'built without'; then
  for pipeline in autoregressive chain:3; do
    "${schema[@]}" --pipeline $pipeline >"$scratch/instance" 2>/dev/null
    expect 0 '^fits$' python3 "$scratch/fits.py" "$scratch/instance" "$question"
  done
  expect 2 '^specula run: --json-schema is for --engine llama.cpp' "$specula" run --engine cpu -m "$scratch/target.gguf" --prompt x \
    --json-schema "$scratch/schema.json"
  expect 2 'wrong.json: JSON schema conversion failed' "${run[@]}" --json-schema "$scratch/wrong.json" --prompt x
  expect 2 'letters.gbnf: .*parse error' "${run[@]}" --json-schema "$scratch/letters.gbnf" --prompt x
else
  expect 2 "built without llama.cpp's converter of JSON schemas" "${schema[@]}"
fi
expect 2 'grammar excludes --json-schema' "${run[@]}" "${grammar[@]}" --json-schema "$scratch/schema.json" --prompt x
# The text ends before a stop string, which begins and ends inside tokens or not.
written=${plain#"$question"}
stop=${written:10:3}
if [ "$(text --pipeline chain:3 --stop "$stop")" != "$(printf '%s' "$question${written%%"$stop"*}")" ]; then
  echo 'FAILED: --stop ends the text elsewhere'
  failed=1
fi
# A prompt that begins as templates do has one beginning token, and libllama has nothing to warn of.
special() { "${run[@]}" --special --pipeline autoregressive --max-new-tokens 24 "$@" 2>"$scratch/err"; }
if [ "$(special --prompt "<s>$question")" != "<s>$plain" ] || grep -q BOS "$scratch/err"; then
  echo 'FAILED: --special with <s> in front writes another text'
  failed=1
fi
expect 0 'starts with 2 BOS tokens' "${run[@]}" --special --pipeline autoregressive --max-new-tokens 1 --prompt "<s><s>$question"
# With --special, names of control tokens are encoded as tokens: the text ends before it begins.
expect 0 'autoregressive: 1 tokens' "${run[@]}" --prompt 'One.</s>' --special --pipeline autoregressive --max-new-tokens 1
expect 2 "a pipeline of 300 draft tokens: llama.cpp has sequences for trees of 256" "${run[@]}" --prompt x --pipeline dynamic-tree:10:5:300
expect 2 'cannot leave layers out' "${run[@]}" --prompt x --pipeline adaptive-chain:end=paper@layer-skip
expect 2 'have no exits' "${run[@]}" --prompt x --pipeline chain:4:exits=0.5-0@small
expect 2 'have no exits' "${run[@]}" --prompt x --pipeline chain:4:exits=0.5@small
expect 2 "no draft 'glide'" "${run[@]}" --prompt x --pipeline chain@glide
expect 1 'a table of 3 tokens, the models have 2048' "${run[@]}" --prompt x --pipeline chain:10@max-gram --bigram <(echo '{"vocab_size": 3, "next": [2, -1, 0]}')
expect 1 "a table of other tokens than the models'" "${run[@]}" --prompt x --pipeline chain:10@max-gram \
  --bigram <(sed 's/"next"/"vocabulary": "0123456789abcdef", "next"/' "$models/bigram/bigram.json")
expect 0 '^pipeline .*speedup' "${compare[@]}" --prompts "$examples/prompts/default.jsonl" --limit 2 --max-new-tokens 16 \
  --pipelines 'chain:2 sampled-tree@small chain:10@max-gram' --batch 2 --bigram "$models/bigram/bigram.json" --json "$scratch/out.json"
also '^sampled-tree@small .* 2/2 '
expect 0 '"identical_to_autoregressive": 2' cat "$scratch/out.json"
also '"engine": "llama.cpp '
also '"small": "small.gguf"'
expect 1 'nowhere/x.json: cannot be opened for writing' "${compare[@]}" --pipelines chain --json "$scratch/nowhere/x.json"
# Many texts at once, a trace and a race, as in the other engine.
expect 0 '3 texts, 2 at once' "${run[@]}" --prompts "$examples/prompts/default.jsonl" --limit 3 --max-new-tokens 8 --pipeline chain:2 --batch 2
expect 1 'with several texts a slot is one sequence, so its nodes are a chain' "${run[@]}" --prompts "$examples/prompts/default.jsonl" --limit 2 \
  --max-new-tokens 8 --pipeline dynamic-tree:3:2:8@small --batch 2
expect 0 'trace.html' "${run[@]}" --prompt "$question" --max-new-tokens 8 --pipeline chain:2 --trace "$scratch/trace"
expect 0 'speculation: .*same text' "${run[@]}" --prompt "$question" --max-new-tokens 8 --pipeline chain:2 --race
expect 0 '^chain:2 ' "${compare[@]}" --limit 1 --max-new-tokens 8 --pipelines chain:2 --html "$scratch/page.html"
expect 0 '<html' cat "$scratch/page.html"
# What a pass costs, beside our own decoder.
passes=("$specula" passes --engine llama.cpp --threads 1 -m "$scratch/target.gguf" --nodes 3 --prompt "$question" --repeat 2)
expect 0 '^nodes   *us  T(n)/T(1)  rows differ by$' "${passes[@]}" --same-bits
also '^3  .* 0$'
also '^llama.cpp: drafts that cost nothing .*; best nodes at 0.5: [123] ([0-9.]*x), 0.7: '
expect 0 '^nodes   *us  products  beside  T(n)/T(1)  rows differ by$' "${passes[@]}" --beside "$models/base" --json "$scratch/passes.json"
also '^specula:$'
also '^1  .* 1.00  .* 0$'
also '^3  '
expect 0 '"beside": "base"' cat "$scratch/passes.json"
also '"turns": 2'
also '"product_microseconds": '
also '"pays_from": '
also '"acceptance_rate": 0.7'
also '"built_with": "'
# The target's layers on a server, near and at a distance.
if [ -n "$rpc_server" ]; then
  port=$((20000 + RANDOM % 20000))
  "$rpc_server" -p $port -t 1 >"$scratch/server" 2>&1 &
  server=$!
  for _ in {1..200}; do (: <>/dev/tcp/127.0.0.1/$port) 2>"$scratch/err" && break || sleep 0.05; done
  expect 0 '^2.0 ms one way$' "${compare[@]}" --rpc 127.0.0.1:$port --rpc-delays 0,2 --prompts "$examples/prompts/default.jsonl" --limit 2 \
    --max-new-tokens 12 --pipelines chain:3 --json "$scratch/delays.json"
  also '^chain:3 .* 2/2 '
  expect 0 '"one_way_milliseconds": 2.0' cat "$scratch/delays.json"
  also '"speedup_by_prompt"'
  also '"rpc_servers": 1'
  if [ "$(text --pipeline chain:3 --rpc 127.0.0.1:$port --draft-rpc 127.0.0.1:$port)" != "$plain" ]; then
    echo 'FAILED: models on a server write another text'
    failed=1
  fi
  kill $server
fi
# A file with a chat template: turns, each after the answer before it; raw; a conversation.
expect 2 '--chat: the target .*target.gguf has no chat template' "${run[@]}" --prompt x --chat
mkdir "$scratch/chat" && ln -s "$models"/base/* "$scratch/chat"
printf '%s' "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}" \
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" >"$scratch/chat/chat_template.jinja"
expect 0 'bytes' "$specula" convert "$scratch/chat" "$scratch/chat.gguf"
printf '%s\n' '{"turns": ["What is 2 + 3?", "And twice that?"]}' >"$scratch/turns.jsonl"
chat=("$specula" run --engine llama.cpp --threads 1 -m "$scratch/chat.gguf" --pipeline chain:4@max-gram --max-new-tokens 6)
expect 0 '^> What is 2 + 3?$' "${chat[@]}" --prompts "$scratch/turns.jsonl"
also '^> And twice that?$'
also '^chain:4@max-gram: 6 tokens'
expect 0 '^> one$' "${chat[@]}" --prompt one --chat --system 'Be brief.'
expect 0 '^one' "${chat[@]}" --prompt one --raw
expect 0 '^one' "${chat[@]}" --prompt one --special
expect 2 'chat excludes --special' "${chat[@]}" --prompt one --special --chat
expect 0 '^pipeline ' "$specula" compare "${chat[@]:2:6}" --max-new-tokens 6 --pipelines chain:4@max-gram --prompts "$scratch/turns.jsonl" --json "$scratch/chat.json"
expect 0 '"style": "chat"' cat "$scratch/chat.json"
if script -qec true /dev/null >/dev/null 2>&1; then
  printf 'One?\nTwo?\n/exit\nnot this\n' >"$scratch/lines"
  # shellcheck disable=SC2016  # $1 is the inner shell's
  expect 0 'chain:4@max-gram: 6 tokens' sh -c 'script -qec "$1" /dev/null <"$2"' sh "${chat[*]}" "$scratch/lines"
  also 'One question a line; /exit or Ctrl-D ends'
fi
# A token that ends texts and has no place in the file.
mkdir "$scratch/ends" && ln -s "$models"/base/* "$scratch/ends" && echo '{"eos_token_id": [3, 4, 5]}' >"$scratch/ends/generation_config.json"
expect 0 'note: token 5 ends a text of this model, but a GGUF file has no place for more than three' "$specula" convert "$scratch/ends" "$scratch/ends.gguf"
expect 0 'autoregressive: 1 tokens' inside run -m "$scratch/ends.gguf" --threads 1 --prompt 'def add(a, b):' --pipeline autoregressive --max-new-tokens 8
# A model in floats is as far from itself as it should be.
expect 2 'prompts is required' "$distance" --target "$models/base"
expect 0 '^specula base: total variation 0.0 on average, 0.0 at most$' "$distance" --target "$models/base" --own "$models/base" \
  --weights full --inputs full --prompts "$examples/prompts/default.jsonl" --max-new-tokens 8 --json "$scratch/distance.json" --rows "$scratch/rows"
expect 0 '"same_likeliest": 8' cat "$scratch/distance.json"
# At 4 bits it is another model, which runs all the same.
expect 0 'bytes' "$specula" convert "$models/base" "$scratch/q4_0.gguf" --type q4_0
expect 0 ': 8 tokens' inside run -m "$scratch/q4_0.gguf" --threads 1 --prompt "$question" --max-new-tokens 8
expect 0 '^llama.cpp q4_0.gguf: total variation 0[.]0*[1-9][0-9]* on average' "$distance" --target "$models/base" --llama "$scratch/q4_0.gguf" \
  --prompts "$examples/prompts/default.jsonl" --max-new-tokens 8
exit "$failed"
