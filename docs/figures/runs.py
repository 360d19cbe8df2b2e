# SPDX-License-Identifier: MIT
"""What is wrong with the runs of docs/benchmarks, and the runs of which that is known. Standard library only.

A run is a JSON file of figures. Its faults are read from it: no commit, or changes that are in no commit; a search that picked an end
of its grid. known.json lists the runs that had faults when it was written, each by commit and date, with what is wrong: scripts/pages
--check fails on any other fault, and on an entry that is no longer true. So a list can only become shorter.
"""
import functools
import hashlib
import json
import re

NOT_RUNS = ("known.json", "reported.json", "peers.json", "cuda_goals.json", "cuda_h200_sources.json")  # typed, or hashes
AT_END = "picked at an end of its grid: "


def about(data):
    """The part of a file that has commit, date and machine."""
    return data["run"] if isinstance(data.get("run"), dict) else data.get("context") or data


def processor(data):
    return about(data).get("cpu") or about(data).get("machine", {}).get("cpu") or about(data).get("device", "unknown processor")


def run_of(data):
    """What tells a run from a later one of the same name: commit and date, or a hash where it has no commit."""
    if about(data).get("commit", "unknown") == "unknown":
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
    return f"{about(data)['commit']}, {str(about(data).get('date', ''))[:10]}"


def axes(search):
    """Each brace of a search: the values, and whether it is a size (`chain:{2..8}@small`) and not an option (`fixed={1,2}`)."""
    found = []
    for brace in re.finditer(r"\{([^{}]*)\}", search):
        span = re.fullmatch(r"(\d+)\.\.(\d+)", brace[1])
        values = [str(n) for n in range(int(span[1]), int(span[2]) + 1)] if span else brace[1].split(",")
        found.append((values, search[:brace.start()].endswith(":"), "exits=" in search[:brace.start()]))
    return found


def at_ends(search, picked):
    """The braces of which the pick has the first or last value, though others may lie beyond. Nothing does below 0, below a size
    of 1, and above a threshold of 1, which no confidence reaches."""
    first, *parts = map(re.escape, re.split(r"\{[^{}]*\}", search))
    match = re.fullmatch(first + "".join("(" + "|".join(map(re.escape, values)) + ")" + part for (values, _, _), part in zip(axes(search), parts)), picked)
    if not match:
        raise ValueError(f"{picked} is none of {search}")
    ends = []
    for value, (values, size, threshold) in zip(match.groups(), axes(search)):
        numbers = [float(x) for x in value.split("-")]
        natural = not any(numbers) or (size and value == "1") or (threshold and numbers[0] > 1)
        if len(values) > 1 and value in (values[0], values[-1]) and not natural:
            ends.append(f"{{{values[0]}..{values[-1]}}}")
    return ends


def faults(data, name=None):
    """What is wrong with a run, in words; of a pipeline of this name not the picks of others."""
    commit, with_commit, _ = run_of(data).partition(",")
    found = [] if with_commit else ["it does not say which commit was measured"]
    if "and changes" in commit:
        found = [f"measured with changes to {commit.split()[0]} that are in no commit"]
    for search in data.get("searches", []):
        ends = at_ends(search["search"], search["picked"])
        if ends and name in (None, search["picked"]):
            found.append(f"{AT_END}`{search['picked']}` ({', '.join(ends)})")
    return found


def in_words(data):
    """The faults in one line; none if nothing is wrong."""
    found = faults(data)
    ends = ", ".join(fault.removeprefix(AT_END) for fault in found if fault.startswith(AT_END))
    others = [fault for fault in found if not fault.startswith(AT_END)]
    picks = [f"a search picked the first or last size that it tried, so another may be faster: {ends}"] if ends else []
    return "; ".join(others + picks)


def footnote(data):
    """Words to follow a table of this run, none if nothing is wrong."""
    return f" Known faults of this run: {in_words(data)}." if faults(data) else ""


@functools.cache
def read(figures):
    """Name of each file of runs to its data."""
    return {f.name: json.loads(f.read_text()) for f in sorted(figures.glob("*.json")) if f.name not in NOT_RUNS}


def problems(figures):
    """What --check complains of: faults that are not listed, and entries that are no longer true."""
    listed, runs, found = json.loads((figures / "known.json").read_text())["runs"], read(figures), []
    for name, data in runs.items():
        known = listed[name]["faults"] if name in listed and listed[name]["run"] == run_of(data) else []
        found += [f"docs/benchmarks/{name}: {fault}" for fault in faults(data) if fault not in known]
    for name, entry in listed.items():
        if name not in runs:
            found.append(f"docs/benchmarks/known.json lists {name}, which is not there")
        elif entry["run"] != run_of(runs[name]):
            found.append(f"docs/benchmarks/known.json lists another run of {name} than the one that is there")
        else:
            found += [f"docs/benchmarks/known.json lists of {name} what is no longer so: {fault}" for fault in entry["faults"]
                      if fault not in faults(runs[name])]
    return found
