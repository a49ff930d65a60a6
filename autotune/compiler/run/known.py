"""Knowledge from earlier runs about a run's kernels: their best schedules, which are tried first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.compiler.programs import DEFAULT
from autotune.compiler.run.run_records import databases_at
from autotune.compiler.target import Measure, TargetSpec, TuneRequest
from autotune.errors import UsageError
from autotune.reading import reading
from autotune.records import is_run, read_run

Known = Mapping[tuple[str, str], Sequence[tuple[str, Any]]]
"""Digests and traces by kernel and formulation, fastest first."""
_Pooled = tuple[str, str, str, float, Any]  # Kernel, formulation, digest, time, trace.


def known_schedules(paths: Sequence[Path], target: TargetSpec) -> Known:
    """Returns the pools of finished runs, and the same number of schedules per kernel from records, of any device.

    Args:
        paths: Folders of runs; files of records, or folders of such files.
        target: The present target.

    Raises:
        UsageError: A path is neither a finished kernel run nor records, or is for another kind of processor.
        RecordError: One is damaged.
    """
    found: dict[tuple[str, str], dict[str, tuple[float, Any]]] = {}
    for path in paths:
        pools = _of_run(path, target) if is_run(path) else _of_records(path, target)
        for kernel, formulation, digest, seconds, trace in pools:
            found.setdefault((kernel, formulation), {}).setdefault(digest, (seconds, trace))
    # Times on different devices or cores are not comparable, but for one kernel they mostly have the same order.
    return {
        key: [
            (digest, trace) for digest, (_, trace) in sorted(own.items(), key=lambda one: one[1][0])
        ]
        for key, own in found.items()
    }


def _of_run(path: Path, target: TargetSpec) -> Iterator[_Pooled]:
    run = read_run(path)
    earlier = TuneRequest.of_run(run).target
    run.ended()
    if earlier.processor != target.processor:
        raise _for_another(f"run {path} is for {earlier.name}", target)
    with reading(path):
        traces = {event["digest"]: event["trace"] for event in run.trials()}
        for task in run.kernel_result().tasks:
            for one in task.pool:
                if one.digest != DEFAULT:
                    yield task.name, one.formulation, one.digest, one.ms / 1e3, traces[one.digest]


def _of_records(path: Path, target: TargetSpec) -> Iterator[_Pooled]:
    for place, database in databases_at(path):
        if other := {one.target for one in database.identities} - {target.processor}:
            raise _for_another(f"the records of {place} are for {min(other)}", target)
        for kernel, schedules in database.tasks().items():
            for one in schedules[: Measure().pool]:
                yield kernel, one.formulation, one.digest, one.best_s, one.trace


def _for_another(what: str, target: TargetSpec) -> UsageError:
    return UsageError(
        f"{what}, whose schedules are none for {target.name}",
        hint="give one for the same kind of processor",
    )
