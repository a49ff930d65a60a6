"""The searches of a run, one per formulation of each kernel, and the cost models that they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.compiler.formulations import Formulation, formulations
from autotune.compiler.rules import cuts
from autotune.compiler.run.budget import TaskSearches
from autotune.compiler.run.known import Known
from autotune.compiler.search import FormulationSearch, ScheduleRanker
from autotune.compiler.target import TuneRequest
from autotune.errors import UsageError
from autotune.workloads import Task
from autotune.workloads.operators import Kernel

_COMMITTEE = 4
"""Number of members of a cost model of tiles."""


class Searchers:
    """Makes the searches of a run.

    Args:
        request: The run's request.
        known: Schedules of its kernels from other runs, which are tried first.
        target: TVM's target.
        threads: Threads for sampling.
    """

    def __init__(self, request: TuneRequest, known: Known, target: Any, threads: int) -> None:
        self._request = request
        self._known = known
        self._target = target
        self._threads = threads
        self._rankers: dict[str, ScheduleRanker] = {}

    def of_task(self, index: int, task: Task) -> TaskSearches:
        """Returns the searches of a task; `index` is its number in the request."""
        request, kernel = self._request, task.kernel
        search = request.space.search
        made = [
            self._searcher(kernel, formulation, request.seed * 7919 + index * 31 + number)
            for number, formulation in enumerate(self._formulations(kernel))
        ]
        for one in made:
            one.give(self._known.get((kernel.name, one.formulation.name), ()))
        warmup = search.warmup_trials_memory_bound
        worth = 0
        if (streaming := request.space.streaming) and not kernel.is_compute:
            for one in made:
                worth = streaming.worth if one.begin_streamed() else worth
        if kernel.is_compute:
            fair_share = request.trials // len(request.tasks) // len(made)
            warmup = max(search.warmup_trials, int(search.warmup_share * fair_share))
        return TaskSearches(task.count, math.inf, warmup, made, first_worth=worth)

    def separate(self, kernel: Kernel, formulation: str) -> FormulationSearch:
        """Returns a search that is not one of the run's, for records about other kernels.

        Raises:
            UsageError: This version, or the space, does not have the formulation.
        """
        (chosen,) = formulations(kernel, [formulation])
        if chosen.rule and chosen.rule not in {rule.kind for rule in self._request.space.rules}:
            raise UsageError(f"the space has no rule {chosen.rule}, which {formulation} needs")
        return self._searcher(kernel, chosen, self._request.seed)

    def _formulations(self, kernel: Kernel) -> Sequence[Formulation]:
        """Returns the formulations to try: those that the space prefers, if any of them has a fitting schedule."""
        space = self._request.space
        names = space.formulations.get(f"{kernel.operator.name}.{kernel.role}")
        fitting = formulations(kernel, names, {rule.kind for rule in space.rules})
        preferred = space.preferred(fitting)
        return preferred if any(cuts(space, kernel, one) for one in preferred) else fitting

    def _searcher(self, kernel: Kernel, formulation: Formulation, seed: int) -> FormulationSearch:
        return FormulationSearch(
            kernel,
            formulation,
            space=self._request.space.for_size(kernel.flops, kernel.bytes),
            target=self._target,
            ranker=self._ranker(formulation.rule),
            seed=1 + seed % (2**31 - 2),
            threads=self._threads,
        )

    def _ranker(self, rule: str) -> ScheduleRanker:
        """Returns the cost model of the formulations of one tile rule, or of all formulations without one."""
        if rule not in self._rankers:
            self._rankers[rule] = ScheduleRanker(
                seed=self._request.seed,
                warmup=self._request.space.search.model_warmup,
                members=_COMMITTEE if rule else 1,
            )
        return self._rankers[rule]
