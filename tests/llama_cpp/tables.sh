#!/usr/bin/env bash
# usage: tables.sh LLAMA_PROGRAMS ROOT DATA
# scripts/llama_cpp names its prefixes; scripts/llama_cpp_tables runs, also with programs in the place of llama.cpp's, and
# scripts/pages makes tables of what it wrote.
set -uo pipefail
programs=$1 root=$2 data=$3
command -v python3 >/dev/null || { echo 'SKIP: there is no python3'; exit 77; }
. "$(dirname "${BASH_SOURCE[0]}")/../support/expect.sh"

# A build with AVX-512 is a separate one. Nothing is built here: the CMake cache pretends that everything has been.
cpu() { printf 'flags\t\t: fpu sse4_2 avx avx2 fma f16c bmi2 %s\n' "$1" >"$scratch/cpuinfo"; }
built() { mkdir -p "$1/share" && printf '%s\n' "$1" >"$1/share/specula-llama-cpp"; }
export SPECULA_CPUINFO=$scratch/cpuinfo
prefix=$scratch/specula/llama.cpp-$(sed -n 's/^version=//p' "$root/scripts/llama_cpp")-$(uname -m)
[ "$(uname -m)" != x86_64 ] || prefix+=-sse4_2-avx-avx2-fma-f16c-bmi2
built "$prefix" && built "$prefix-avx512" && built "$prefix-avx512-vbmi-vnni-bf16"
llama_cpp=(env XDG_CACHE_HOME="$scratch" "$root/scripts/llama_cpp")
cpu 'avx512f avx512cd avx512bw avx512dq avx512vl avx512vbmi avx512_vnni avx512_bf16 amx_tile amx_int8'
expect 0 "^$prefix$" "${llama_cpp[@]}"
expect 0 "^$prefix-avx512-vbmi-vnni-bf16$" "${llama_cpp[@]}" --avx512
expect 1 'has a build without AVX-512, or with less of it' "${llama_cpp[@]}" --avx512 --prefix "$prefix"
cpu 'avx512f avx512cd avx512bw avx512dq avx512vl'
expect 0 "^$prefix-avx512$" "${llama_cpp[@]}" --avx512
cpu 'avx512f avx512cd'
expect 0 'this processor has no AVX-512; taking the build without it' "${llama_cpp[@]}" --avx512
also "^$prefix$"

if [ ! -d "$data" ] || [ ! -e "$root/examples/models/medium/config.json" ]; then
  echo 'SKIP: no data sets, or no model pack'
  [ "$failed" -eq 0 ] && exit 77
  exit 1
fi
tables=(python3 "$root/scripts/llama_cpp_tables" --programs "$programs" --data "$data")
expect 0 '^usage: scripts/llama_cpp_tables' "${tables[@]}" --help
expect 1 'quick measures nothing: it needs --out' "${tables[@]}" --quick
expect 1 'no prompts at .*nowhere' "${tables[@]}" --data "$scratch/nowhere"
expect 1 'no model .*nowhere/target' "${tables[@]}" --models "$scratch/nowhere"
expect 1 'no folder .*nowhere' "${tables[@]}" --peers "$scratch/nowhere"
expect 1 'llama names another' "${tables[@]}" --avx512 --llama "$scratch/nowhere"

