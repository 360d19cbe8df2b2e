#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: smollm2_drafts.sh ROOT
#
# tools/train/smollm2_drafts.sh with a fake trainer that only records its arguments: which drafts are trained, in which order, on
# the text of the repository, and which are not trained again.
set -uo pipefail
root=$1
. "$root/tests/support/expect.sh"
mkdir -p "$scratch/train" "$scratch/made/target"
echo '{}' | tee "$scratch/made/target/config.json" "$scratch/made/target/tokenizer.json" >"$scratch/made/target/tokenizer_config.json"
cat >"$scratch/train/specula-train" <<'END'
#!/usr/bin/env bash
echo "trained: $*"
[ -z "${FAILS-}" ] || [[ "$*" != *"$FAILS"* ]] || exit 3
while [ $# -gt 0 ]; do [ "$1" != --output ] || mkdir -p "$2"; shift; done
END
cp "$scratch/train/specula-train" "$scratch/train/specula-train-text"
chmod +x "$scratch/train"/*
drafts=("$root/tools/train/smollm2_drafts.sh" --train "$scratch/train" --out "$scratch/made")

expect 0 '^usage: tools/train/smollm2_drafts.sh' "${drafts[@]}" --help
expect 2 '^usage: ' "${drafts[@]}" --nonsense
expect 0 ' --name eagle .* --data .*/text ' "${drafts[@]}" --list
also ' --name hass .* --steps 1600 '
also '--name plain '
expect 0 'sample --target .* --tokens 5000 ' "${drafts[@]}" --list --tokens 5000 --articles 7 text
also 'specula run .* --samples 7 '
also 'specula-train-text corpus .* --style articles='
[ ! -e "$scratch/made/text" ] || { echo 'FAILED: --list did something'; failed=1; }
expect 1 "nothing is called 'poems'" "${drafts[@]}" --list poems
expect 1 'no specula-train in' "$root/tools/train/smollm2_drafts.sh" --train "$scratch/nowhere" --out "$scratch/made"
expect 3 'trained: head .* --name eagle' env FAILS='--name eagle' "${drafts[@]}"
[ -s "$scratch/made/text/tokens.json" ] || { echo 'FAILED: the text was not unpacked'; failed=1; }
expect 0 'trained: head .* --name eagle .* --steps 20 ' "${drafts[@]}" --steps 20 eagle hass
also 'trained: head --init .*/eagle/export --name hass .* --steps 20 '
expect 0 '^== eagle: finished before' "${drafts[@]}" eagle
expect 0 'trained: head .* --output .*/hass-2 --seed 2 ' "${drafts[@]}" --seed 2 --steps 20 hass
exit "$failed"
