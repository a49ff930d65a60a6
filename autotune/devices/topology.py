"""Processor cores by cluster: which cores share a clock, how fast they are, and what can be set."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

Files = Mapping[str, bytes | None]

_CPU = "/sys/devices/system/cpu"
PATTERNS = (
    f"{_CPU}/present",
    f"{_CPU}/online",
    f"{_CPU}/cpu[0-9]*/cpu_capacity",
    *(
        f"{_CPU}/cpufreq/policy*/{name}"
        for name in (
            "related_cpus",
            "cpuinfo_min_freq",
            "cpuinfo_max_freq",
            "scaling_min_freq",
            "scaling_max_freq",
            "scaling_cur_freq",
            "scaling_governor",
            "scaling_available_governors",
            "scaling_available_frequencies",
        )
    ),
)
CLUSTER_NAMES: dict[int, tuple[str, ...]] = {
    1: ("all",),
    2: ("little", "big"),
    3: ("little", "big", "prime"),
    4: ("little", "mid", "big", "prime"),
}
"""Names of a device's clusters, from slow to fast, by the number of clusters."""


@dataclass(frozen=True)
class Cluster:
    """Cores of one kind under one clock.

    Attributes:
        name: `all` for a single cluster; else `little`, `mid`, `big`, `prime` from slow to fast.
        cpus: Numbers of its cores.
        capacity: Relative speed of a core according to the kernel (`cpu_capacity`, 1024 for the fastest); None if
            unknown.
        min_khz: Lowest frequency in kHz; None if the system does not report it.
        max_khz: Highest frequency in kHz; None if the system does not report it.
        frequencies_khz: Available frequencies, ascending; empty if the driver accepts any or reports none.
        governors: Available governors.
        policies: Folders under `/sys/devices/system/cpu/cpufreq` that set its clock; several if each core has its
            own.
    """

    name: str
    cpus: tuple[int, ...]
    capacity: int | None
    min_khz: int | None
    max_khz: int | None
    frequencies_khz: tuple[int, ...]
    governors: tuple[str, ...]
    policies: tuple[str, ...]

    def takes(self, khz: int) -> bool:
        """Returns whether its clock can be set to this value, as far as the system reports."""
        if self.frequencies_khz:
            return khz in self.frequencies_khz
        least, most = self.min_khz or 0, self.max_khz or khz
        return bool(self.policies) and least <= khz <= most


def cpu_list(text: str) -> tuple[int, ...]:
    """Parses core numbers in the kernel's lists: `0-3,6`, or `0 1 2` as in `related_cpus`.

    Raises:
        ValueError: The text has neither form.
    """
    cpus: set[int] = set()
    for part in re.split(r"[,\s]+", text.strip()):
        if not part:
            continue
        first, dash, last = part.partition("-")
        cpus.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(cpus))


def cpu_list_text(cpus: tuple[int, ...]) -> str:
    """Formats core numbers as the kernel and `taskset` write them: `0-3,6`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def clusters(files: Files) -> tuple[Cluster, ...]:
    """Returns clusters from slow to fast, from the files that `PATTERNS` found.

    Clusters are told apart by their policies. If each core has its own policy, cores with equal limits and capacity
    form one cluster. Without cpufreq, as in most virtual machines, cores are told apart by capacity.
    """
    capacities = {
        int(match[1]): value
        for path in files
        if (match := re.search(r"/cpu(\d+)/cpu_capacity$", path))
        and (value := number(files, path)) is not None
    }
    policies = sorted(
        {match[1] for path in files if (match := re.match(rf"({_CPU}/cpufreq/policy\d+)/", path))},
        key=lambda path: int(path.rpartition("policy")[2]),
    )
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for policy in policies:
        cpus = cpu_list(text(files, f"{policy}/related_cpus"))
        alone = len(cpus) == 1
        groups[_limits(files, policy, capacities, cpus) + (() if alone else (policy,))].append(
            policy
        )
    found = [_cluster(files, group, capacities) for group in groups.values()]
    if not found:
        found = _without_cpufreq(files, capacities)
    found.sort(key=lambda c: (c.capacity or 0, c.max_khz or 0, c.cpus))
    names = CLUSTER_NAMES.get(len(found)) or tuple(f"cluster{i}" for i in range(len(found)))
    return tuple(
        Cluster(
            name, c.cpus, c.capacity, c.min_khz, c.max_khz, c.frequencies_khz, c.governors, c.policies
        )
        for name, c in zip(names, found, strict=True)
    )  # fmt: skip


def _limits(
    files: Files, policy: str, capacities: Mapping[int, int], cpus: tuple[int, ...]
) -> tuple[object, ...]:
    return (
        number(files, f"{policy}/cpuinfo_min_freq"),
        number(files, f"{policy}/cpuinfo_max_freq"),
        capacities.get(cpus[0]) if cpus else None,
    )


def _cluster(files: Files, policies: list[str], capacities: Mapping[int, int]) -> Cluster:
    first = policies[0]
    cpus = tuple(
        sorted({cpu for p in policies for cpu in cpu_list(text(files, f"{p}/related_cpus"))})
    )
    return Cluster(
        "",
        cpus,
        capacities.get(cpus[0]) if cpus else None,
        number(files, f"{first}/cpuinfo_min_freq"),
        number(files, f"{first}/cpuinfo_max_freq"),
        tuple(
            sorted({int(f) for f in text(files, f"{first}/scaling_available_frequencies").split()})
        ),
        tuple(text(files, f"{first}/scaling_available_governors").split()),
        tuple(policies),
    )


def _without_cpufreq(files: Files, capacities: Mapping[int, int]) -> list[Cluster]:
    groups: dict[int | None, list[int]] = defaultdict(list)
    for cpu in cpu_list(text(files, f"{_CPU}/present")):
        groups[capacities.get(cpu)].append(cpu)
    return [
        Cluster("", tuple(cpus), capacity, None, None, (), (), ())
        for capacity, cpus in groups.items()
    ]


def text(files: Files, path: str) -> str:
    """Returns a file's text without surrounding white space; empty if it is absent or cannot be read."""
    return (files.get(path) or b"").replace(b"\0", b" ").decode(errors="replace").strip()


def number(files: Files, path: str) -> int | None:
    """Returns a file's whole number; None if it has none."""
    found = text(files, path)
    return int(found) if re.fullmatch(r"-?\d+", found) else None
