"""Observations of the machine: disk, cores, and packages to compare with."""

from __future__ import annotations

import importlib.util
import os
import shutil
from importlib import metadata
from pathlib import Path

from autotune.doctor.check import Check, absent
from autotune.errors import pip_install

LEAST_FREE_BYTES = 2**30
_CPUFREQ = Path("/sys/devices/system/cpu/cpufreq")


def torch() -> Check:
    """Checks for PyTorch, without importing it."""
    name, purpose = "PyTorch", "models of your own; benchmarks against PyTorch (optional)"
    if importlib.util.find_spec("torch") is None:
        return absent(name, "not installed", purpose, pip_install("torch"))
    return Check(name, "ok", metadata.version("torch"), purpose)


def disk(name: str, folder: Path, purpose: str, fix: str) -> Check:
    """Checks that a folder can be written, or made, and has enough room.

    Args:
        name: Name of the folder's content.
        folder: The folder; it need not exist.
        purpose: Files that are written there.
        fix: Advice if there is no room.
    """
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check(name, "broken", f"{folder}: {error.strerror}", purpose, fix)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check(name, "broken", f"{existing} cannot be written", purpose, fix)
    found = f"{free / 2**30:.1f} GiB free in {folder}"
    if free < LEAST_FREE_BYTES:
        return Check(name, "broken", f"{found}, less than 1 GiB", purpose, fix)
    return Check(name, "ok", found, purpose)


def logs_folder() -> Check:
    """Checks the folder that contains runs."""
    fix = "run from another folder, or give one with --logs FOLDER"
    return disk("disk for runs", Path("logs"), "recording runs", fix)


def cache_folder() -> Check:
    """Checks the folder that contains built libraries."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(chosen) if chosen.startswith("/") else Path.home() / ".cache"
    fix = "export XDG_CACHE_HOME=FOLDER"
    return disk("disk for the cache", base / "autotune", "libraries built once", fix)


def cores(cpufreq: Path = _CPUFREQ) -> Check:
    """Observes the number of cores and how their clocks are controlled.

    Args:
        cpufreq: The kernel's folder of clock policies; absent in most virtual machines.
    """
    name, purpose = "processor", "steady times, and how many builds run at once"
    usable = len(os.sched_getaffinity(0))
    count = f"{usable} of {os.cpu_count()} cores usable"
    governors = sorted(
        {
            file.read_text(encoding="utf-8").strip()
            for file in cpufreq.glob("policy*/scaling_governor")
        }
    )
    if not governors:
        return Check(name, "ok", f"{count}, clocks not visible", purpose)
    found = f"{count}, governor {', '.join(governors)}"
    if governors == ["performance"]:
        return Check(name, "ok", found, purpose)
    sudo = "" if os.geteuid() == 0 else "sudo "
    fix = f"echo performance | {sudo}tee {cpufreq}/policy*/scaling_governor"
    return Check(name, "optional", found, purpose, fix)
