#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: tools/train/smollm2_drafts.sh [--list] [options] [NAME]...
#
# Drafts for SmolLM2-135M-Instruct, and the controls that they are compared with, by specula-train. Run again after an
# interruption, it goes on. Without names all are trained, in this order, on the text in examples/smollm2:
#
#   eagle                 an EAGLE head
#   hass, control         from it, for equal steps: a HASS head, and EAGLE going on with the same top-K loss
#   glide, glide-control  a GLIDE draft over the target's embedding, and the same without cross attention
#   plain                 a plain draft of three exits over it
#
# The name `text` makes that text anew: GSM8K's training questions, questions that the target asks itself, sources and
# documentation of Debian's Python packages continued and summarised, and articles of up to 1,500 tokens, which the target
# writes as well and then summarises. Texts that share 13 words in a row with a prompt of an evaluation are left out.
#
#   --list         prints the commands and exits
#   --out DIR      where all of it goes                                   (build/smollm2)
#   --data DIR     GSM8K, HumanEval, MT-bench and Spec-Bench, each in a folder of its name    (../shared/data)
#   --train DIR    the folder of specula-train and specula-train-text     (build/train)
#   --tokens N     of text that the target writes                         (2,600,000)
#   --articles N   that it then summarises                                (480)
#   --steps N      of each draft, 12 rows of 512 tokens each, then 6 of 1,024    (1000 of eagle, 1200 of both GLIDE, 1400 of plain, 1600 of both heads from eagle)
#   --seed N       of trainings, which then go to NAME-N                   (1)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

out=$root/build/smollm2 data=$root/../shared/data train=$root/build/train tokens=2600000 articles=480 steps= seed=1 list=false
wanted=()
options 'out data train tokens articles steps seed list' wanted "$@"
target=$out/target text=$out/text suffix= specula=$root/build/release/bin/specula
gguf=${XDG_CACHE_HOME:-$HOME/.cache}/specula/SmolLM2-135M-Instruct.Q4_1.gguf
[ "$seed" = 1 ] || suffix=-$seed
packages=(python3-requests python3-flask python3-sqlalchemy python3-networkx python3-sympy python3-docutils python3-scrapy
  python3-django python3-twisted python3-pandas python3-sklearn python3-scipy python3-matplotlib python3-aiohttp python3-click
  python3-babel python3-pygments python3-nltk python-pandas-doc python-django-doc python3-doc python3.11-doc
  python-sqlalchemy-doc python-requests-doc python-flask-doc python-scrapy-doc)
licence='BSD, MIT, Apache 2.0 and PSF licences: pieces of up to 288 tokens of Debian packages, which '
licence+='tools/train/smollm2_drafts.sh names'
known=()

