"""Records of sources and machine for the scripts that measure. Standard library only."""
import os
import pathlib
import platform
import re
import subprocess


def git(root, *arguments):
    shown = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return shown.stdout.strip() if shown.returncode == 0 else ""


def commit(root):
    changed = git(root, "status", "--porcelain", "include", "examples")
    return (git(root, "rev-parse", "--short", "HEAD") or "unknown") + (" and changes" if changed else "")


def machine():
    """Name, family and model of the processor: virtual machines often name no more than its maker."""
    cpu = platform.processor() or platform.machine()
    try:
        info = pathlib.Path("/proc/cpuinfo").read_text()
        name, family, model = (re.search(rf"^{key}\s*:\s*(.*)$", info, re.M)[1] for key in ("model name", "cpu family", "model"))
        cpu = f"{name}, family {family} model {model}"
    except (OSError, TypeError):
        pass
    return {"cpu": cpu, "cores": os.cpu_count()}
