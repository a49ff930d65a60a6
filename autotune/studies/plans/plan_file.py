"""Plan files, for those who execute a plan; docs/joint.md has the schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.measurement import MemoryKind, OnGpu
from autotune.reading import DOCUMENT, Unreadable, is_version, parse_json, read_bytes
from autotune.studies.plans.plan_schema import check, damaged

PLAN_SCHEMA_VERSION = 1
KIND = "plan"


@dataclass(frozen=True)
class StepPlan:
    """How a step is executed.

    Attributes:
        path: The file.
        device: The device that it was measured on, as in the result of a search.
        emulated: The profile of the model that it was measured on; empty for a real device.
        step: The options that describe the step, including the runs with its kernels.
        settings: Cores and clock of each cluster, and threads; several if the step changes between them.
        calls: The setting of each call, by its index in ``settings``.
        kernels: The kernel of each call on the CPU.
        digests: The schedule of each call there; None if no run knows its kernel, or a GPU makes the call.
        gpu: The GPU kernel and schedule of each call that a GPU makes, by the call's number.
        memory: How tensors are moved to the GPU and back.
        figures: Milliseconds and millijoules of a call, by kernel (for the GPU, its kernel there) and digest. Times
            are those measured in the search's steps, else predictions. Joules are always predictions. None if
            unknown.
        measured: `time_s`, `energy_j`, `memory_bytes`, `celsius`, and `ci`.
    """

    path: Path
    device: Mapping[str, Any]
    emulated: str
    step: dict[str, Any]
    settings: tuple[dict[str, Any], ...]
    calls: tuple[int, ...]
    kernels: tuple[str, ...]
    digests: tuple[str | None, ...]
    gpu: Mapping[int, tuple[str, str]]
    memory: MemoryKind
    figures: Mapping[tuple[str, str], tuple[float | None, float | None]]
    measured: Mapping[str, Any]

    @property
    def schedules(self) -> dict[str, list[str]]:
        """The schedules of each kernel whose runs are known, by its name.

        The schedule that most calls use is first.
        """
        counted: dict[str, Counter[str]] = {}
        for kernel, digest in zip(self.kernels, self.digests, strict=True):
            if digest is not None:
                counted.setdefault(kernel, Counter())[digest] += 1
        return {name: [digest for digest, _ in one.most_common()] for name, one in counted.items()}

    @property
    def used(self) -> dict[int, int]:
        """Index of the schedule that each call uses among its kernel's schedules, by the call's number."""
        schedules = self.schedules
        return {
            call: schedules[kernel].index(digest)
            for call, (kernel, digest) in enumerate(zip(self.kernels, self.digests, strict=True))
            if digest is not None
        }

    @property
    def on_gpu(self) -> OnGpu:
        """The GPU's part of the step."""
        return OnGpu(tuple(sorted(self.gpu)), self.memory)

    @property
    def changes(self) -> dict[int, int]:
        """Settings by the call that they begin at. The first call is always included."""
        found = {0: self.calls[0]}
        for call, (before, now) in enumerate(pairwise(self.calls), start=1):
            if now != before:
                found[call] = now
        return found


def _figures(
    calls: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    found: dict[tuple[str, str], list[tuple[float | None, float | None]]] = {}
    for call in calls:
        if call["schedule"] is not None:
            predicted = call.get("predicted") or {}
            seconds = (call.get("measured") or predicted).get("time_s")
            name = call["gpu_kernel"] if call["device"] == "gpu" else call["kernel"]
            key = (name, call["schedule"]["digest"])
            found.setdefault(key, []).append((seconds, predicted.get("energy_j")))
    return {
        key: (_mean([t for t, _ in ones]), _mean([e for _, e in ones]))
        for key, ones in found.items()
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean in thousandths; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return 1e3 * sum(known) / len(known) if len(known) == len(values) else None


def is_plan(path: Path) -> bool:
    """Returns whether a path, which may be a run's folder, is a plan."""
    return path.suffix == ".json" and not path.is_dir()


def read_plan(path: Path) -> StepPlan:
    """Reads a plan.

    Raises:
        UsageError: There is no plan, it is of another version, or it is damaged.
    """
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, and a plan is a file",
            hint=f"such as {path / 'plans' / 'best.json'}, which `autotune joint` writes",
        )
    if not path.exists():
        raise UsageError(f"no plan at {path}: there is no such file")
    try:
        content = parse_json(read_bytes(path, DOCUMENT.bytes))
    except Unreadable as error:
        raise damaged(path, f"it is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UsageError(f"{path} is not a plan", hint="`autotune joint` writes plans")
    if not is_version(content.get("schema_version"), PLAN_SCHEMA_VERSION):
        raise UsageError(
            f"{path} is a plan of version {str(content.get('schema_version'))[:20]}, and this autotune reads "
            f"{PLAN_SCHEMA_VERSION}",
            hint="search again with this version of autotune",
        )
    check(path, content)
    calls = content["calls"]
    on_gpu = {number: call for number, call in enumerate(calls) if call["device"] == "gpu"}
    return StepPlan(
        path,
        dict(content["device"]),
        content["profile"] or "",
        dict(content["step"]),
        tuple(content["settings"]),
        tuple(call["setting"] for call in calls),
        tuple(call["kernel"] for call in calls),
        tuple(
            None
            if call["schedule"] is None or call["device"] == "gpu"
            else call["schedule"]["digest"]
            for call in calls
        ),
        {n: (call["gpu_kernel"], call["schedule"]["digest"]) for n, call in on_gpu.items()},
        content["gpu"]["memory"] if on_gpu else "copy",
        _figures(calls),
        dict(content["measured"]),
    )
