"""`autotune_step_runner` on a device: the workloads that it can be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from autotune.devices.topology import Cluster, cpu_list_text
from autotune.measurement.observation import Line
from autotune.measurement.profile import PROC_STAT, PROC_STATUS
from autotune.measurement.setting import Setting
from autotune.measurement.step_run import Workload

PROGRAM = "autotune_step_runner"
STEP_LINE = re.compile(r"^step \d+(?: loss \S+ ms (?P<ms>\S+))?")
"""What the end of a step prints, and how long it took."""
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

    def _words(self, *words: str) -> tuple[str, ...]:
        return (str(self.program), str(self.folder), *words)


def settings_text(
    settings: Sequence[Setting],
    clusters: Sequence[Cluster],
    at: Mapping[int, int] | None = None,
    used: Mapping[int, int] | None = None,
) -> str:
    """A file of settings; `rpc/step_runner/settings.h` has the format.

    Args:
        settings: Cores, threads and clocks.
        clusters: The device's.
        at: Settings by the call that they begin at; the first one begins a step.
        used: Schedules of calls, by their numbers in the step's files; 0 where a call is not named.
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
    return "\n".join(lines) + "\n"


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
