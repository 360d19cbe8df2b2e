#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Trains a pack (a target of 6.3 million parameters, the drafts base and small, glide, eagle and hass, which are
# conditioned on the target, and s2d, which has exits) from scratch, and copies it to a folder. A second target, deep,
# from whose layers s2d is cut, is left in the work folder. Run again after an interruption, it resumes.
#
#   pack.sh --gsm8k train.jsonl --python /usr/lib/python3.11 [options]
#
#   --build DIR      where specula-train and specula-train-text were built     (build/train)
#   --work DIR       corpus, tokenizer, checkpoints and logs                   (build/train-work)
#   --models DIR     where the finished models go                              (build/pack)
#   --minutes T B S  training time of target, base and small                   (80 12 10)
#   --answer-minutes B S  then, of base and small, on the target's own text    (60 20)
#   --conditioned-minutes G E H  of glide, eagle and hass                             (30 30 45)
#   --s2d-minutes D S  of deep and s2d                                   (80 30)
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
gsm8k= python= minutes=(80 12 10) answer_minutes=(60 20) conditioned_minutes=(30 30 45) s2d_minutes=(80 30)
build=$repository/build/train
work=$repository/build/train-work
models=$repository/build/pack

while (($#)); do
  case $1 in
    --gsm8k) gsm8k=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --work) work=$2; shift 2 ;;
    --models) models=$2; shift 2 ;;
    --minutes) minutes=("$2" "$3" "$4"); shift 4 ;;
    --answer-minutes) answer_minutes=("$2" "$3"); shift 3 ;;
    --conditioned-minutes) conditioned_minutes=("$2" "$3" "$4"); shift 4 ;;
    --s2d-minutes) s2d_minutes=("$2" "$3"); shift 3 ;;
    -h | --help) sed -n '2,/^set /{/^set /d;/SPDX/d;s/^# \{0,1\}//;p}' "$0"; exit ;;
    *) echo "pack.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done
[[ -f $gsm8k && -d $python ]] || { echo "pack.sh: --gsm8k FILE and --python FOLDER are needed; see --help" >&2; exit 2; }

mkdir -p "$work"
if [[ ! -f $work/tokens/tokens.json ]]; then
  "$build/specula-train-text" corpus --gsm8k "$gsm8k" --python "$python" --output "$work/corpus"
  "$build/specula-train-text" tokenizer --data "$work/corpus" --output "$work/tokens"
fi

keep() {  # name
  mkdir -p "$models/$1"
  cp "$work/$1/export/"* "$models/$1/"
}
train() {  # name, minutes, peak learning rate, further options
  "$build/specula-train" model --name "$1" --data "$work/tokens" --output "$work/$1" \
    --minutes "$2" --lr "$3" --resume "${@:4}" 2>&1 | tee -a "$work/$1.log"
}
train target "${minutes[0]}" 6e-3
keep target
train base "${minutes[1]}" 1e-2
keep base
train small "${minutes[2]}" 1e-2
keep small

# A draft with exits: the first layers of a second target.
train deep "${s2d_minutes[0]}" 6e-3
train s2d "${s2d_minutes[1]}" 4e-3 --cut-from "$work/deep/export" --exits 1,2,4 --long-from 0.7
keep s2d

# The drafts go on with what the target itself writes.
if [[ ! -f $work/answers/tokens.json ]]; then
  "$build/specula-train-answers" --data "$work/corpus" --tokens "$work/tokens" --target "$work/target/export" \
    --output "$work/answers" --variants 1 --minutes 6
fi
go_on() {  # name, minutes
  "$build/specula-train" model --name "$1" --data "$work/answers" --init "$work/$1/export" --output "$work/$1-answers" \
    --minutes "$2" --lr 3e-3 --long-from 0.7 --resume 2>&1 | tee -a "$work/$1-answers.log"
  cp "$work/$1-answers/export/"* "$models/$1/"
}
go_on base "${answer_minutes[0]}"
go_on small "${answer_minutes[1]}"

# Drafts that are conditioned on the target, from people's text: nearly as good as from the target's at temperature 0, far better above.
look() {  # name, minutes, command and options
  local name=$1 minutes=$2
  shift 2
  "$build/specula-train" "$@" --target "$work/target/export" --data "$work/tokens" --output "$work/$name" \
    --minutes "$minutes" --long-from 0.7 --resume 2>&1 | tee -a "$work/$name.log"
  keep "$name"
}
look glide "${conditioned_minutes[0]}" glide --lr 1e-2
look eagle "${conditioned_minutes[1]}" head --name eagle --lr 5e-3 --alignment 1 --top-k-weight 0
look hass "${conditioned_minutes[2]}" head --name hass --lr 5e-3

# What Max-Gram drafts where nothing matches. The program is built with the examples.
specula=$repository/build/release/bin/specula
if [[ -x $specula ]]; then
  "$specula" bigram --tokens "$work/answers" --output "$models/bigram/bigram.json"
else
  echo "pack.sh: $models/bigram is not made anew: $specula is not built" >&2
fi
