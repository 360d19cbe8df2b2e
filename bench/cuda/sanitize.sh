# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154  # variables of scripts/gpu
# compute-sanitizer over tiny checks of each program; sourced by scripts/gpu, and in part by its test.

# count_reports LOG: the reports of a tool in its output, those that it says it did not print among them. Neither its
# summary is one ("0 hazards displayed (0 errors, 0 warnings)") nor the lines that a report goes on with, such as host
# frames that name cudaError.
count_reports() {
  local printed hidden
  printed=$(grep -c '^========= \(Error\|Warning\|Invalid\|Uninitialized\|Barrier error\|Leaked\|Program hit\)' "$1") || true
  hidden=$(sed -n 's/^========= ERROR SUMMARY: \([0-9]*\) errors\{0,1\} w[a-z]* not printed.*/\1/p' "$1" | tail -n 1)
  printf '%d' $((printed + ${hidden:-0}))
}

# sanitizer_calls: TOOL PROGRAM SECONDS OPTION... of each call, the ones that matter most first. racecheck of verification
# is a call for each of its parts, as all of them together take longer than a call may. What uses wgmma comes last:
# should it hang under a tool, the rest is there.
sanitizer_calls() {
  local tool part
  for tool in synccheck memcheck initcheck racecheck; do
    if [ "$tool" != racecheck ]; then printf '%s verification 60\n' "$tool"; fi
    printf '%s growth 40\n%s helpers 40\n%s attention 40 --only mma.sync\n' "$tool" "$tool" "$tool"
  done
  for part in greedy sample-and-match rejection traversal block without-truncation other-drafts sharded refusals; do
    printf 'racecheck verification 60 --part %s\n' "$part"
  done
  printf 'racecheck verification 150 --part sample\n'  # three types of elements
  printf '%s attention 40 --only wgmma\n' synccheck racecheck memcheck initcheck
}

# sanitize: runs them one after the other. A report, a time limit and a call that there was no time for are failures.
sanitize() {
  local tool program seconds name item one status found options log=$work/sanitize.log
  while read -r tool program seconds options; do
    name=$program${options:+ ${options#--* }}
    item=$work/sanitize.$tool.${name//[^a-z]/-}.item
    [ -x "$place/$program" ] || continue
    if [ -e "${item%.item}.ok" ]; then
      printf 'done before: %s of %s\n' "$tool" "$name"
      continue
    fi
    if [ "$(left)" -lt 8 ]; then
      printf 'no time left for %s of %s\n' "$tool" "$name"
      failed+=("$tool of $name (no time left)")
      continue
    fi
    local tool_options=(--tool "$tool" --error-exitcode 9)
    case "$tool" in
      synccheck) tool_options+=(--print-limit 1000000 --show-backtrace no) ;;  # all threads that it names
      memcheck) tool_options+=(--print-limit 100 --report-api-errors no) ;;  # the program checks for refused API calls itself
      *) tool_options+=(--print-limit 100) ;;
    esac
    # shellcheck disable=SC2086  # options are words
    limited "$seconds" compute-sanitizer "${tool_options[@]}" \
      "$place/$program" check --tiny --trees 100 --seed "$seed" $options >"$log" 2>&1 </dev/null
    status=$?
    found=$(count_reports "$log")
    printf '| %s | %s | status %s | %s reports |\n' "$tool" "$name" "$status" "$found" | tee -a "$table"
    if [ "$status" -ne 0 ] || [ "$found" -ne 0 ]; then
      failed+=("$tool of $name (status $status, $found reports)")
      { printf -- '---- %s %s\n' "$tool" "$name"; grep -v '^|' "$log" | head -n 400; } >>"$work/findings.log"
      head -n 40 "$log"
    fi
    printf '{"tool": "%s", "program": "%s", "status": %s, "reports": %s}' "$tool" "$name" "$status" "$found" >"$item"
    {
      printf '{'
      head_of sanitize
      printf ',\n"sanitize": [\n'
      for one in "$work"/sanitize.*.item; do cat "$one"; printf ',\n'; done | sed '$ s/,$//'
      printf ']}\n'
    } >"$results/sanitize.json"
    pack
    if [ "$status" -eq 0 ] && [ "$found" -eq 0 ]; then : >"${item%.item}.ok"; fi  # what has failed is run again by the next call
  done < <(sanitizer_calls | grep -E -- "${sanitize:-.}")
}
