"""Shares the trial budget: trials go where most time of the training step can be saved.

After a warm-up, each round goes to the task with the largest expected saving per trial, counted over all calls, as
in Ansor's gradient-based task scheduler (Zheng et al., OSDI 2020, section 6). Within a task, formulations compete
by the best time that each may still reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.compiler.search import FormulationSearch

_OPTIMISM = 0.2
# A kernel falls short of what records let expect if its time is larger by this factor.
_SHORT = 1.2
# A kernel without any valid time comes first, but only until it has had this multiple of its warm-up.
_HOPE = 3
# The best of n trials falls about as n to this power: by 1.9 times from 16 to 100 trials, as seen on convolutions.
_PROGRESS = 0.35


@dataclass
class TaskSearches:
    """A task and its searches.

    Attributes:
        count: Number of calls of the kernel in a step.
        default_s: Seconds of the untuned default; infinity if it failed.
        warmup: Trials that each search gets first.
        searchers: One search per formulation.
        expected_s: Seconds expected by the records; infinity without records.
        known_trials: Trials that earlier runs spent on this kernel. They count as tried.
        first_worth: Trials that its first schedule replaces. They count as tried.
    """

    count: int
    default_s: float
    warmup: int
    searchers: Sequence[FormulationSearch]
    expected_s: float = math.inf
    known_trials: int = 0
    first_worth: int = 0

    @property
    def best_s(self) -> float:
        """Best known seconds, including the default."""
        return min(self.default_s, *(searcher.state.best_s for searcher in self.searchers))

    @property
    def trials(self) -> int:
        return sum(searcher.state.trials for searcher in self.searchers)

    @property
    def weight(self) -> float:
        """Seconds per step that the task takes now. Infinity without a valid time: such tasks come first."""
        return self.count * self.best_s if math.isfinite(self.best_s) else math.inf

    def open_searchers(self) -> list[FormulationSearch]:
        return [searcher for searcher in self.searchers if not searcher.state.exhausted]

    def promise(self) -> float:
        """Returns the seconds per step that the next trial is expected to save."""
        best = self.best_s
        if not math.isfinite(best):
            return math.inf if self.trials < _HOPE * self.warmup * len(self.searchers) else 0.0
        # Of the search that would get the trial. A gain of a formulation that is not the fastest does not help the
        # step.
        state = self.arm().state
        recent = state.recent_gain_s if state.best_s <= best else 0.0
        known = _OPTIMISM * best / max(1, self.trials + self.known_trials + self.first_worth)
        return self.count * max(recent / 2, known, self.shortfall() / max(1, self.trials))

    def shortfall(self) -> float:
        """Returns by how many seconds the task falls short of what records let expect; 0 if it does not."""
        best = self.best_s
        return max(0.0, best - self.expected_s) if best > _SHORT * self.expected_s else 0.0

    def arm(self) -> FormulationSearch:
        """Returns the open search to try next: the one whose best would be fastest with all the task's trials."""

        def prospect(searcher: FormulationSearch) -> float:
            state = searcher.state
            if math.isfinite(state.best_s):
                return float(searcher.outlook * state.best_s * state.tried**_PROGRESS)
            if state.expected is not None:  # Its first trials may be in flight.
                return float(self.best_s * state.expected * state.tried**_PROGRESS)
            return math.inf if state.trials else 0.0

        return min(self.open_searchers(), key=prospect)


@dataclass(frozen=True)
class Allocation:
    """The search that is next, and its largest number of trials."""

    task: int
    searcher: FormulationSearch
    trials: int


def next_allocation(
    tasks: Sequence[TaskSearches], remaining: int, round_size: int
) -> Allocation | None:
    """Chooses the next round; None if the budget is spent or every search is exhausted.

    Args:
        tasks: All tasks of the run.
        remaining: Trials left.
        round_size: Trials of a round after the warm-up.
    """
    if remaining <= 0:
        return None
    # The most expensive tasks first, so that a small budget is not spent on tasks that take no time.
    order = sorted(range(len(tasks)), key=lambda i: -tasks[i].weight)
    # Known schedules of this kernel save more per trial than any warm-up.
    for index in order:
        for searcher in tasks[index].searchers if tasks[index].known_trials else ():
            if searcher.given:
                return Allocation(index, searcher, min(searcher.given, remaining))
    longest = max((task.warmup for task in tasks), default=0)
    most = _warmup_round(tasks, longest, remaining)
    for lap in range(longest):
        for index in order:
            task = tasks[index]
            for searcher in task.searchers:
                if searcher.given:  # Known schedules come before new ones.
                    return Allocation(index, searcher, min(searcher.given, remaining))
            for searcher in task.open_searchers():
                if searcher.state.tried <= lap < task.warmup:
                    missing = task.warmup - searcher.state.tried
                    return Allocation(index, searcher, min(missing, most, remaining))
    open_tasks = [index for index, task in enumerate(tasks) if task.open_searchers()]
    if not open_tasks:
        return None
    index = max(open_tasks, key=lambda i: tasks[i].promise())
    if math.isfinite(tasks[index].expected_s):  # In small rounds: the next trial may do.
        round_size = min(round_size, tasks[index].warmup)
    return Allocation(index, tasks[index].arm(), min(round_size, remaining))


def _warmup_round(tasks: Sequence[TaskSearches], longest: int, remaining: int) -> int:
    """Returns the most trials of a search in a round of the warm-up: all, unless the budget is short.

    A first trial saves most. If the budget is short, every task gets one before any gets a second. A round of two
    takes as long as a round of one, since two build at once.
    """
    waiting = [(task.warmup, one.state.tried) for task in tasks for one in task.open_searchers()]
    if remaining >= sum(max(0, warmup - tried) for warmup, tried in waiting):
        return longest
    return 2 if remaining >= 2 * sum(not tried for _, tried in waiting) else 1
