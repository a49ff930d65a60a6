"""Progress of a kernel run, from its events: for each kernel and for the whole step, trial by trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement import median
from autotune.records import Result, TaskResult
from autotune.workloads import parse_kernel

Events = Sequence[Mapping[str, Any]]
DEFAULT = "default"


@dataclass(frozen=True)
class Trial:
    """A candidate of a kernel.

    Attributes:
        number: Its place among the run's trials, from 1 on.
        seconds: Median; None without a valid time.
        event: Its event.
    """

    number: int
    seconds: float | None
    event: Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """A kernel's trials.

    Attributes:
        default_s: Median seconds of the untuned default; None without one.
        trials: Trials in their order.
    """

    default_s: float | None
    trials: tuple[Trial, ...]

    def best(self) -> list[tuple[int, float]]:
        """Returns the best seconds so far after each trial that improved them. The untuned default is trial 0."""
        found = [] if self.default_s is None else [(0, self.default_s)]
        for trial in self.trials:
            if trial.seconds is not None and (not found or trial.seconds < found[-1][1]):
                found.append((trial.number, trial.seconds))
        return found


def histories(events: Events) -> dict[str, History]:
    """Returns the history of each kernel in the events, by its name."""
    defaults: dict[str, float | None] = {}
    trials: dict[str, list[Trial]] = {}
    number = 0
    for event in events:
        if event["event"] == DEFAULT:
            defaults[event["task"]] = _seconds(event)
        elif event["event"] == "trial":
            number += 1
            trials.setdefault(event["task"], []).append(Trial(number, _seconds(event), event))
    return {
        name: History(defaults.get(name), tuple(trials.get(name, ())))
        for name in dict.fromkeys([*defaults, *trials])
    }


def step_history(
    found: Mapping[str, History], counts: Mapping[str, int]
) -> list[tuple[int, float]]:
    """Returns seconds of a step with the best kernels so far, after each trial that improved one.

    It begins when every kernel has a time.

    Args:
        found: The kernels' histories.
        counts: How often each runs in a step.
    """
    changes = sorted(
        (number, name, seconds)
        for name in counts
        if name in found
        for number, seconds in found[name].best()
    )
    known: dict[str, float] = {}
    steps: list[tuple[int, float]] = []
    for number, name, seconds in changes:
        known[name] = seconds
        if len(known) == len(counts):
            total = sum(counts[n] * s for n, s in known.items())
            if steps and steps[-1][0] == number:
                steps[-1] = (number, total)
            else:
                steps.append((number, total))
    return steps


def kernels_so_far(about: Mapping[str, Any], events: Events) -> Result:
    """Returns the result of an unfinished run so far: the best of each kernel, without a final benchmark."""
    request, device = about["request"], about.get("device") or {}
    found = histories(events)
    tasks = []
    for entry in request["tasks"]:
        kernel = parse_kernel(entry["spec"], entry["role"])
        own = found.get(kernel.name, History(None, ()))
        valid = [trial for trial in own.trials if trial.seconds is not None]
        winner = min(valid, key=lambda trial: trial.seconds or 0.0, default=None)
        best_s = own.best()[-1][1] if own.best() else None
        if winner is not None and winner.seconds != best_s:
            winner = None
        failures = Counter(t.event["status"] for t in own.trials if t.seconds is None)
        tasks.append(
            TaskResult(
                name=kernel.name,
                operator=kernel.operator.name,
                role=kernel.role,
                spec=kernel.spec,
                count=entry["count"],
                default_ms=None if own.default_s is None else 1e3 * own.default_s,
                tuned_ms=None if best_s is None else 1e3 * best_s,
                speedup=own.default_s / best_s if own.default_s and best_s else None,
                ci=None,
                gflops=kernel.flops / best_s / 1e9 if best_s else None,
                trials=len(own.trials),
                valid=len(valid),
                failures=dict(failures),
                max_rel_error=None,
                formulation=winner.event["formulation"] if winner else "direct",
                digest=winner.event["digest"] if winner else DEFAULT if best_s else "",
            )
        )
    times = [event["time"] for event in events]
    return Result(
        request["target"]["name"],
        dict(device),
        bool(device.get("stand_in")),
        sum(task.trials for task in tasks),
        max(times) - min(times) if times else 0.0,
        tuple(tasks),
    )


def _seconds(event: Mapping[str, Any]) -> float | None:
    samples = event.get("samples_s") or ()
    return median(samples) if event.get("status") == "ok" and samples else None
