"""What earlier runs know of a run's kernels: their best schedules, which it tries first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.compiler.entries import DEFAULT
from autotune.compiler.request import TuneRequest
from autotune.compiler.targets import TargetSpec
from autotune.errors import RecordError, UsageError
from autotune.records import Result, read_run

Known = Mapping[tuple[str, str], Sequence[Any]]
"""Traces by kernel and formulation, those that were fastest first."""


def known_schedules(paths: Sequence[Path], target: TargetSpec) -> Known:
    """The pools of finished runs.

    Args:
        paths: Their folders.
        target: What is tuned for now.

    Raises:
        UsageError: One is no finished run of kernels, or one for another kind of processor.
        RecordError: Its records are damaged.
    """
    found: dict[tuple[str, str], dict[str, tuple[float, Any]]] = {}
    for path in paths:
        run = read_run(path)
        earlier = TuneRequest.of_run(run).target
        result = run.ended()
        if (earlier.family, earlier.triple) != (target.family, target.triple):
            raise UsageError(
                f"run {path} is for {earlier.name}, whose schedules are none for {target.name}",
                hint="give a run for the same kind of processor",
            )
        try:
            traces = {event["digest"]: event["trace"] for event in run.trials()}
            for task in Result.from_json(result).tasks:
                for one in task.pool:
                    if one.digest != DEFAULT:
                        own = found.setdefault((task.name, one.formulation), {})
                        own.setdefault(one.digest, (one.ms, traces[one.digest]))
        except (KeyError, TypeError) as error:
            raise RecordError(f"the records of {path} are damaged: {error!r}") from error
    # Times of different devices or cores do not compare, but of one kernel they are in the same order mostly.
    return {
        key: [trace for _, trace in sorted(own.values(), key=lambda one: one[0])]
        for key, own in found.items()
    }
