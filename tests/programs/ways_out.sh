#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: ways_out.sh SPECULA EXAMPLES_FOLDER
# What a refusal of the program names as the way out: the refusal, its words, and what happens to a user who does what it says.
# tests/programs/ways_out.txt lists all such messages and the test of each.
set -uo pipefail
specula=$1 models=$2/models
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

# ---- Of the command line: no model is read.
export SPECULA_PARSE_ONLY=1
run=("$specula" run --prompt x) compare=("$specula" compare)
# refused TEXT COMMAND...: a mistake of the caller's. taken COMMAND...: the way out of the refusal before it.
refused() { expect 2 "$@"; }
taken() { expect 0 '^taken$' sh -c '"$@" && echo taken' sh "$@"; }
refused 'stop is empty: every text' "${run[@]}" --stop ''
taken "${run[@]}" --stop x
refused '--json does not go with --race; specula compare writes figures of several pipelines' "${run[@]}" --race --json "$scratch/x.json"
taken "${compare[@]}" --pipelines 'chain:2 chain:3' --json "$scratch/x.json"
refused '--runs goes with --race' "${run[@]}" --runs 2
taken "${run[@]}" --runs 2 --race
refused '--samples 2 goes with --temperature above 0' "${run[@]}" --samples 2
taken "${run[@]}" --samples 2 --temperature 1
refused '--logprobs requires --json' "${run[@]}" --logprobs 1
taken "${run[@]}" --logprobs 1 --json "$scratch/x.json"
refused '--logit-bias x: must be TOKEN=BIAS, a token.s number and a number or -inf' "${run[@]}" --logit-bias x
taken "${run[@]}" --logit-bias 3=-inf
refused '--draft y=: must be NAME=PATH, or a path' "${run[@]}" --draft y=
taken "${run[@]}" --draft "y=$models/small" --draft "$models/small"
refused '--dev is for --search, --tune and --find-blocks; --skip leaves prompts out' "${compare[@]}" --dev 3
for chooses in '--search chain:{2,3}' '--tune swi' --find-blocks; do
  # shellcheck disable=SC2086  # words
  taken "${compare[@]}" --dev 3 $chooses
done
taken "${compare[@]}" --skip 3
refused "--against 'chain:9' is neither among --pipelines nor a --search" "${compare[@]}" --against chain:9
taken "${compare[@]}" --against chain:9 --pipelines 'chain:8 chain:9'
taken "${compare[@]}" --against 'chain:{8,9}' --search 'chain:{8,9}'
refused 'names all drafters of no pipeline (max-gram is a drafter, too: max-gram=0)' "${compare[@]}" --pipelines chain@max-gram --costs small=0.1
taken "${compare[@]}" --pipelines chain@max-gram --costs small=0.1,max-gram=0
refused '--batch does not go with --find-blocks: skipped layers are run text by text' "${compare[@]}" --find-blocks --batch 2
taken "${compare[@]}" --find-blocks
refused '--rpc-delays requires --rpc' "${compare[@]}" --rpc-delays 5
refused '--rpc-delays goes with --pipelines and --json alone' "${compare[@]}" --engine llama.cpp -m x --rpc h:1 --rpc-delays 5 --html "$scratch/x.html"
taken "${compare[@]}" --engine llama.cpp -m x --rpc h:1 --rpc-delays 5 --pipelines chain@max-gram --json "$scratch/x.json"
refused '--target is required with --engine llama.cpp: a GGUF file' "${run[@]}" --engine llama.cpp
taken "${run[@]}" --engine llama.cpp --target x.gguf
refused "no draft 'small': give --draft small=FILE" "${run[@]}" --engine llama.cpp -m x --pipeline chain
taken "${run[@]}" --engine llama.cpp -m x --pipeline chain --draft small=FILE
refused '--weights is for --engine cpu, and this run is with llama.cpp' "${run[@]}" --engine llama.cpp -m x --weights full
taken "${run[@]}" --engine cpu --weights full
refused '--weights is for --engine cpu or --beside, and this run is with llama.cpp' "$specula" passes --prompt x --engine llama.cpp -m x --weights full
taken "$specula" passes --prompt x --engine llama.cpp -m x --weights full --beside "$models/small"
refused '--cut-vocabulary is for --engine cpu or cuda, and this run is with llama.cpp' "${run[@]}" --engine llama.cpp -m x --cut-vocabulary
taken "${run[@]}" --engine cuda --cut-vocabulary
refused '--same-bits is for --engine llama.cpp, and this run is with cpu' "${run[@]}" --same-bits
taken "${run[@]}" --engine llama.cpp -m x --same-bits
refused 'nothing to count: give --text or --tokens' "$specula" bigram --output "$scratch/x.json"
for counted in '--text x' '--tokens x'; do
  # shellcheck disable=SC2086
  taken "$specula" bigram --output "$scratch/x.json" $counted
