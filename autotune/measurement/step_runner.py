"""`autotune_step_runner` on a device, and the workloads that it provides."""

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
"""Matches the line printed at the end of a step, with the step's duration."""
_CROSSING = re.compile(
    r"crossing (\d+) (copy|map) (\d[\d.]*) (\d[\d.]*) reorder (\d[\d.]*) (\d[\d.]*)"
)
_OPENCL = re.compile(r"opencl (gpu|other) (.+)")
MemoryKind = Literal["copy", "map"]
"""How tensors cross to a GPU: copied, or mapped if it shares the host's memory."""
_SWITCH = re.compile(r"switch (\d+) (\d+) us (-?[\d.]+)")


@dataclass(frozen=True)
class StepRunner:
    """The program and a step's files, on a device.

    Attributes:
        program: The program.
        folder: The step's folder.
    """

    program: PurePosixPath
    folder: PurePosixPath

    def plain(self) -> Workload:
        """Returns plain steps."""
        return Workload(self._words("--threads", "{threads}"), STEP_LINE)

    def traced(self) -> Workload:
        """Returns steps that report when each call began."""
        words = self._words("--threads", "{threads}", "--trace")
        return Workload(words, STEP_LINE, (PROC_STAT, PROC_STATUS))

    def planned(self, settings: PurePosixPath) -> Workload:
        """Returns steps that go through the settings in a file."""
        return Workload(self._words("--settings", str(settings)), STEP_LINE)

    def chosen(self, settings: PurePosixPath) -> Workload:
        """Returns steps whose calls use the schedules named in a file. The steps report when each call began."""
        words = self._words("--settings", str(settings), "--trace")
        return Workload(words, STEP_LINE, (PROC_STAT, PROC_STATUS))

    def switches(self, settings: PurePosixPath) -> tuple[str, ...]:
        """Returns the command that measures the cost of changes between the settings of a file."""
        return (str(self.program), "--switches", str(settings))

    def crossings(self) -> tuple[str, ...]:
        """Returns the command that measures the cost of moving tensors to a GPU and back."""
        return self._words("--crossings")

    def _words(self, *words: str) -> tuple[str, ...]:
        return (str(self.program), str(self.folder), *words)


@dataclass(frozen=True)
class OnGpu:
    """The GPU's part of a step.

    Attributes:
        calls: Numbers of its calls, ascending.
        memory: How tensors are moved there and back.
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
    """Returns the text of a settings file; `rpc/step_runner/settings.h` has the format.

    Args:
        settings: Cores, threads and clocks.
        clusters: The device's clusters.
        at: Settings by the call that they begin at; the first one begins a step.
        used: Schedules of calls, by their numbers in the step's files; 0 for a call that is not named.
        on_gpu: The GPU's part of the step.
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
    """Cost of moving a tensor from one place to the other.

    Attributes:
        to_gpu: Time to copy or unmap it.
        to_host: Time to copy or map it.
        reorder_to_gpu: Extra time to change its order.
        reorder_to_host: The same on the way back.
    """

    to_gpu: float
    to_host: float
    reorder_to_gpu: float
    reorder_to_host: float


@dataclass(frozen=True)
class OpenClDevice:
    """The OpenCL device that takes part in a step.

    Attributes:
        name: Its name and its driver's version.
        gpu: Whether it is a GPU; otherwise it stands in for one.
    """

    name: str
    gpu: bool


def crossing_seconds(
    lines: Sequence[Line],
) -> tuple[OpenClDevice, dict[MemoryKind, dict[int, CrossingSeconds]]]:
    """Returns the OpenCL device, and the cost of each kind of tensor by the number of one such tensor.

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
    """Returns seconds of a change from each of `count` settings to each other. Negative values count as zero.

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
