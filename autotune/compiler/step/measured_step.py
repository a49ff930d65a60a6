"""Measures a step untuned, tuned and in PyTorch, in interleaved blocks."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psutil

from autotune.compiler.step.step import StepSession, open_step
from autotune.compiler.step.tuned_runs import StepRuns
from autotune.compiler.target import kernel_threads
from autotune.compiler.workers import Message, Worker, WorkerLost
from autotune.errors import AutotuneError
from autotune.measurement import Interval, bootstrap_median, in_blocks, median, paired_speedup
from autotune.workloads import StepGraph, TrainingStep, generated_feeds

BLOCKS = 12
_LIMIT_S = 50.0
"""Seconds after which no new block begins."""
_LONGEST_S = 10.0
"""Limit in seconds: a slower untuned step is not run."""
_TURN_S, _MOST_STEPS = 0.2, 5
"""Approximate time of a turn of a side in seconds, and its most steps; it has at least one."""
_WARMED_S = 1.0
"""A side whose step takes less time is warmed up by more steps, and by one in each turn."""
_SETTLE_S = 0.05  # The threads of the previous side still spin.
_LOOK_S = 0.3
"""Seconds in which the use of the processors by other programs is measured."""
_TIMEOUT_S = 300.0
_SEED = 1
Report = Callable[[str, int, int], None]
_Turn = Callable[[int], list[float]]


@dataclass(frozen=True)
class MeasuredStep:
    """Measured times of a step on this machine.

    Attributes:
        seconds: By side (`untuned`, `tuned`, `pytorch`): the median step of each block, in seconds. All sides have
            the same blocks.
        left_out: Why a side is missing, by its name.
        others_used: Share of this machine's processors that other programs used before the first block.
    """

    seconds: Mapping[str, tuple[float, ...]]
    left_out: Mapping[str, str]
    others_used: float

    def time_s(self, side: str) -> Interval | None:
        """Returns the seconds of a step; None for a missing side."""
        found = self.seconds.get(side)
        return bootstrap_median(found, positive=True, seed=_SEED) if found else None

    def speedup(self, over: str) -> Interval | None:
        """Returns the speed-up of the tuned step over another side; None if that side is missing."""
        found = self.seconds.get(over)
        return paired_speedup(found, self.seconds["tuned"], seed=_SEED) if found else None

    def to_json(self) -> dict[str, Any]:
        """Returns the object `measured_step` of a result; see `docs/reference/result-schema.md`."""
        sides: dict[str, Any] = {}
        for side in ("untuned", "tuned", "pytorch"):
            taken, faster = self.time_s(side), self.speedup(side)
            if taken is None or faster is None:
                sides[side] = None
                continue
            ends = taken.ends
            sides[side] = {
                "ms": 1e3 * taken.estimate,
                "ci_ms": [1e3 * end for end in ends] if ends else None,
                "tuned_is_faster": faster.estimate,
                "ci": faster.ends,
            }
        return {
            **sides,
            "blocks": len(self.seconds["tuned"]),
            "threads": kernel_threads(),
            "left_out": dict(self.left_out),
            "others_used": self.others_used,
        }


def measure_step(
    wanted: TrainingStep,
    graph: StepGraph,
    runs: StepRuns,
    predicted_untuned_s: float | None,
    report: Report = lambda what, done, total: None,
) -> MeasuredStep:
    """Runs a step with a run's kernels, with untuned ones, and in PyTorch, in interleaved blocks.

    After compilation it takes less than a minute, except that at least one block is measured.

    Args:
        wanted: The step.
        graph: The same step in the form whose kernels were tuned.
        runs: The runs that tuned them.
        predicted_untuned_s: Predicted seconds of an untuned step; None if unknown. The untuned side is left out if
            this is unknown or too long.
        report: Receives the activity, its progress and its total. If it raises, the measurement ends.

    Raises:
        AutotuneError: The step cannot be compiled or run.
    """
    left_out: dict[str, str] = {}
    with ExitStack() as opened:
        eager = None
        if why := _no_eager(wanted):
            left_out["pytorch"] = why
        else:
            eager = _EagerWorker(wanted)
            opened.callback(eager.stop)
        sides: dict[str, _Turn] = {}
        known = {"tuned": runs, "untuned": runs.as_untuned()}
        if why := _too_long(predicted_untuned_s):
            left_out["untuned"] = why
            del known["untuned"]
        for name, some in known.items():
            what = f"compiling the {name} step"

            def compiled(done: int, total: int, what: str = what) -> None:
                report(what, done, total)

            library = opened.enter_context(some.library(graph, compiled))
            values = wanted.values(graph, _SEED)
            sides[name] = _turn(opened.enter_context(open_step(graph, library, values)), graph)
        if eager is not None:
            report("waiting for PyTorch", 0, 1)
            if why := eager.problem():
                left_out["pytorch"] = why
            else:
                sides["pytorch"] = eager.run
        seconds, others_used = _in_turns(sides, report)
        return MeasuredStep(seconds, left_out, others_used)


def _no_eager(wanted: TrainingStep) -> str:
    """Returns why PyTorch cannot run a step; empty if it can."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    if wanted.module is not None:
        return "the module is an object of this process, and PyTorch would run in another"
    return ""


