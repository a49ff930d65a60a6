"""How the trial budget is shared: it goes where most time of the training step can be saved.

After a warm-up, each round goes to the task with the steepest expected saving, count x seconds a trial, as in
Ansor's gradient-based task scheduler (Zheng et al., OSDI 2020, section 6); inside a task the formulations compete
by the best that each may still reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.compiler.search import Lane

_OPTIMISM = 0.2
# A kernel is short of what records let expect where it takes so many times as long.
_SHORT = 1.2
# A kernel without any valid time comes first, but only until it has had this many times its warm-up.
_HOPE = 3
# The best of n trials falls about as n to this power: 1.9 times from 16 to 100 trials, as seen on convolutions.
_PROGRESS = 0.35


@dataclass
class TaskLanes:
    """One task with its lanes.

    Attributes:
        count: Times the kernel runs in a step.
        default_s: Seconds of the untuned default; infinity when it failed.
        warmup: Trials that each lane gets first.
        lanes: One lane a formulation.
        expected_s: Seconds that records let expect; infinity without records.
        known_trials: Trials that earlier runs spent on this very kernel; they count as tried.
    """

    count: int
    default_s: float
    warmup: int
    lanes: Sequence[Lane]
    expected_s: float = math.inf
    known_trials: int = 0

    @property
    def best_s(self) -> float:
        """Best known seconds, the default included."""
        return min(self.default_s, *(lane.state.best_s for lane in self.lanes))

    @property
    def trials(self) -> int:
        return sum(lane.state.trials for lane in self.lanes)

    @property
    def weight(self) -> float:
        """Seconds a step that it takes now; tasks without any time come first."""
        return self.count * self.best_s if math.isfinite(self.best_s) else math.inf

    def open_lanes(self) -> list[Lane]:
        return [lane for lane in self.lanes if not lane.state.exhausted]

    def promise(self) -> float:
        """Expected seconds a step saved by the next trial."""
        best = self.best_s
        if not math.isfinite(best):
            return math.inf if self.trials < _HOPE * self.warmup * len(self.lanes) else 0.0
        # Of the lane that would have the trial; what one gains that is not the fastest, the step does not.
        state = self.arm().state
        recent = state.recent_gain_s if state.best_s <= best else 0.0
        known = _OPTIMISM * best / max(1, self.trials + self.known_trials)
        return self.count * max(recent / 2, known, self.shortfall() / max(1, self.trials))

    def shortfall(self) -> float:
        """Seconds that it lacks of what records let expect; 0 where it is as fast."""
        best = self.best_s
        return max(0.0, best - self.expected_s) if best > _SHORT * self.expected_s else 0.0

    def arm(self) -> Lane:
        """The open lane to try next: the one whose best would be fastest had it had all the task's trials."""

        def prospect(lane: Lane) -> float:
            state = lane.state
            if math.isfinite(state.best_s):
                return float(lane.outlook * state.best_s * state.tried**_PROGRESS)
            if state.expected is not None:  # Its first trials may be on their way.
                return float(self.best_s * state.expected * state.tried**_PROGRESS)
            return math.inf if state.trials else 0.0

        return min(self.open_lanes(), key=prospect)


@dataclass(frozen=True)
class Turn:
    """Whose turn it is, and for how many trials at most."""

    task: int
    lane: Lane
    trials: int


def next_turn(tasks: Sequence[TaskLanes], remaining: int, round_size: int) -> Turn | None:
    """Chooses the next round; None when the budget is spent or every lane is exhausted.

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
        for lane in tasks[index].lanes if tasks[index].known_trials else ():
            if lane.given:
                return Turn(index, lane, min(lane.given, remaining))
    for lap in range(max((task.warmup for task in tasks), default=0)):
        for index in order:
            task = tasks[index]
            for lane in task.lanes:
                if lane.given:  # What others found comes before anything new.
                    return Turn(index, lane, min(lane.given, remaining))
            for lane in task.open_lanes():
                if lane.state.tried <= lap < task.warmup:
                    return Turn(index, lane, min(task.warmup - lane.state.tried, remaining))
    open_tasks = [index for index, task in enumerate(tasks) if task.open_lanes()]
    if not open_tasks:
        return None
    index = max(open_tasks, key=lambda i: tasks[i].promise())
    if math.isfinite(tasks[index].expected_s):  # Little by little: one of the next trials may do.
        round_size = min(round_size, tasks[index].warmup)
    return Turn(index, tasks[index].arm(), min(round_size, remaining))
