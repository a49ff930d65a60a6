"""`autotune_step_runner` on a device: the workloads that it can be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from autotune.devices import Cluster, cpu_list_text
from autotune.measurement.observation import Line
from autotune.measurement.profile import PROC_STAT, PROC_STATUS
from autotune.measurement.setting import Setting
from autotune.measurement.step_run import Workload

PROGRAM = "autotune_step_runner"
STEP_LINE = re.compile(r"^step (?P<number>\d+)(?: loss \S+ ms (?P<ms>\S+))?")
"""What the end of a step prints, and how long it took."""
_CROSSING = re.compile(
    r"crossing (\d+) (copy|map) (\d[\d.]*) (\d[\d.]*) reorder (\d[\d.]*) (\d[\d.]*)"
)
_OPENCL = re.compile(r"opencl (gpu|other) (.+)")
MemoryKind = Literal["copy", "map"]
"""How tensors cross to a GPU: copied, or mapped where it shares the host's memory."""
_SWITCH = re.compile(r"switch (\d+) (\d+) us (-?[\d.]+)")


@dataclass(frozen=True)
class StepRunner:
    """The program and a step's files, on a device.

    Attributes:
        program: The program.
        folder: The step's.
    """

    program: PurePosixPath
    folder: PurePosixPath

    def plain(self) -> Workload:
        """Steps."""
        return Workload(self._words("--threads", "{threads}"), STEP_LINE)

    def traced(self) -> Workload:
        """Steps that tell when each call began."""
        words = self._words("--threads", "{threads}", "--trace")
        return Workload(words, STEP_LINE, (PROC_STAT, PROC_STATUS))

    def planned(self, settings: PurePosixPath) -> Workload:
        """Steps that go through the settings of a file."""
        return Workload(self._words("--settings", str(settings)), STEP_LINE)

    def chosen(self, settings: PurePosixPath) -> Workload:
        """Steps whose calls use the schedules that a file names, and tell when they began."""
        words = self._words("--settings", str(settings), "--trace")
        return Workload(words, STEP_LINE, (PROC_STAT, PROC_STATUS))

    def switches(self, settings: PurePosixPath) -> tuple[str, ...]:
        """The command that measures what it costs to go from one setting of a file to another."""
        return (str(self.program), "--switches", str(settings))

    def crossings(self) -> tuple[str, ...]:
        """The command that measures what it costs to bring tensors to a GPU and back."""
        return self._words("--crossings")

    def _words(self, *words: str) -> tuple[str, ...]:
        return (str(self.program), str(self.folder), *words)


@dataclass(frozen=True)
class OnGpu:
    """What a GPU does of a step.

    Attributes:
        calls: Their numbers, rising.
        memory: How tensors get there and back.
    """

    calls: tuple[int, ...]
    memory: MemoryKind


def settings_text(
    settings: Sequence[Setting],
    clusters: Sequence[Cluster],
    at: Mapping[int, int] | None = None,
    used: Mapping[int, int] | None = None,
    on_gpu: OnGpu | None = None,
) -> str:
    """A file of settings; `rpc/step_runner/settings.h` has the format.

    Args:
        settings: Cores, threads and clocks.
        clusters: The device's.
        at: Settings by the call that they begin at; the first one begins a step.
        used: Schedules of calls, by their numbers in the step's files; 0 where a call is not named.
        on_gpu: What a GPU does of the step.
    """
    lines = []
    for setting in settings:
        words = [cpu_list_text(setting.cpus) if setting.cpus else "-", str(setting.threads)]
        for cluster, khz in zip(clusters, setting.khz, strict=True):
            if khz is not None:
                words += [f"{policy}={khz}" for policy in cluster.policies]
        lines.append(f"setting {' '.join(words)}")
    lines += [f"at {call} {number}" for call, number in sorted((at or {}).items())]
    lines += [f"use {call} {number}" for call, number in sorted((used or {}).items())]
    if on_gpu is not None and on_gpu.calls:
        lines.append(f"memory {on_gpu.memory}")
        lines += [f"gpu {call}" for call in on_gpu.calls]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class CrossingSeconds:
    """What it costs to bring a tensor from one place to the other.

    Attributes:
        to_gpu: Copied, or unmapped.
        to_host: Copied, or mapped.
        reorder_to_gpu: Its order changed besides.
        reorder_to_host: The same on the way back.
    """

    to_gpu: float
    to_host: float
    reorder_to_gpu: float
    reorder_to_host: float


@dataclass(frozen=True)
class OpenClDevice:
    """The device that shares in a step.

    Attributes:
        name: Its name and its driver's version.
        gpu: Whether it is a GPU; else it stands in for one.
    """

    name: str
    gpu: bool


def crossing_seconds(
    lines: Sequence[Line],
) -> tuple[OpenClDevice, dict[MemoryKind, dict[int, CrossingSeconds]]]:
    """The OpenCL device, and the cost of each kind of tensor by the number of one of them.

    Raises:
        ValueError: Nothing was measured.
    """
    device: OpenClDevice | None = None
    found: dict[MemoryKind, dict[int, CrossingSeconds]] = {}
    for line in lines:
        text = line.text.strip()
        if m := _OPENCL.fullmatch(text):
            device = OpenClDevice(m[2], m[1] == "gpu")
        elif m := _CROSSING.fullmatch(text):
            kind: MemoryKind = "map" if m[2] == "map" else "copy"
            costs = CrossingSeconds(*(float(m[group]) * 1e-6 for group in range(3, 7)))
            found.setdefault(kind, {})[int(m[1])] = costs
    if device is None or len({frozenset(costs) for costs in found.values()}) != 1:
        raise ValueError("no crossing was measured")
    return device, found


def switch_seconds(lines: Sequence[Line], count: int) -> list[list[float]]:
    """Seconds of a change from each of so many settings to each other; what is below zero is none.

    Raises:
        ValueError: A pair is missing.
    """
    found = {
        (int(m[1]), int(m[2])): max(0.0, float(m[3]) * 1e-6)
        for m in (_SWITCH.fullmatch(line.text.strip()) for line in lines)
        if m
    }
    pairs = {(a, b) for a in range(count) for b in range(count) if a != b}
    if found.keys() != pairs:
        raise ValueError(f"{len(pairs - found.keys())} of {len(pairs)} changes were not measured")
    return [[found.get((a, b), 0.0) for b in range(count)] for a in range(count)]