def _too_long(untuned_s: float | None) -> str:
    """Returns why an untuned step with this predicted time is not run; empty if it is run."""
    if untuned_s is None:  # It could take minutes.
        return "how long it takes is not known, since a kernel has no valid time untuned"
    return f"an untuned step takes about {untuned_s:.0f} s" if untuned_s > _LONGEST_S else ""


def _turn(session: StepSession, graph: StepGraph) -> _Turn:
    given = generated_feeds(graph, _SEED)
    return lambda steps: list(session.run(list(islice(given, steps))).seconds)


def _warmed_up(sides: Mapping[str, _Turn], report: Report) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the steps of a turn of each side, and the steps before them that do not count."""
    names = list(sides)
    steps: dict[str, int] = {}
    colds: dict[str, int] = {}
    for at, name in enumerate(names):
        report("warming up", at, len(names))
        first = sides[name](1)[0]
        if first < _WARMED_S:  # The first step of an idle side may take many times as long.
            first = min(first, *sides[name](3))
        steps[name] = max(1, min(_MOST_STEPS, int(_TURN_S / first)))
        colds[name] = int(first < _WARMED_S)
    return steps, colds


def _in_turns(
    sides: Mapping[str, _Turn], report: Report
) -> tuple[dict[str, tuple[float, ...]], float]:
    """Returns the median step of each side in each block, and `MeasuredStep.others_used`."""
    names = list(sides)
    began = time.monotonic()
    steps, colds = _warmed_up(sides, report)
    time.sleep(_SETTLE_S)
    others_used = psutil.cpu_percent(_LOOK_S) / 100
    seconds: dict[str, list[float]] = {name: [] for name in names}
    longest, block_began = 0.0, time.monotonic()
    for turn, chosen in enumerate(in_blocks([BLOCKS] * len(names), _SEED)):
        if turn % len(names) == 0:
            now = time.monotonic()
            longest = max(longest, now - block_began)
            block_began = now
            if turn and now + longest > began + _LIMIT_S:
                break
        report("measuring the step", turn, BLOCKS * len(names))
        name = names[chosen]
        time.sleep(_SETTLE_S)
        cold = colds[name]  # Caches are cold in the first step of a turn.
        seconds[name].append(median(sides[name](steps[name] + cold)[cold:]))
    return {name: tuple(some) for name, some in seconds.items()}, others_used


class _EagerWorker:
    """The step in PyTorch, in a separate process, which loads while kernels are compiled."""

    def __init__(self, wanted: TrainingStep) -> None:
        self._worker = Worker("autotune.compiler.step.torch_worker")
        request = {"op": "load", "step": wanted.to_json(), "threads": kernel_threads()}
        self._problem = ""
        try:
            self._worker.send(request, timeout=_TIMEOUT_S)
        except WorkerLost as lost:
            self._problem = str(lost)

    def problem(self) -> str:
        """Returns why the step cannot run, empty if it can. Waits until its first step is done."""
        try:
            return self._problem or self._error(self._worker.receive())
        except WorkerLost as lost:
            return str(lost)

    def run(self, steps: int) -> list[float]:
        """Runs some steps, and returns the seconds of each.

        Raises:
            AutotuneError: PyTorch failed.
        """
        try:
            answer = self._worker.ask({"op": "run", "steps": steps}, timeout=_TIMEOUT_S)
        except WorkerLost as lost:
            raise AutotuneError(f"the step in PyTorch was lost: {lost}") from lost
        if why := self._error(answer):
            raise AutotuneError(f"the step in PyTorch failed: {why}")
        return [float(one) for one in answer["seconds"]]

    def stop(self) -> None:
        """Ends the process."""
        self._worker.stop()

    @staticmethod
    def _error(answer: Message) -> str:
        return str(answer.get("error", ""))


__all__ = ["BLOCKS", "MeasuredStep", "measure_step"]