done
env -u SPECULA_PARSE_ONLY "$specula" convert "$models/small" "$scratch/small.gguf" >/dev/null
refused '--type is of GGUF files; tensors of a folder keep their type' "$specula" convert "$scratch/small.gguf" "$scratch/folder" --type q8_0
# Names of pipelines, with what stands in front of and behind the name that is given instead.
pipeline() {
  refused "$1" "${run[@]}" --pipeline "$2"
  shift 2
  for name in "$@"; do taken "${run[@]}" --pipeline "$name"; done
}
pipeline "unknown pipeline 'chian:3'; the nearest are chain, cape, beam" chian:3 chain:3 cape beam
pipeline "unknown pipeline 'hass'; @hass is a drafter: dynamic-tree@hass" hass dynamic-tree@hass
pipeline "'chain:small:4': 'small' is neither a size nor key=value; drafters come after an @" chain:small:4 chain:4@small
pipeline "is draw=... meant\|is draw=sampled meant" chain:drow=sampled chain:draw=sampled
pipeline 'whichever promises more, is a choice of cost-aware:cape' cape@small,max-gram cost-aware:cape@small,max-gram
pipeline 'the last of three drafters must be max-gram or prompt-lookup' cascade@base,s2d,small cascade@base,small,max-gram cascade@base,small,prompt-lookup
pipeline 'max-gram can only be the last drafter: it cannot review' cascade@max-gram,small cascade@small,max-gram
pipeline "this rule does not keep the target's distribution.* Lossless are sampling.*; add lossy=yes if a text of another distribution is what you want" cape:rule=block cape:rule=block:lossy=yes cape:rule=sampling
refused "pipeline 'chain@layer-skip': a draft that runs a part of its layers is run text by text, without --batch" "${compare[@]}" --pipelines chain@layer-skip --batch 2
taken "${compare[@]}" --pipelines chain@layer-skip
unset SPECULA_PARSE_ONLY

if [ ! -e "$models/target/model.safetensors" ] || [ ! -e "$models/small/model.safetensors" ] || ! command -v python3 >/dev/null; then
  echo 'SKIP: no model pack, or no python3'
  [ "$failed" -eq 0 ] && exit 77
  exit 1
fi
PYTHONPATH=$(dirname "${BASH_SOURCE[0]}")/../support
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
# The smallest model of the pack, as the target too.
few=(--threads 1 --max-new-tokens 2 --prompt 'def add(a, b):')
run=("$specula" run "${few[@]}" --models "$scratch/none" --pipeline autoregressive)
cat >"$scratch/change.py" <<'END'
"""change.py FOLDER [KEY=JSON...] [-TENSOR...] [TENSOR:TYPE...]: of config.json and of the weights"""
import json, pathlib, sys, tensors
folder = pathlib.Path(sys.argv[1])
config, model = tensors.read(folder)
for word in sys.argv[2:]:
    if "=" in word:
        key, value = word.split("=", 1)
        config[key] = json.loads(value)
    elif word.startswith("-"):
        model = {name: part for name, part in model.items() if not name.startswith(word[1:])}
    else:
        name, kind = word.split(":")
        model[name] = (kind, model[name][1] if name in model else [1], model[name][2] if name in model else bytes(4))
