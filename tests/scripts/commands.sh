#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: commands.sh ROOT
#
# scripts/commands finds what is wrong in a page's commands, and scripts/demo and scripts/own_draft, which it runs, pass on what the user
# asks for. The programs are not built: their sources must name the options.
set -uo pipefail
root=$1
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"
command -v python3 >/dev/null || { echo 'SKIP: no python3'; exit 77; }

expect 2 '^usage: scripts/commands' "$root/scripts/commands" --nonsense
expect 1 'program nonsense: the table has specula,' "$root/scripts/commands" --program nonsense=x
expect 0 '^scripts/demo --model smollm2 --pipeline chain:4@hass' sh -c '"$1" --list | sed "s/^ *//"' sh "$root/scripts/commands"
also '^# README.md:[0-9]*$'
also '^# docs/models.md:[0-9]*$'

# A tree with little more than two pages, of which one has a fault in each block.
tree=$scratch/tree
mkdir -p "$tree/docs" "$tree/home/.cache/specula"
cp -rs "$root"/{bench,examples,include,scripts,tests,tools,CMakePresets.json} "$tree"
printf '```sh\n%s\n```\n' 'G="build/release/bin/specula run"' '$G --pipeline chain --prompt x' >"$tree/README.md"
# fault TEXT COMMAND: a block, and what must be said of it.
said=()
fault() {
  printf '```sh\n%s\n```\n' "$2" >>"$tree/docs/faults.md"
  said+=("$1")
}
fault 'specula has no option --promt' 'build/release/bin/specula run --promt x'
fault 'specula has no command rum' 'build/release/bin/specula rum --prompt x'
fault 'No such file or directory' 'build/release/bin/specul run --prompt x'
fault 'specula-train has no command heads' 'specula-train heads --target TARGET'
fault 'specula-train has no option --minuts' 'specula-train head --target TARGET --minuts 3'
fault 'scripts/dem: No such file' './scripts/dem'
fault 'scripts/paper_tables has no option --onlyy' 'scripts/paper_tables --onlyy glide'
fault 'cmake: no preset relase' 'cmake --preset relase'
fault 'cmake: no target specula-progra$' 'cmake --build build/release --target specula-progra'
fault 'cmake: no target test_exact_mine' 'cmake --build build/dev --target test_exact_mine'
fault 'there is no examples/nowhere.cpp' 'g++ examples/nowhere.cpp -o /tmp/x && /tmp/x'
fault 'cp: cannot stat' 'cp tests/exact/nowhere.cpp tests/exact/mine.cpp'
fault 'specula has no option --node$' 'specula passes -m model.gguf --node 3'
fault 'there is no nowhere.gguf' 'scripts/own_draft nowhere.gguf'
printf 'Then `scripts/docs --loook` and `specula compare --find-bloks FILE`.\n' >>"$tree/docs/faults.md"
said+=('scripts/docs has no option --loook' 'specula has no option --find-bloks')
printf '```sh\nsudo nonsense\n```\n' >"$tree/docs/right.md"
printf '%s\n' 'none' >"$tree/tools/train/README.md.new" && mv "$tree/tools/train/README.md.new" "$tree/tools/train/README.md"
mkdir -p "$tree/scripts/stamps" && rm -f "$tree/scripts/stamps/commands" && printf 'x\nREADME.md\n' >"$tree/scripts/stamps/commands"
said+=('stamps/commands is older than a command or an option')
mkdir -p "$tree/build/train"  # a trainer that was built is not run: it would train
printf '#!/bin/sh\ntouch "%s"\n' "$scratch/trained" >"$tree/build/train/specula-train"
chmod +x "$tree/build/train/specula-train"
expect 1 "^[1-9][0-9]* commands, ${#said[@]} wrong$" env SPECULA_ROOT="$tree" python3 "$root/scripts/commands"
for text in "${said[@]}"; do also "$text"; done
if [ -e "$scratch/trained" ]; then
  echo 'FAILED: the trainer was run'
  failed=1
fi
rm -r "$tree/build/train"

