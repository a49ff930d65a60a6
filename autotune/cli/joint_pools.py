"""The schedules that a joint search chooses from, as --run names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.records import read_run
from autotune.studies.pools import HYBRID, TaskPool, pools

if TYPE_CHECKING:
    from autotune.compiler.scheduled import Winner
    from autotune.workloads import StepGraph


@dataclass(frozen=True)
class JointPools:
    """The schedules of a step's kernels.

    Attributes:
        tasks: The kernels of the step that runs know schedules of.
        of_call: The task of each call of the step, by its index in ``tasks``; None where none is known.
        schedules: How each of those kernels can be computed, in the order of its pool.
    """

    tasks: tuple[TaskPool, ...]
    of_call: tuple[int | None, ...]
    schedules: Mapping[str, Sequence[Winner]]


def joint_pools(runs: Sequence[Path], graph: StepGraph) -> JointPools:
    """The pools of runs, as far as they are of a step's kernels.

    Raises:
        UsageError: A run has not ended, or none knows a kernel of the step.
        RecordError: A run's records are damaged, or have no pools.
    """
    from autotune.compiler.request import TuneRequest
    from autotune.compiler.scheduled import pooled

    results: list[tuple[str, Mapping[str, Any]]] = []
    winners: dict[tuple[str, str], Winner] = {}
    for path in runs:
        run = read_run(path)
        if run.result is None:
            raise UsageError(
                f"run {path} has not ended", hint=f"go on with: autotune kernels --resume {path}"
            )
        cores = TuneRequest.from_json(run.about.get("request", {})).cores
        results.append((cores.cluster if cores else HYBRID, run.result))
        winners.update(pooled(run))
    names = [node.kernel.name for node in graph.nodes]
    tasks = tuple(task for task in pools(results) if task.name in names)
    if not tasks:
        raise UsageError(
            "--run: no run knows a kernel of this step",
            hint="tune them: autotune kernels with the same --model, --batch and --layout",
        )
    index = {task.name: number for number, task in enumerate(tasks)}
    return JointPools(
        tasks,
        tuple(index.get(name) for name in names),
        {task.name: [winners[task.name, one.digest] for one in task.schedules] for task in tasks},
    )
