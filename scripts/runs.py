"""What is wrong with the runs of docs/benchmarks, and the runs of which that is known. Standard library only.

A run is a JSON file of figures. Its faults are read from it: no commit, or changes that are in no commit; a search that picked an end
of its grid. docs/benchmarks/known.json lists the runs that had faults when it was written, each by commit and date, with what is wrong:
scripts/pages --check fails on any other fault, and on an entry that is no longer true. So a list can only become shorter.
"""
import hashlib
import json
import re

LIST = "known.json"
AT_END = "picked at an end of its grid: "
NOT_RUNS = (LIST, "reported.json", "cuda_counts.json", "cuda_h100_sources.json")  # typed, or hashes


def run_of(data):
    """What tells a run from a later one of the same name: commit and date, or a hash where it has no commit."""
    about = data["run"] if isinstance(data.get("run"), dict) else data.get("context") or data
    if about.get("commit", "unknown") == "unknown":
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
    return f"{about['commit']}, {str(about.get('date', ''))[:10]}"


def axes(search):
    """Each brace of a search: the values, and whether it is a size (`chain:small:{2..8}`) and not an option (`fixed={1,2}`)."""
    found = []
    for brace in re.finditer(r"\{([^{}]*)\}", search):
        span = re.fullmatch(r"(\d+)\.\.(\d+)", brace[1])
        values = [str(n) for n in range(int(span[1]), int(span[2]) + 1)] if span else brace[1].split(",")
        found.append((values, search[:brace.start()].endswith(":"), "thresholds=" in search[:brace.start()]))
    return found


def at_ends(search, picked):
    """The braces of which the pick has the first or last value, though others may lie beyond. Nothing does below 0, below a size
    of 1, and above a threshold of 1, which no confidence reaches."""
    parts = re.split(r"\{[^{}]*\}", search)
    pattern = re.escape(parts[0])
    for (values, _, _), part in zip(axes(search), parts[1:]):
        pattern += "(" + "|".join(map(re.escape, values)) + ")" + re.escape(part)
    match = re.fullmatch(pattern, picked)
    if not match:
        raise ValueError(f"{picked} is none of {search}")
    ends = []
    for value, (values, size, threshold) in zip(match.groups(), axes(search)):
        numbers = [float(x) for x in value.split("-")]
        natural = not any(numbers) or (size and value == "1") or (threshold and numbers[0] > 1)
        if len(values) > 1 and value in (values[0], values[-1]) and not natural:
            ends.append(f"{{{values[0]}..{values[-1]}}}")
    return ends


def faults(data):
    """What is wrong with a run, in words."""
    found = []
    commit = run_of(data).partition(",")[0]
    if "," not in run_of(data):
        found.append("it does not say which commit was measured")
    elif "and changes" in commit:
        found.append(f"measured with changes to {commit.split()[0]} that are in no commit")
    for search in data.get("searches", []):
        ends = at_ends(search["search"], search["picked"])
        if ends:
            found.append(f"{AT_END}`{search['picked']}` ({', '.join(ends)})")
    return found


def faults_of_row(data, name):
    """Those of a run that concern one pipeline: not the picks of others."""
    return [fault for fault in faults(data) if not fault.startswith(AT_END) or f"`{name}`" in fault]


def in_words(data):
    """The faults in one line; none if nothing is wrong."""
    found = faults(data)
    ends = [fault.removeprefix(AT_END) for fault in found if fault.startswith(AT_END)]
    return "; ".join([fault for fault in found if not fault.startswith(AT_END)] + ([AT_END + ", ".join(ends)] if ends else []))


def read(figures):
    """Name of each file of runs to its data."""
    return {f.name: json.loads(f.read_text()) for f in sorted(figures.glob("*.json")) if f.name not in NOT_RUNS}


def problems(figures):
    """What --check complains of: faults that are not listed, and entries that are no longer true."""
    listed = json.loads((figures / LIST).read_text())["runs"]
    found = []
    runs = read(figures)
    for name, data in runs.items():
        entry = listed.get(name, {})
        known = entry.get("faults", []) if entry.get("run") == run_of(data) else []
        found += [f"docs/benchmarks/{name}: {fault}" for fault in faults(data) if fault not in known]
    for name, entry in listed.items():
        if name not in runs:
            found.append(f"docs/benchmarks/{LIST} lists {name}, which is not there")
        elif entry["run"] != run_of(runs[name]):
            found.append(f"docs/benchmarks/{LIST} lists another run of {name} than the one that is there")
        else:
            found += [f"docs/benchmarks/{LIST} lists of {name} what is no longer so: {fault}" for fault in entry["faults"]
                      if fault not in faults(runs[name])]
    return found


def footnote(data):
    """Words to follow a table of this run, none if nothing is wrong."""
    found = in_words(data)
    return found and f" Known faults of this run: {found}."