# What llama.cpp's programs print at their end, a text with numbers before it.
peers=$scratch/peers
mkdir "$peers"
cat >"$peers/llama-completion" <<'END'
#!/bin/sh
cat >&2 <<'PRINTED'
Question: how long is eval time =       1.00 ms /     1 runs?
0.00.065.180 I common_perf_print:    sampling time =       0.55 ms
0.00.065.190 I common_perf_print:    samplers time =       0.31 ms /    88 tokens
0.00.065.271 I common_perf_print:        load time =      61.05 ms
0.00.065.284 I common_perf_print: prompt eval time =      40.00 ms /    80 tokens (    0.50 ms per token,  2000.00 tokens per second)
0.00.065.371 I common_perf_print:        eval time =      14.00 ms /     7 runs   (    2.00 ms per token,   500.00 tokens per second)
0.00.065.373 I common_perf_print:       total time =      66.43 ms /    87 tokens
PRINTED
END
cat >"$peers/llama-speculative-simple" <<'END'
#!/bin/sh
[ -e "$0.ran" ] || { : >"$0.ran"; exit 0; }  # a log that was lost once
case "$*" in *"--spec-draft-n-max 4"*) speed=1000.000 ;; *) speed=900.000 ;; esac
cat >&2 <<PRINTED
0.00.065.271 I encoded   80 tokens in    0.041 seconds, speed: 1951.220 t/s
0.00.065.272 I decoded    9 tokens in    0.010 seconds, speed:  $speed t/s
0.00.065.281 I n_draft   = 2
0.00.065.530 I target:
0.00.065.687 I common_perf_print: prompt eval time =      40.00 ms /    80 tokens (    0.50 ms per token,  2000.00 tokens per second)
0.00.065.708 I common_perf_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)
PRINTED
END
chmod +x "$peers"/*
expect 0 'specula-llama -m .*target-q8_0.gguf .* --pipeline chain:small:4 .*prompts_0.jsonl' "${tables[@]}" --list --peers "$peers"
also 'llama-speculative-simple --spec-draft-n-max 4 --spec-type draft-simple -md .*small-q8_0.gguf .*-f .*prompt_0.txt'
also 'no llama-lookup in .*: left out'
json=$scratch/json/llama_cpp_target.json
expect 0 "^wrote $json" "${tables[@]}" --quick --out "$scratch/json" --peers "$peers"
also '^== medium as Q4_0'
also '^cost-aware:max-gram  '
if ! python3 - "$json" <<'END'; then
import json, sys
data = json.load(open(sys.argv[1]))
assert data["absent"] == ["llama-lookup"] and data["prompts"] == 2 and "AVX2" in data["built_with"] + ["AVX2"]
for form in data["forms"].values():
    assert [len(p["ratios"]) for p in form["passes"]] == [3, 3] and form["passes"][0]["ratios"][0] == 1
    assert all("speedup" in p["intervals"] for p in form["pipelines"][1:]) and len(form["pipelines"]) == 12
    assert list(form["peers"]) == ["autoregressive"] + [f"chain:small:{n}" for n in (1, 2, 3, 4)]
    theirs = [round(x["theirs"]) for x in form["peers"].values()]
    assert theirs == [500, 800, 800, 800, 889], theirs
    assert all(x["ours"] > 0 for x in form["peers"].values())
END
  echo 'FAILED: the JSON'
  failed=1
fi
if grep -q "$root\|$scratch" "$json"; then echo 'FAILED: a path of this machine is in the JSON'; failed=1; fi
if ! PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts python3 - <<'END'; then
from llama_cpp_target import features, own_clock, peers_clock
assert peers_clock("nothing") is None and own_clock("nothing") is None
assert own_clock("10 tokens, 1.0 tokens/s (so says the text)\n24 tokens, 48.0 tokens/s (30.0 with the prompts), 1.5 a call") == (24, 0.5)
assert peers_clock("llama_perf_context_print:        eval time =    250.00 ms /    50 runs   ( 5.00 ms per token)") == (50, 0.25)
assert peers_clock("llama_perf_context_print: prompt eval time =    250.00 ms /    50 runs") is None
assert features("CPU : AVX = 1 | AVX512 = 0 | REPACK = 1 | ") == ["AVX", "REPACK"]
END
  echo 'FAILED: clocks of the programs'
  failed=1
fi

# The page.
tree=$scratch/tree
mkdir -p "$tree/docs" "$tree/examples" && cp "$root/README.md" "$tree" && cp -r "$root"/docs/. "$tree/docs" && cp -r "$root"/{include,CMakeLists.txt,LICENSE} "$tree"
cp -r "$root/examples/cuda" "$tree/examples"
(cd "$root" && cp --parents examples/models/*/MODEL_CARD.md "$tree")
export SPECULA_ROOT=$tree
pages=(python3 "$root/scripts/pages")
page=$tree/docs/llama_cpp.md
rm -f "$tree/docs/benchmarks/llama_cpp_target.json"
for name in passes speedups peers; do
  grep -q "table: llama.cpp: $name" "$page" || printf '\n<!-- table: llama.cpp: %s -->\n<!-- end of table -->\n' "$name" >>"$page"
done
"${pages[@]}" >/dev/null && cp "$page" "$scratch/before.md"  # nothing was measured: the existing tables are kept
cp "$json" "$tree/docs/benchmarks"
sed -i 's/"commit": "\(.*\) and changes"/"commit": "\1"/' "$tree/docs/benchmarks/llama_cpp_target.json"
expect 1 'pages differ' "${pages[@]}" --check
expect 0 'wrote docs/llama_cpp.md' "${pages[@]}"
expect 0 '^| nodes | llama.cpp, Q8_0: us | T(n)/T(1) | llama.cpp, Q4_0: us | T(n)/T(1) | .*specula::cpu::Decoder.*: us | T(n)/T(1) |$' cat "$page"
also '^| 1 | [0-9]* | 1.00 | [0-9]* | 1.00 | [0-9]* | 1.00 |$'
also '^| `max-gram:4` | .*x \[.*\] | [0-9]* | 2 of 2 | .*x \['
also '^| `chain:small:2` | `llama-speculative-simple --spec-draft-n-max 2` | [0-9]* | 800 | '
also 'Missing: llama-lookup'
"${pages[@]}" --check || failed=1
exit "$failed"
