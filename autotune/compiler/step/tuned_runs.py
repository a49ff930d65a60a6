"""Reads tuned runs for a step: their winners, their target, and the expected time of the step."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from autotune.compiler.programs import Winner, winners
from autotune.compiler.step.step import predicted_bytes
from autotune.compiler.step.step_library import (
    Report,
    StepFunction,
    StepLibrary,
    step_function,
    step_library,
)
from autotune.compiler.target import (
    Space,
    TargetSpec,
    TuneRequest,
    same_code,
    spaces,
    targets,
    tvm_target,
)
from autotune.errors import UsageError
from autotune.records import read_run
from autotune.workloads import (
    LAYOUTS,
    LayoutName,
    StepForm,
    StepGraph,
    TrainingStep,
    formed,
    parse_kernel,
    plan_memory,
    tasks,
)
from autotune.workloads.operators import Kernel

LOGGER = logging.getLogger("autotune.step")
# Rates to guess the time of kernels that were never measured, based on TVM's default schedule on one core.
_GUESSED_FLOPS_A_SECOND = 1e9
_GUESSED_BYTES_A_SECOND = 2e9


@dataclass(frozen=True)
class StepRuns:
    """Finished kernel runs for one target.

    Attributes:
        target: The target that their kernels were compiled for.
        space: Their search space.
        winners: The fastest known schedule of each kernel, by the kernel's name.
        cache: Folder that keeps compiled steps; None without a run.
        untuned: Whether every kernel without a winner gets the untuned default; see `step_library`.
        tuned: What each run tuned, for people.
    """

    target: TargetSpec
    space: Space
    winners: Mapping[str, Winner]
    cache: Path | None
    untuned: bool = False
    tuned: tuple[str, ...] = ()

    def as_untuned(self) -> StepRuns:
        """Returns the same target and space, with every kernel untuned."""
        return replace(self, winners={}, untuned=True)

    def library(
        self,
        graph: StepGraph,
        report: Report = lambda done, total: None,
        schedules: Mapping[str, Sequence[Winner]] | None = None,
    ) -> AbstractContextManager[StepLibrary]:
        """Compiles a step's kernels; see `step_library`. Warns if runs lack some of them.

        Args:
            graph: The step.
            report: Receives the number of libraries done, and their total.
            schedules: Schedules of kernels that are not to be computed by their winners.
        """
        kernels = [task.kernel for task in tasks(graph)]
        missing = sum(kernel.name not in self.winners for kernel in kernels)
        if self.winners and missing:
            runs = " or ".join(self.tuned)
            LOGGER.warning(
                "%d of %d kernels of this step are not in %s", missing, len(kernels), runs
            )
        chosen = {name: [winner] for name, winner in self.winners.items()} | dict(schedules or {})
        return step_library(
            kernels, chosen, self.target, self.space, self.cache, report, untuned=self.untuned
        )

    def seconds(self, graph: StepGraph) -> float:
        """Returns the approximate seconds of a step: tuned kernels by their times, others by their sizes.

        The others run at the measured pace of untuned kernels of their operator and role, if there is one.
        """
        return sum(task.count * self._kernel_seconds(task.kernel) for task in tasks(graph))

    def _kernel_seconds(self, kernel: Kernel) -> float:
        winner = self.winners.get(kernel.name)
        if winner is not None and winner.task.tuned_ms is not None:
            return winner.task.tuned_ms / 1e3
        return _guessed_seconds(kernel) * self._untuned_pace.get(_kind(kernel), 1.0)

    @cached_property
    def _untuned_pace(self) -> dict[tuple[str, str], float]:
        """Ratio of measured to guessed time of untuned kernels, by operator and role."""
        measured: defaultdict[tuple[str, str], float] = defaultdict(float)
        guessed: defaultdict[tuple[str, str], float] = defaultdict(float)
        for winner in self.winners.values():
            kernel = parse_kernel(winner.task.spec, winner.task.role)
            if winner.task.default_ms is not None:
                measured[_kind(kernel)] += winner.task.default_ms / 1e3
                guessed[_kind(kernel)] += _guessed_seconds(kernel)
        return {kind: seconds / guessed[kind] for kind, seconds in measured.items()}

    def layout(self, wanted: TrainingStep, parts: int = 1, segments: int = 0) -> LayoutName:
        """Returns the layout in which the whole step is fastest, among those whose kernels the runs all have.

        Args:
            wanted: The step.
            parts: Number of micro-batches.
            segments: Number of recomputed segments.

        Returns:
            This layout; the target's usual one if the runs have all kernels of none.

        Raises:
            UsageError: The step cannot be built.
        """
        timed: dict[LayoutName, float] = {}
        if not self.winners:
            return self.space.layout
        plain = wanted.plain(parts)[0]
        for layout in LAYOUTS:
            graph = formed(plain, StepForm(layout, parts, segments))
            if all(task.kernel.name in self.winners for task in tasks(graph)):
                timed[layout] = self.seconds(graph)
        return min(timed, key=lambda layout: timed[layout], default=self.space.layout)


def _guessed_seconds(kernel: Kernel) -> float:
    return kernel.flops / _GUESSED_FLOPS_A_SECOND + kernel.bytes / _GUESSED_BYTES_A_SECOND


def _kind(kernel: Kernel) -> tuple[str, str]:
    return kernel.operator.name, kernel.role


def step_runs(paths: Sequence[Path], *, triple: str = "") -> StepRuns:
    """Reads runs. If two have the same kernel, the faster schedule is taken.

    Args:
        paths: Folders of finished kernel runs; if empty, nothing is tuned.
        triple: LLVM triple of the step's processor: empty for this machine's, or ``ARM_TRIPLE``.

    Raises:
        UsageError: A run does not exist or has not ended, or the runs are for several targets or compiler options,
            or for a target whose code cannot run in a step on that processor.
        RecordError: A run is damaged.
    """
    target = targets.find("arm-cpu" if triple else "cpu")
    space = spaces.load(target.space_path())
    known: dict[str, Winner] = {}
    tuned: list[str] = []
    for number, path in enumerate(paths):
        run = read_run(path)
        request = TuneRequest.of_run(run)
        run.ended()
        if number and not same_code(request.target, target):
            raise UsageError(
                f"run {path} is for {request.target.name}, and the one before for another target",
                hint="give runs of one target; `autotune compare` shows what differs",
            )
        options = (request.space.limits, request.space.compile)
        if number and options != (space.limits, space.compile):
            raise UsageError(
                f"run {path} was compiled with other options than the one before",
                hint="give runs of one search space",
            )
        target, space = request.target, request.space
        if target.family != "cpu" or target.triple != triple:
            where = "a 64-bit ARM processor" if triple else "this machine's processor"
            raise UsageError(
                f"run {path} is for {target.name}; the step runs on {where}",
                hint=f"tune with --target {'arm-cpu' if triple else 'cpu'}",
            )
        batch = "" if request.batch is None else f", batch {request.batch}"
        tuned.append(f"run {path} ({request.workload}{batch})")
        for name, winner in winners(run).items():
            if name not in known or _ms(winner) < _ms(known[name]):
                known[name] = winner
    cache = paths[0] / "steps" if paths else None
    return StepRuns(target, space, known, cache, tuned=tuple(tuned))


def _ms(winner: Winner) -> float:
    return winner.task.tuned_ms or float("inf")


class _Sizes:
    """Predicts the peak memory of a step's forms. A kernel is scheduled once for all of them."""

    def __init__(self, runs: StepRuns) -> None:
        self._runs = runs
        self._target = tvm_target(runs.target, runs.space.limits, runs.space.compile)
        self._known: dict[str, StepFunction] = {}

    def of(self, graph: StepGraph) -> int:
        """Returns the peak memory of a step in bytes."""
        names = [task.kernel.name for task in tasks(graph)]
        for task in tasks(graph):
            name = task.kernel.name
            if name not in self._known:
                winner = self._runs.winners.get(name)
                self._known[name] = step_function(task.kernel, winner, self._target)
        scratch = {name: tuple(s.bytes for s in self._known[name].scratch) for name in names}
        calls = [self._known[node.kernel.name].workspace for node in graph.nodes]
        return predicted_bytes(plan_memory(graph, scratch), calls)