for file in ("config.json", "model.safetensors"):
    (folder / file).unlink()
tensors.write(folder, config, model)
END
# changed WORD...: a folder of that model with these changes, as $folder.
count=0
changed() {
  folder=$scratch/folder$((++count))
  mkdir "$folder" && ln -s "$models"/small/* "$folder"
  [ $# -eq 0 ] || python3 "$scratch/change.py" "$folder" "$@"
}
# no TEXT OPTION...: a file that is refused. runs OPTION...: a model that runs.
no() { expect 1 "$1" "${run[@]}" "${@:2}"; }
runs() { expect 0 ': [12] tokens, ' "${run[@]}" "$@"; }

# ---- Another network: its GGUF file in llama.cpp. That of the pack runs as a Gemma, though it makes no sense.
python3 - "$scratch" <<'END'
import pathlib, struct, sys
folder = pathlib.Path(sys.argv[1])
llama = (folder / "small.gguf").read_bytes()
string = lambda text: struct.pack("<Q", len(text)) + text
named = lambda text: string(b"general.architecture") + struct.pack("<I", 8) + string(text)
def write(name, *changes):
    out = llama
    for before, after in changes:
        assert before in out, (name, before)
        out = out.replace(before, after)
    (folder / name).write_bytes(out)
write("gemma.gguf", (b"llama.", b"gemma."), (named(b"llama"), named(b"gemma")))
write("eagle.gguf", (named(b"llama"), named(b"eagle")))
pre = string(b"tokenizer.ggml.model") + struct.pack("<I", 8)
write("words.gguf", (pre + string(b"llama"), pre + string(b"words")))
write("big.gguf", (b"GGUF\3\0\0\0", b"GGUF\0\0\0\3"))
END
as_gguf='run its GGUF file in llama.cpp (specula run --engine llama.cpp; docs/models.md)'
for network in 'architectures=["GemmaForCausalLM"]' 'hidden_act="gelu"' mlp_bias=true partial_rotary_factor=0.5 'rope_scaling={"type":"dynamic"}'; do
  changed "$network"
  no "config.json: key '${network%%=*}': .*$as_gguf" --target "$folder"
done
changed model.layers.0.self_attn.q_proj.bias:F32
no "is no part of a model of 3 layers of this architecture; $as_gguf" --target "$folder"
no "'gemma' is not read here, .*; $as_gguf" --engine cpu --target "$scratch/gemma.gguf"
"${run[@]}" --engine llama.cpp --target "$scratch/gemma.gguf" >"$scratch/out" 2>&1
if grep -q 'built without libllama' "$scratch/out"; then
  inside() { refused 'built without libllama; docs/llama_cpp.md says how' "${run[@]}" --engine llama.cpp "$@"; }
else
  inside() { runs --engine llama.cpp "$@"; }
fi
inside --target "$scratch/gemma.gguf"
no "key 'tokenizer.ggml.model': 'words' is not read, .*; specula run --engine llama.cpp runs such models" --engine cpu --target "$scratch/words.gguf"
no "version 50331648, .*; convert it: gguf-py's gguf_convert_endian.py" --engine cpu --target "$scratch/big.gguf"

# ---- Heads of others: a smaller model, or copies.
way_out='a draft head that other programs trained, of which those of EAGLE-3 alone are read, as folders (docs/heads.md): specula-train draft trains one for the target (docs/own_draft.md); a smaller model of its vocabulary and copies (chain@max-gram) need no training'
drafts=("$specula" run "${few[@]}" --models "$scratch/none" --target "$models/base")
for head in 'architectures=["PEagleDraftModel"]' medusa_num_heads=3 'speculators_model_type="peagle"'; do
  changed "$head"
  expect 1 "key '${head%%=*}': .*$way_out" "${drafts[@]}" --draft "$folder" --pipeline chain:2
done
changed -model.embed_tokens fc.weight:F32
expect 1 "tensor 'fc.weight': is of $way_out" "${drafts[@]}" --draft "$folder" --pipeline chain:2
expect 1 "key 'general.architecture': 'eagle' is $way_out" "${drafts[@]}" --draft "$scratch/eagle.gguf" --pipeline chain:2
expect 0 'chain:2: 2 tokens' "${drafts[@]}" --draft "$models/small" --pipeline chain:2
expect 0 'chain@max-gram: 2 tokens' "${drafts[@]}" --pipeline chain@max-gram

# ---- Quantized folders, MLX's too: the model as it was before, or its GGUF file.
before="take the model as it was before, or $as_gguf"
for key in quantization quantization_config; do
  changed "$key={\"bits\": 4, \"group_size\": 64}"
  no "key '$key': quantized weights, found an object of 2 keys, are not read: $before" --target "$folder"
done
changed model.layers.0.mlp.up_proj.weight:U32
no "dtype U32 is not supported, .*; if the weights are quantized, $before" --target "$folder"
changed -model.layers.0.mlp.up_proj.weight.exponents
no "in its file, so quantized by other programs: $before" --target "$folder"
changed
runs --target "$folder"
inside --target "$scratch/small.gguf"

# ---- Files of a folder that are missing, or beside what is read.
mv "$folder/model.safetensors" "$scratch/kept.safetensors"
no 'has neither model.safetensors nor model.safetensors.index.json; download the weights into it' --target "$folder"
echo x >"$folder/pytorch_model.bin"
no 'index.json, and pytorch_model.bin is not read: save the model as safetensors' --target "$folder"
echo 'version https://git-lfs.github.com/spec/v1' >"$folder/model.safetensors"
# shellcheck disable=SC2016  # words
no 'is a Git LFS pointer, not the file: `git lfs pull` in its repository fetches that' --target "$folder"
mv "$scratch/kept.safetensors" "$folder/model.safetensors"
runs --target "$folder"
echo '{}' >"$folder/adapter_config.json"
no 'adapters are not read: merge it into the weights, or move it elsewhere' --target "$folder"
mv "$folder/adapter_config.json" "$scratch"
runs --target "$folder"
changed tie_word_embeddings=false
no "tensor 'lm_head.weight' is missing: if the embedding is the LM head, set tie_word_embeddings in config.json" --target "$folder"
python3 "$scratch/change.py" "$folder" tie_word_embeddings=true
runs --target "$folder"
refused 'no target: .*; docs/models.md has the way from a model.s name to its files' "$specula" run "${few[@]}" --target "$scratch/nothing"
[ -e "$models/../../docs/models.md" ] || { echo 'FAILED: there is no docs/models.md'; failed=1; }

# ---- Tokenizers. One of the 256 bytes, as tokenizer.json files have them.
changed
rm "$folder/tokenizer.model"
no 'has neither tokenizer.model nor tokenizer.json; put the one that the model was published with into it' --target "$folder"
echo '{}' >"$folder/vocab.json"
no 'vocab.json and merges.txt are not read: save the tokenizer with transformers, which makes a tokenizer.json of them' --target "$folder"
cat >"$scratch/words.py" <<'END'
import json, pathlib, sys
bytes_ = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = {b: chr(b) for b in bytes_} | {b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in bytes_)}
vocab = {letters[b]: b for b in range(256)}
json.dump({"model": {"type": sys.argv[2], "vocab": vocab, "merges": [], "byte_fallback": len(sys.argv) > 3}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
           "decoder": {"type": "ByteLevel"}, "added_tokens": [{"id": 256, "content": "<end>", "special": True}]}, open(sys.argv[1], "w"))
END
python3 "$scratch/words.py" "$folder/tokenizer.json" BPE
sed -i 's/"eos_token_id": [0-9]*, *//' "$folder/config.json"
no 'names a token that ends a text: name it as eos_token in tokenizer_config.json, or in a GGUF file as tokenizer.ggml.eos_token_id' --target "$folder"
echo '{"eos_token": "<end>"}' >"$folder/tokenizer_config.json"
runs --target "$folder"
sed -i 's/}$/, "add_eos_token": true}/' "$folder/tokenizer_config.json"
no 'add_eos_token.: true is not read, it would end every prompt; expected false' --target "$folder"
sed -i 's/: true/: false/' "$folder/tokenizer_config.json"
runs --target "$folder"
printf 'IQ== 0\nIg== 1\n' >"$folder/tokenizer.model"
no "(tiktoken, as in Meta's own Llama 3 files), no SentencePiece model: put the tokenizer.json of Hugging Face's files in its place, or run the model as a GGUF file in llama.cpp (specula run --engine llama.cpp)" --target "$folder"
rm "$folder/tokenizer.model"
runs --target "$folder"
python3 "$scratch/words.py" "$folder/tokenizer.json" BPE byte_fallback
expect 1 'its merges have no scores, which GGUF needs: put the SentencePiece model beside it (tokenizer.model)' "$specula" convert "$folder" "$scratch/beside.gguf"
mv "$folder/tokenizer_config.json" "$scratch"
ln -s "$models/small/tokenizer.model" "$folder"
expect 0 'bytes' "$specula" convert "$folder" "$scratch/beside.gguf"
rm "$folder/tokenizer.model"
mv "$scratch/tokenizer_config.json" "$folder"
python3 "$scratch/words.py" "$folder/tokenizer.json" Unigram
no 'a model Unigram is not read; put the SentencePiece model, if there is one, beside it as tokenizer.model, or run the model as a GGUF file in llama.cpp (specula run --engine llama.cpp)' --target "$folder"
ln -s "$models/small/tokenizer.model" "$folder"
rm "$folder/tokenizer_config.json"
runs --target "$folder"

# ---- Chats.
write() { printf '%s' "$2" >"$folder/$1"; }
changed
refused '--chat: the target .* has no chat template (chat_template.jinja, or the key chat_template of tokenizer_config.json or of a GGUF file.s tokenizer)' \
  "${run[@]}" --target "$folder" --chat
chatml="{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
write chat_template.jinja "$chatml"
runs --target "$folder" --chat
"$specula" convert "$folder" "$scratch/chat.gguf" >/dev/null
runs --target "$scratch/chat.gguf" --chat
rm "$folder/chat_template.jinja"
named() { python3 -c 'import json, sys; print(json.dumps({"chat_template": [{"name": "rag", "template": sys.argv[1]}]}))' "$chatml" >"$1/tokenizer_config.json"; }
named "$folder"
no 'none of the templates is the default one, they are rag; give --raw, or write the one to use into chat_template.jinja$' --target "$folder"
runs --target "$folder" --raw
"$specula" convert "$folder" "$scratch/named.gguf" >/dev/null
no 'they are rag; give --raw, or make a folder of the file (specula convert) and write the one to use into chat_template.jinja there$' --engine cpu --target "$scratch/named.gguf"
runs --target "$scratch/named.gguf" --raw
"$specula" convert "$scratch/named.gguf" "$scratch/unpacked" >/dev/null
printf '%s' "$chatml" >"$scratch/unpacked/chat_template.jinja"
runs --target "$scratch/unpacked" --chat
write chat_template.jinja "$chatml"
runs --target "$folder" --chat
head -c 300000 /dev/zero | tr '\0' x >"$folder/chat_template.jinja"
no 'a chat template of 300000 bytes, expected at most 262144; give --raw' --target "$folder"
runs --target "$folder" --raw
write chat_template.jinja '{{ raise_exception("no system message") }}'
"${run[@]}" --target "$folder" >"$scratch/out" 2>&1
also 'the chat template fails: .*no system message; give --raw\|was built without a Jinja engine: configure it with -DLLAMA_DIR=.(scripts/llama_cpp), or give --raw'
runs --target "$folder" --raw
refused '--style code does not go with --chat and --system' "${run[@]}" --target "$folder" --chat --style code
filler=$(head -c 400 /dev/zero | tr '\0' x)
write chat_template.jinja "{% for message in messages %}{{ message['content'] }}$filler{% endfor %}"
if "${run[@]}" --target "$folder" >/dev/null 2>&1; then  # with an engine
  printf '{"turns": ["One?", "Two?"]}' >"$scratch/turns.jsonl"
  few_turns=("$specula" run --threads 1 --max-new-tokens 2 --pipeline autoregressive --target "$folder" --prompts)
  expect 1 'turn 2 failed: a chat of .* tokens, and there is room for .*: ask shorter or fewer turns' "${few_turns[@]}" "$scratch/turns.jsonl"
  printf '{"turns": ["One?"]}' >"$scratch/turns.jsonl"
  expect 0 ': [12] tokens, ' "${few_turns[@]}" "$scratch/turns.jsonl"
fi
runs --target "$folder" --style code

# ---- Drafts of other vocabularies.
changed
echo '{"@@": 5}' >"$folder/added_tokens.json"
refused "the draft 'small' does not have the target's vocabulary: .*; --draft takes another draft" "${drafts[@]}" --draft "$folder" --pipeline chain:2
changed vocab_size=2056
refused ': --cut-vocabulary takes those that all have, where the rest is padding; --draft takes another draft' "${drafts[@]}" --pipeline chain:2 --draft "$folder"
expect 0 'chain:2: 2 tokens' "${drafts[@]}" --draft "$models/small" --pipeline chain:2

# ---- Prompts.
long=(--models "$scratch/none" --target "$models/small" --threads 1)
refused 'was trained for 2048: shorten them, or give --beyond-context' "$specula" run "${long[@]}" --prompt x --pipeline autoregressive --max-new-tokens 2048 --stop e
expect 0 'tokens' "$specula" run "${long[@]}" --prompt x --pipeline autoregressive --max-new-tokens 2048 --beyond-context --stop e
refused 'no prompt: give --prompt, --prompts or one on the standard input' "$specula" run "${long[@]}"
printf 'x' >"$scratch/prompt.txt"
# shellcheck disable=SC2016  # $1 is the inner shell's
expect 0 'tokens' sh -c 'in=$1; shift; "$@" <"$in"' sh "$scratch/prompt.txt" "$specula" run "${long[@]}" --pipeline autoregressive --max-new-tokens 2
expect 0 'tokens' "$specula" run "${long[@]}" --pipeline autoregressive --max-new-tokens 2 --prompts "$scratch/prompt.txt"
printf '[{"prompt": "x"}]' >"$scratch/array.json"
expect 1 'is a JSON array, which is not read as plain text: write JSON Lines, an object {"prompt": ...} on each line and nothing else' \
  "$specula" run "${long[@]}" --prompts "$scratch/array.json"
printf '{"prompt": "x"}\n' >"$scratch/lines.jsonl"
expect 0 'tokens' "$specula" run "${long[@]}" --pipeline autoregressive --max-new-tokens 2 --prompts "$scratch/lines.jsonl"
if command -v iconv >/dev/null; then
  iconv -f UTF-8 -t UTF-16 "$scratch/prompt.txt" >"$scratch/utf16.txt"
  expect 1 'is in UTF-16, or is no text; expected UTF-8 (iconv -f UTF-16 -t UTF-8)' "$specula" run "${long[@]}" --prompts "$scratch/utf16.txt"
  iconv -f UTF-16 -t UTF-8 "$scratch/utf16.txt" >"$scratch/utf8.txt"
  expect 0 'tokens' "$specula" run "${long[@]}" --pipeline autoregressive --max-new-tokens 2 --prompts "$scratch/utf8.txt"
fi
one=("$specula" compare "${long[@]}" --pipelines chain:2@max-gram --max-new-tokens 2 --prompts "$scratch/lines.jsonl")
refused '--against needs at least two prompts' "${one[@]}" --against chain:2@max-gram
printf '{"prompt": "y"}\n' >>"$scratch/lines.jsonl"
expect 0 '^against chain:2@max-gram' "${one[@]}" --against chain:2@max-gram

# ---- Options that another engine has.
echo '{"type": "boolean"}' >"$scratch/schema.json"
echo 'root ::= "a"' >"$scratch/letter.gbnf"
for option in "grammar $scratch/letter.gbnf" "json-schema $scratch/schema.json"; do
  # shellcheck disable=SC2086  # words
  "${run[@]}" --engine cpu --target "$scratch/small.gguf" --${option} >"$scratch/out" 2>&1
  also "^specula run: --${option% *} is for --engine llama.cpp, by libllama's sampler\|built without llama.cpp's converter of JSON schemas"
  # shellcheck disable=SC2086
  inside --target "$scratch/small.gguf" --${option}
done
# Heads of 48: --same-bits cannot, the own decoder needs no such option.
python3 "$models/../../scripts/random_gguf" --out "$scratch/odd.gguf" --types f32 --hidden 96 --heads 2 --kv-heads 1 --layers 1 --intermediate 64 >/dev/null
"${run[@]}" --engine llama.cpp --same-bits --target "$scratch/odd.gguf" >"$scratch/out" 2>&1
also 'built without libllama\|same_bits: a head has 48 numbers per key, must be a multiple of 32: leave it out; in cpu::Decoder (specula run --engine cpu) rows have the same bits'
inside --target "$scratch/odd.gguf"
runs --engine cpu --target "$scratch/odd.gguf"
# Tables of bigrams.
table=("$specula" run "${few[@]}" --models "$scratch/none" --target "$models/small")
refused 'bigram=table: there is no table of bigrams for this target; write one with specula bigram, or take bigram=text or bigram=none' \
  "${table[@]}" --pipeline chain:bigram=table@max-gram
"$specula" bigram --text "$scratch/prompt.txt" --tokenizer "$models/small" --output "$scratch/table.json" >/dev/null
expect 0 '2 tokens' "${table[@]}" --pipeline chain:bigram=table@max-gram --bigram "$scratch/table.json"
echo '{"vocab_size": 2, "next": [1, -1]}' >"$scratch/table.json"
expect 1 'a table of 2 tokens, the target has 2048; bigram=text and bigram=none read no table' "${table[@]}" --pipeline chain@max-gram --bigram "$scratch/table.json"
for kind in text none; do expect 0 '2 tokens' "${table[@]}" --pipeline chain:bigram=$kind@max-gram --bigram "$scratch/table.json"; done
# Drafts that are no model by themselves.
if [ -e "$models/hass/model.safetensors" ]; then
  refused '--tokens measures a model by itself, and .* is a draft that needs its target: what it loses, specula compare shows' \
    "$specula" quantize "$models/hass" "$scratch/hass8" --tokens x
  expect 0 'rounding error' "$specula" quantize "$models/hass" "$scratch/hass8"
  expect 0 '^chain:2@hass8 ' "$specula" compare --models "$scratch/none" --target "$models/target" --draft "hass8=$scratch/hass8" --threads 2 --max-new-tokens 2 \
    --prompts "$scratch/prompt.txt" --pipelines chain:2@hass8
fi
exit "$failed"
