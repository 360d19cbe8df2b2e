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
    cpu = platform.processor() or platform.machine()
    try:
        cpu = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1]
    except (OSError, TypeError):
        pass
    return {"cpu": cpu, "cores": os.cpu_count()}