def form_sizes(
    wanted: TrainingStep, runs: StepRuns, layout: LayoutName
) -> list[tuple[StepForm, StepGraph, int]]:
    """Returns every form of a step, the plain one first, with its predicted peak memory in bytes."""
    sizes = _Sizes(runs)
    return [(form, graph, sizes.of(graph)) for form, graph in wanted.forms(layout)]


def fitting_form(
    wanted: TrainingStep,
    runs: StepRuns,
    layouts: Sequence[LayoutName],
    limit: int,
    report: Callable[[int], None] = lambda planned: None,
) -> tuple[StepForm, StepGraph]:
    """Chooses the fastest form of a step whose predicted peak memory is within a limit.

    Args:
        wanted: The step.
        runs: Runs with its kernels.
        layouts: Layouts of the forms. A later layout is used only if no form of an earlier one fits.
        limit: Limit in bytes.
        report: Receives the number of forms planned so far.

    Raises:
        UsageError: No form fits.
    """
    sizes = _Sizes(runs)
    bounds: list[tuple[int, StepGraph]] = []
    for layout in layouts:
        forms = []
        for form, graph in wanted.forms(layout):
            bounds.append((predicted_bytes(plan_memory(graph), ()), graph))
            forms.append((runs.seconds(graph), bounds[-1][0], form, graph))
            report(len(bounds))
        for _, bound, form, graph in sorted(forms, key=lambda entry: entry[0]):
            if bound <= limit and sizes.of(graph) <= limit:
                return form, graph
    smallest = math.inf
    for bound, graph in sorted(bounds, key=lambda entry: entry[0]):
        if bound >= smallest:
            break
        smallest = min(smallest, sizes.of(graph))
    raise UsageError(
        f"no form of {wanted.model} at batch {wanted.batch} fits into {limit / 1e6:.4g} MB: "
        f"the smallest needs {smallest / 1e6:.4g} MB",
        hint="raise --memory-limit, or train with a smaller --batch",
    )
