"""How the trial budget is shared: it goes where most time of the training step can be saved.

After a warm-up, each round goes to the task with the steepest expected saving, count x seconds a trial, as in
Ansor's gradient-based task scheduler (Zheng et al., OSDI 2020, section 6); inside a task the formulations compete
by the best that each may still reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.compiler.search import FormulationSearch

_OPTIMISM = 0.2
# A kernel is short of what records let expect where it takes so many times as long.
_SHORT = 1.2
# A kernel without any valid time comes first, but only until it has had this many times its warm-up.
_HOPE = 3
# The best of n trials falls about as n to this power: 1.9 times from 16 to 100 trials, as seen on convolutions.
_PROGRESS = 0.35


@dataclass
class TaskSearches:
    """One task with its searches.

    Attributes:
        count: Times the kernel runs in a step.
        default_s: Seconds of the untuned default; infinity when it failed.
        warmup: Trials that each search gets first.
        searchers: One search a formulation.
        expected_s: Seconds that records let expect; infinity without records.
        known_trials: Trials that earlier runs spent on this very kernel; they count as tried.
    """

    count: int
    default_s: float
    warmup: int
    searchers: Sequence[FormulationSearch]
    expected_s: float = math.inf
    known_trials: int = 0

    @property
    def best_s(self) -> float:
        """Best known seconds, the default included."""
        return min(self.default_s, *(searcher.state.best_s for searcher in self.searchers))

    @property
    def trials(self) -> int:
        return sum(searcher.state.trials for searcher in self.searchers)

    @property
    def weight(self) -> float:
        """Seconds a step that it takes now; tasks without any time come first."""
        return self.count * self.best_s if math.isfinite(self.best_s) else math.inf

    def open_searchers(self) -> list[FormulationSearch]:
        return [searcher for searcher in self.searchers if not searcher.state.exhausted]

    def promise(self) -> float:
        """Expected seconds a step saved by the next trial."""
        best = self.best_s
        if not math.isfinite(best):
            return math.inf if self.trials < _HOPE * self.warmup * len(self.searchers) else 0.0
        # Of the search that would have the trial; what one gains that is not the fastest, the step does not.
        state = self.arm().state
        recent = state.recent_gain_s if state.best_s <= best else 0.0
        known = _OPTIMISM * best / max(1, self.trials + self.known_trials)
        return self.count * max(recent / 2, known, self.shortfall() / max(1, self.trials))

    def shortfall(self) -> float:
        """Seconds that it lacks of what records let expect; 0 where it is as fast."""
        best = self.best_s
        return max(0.0, best - self.expected_s) if best > _SHORT * self.expected_s else 0.0

    def arm(self) -> FormulationSearch:
        """The open search to try next: the one whose best would be fastest had it had all the task's trials."""

        def prospect(searcher: FormulationSearch) -> float:
            state = searcher.state
            if math.isfinite(state.best_s):
                return float(searcher.outlook * state.best_s * state.tried**_PROGRESS)
            if state.expected is not None:  # Its first trials may be on their way.
                return float(self.best_s * state.expected * state.tried**_PROGRESS)
            return math.inf if state.trials else 0.0

        return min(self.open_searchers(), key=prospect)


@dataclass(frozen=True)
class Allocation:
    """Whose turn it is, and for how many trials at most."""

    task: int
    searcher: FormulationSearch
    trials: int


def next_allocation(
    tasks: Sequence[TaskSearches], remaining: int, round_size: int
) -> Allocation | None:
    """Chooses the next round; None when the budget is spent or every search is exhausted.

    Args:
        tasks: All tasks of the run.
        remaining: Trials left.
        round_size: Trials of a round after the warm-up.
    """
    if remaining <= 0:
        return None
    # The most expensive tasks first: a small budget should not be spent on what takes no time.
    order = sorted(range(len(tasks)), key=lambda i: -tasks[i].weight)
    # What is known of this very kernel saves more a trial than any warm-up.
    for index in order:
        for searcher in tasks[index].searchers if tasks[index].known_trials else ():
            if searcher.given:
                return Allocation(index, searcher, min(searcher.given, remaining))
    for lap in range(max((task.warmup for task in tasks), default=0)):
        for index in order:
            task = tasks[index]
            for searcher in task.searchers:
                if searcher.given:  # What others found comes before anything new.
                    return Allocation(index, searcher, min(searcher.given, remaining))
            for searcher in task.open_searchers():
                if searcher.state.tried <= lap < task.warmup:
                    return Allocation(
                        index, searcher, min(task.warmup - searcher.state.tried, remaining)
                    )
    open_tasks = [index for index, task in enumerate(tasks) if task.open_searchers()]
    if not open_tasks:
        return None
    index = max(open_tasks, key=lambda i: tasks[i].promise())
    if math.isfinite(tasks[index].expected_s):  # Little by little: one of the next trials may do.
        round_size = min(round_size, tasks[index].warmup)
    return Allocation(index, tasks[index].arm(), min(round_size, remaining))
