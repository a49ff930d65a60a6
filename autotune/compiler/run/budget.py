"""Shares the trial budget: trials go where most time of the training step can be saved.

Each round goes to the task with the largest expected saving per trial, counted over all calls, as in Ansor's
gradient-based task scheduler (Zheng et al., OSDI 2020, section 6). Within a task, each formulation has a warm-up.
Then formulations compete by the best time that each may still reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.compiler.search import FormulationSearch

_OPTIMISM = 0.2
# Share of its time that a kernel's first trial is expected to save: the untuned default is a plain loop nest.
_FIRST = 0.9
# A kernel's first round is at most this part of an equal share of the trials left.
_FIRST_ROUND = 0.25
# Fewer trials in a round take as long, since two build at once.
_LEAST_ROUND = 2
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

    @property
    def tried(self) -> int:
        """Number of trials, including those that records or a first schedule replace; at least 1."""
        return max(1, self.trials + self.known_trials + self.first_worth)

    @property
    def new(self) -> bool:
        """Whether the kernel has no schedule but its untuned default."""
        return not self.trials and not self.known_trials

    def promise(self) -> float:
        """Returns the seconds per step that the next trial is expected to save."""
        best = self.best_s
        if not math.isfinite(best):
            return math.inf if self.trials < _HOPE * self.warmup * len(self.searchers) else 0.0
        if self.new:
            return self.count * _FIRST * best
        # Of the search that would get the trial. A gain of a formulation that is not the fastest does not help the
        # step.
        state = self.arm().state
        recent = state.recent_gain_s if state.best_s <= best else 0.0
        known = _OPTIMISM * best / self.tried
        return self.count * max(recent / 2, known, self.shortfall() / max(1, self.trials))

    def shortfall(self) -> float:
        """Returns by how many seconds the task falls short of what records let expect; 0 if it does not."""
        best = self.best_s
        return max(0.0, best - self.expected_s) if best > _SHORT * self.expected_s else 0.0

    def arm(self) -> FormulationSearch:
        """Returns the open search to try next.

        That is one with schedules of others, then the one furthest from the end of its warm-up (of equals, the one
        with the best outlook), then the one whose best would be fastest with all the task's trials.
        """
        searchers = self.open_searchers()
        given = [one for one in searchers if one.given]
        waiting = [one for one in searchers if one.state.tried < self.warmup]
        if given:
            return given[0]
        if waiting:
            return min(waiting, key=lambda one: (one.state.tried, one.outlook))

        def prospect(searcher: FormulationSearch) -> float:
            state = searcher.state
            if math.isfinite(state.best_s):
                return float(searcher.outlook * state.best_s * state.tried**_PROGRESS)
            if state.expected is not None:  # Its first trials may be in flight.
                return float(self.best_s * state.expected * state.tried**_PROGRESS)
            return math.inf if state.trials else 0.0

        return min(searchers, key=prospect)


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
        round_size: Most trials of a round.
    """
    if remaining <= 0:
        return None
    # Known schedules of this kernel save more per trial than any other.
    for index in sorted(range(len(tasks)), key=lambda i: -tasks[i].weight):
        for searcher in tasks[index].searchers if tasks[index].known_trials else ():
            if searcher.given:
                return Allocation(index, searcher, min(searcher.given, remaining))
    promises = {index: one.promise() for index, one in enumerate(tasks) if one.open_searchers()}
    if not promises:
        return None
    # Of tasks that promise as much, the more expensive one.
    index = max(promises, key=lambda i: (promises[i], tasks[i].weight))
    next_best = max((promises[i] for i in promises if i != index), default=0.0)
    task, searcher = tasks[index], tasks[index].arm()
    if searcher.given:
        return Allocation(index, searcher, min(searcher.given, remaining))
    missing = task.warmup - searcher.state.tried
    if task.new:
        size = min(task.warmup, max(1, int(_FIRST_ROUND * remaining / len(tasks))))
    elif math.isfinite(task.expected_s):  # In small rounds: the next trial may do.
        size = min(round_size, task.warmup)
    else:
        size = min(round_size, _until(task.tried, promises[index], next_best))
    if missing > 0:
        size = min(size, missing)
    return Allocation(index, searcher, min(size, remaining))


def _until(tried: int, promise: float, next_best: float) -> int:
    """Returns the trials after which a task promises no more than the next best: a promise falls as 1 / trials."""
    if not promise < math.inf or next_best <= 0:
        return 1 << 30
    return max(_LEAST_ROUND, round(tried * (promise / next_best - 1)))
