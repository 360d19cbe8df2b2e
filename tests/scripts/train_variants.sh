#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: train_variants.sh ROOT
#
# scripts/train_variants with a fake trainer that only records its arguments: which models are trained, in which order, and
# which are not trained again.
set -uo pipefail
root=$1
. "$root/tests/support/expect.sh"
mkdir -p "$scratch/tokens" "$scratch/target"
touch "$scratch/tokens/tokens.json"
echo '{"num_hidden_layers": 8}' >"$scratch/target/config.json"
cat >"$scratch/trainer" <<'END'
#!/usr/bin/env bash
echo "trained: $*"
[ -z "${FAILS-}" ] || [[ "$*" != *"$FAILS"* ]] || exit 3
while [ $# -gt 0 ]; do [ "$1" != --output ] || { mkdir -p "$2/export" && echo {} >"$2/export/config.json"; }; shift; done
END
chmod +x "$scratch/trainer"
variants=("$root/scripts/train_variants" --train "$scratch/trainer" --data "$scratch/tokens" --target "$scratch/target" --out "$scratch/made")

expect 0 '^usage: scripts/train_variants' "${variants[@]}" --help
expect 2 '^usage: ' "${variants[@]}" --nonsense
expect 0 '^hass-n3: .* --alignment 3 ' "${variants[@]}" --list
also '^glide-layer1: .* --target-layer 1 '  # of eight layers: a quarter
also '^glide-layer5: '
also '^s2d-only4: '
[ ! -e "$scratch/made" ] || { echo 'FAILED: --list trained'; failed=1; }
expect 1 "no model or group is called 'poems'" "${variants[@]}" --list poems
expect 1 'no specula-train at' "${variants[@]}" --train "$scratch/nowhere"
expect 1 'no tokens at' "${variants[@]}" --data "$scratch/nowhere"
expect 1 'hass-n3 goes on from .*eagle-start/export, which is not there' "${variants[@]}" hass-n3
expect 3 'trained: head --name eagle-start' env FAILS=eagle-start "${variants[@]}" hass
expect 0 'trained: head --name eagle-start .* --steps 20 ' "${variants[@]}" --head-steps 20 eagle-start hass-n3
also 'trained: head --name hass-n3 .*--init .*eagle-start/export'
also '^== 2 models in '
expect 0 '^hass-n3: finished before' "${variants[@]}" --head-steps 20 hass-n3
expect 0 'trained: head --name hass-n3 .* --steps 30 ' "${variants[@]}" --head-steps 30 hass-n3  # another command: again
expect 0 '^== 4 models' "${variants[@]}" s2d
exit "$failed"
