"""The schedules and the step forms that a joint search chooses from, taken from the runs that --run names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.jobs.device import ChosenDevice
from autotune.jobs.steps.run_devices import other_devices
from autotune.records import Run, read_run
from autotune.studies.models import HYBRID, TaskPool, pools
from autotune.workloads import plan_memory

if TYPE_CHECKING:
    from autotune.compiler.programs import Winner
    from autotune.workloads import LayoutName, StepForm, StepGraph, TrainingStep

_MOST_FORMS = 6


@dataclass(frozen=True)
class JointForm:
    """A form of a step.

    Attributes:
        form: The form.
        graph: The step in this form.
        of_call: The task of each call, by its index in the pools; None if no run knows its kernel.
    """

    form: StepForm
    graph: StepGraph
    of_call: tuple[int | None, ...]


@dataclass(frozen=True)
class JointPools:
    """The choices of a joint search.

    Attributes:
        tasks: The kernels that runs have schedules for.
        forms: The step's forms; the plain one is first, if it fits.
        schedules: The schedules of each kernel, in the order of its pool.
        winners: Index of the fastest schedule of each task, as its runs found.
        warnings: Warnings about the runs: they were tuned on other devices.
    """

    tasks: tuple[TaskPool, ...]
    forms: tuple[JointForm, ...]
    schedules: Mapping[str, Sequence[Winner]]
    winners: tuple[int, ...]
    warnings: tuple[str, ...] = ()

    def winners_on(self, clusters: Sequence[str]) -> tuple[int, ...]:
        """Returns the index of each task's fastest schedule on the cores that train.

        Args:
            clusters: The clusters that train. A run without `--cluster` was tuned for several clusters, or for all
                of a device that has only one.

        Returns:
            The fastest schedule by the runs for these clusters. If no run was for them, the fastest of all runs.
        """
        where = clusters[0] if len(clusters) == 1 else HYBRID
        return tuple(
            min(
                (
                    (one.ms[where], number)
                    for number, one in enumerate(task.schedules)
                    if where in one.ms
                ),
                default=(0.0, fallback),
            )[1]
            for task, fallback in zip(self.tasks, self.winners, strict=True)
        )

    @property
    def counts(self) -> NDArray[np.float64]:
        """How often each form runs each task, shape (forms, tasks)."""
        found = np.zeros((len(self.forms), len(self.tasks)))
        for number, form in enumerate(self.forms):
            for task, count in Counter(form.of_call).items():
                if task is not None:
                    found[number, task] = count
        return found


def joint_pools(
    runs: Sequence[Path],
    wanted: TrainingStep,
    layout: LayoutName,
    only: StepForm | None,
    memory_bytes: int | None,
    chosen: ChosenDevice,
) -> JointPools:
    """Returns the pools of runs, and the forms of a step whose kernels they know.

    Recomputation only saves memory, so it is considered only if there is a memory limit. A form is left out if
    another form does a subset of its work.

    Args:
        runs: Folders of finished kernel runs.
        wanted: The step.
        layout: Its layout.
        only: The one form that was requested; None for any.
        memory_bytes: Most memory that a step may use; None without a limit.
        chosen: The device that is searched.

    Raises:
        UsageError: A run has not finished, no run knows a kernel of the step, or no form of it fits.
        RecordError: A run's records are damaged, or have no pools.
    """
    from autotune.compiler.programs import pooled
    from autotune.compiler.target import TuneRequest

    results: list[tuple[str, Mapping[str, Any]]] = []
    winners: dict[tuple[str, str], Winner] = {}
    fastest: dict[str, tuple[float, str]] = {}
    read: list[Run] = []
    for path in runs:
        run = read_run(path)
        cores, result = TuneRequest.of_run(run).cores, run.ended()
        results.append((cores.cluster if cores else HYBRID, result))
        read.append(run)
        winners.update(pooled(run))
        for task in result["tasks"]:
            if task["tuned_ms"] is not None:
                own = (task["tuned_ms"], task["digest"])
                fastest[task["name"]] = min(own, fastest.get(task["name"], own))
    known = {task.name: task for task in pools(results)}
    graphs = (
        [(only, wanted.graph(only))] if only else list(_forms(wanted, layout, known, memory_bytes))
    )
    fitting = [
        (form, graph)
        for form, graph in graphs
        if memory_bytes is None or plan_memory(graph).arena_bytes <= memory_bytes
    ]
    if not fitting:
        raise UsageError(
            f"no form of {wanted.model} at batch {wanted.batch} whose kernels the runs know keeps --memory-limit",
            hint="raise it, or tune micro-batches as well: autotune kernels --micro-batch N",
        )
    names = {node.kernel.name for _, graph in fitting for node in graph.nodes}
    tasks = tuple(task for name, task in known.items() if name in names)
    if not tasks:
        raise UsageError(
            "--run: no run knows a kernel of this step",
            hint="tune them: autotune kernels with the same --model, --batch and --layout",
        )
    index = {task.name: number for number, task in enumerate(tasks)}
    made = [
        JointForm(form, graph, tuple(index.get(node.kernel.name) for node in graph.nodes))
        for form, graph in fitting
    ]
    digests = [[one.digest for one in task.schedules] for task in tasks]
    return JointPools(
        tasks,
        tuple(_worth_trying(made))[:_MOST_FORMS],
        {task.name: [winners[task.name, one.digest] for one in task.schedules] for task in tasks},
        tuple(
            own.index(fastest[task.name][1]) if fastest.get(task.name, (0, ""))[1] in own else 0
            for task, own in zip(tasks, digests, strict=True)
        ),
        other_devices(read, chosen),
    )


def _forms(
    wanted: TrainingStep,
    layout: LayoutName,
    known: Mapping[str, TaskPool],
    memory_bytes: int | None,
) -> Iterator[tuple[StepForm, StepGraph]]:
    """Yields the plain step, and every other form whose kernels are all known."""
    for parts in wanted.parts():
        try:
            plain, graph = next(wanted.forms_of(parts, layout, (0,)))
        except UsageError:
            if parts == 1:
                raise
            continue  # Too few samples in a part.
        whole = all(node.kernel.name in known for node in graph.nodes)
        if not whole and parts > 1:
            continue
        yield plain, graph
        if memory_bytes is not None and whole:
            more = wanted.forms_of(parts, layout)
            yield from (found for found in more if found[0].segments)


def _worth_trying(forms: Sequence[JointForm]) -> Iterator[JointForm]:
    """Yields the forms whose work includes no other form's work."""
    counts = [Counter(form.of_call) for form in forms]
    for number, (form, own) in enumerate(zip(forms, counts, strict=True)):
        others = (
            other <= own and (other != own or earlier < number)
            for earlier, other in enumerate(counts)
            if earlier != number
        )
        if not any(others):
            yield form