# As written: a command that fails or warns leaves no stamp, and one that changes makes it old; words do not.
small=$scratch/small
cp -r "$tree" "$small"
rm "$small/docs/faults.md" "$small"/scripts/{blocks,demo,own_draft,random_gguf,stamps/commands}
rm "$small/scripts/commands" && cp "$root/scripts/commands" "$small/scripts" && sed -i '/^Examples:/,/^"""/{/^  scripts/d}' "$small/scripts/commands"
small_commands=(env SPECULA_ROOT="$small" python3 "$small/scripts/commands")
printf '```sh\n%s\n```\n' './scripts/test' 'hf download nothing' 'cat YOURS.jsonl' 'false' 'echo "note: odd"' >"$small/README.md"
expect 1 '^2 wrong$' "${small_commands[@]}" --run
for text in 'README.md:4: left out, it downloads' 'README.md:7: left out, it needs YOURS.jsonl' 'README.md:10: exit status 1' 'README.md:13: warns: note: odd'; do also "$text"; done
printf '```sh\n%s\n```\n' 'tty >/dev/null && read -r line && [ "$line" = /exit ]' >"$small/README.md"
expect 0 '^wrote scripts/stamps/commands' "${small_commands[@]}" --run
expect 1 '^README.md$' sh -c 'cat "$1"; exit 1' sh "$small/scripts/stamps/commands"
printf '```sh\n%s\n```\n' 'echo one' >"$small/README.md"
expect 1 'stamps/commands is older than a command or an option' "${small_commands[@]}"
expect 0 '^wrote' "${small_commands[@]}" --run
sed -i '1i Words and figures.' "$small/README.md"
expect 0 '^0 commands, 0 wrong' "${small_commands[@]}"

# What the two scripts run: the user's options, and none of their own beside them.
cat >"$scratch/as.sh" <<'END'
#!/bin/sh
case "$0" in
  *dpkg-query) printf installed ;;
  *cmake) ;;
  *) printf '%s' "ran ${0##*/}:"; printf ' <%s>' "$@"; echo ;;
esac
END
chmod +x "$scratch/as.sh"
mkdir "$scratch/bin"
for path in "$scratch"/bin/{cmake,dpkg-query} "$tree"/build/{release/bin/specula,train/specula-train}; do
  mkdir -p "${path%/*}" && ln -s "$scratch/as.sh" "$path"
done
touch "$tree/home/.cache/specula/SmolLM2-135M-Instruct.Q4_1.gguf"
as_user=(env -u XDG_CACHE_HOME HOME="$tree/home" PATH="$scratch/bin:$PATH")
demo=("${as_user[@]}" "$tree/scripts/demo")
expect 0 'ran specula: <run> <--race> .*<--pipeline> <cost-aware:.*<--prompts> <examples/prompts/summaries.jsonl>$' "${demo[@]}" --model smollm2
expect 0 'ran specula: <run> <--race> .*<--prompts> <examples/prompts/summaries.jsonl> <--pipeline> <chain:4@hass>$' "${demo[@]}" --model smollm2 --pipeline chain:4@hass
never 'cost-aware'
expect 0 '<--pipeline=chain:4@hass>$' "${demo[@]}" --model smollm2 --pipeline=chain:4@hass
never 'cost-aware'
for option in --prompt --prompts; do
  expect 0 "<--pipeline> <cost-aware:[^>]*> <$option> <x y>$" "${demo[@]}" --model smollm2 "$option" 'x y'
  never 'summaries'
done
expect 0 'ran specula: <run> <--race> <--models> <examples/models> <--threads> <2>$' "${demo[@]}" --threads 2
expect 0 'ran specula: <run> <--help>$' "${demo[@]}" -- --help
own=("${as_user[@]}" "$tree/scripts/own_draft")
expect 2 '^usage: scripts/own_draft MODEL' "${own[@]}"
expect 1 'there is no nowhere' "${own[@]}" nowhere
expect 0 '646 MB on disk' "${own[@]}" "$tree/README.md"
also "ran specula-train: <draft> <--target> <$tree/README.md> <--method> <plain> <--hours> <0.25> <--output> <$tree/build/own_draft>$"
expect 0 "README.md> <--method> <hass> <--hours> <4> <--output> <work>$" "${own[@]}" "$tree/README.md" --method hass --hours 4 --output work
[ "$(grep -n '646 MB' "$scratch/out" | cut -d : -f 1)" -lt "$(grep -n '^== ' "$scratch/out" | head -n 1 | cut -d : -f 1)" ] || {
  echo 'FAILED: the costs come after a step'
  failed=1
}
exit "$failed"
