"""Conditions of this host: cores, clocks if it has cpufreq, and its temperature."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from autotune.devices import celsius, cpu_list_text
from autotune.measurement.conditions import BODY
from autotune.measurement.snapshot import Clock, Conditions


def host_conditions(root: Path = Path("/")) -> Conditions:
    """Reads the conditions now. Values that a virtual machine hides are left out.

    Args:
        root: Folder that contains `sys`.
    """
    policies, zone = _found(root)
    return Conditions(
        celsius=_temperature(zone) if zone else None,
        zone=_text(zone / "type") if zone else "",
        online=_text(root / "sys/devices/system/cpu/online"),
        cpus=cpu_list_text(tuple(os.sched_getaffinity(os.getpid()))),
        clocks=tuple(
            Clock(
                name=policy.name,
                cpus=_text(policy / "related_cpus"),
                khz=_number(policy / "scaling_cur_freq"),
                cap_khz=_number(policy / "scaling_max_freq"),
                highest_khz=_number(policy / "cpuinfo_max_freq"),
            )
            for policy in policies
        ),
    )


@cache
def _found(root: Path) -> tuple[tuple[Path, ...], Path | None]:
    """Returns folders of the clocks, and of a body sensor."""
    policies = tuple(sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*")))
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    body = [z for z in zones if any(word in _text(z / "type").lower() for word in BODY)]
    return policies, body[0] if body else None


def _temperature(zone: Path) -> float | None:
    raw = _text(zone / "temp")
    return celsius(float(raw)) if raw else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0
