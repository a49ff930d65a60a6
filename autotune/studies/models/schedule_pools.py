"""The choices of a joint search: the kernels of a step, and the best few known schedules of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import RecordError
from autotune.workloads import ScheduleTraits

HYBRID = "hybrid"
"""Name of a run for all clusters together."""


@dataclass(frozen=True)
class PooledSchedule:
    """A schedule of a kernel.

    Attributes:
        digest: Its identity; `default` for the untuned default.
        formulation: Its formulation.
        traits: Traits of its loops.
        ms: Milliseconds in the final benchmarks of the runs that kept it, by cluster; `hybrid` is all cores.
    """

    digest: str
    formulation: str
    traits: ScheduleTraits
    ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskPool:
    """A kernel of a step.

    Attributes:
        name: The kernel's name.
        operator: Its operator.
        role: Its role.
        count: How often it runs in the step of the first run that knows it.
        schedules: Its schedules; at least one. The untuned default is first if it is known.
    """

    name: str
    operator: str
    role: str
    count: int
    schedules: tuple[PooledSchedule, ...]


def pools(results: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[TaskPool, ...]:
    """Returns the pools of a step's kernels, from the results of runs.

    Args:
        results: The clusters that runs were for, with their results (docs/reference/result-schema.md).

    Raises:
        RecordError: A result has no pools.
    """
    if not results:
        raise RecordError("no run has pools of schedules", hint="make one with `autotune kernels`")
    merged: dict[str, dict[str, PooledSchedule]] = {}
    about: dict[str, tuple[str, str, int]] = {}
    for cluster, result in results:
        try:
            for task in result["tasks"]:
                name = task["name"]
                about.setdefault(name, (task["operator"], task["role"], task["count"]))
                known = merged.setdefault(name, {})
                for one in task["pool"]:
                    found = known.get(one["digest"])
                    ms = {**(found.ms if found else {}), cluster: float(one["ms"])}
                    traits = found.traits if found else ScheduleTraits.from_json(one["traits"])
                    known[one["digest"]] = PooledSchedule(
                        one["digest"], one["formulation"], traits, ms
                    )
        except (KeyError, TypeError) as error:
            raise RecordError(
                f"a run's result has no pools of schedules: {error!r}",
                hint="tune again with this version of autotune",
            ) from error
    return tuple(
        TaskPool(name, *about[name], tuple(known.values()))
        for name, known in merged.items()
        if known
    )