# selects NAME: whether it is to be made.
selects() {
  known+=("$1")
  [[ ${#wanted[@]} -eq 0 || " ${wanted[*]} " = *" $1 "* ]]
}

# call COMMAND...: runs it, or prints it.
call() {
  if "$list"; then
    printf ' %q' "$@"
    printf '\n'
  else
    say "$*"
    "$@"
  fi
}

# sources: the packages' Python files and texts, of 3 to 60 KB, as folders code and docs.
sources() {
  local into=$out/sources package file i=0
  [ ! -e "$into/done" ] || return 0
  rm -rf "$into"
  mkdir -p "$into/packages" "$into/code" "$into/docs"
  for package in "${packages[@]}"; do (cd "$into" && apt-get download -qq "$package") || die "no Debian package $package"; done
  for file in "$into"/*.deb; do dpkg-deb -x "$file" "$into/packages"; done
  while IFS= read -r file; do cp "$file" "$into/code/$((i += 1)).py"; done < <(
    find "$into/packages" -name '*.py' -size +3k -size -60k | grep -vi 'test\|locale\|migrations' | sort)
  while IFS= read -r file; do cp "$file" "$into/docs/$((i += 1)).rst"; done < <(
    find "$into/packages" \( -name '*.rst' -o -name '*.rst.txt' -o -name '*.txt' -o -name '*.md' \) -size +3k -size -60k | sort)
  rm -rf "$into"/*.deb "$into/packages"
  touch "$into/done"
}

# articles: the target writes what a user would have it summarise. It learned from such chats, so all that it needs is their
# system message.
articles() {
  [ ! -e "$out/articles" ] || return 0
  local message='Provide a concise, objective summary of the input text in up to three sentences, focusing on key actions'
  message+=' and intentions without using second or third person pronouns.'
  "$list" || printf '{"prompt": "<|im_start|>system\\n%s<|im_end|>\\n<|im_start|>user\\n"}\n' "$message" >"$out/articles.jsonl"
  call "$specula" run --target "$gguf" --prompts "$out/articles.jsonl" --special --pipeline autoregressive --batch 64 \
    --samples "$articles" --temperature 0.75 --repeat-penalty 1.1 --repeat-last-n 256 --seed 1 --max-new-tokens 1500 \
    --json "$out/articles.json"
  "$list" && return
  mkdir "$out/articles"
  python3 - "$out" <<'END'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
for i, text in enumerate(json.loads((out / "articles.json").read_text())["prompts"]):
    (out / "articles" / f"{i:04}.txt").write_text(text["text"].strip() + "\n")
END
}

if ! "$list"; then
  for program in specula-train specula-train-text; do
    [ -x "$train/$program" ] || die "no $program in $train: build it as tools/train/README.md says, or give --train"
  done
  mkdir -p "$out"
fi

if [ ! -e "$target/config.json" ]; then
  call "$specula" convert "$gguf" "$target"
fi

known+=(text)
if [[ " ${wanted[*]-} " = *' text '* ]]; then
  "$list" || sources
  articles
  call "$train/specula-train-text" corpus --gsm8k "$data/gsm8k/train.jsonl" --style code="$out/sources/code" \
    --style coding="$out/sources/code" --style docs="$out/sources/docs" --style articles="$out/articles" --output "$out/corpus" \
    --describe code='sources of Python packages, continued' --describe coding='questions about such sources' \
    --describe docs='questions about the documentation of Python packages' \
    --describe articles='articles that the target made up, and its summaries of them' --licence code="$licence" --licence coding="$licence" \
    --licence docs="$licence"
  call "$train/specula-train-text" prompts --target "$target" --data "$out/corpus" --output "$out/prompts" --limit 16000 \
    --longest-prompt 288 --longest-prompt articles=1600 --ask 'gsm8k={}' \
    --ask 'articles=Summarize: {}' \
    --ask $'articles=Summarize the following text:\n\n{}' \
    --ask $'articles={}\n\nSummarize the above in three sentences.' \
    --ask $'articles={}\n\nWhat happened, where, and who is named?' \
    --ask $'docs=Summarize the following text:\n\n{}' \
    --ask $'docs=What does this say? Explain it in your own words.\n\n{}' \
    --ask $'docs={}\n\nPlease give the main points of the above.' \
    --ask $'coding=Complete this Python code:\n\n{}' \
    --ask $'coding=Explain what this code does, step by step.\n\n{}' \
    --ask $'coding=Write a docstring and a short example for this code.\n\n{}'
  call "$train/specula-train" sample --target "$target" --prompts "$out/prompts" --output "$out/drawn" --ask-itself 0.35 \
    --turns 2 --new-tokens 384 --longest 2048 --tokens "$tokens" --resume
  call "$train/specula-train-text" unlike --data "$out/drawn" --output "$text" --prompts "$data/gsm8k/test.jsonl" \
    --prompts "$data/humaneval/HumanEval.jsonl" --prompts "$data/mt_bench/question.jsonl" --prompts "$data/spec_bench/question.jsonl"
elif [ ! -e "$text/tokens.json" ]; then
  "$list" || need_packages xz-utils
  call mkdir -p "$text"
  call tar -xf "$root/examples/smollm2/text.tar.xz" -C "$text"
  call cp "$target/tokenizer.json" "$target/tokenizer_config.json" "$text"
fi

# draft NAME STEPS COMMAND...: trains one, unless it is finished.
draft() {
  local name=$1 count=${steps:-$2} folder=$out/$1$suffix
  shift 2
  selects "$name" || return 0
  if [ -e "$folder/finished" ]; then
    say "$name: finished before"
    return
  fi
  call "$train/specula-train" "$@" --name "$name" --target "$target" --data "$text" --output "$folder" --seed "$seed" --steps "$count" \
    --batch 12 --context 512 --long-from 0.8 --share asked=0.22 --share articles=0.18 --learn-prompts articles \
    --draft-vocabulary 12288 --resume
  "$list" || touch "$folder/finished"
}

distilled=(--loss target --lr 1e-2)
draft eagle 1000 head --alignment 1 --top-k-weight 0
draft hass 1600 head --init "$out/eagle/export"
draft control 1600 head --init "$out/eagle/export" --alignment 1 --lr 3.5e-3  # HASS's
draft glide 1200 glide "${distilled[@]}"
draft glide-control 1200 model --layers 1 --hidden 128 --heads 4 --kv-heads 2 --intermediate 352 "${distilled[@]}"
draft plain 1400 model --layers 3 --hidden 256 --heads 8 --kv-heads 4 --intermediate 704 --exits 1,2,3 "${distilled[@]}"

for word in ${wanted[@]+"${wanted[@]}"}; do
  [[ " ${known[*]} " = *" $word "* ]] || die "nothing is called '$word': ${known[*]}"
done
