"""Comparison of two kernel runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import UsageError
from autotune.measurement import Interval, ratio_of_sums
from autotune.records import Run, TaskResult
from autotune.report.pages import DEFAULT

_SEED = 1
_NOTABLE = 0.05


def compared_kernels(first: Run, second: Run) -> dict[str, Any]:
    """Compares each kernel of both runs, and the step made of their common kernels.

    Raises:
        UsageError: They have no kernel in common.
        RecordError: A result is damaged.
    """
    results = [run.kernel_result() for run in (first, second)]
    finals = [_finals(run) for run in (first, second)]
    named = [{task.name: task for task in result.tasks} for result in results]
    common = [name for name in named[0] if name in named[1]]
    if not common:
        raise UsageError(
            f"{first.path} and {second.path} have no kernel in common",
            hint="runs of one layout and one optimizer can be compared",
        )
    tasks = []
    for name in common:
        one, other = (side[name] for side in named)
        ratio = _ratio([name], named, finals, tuned=True)
        tasks.append(
            {
                "name": name, "operator": one.operator, "role": one.role, "spec": one.spec,
                "count": one.count, "first_ms": one.tuned_ms, "second_ms": other.tuned_ms,
                "first_speedup": one.speedup, "second_speedup": other.speedup, **ratio,
            }
        )  # fmt: skip
    step = {
        word: {
            **{
                f"{side}_ms": _total(common, tasks_of, tuned=tuned)
                for side, tasks_of in zip(("first", "second"), named, strict=True)
            },
            **_ratio(common, named, finals, tuned=tuned),
        }
        for word, tuned in (("untuned", False), ("tuned", True))
    }
    warnings = []
    untuned = step["untuned"]["ratio"]
    if untuned is not None and abs(untuned - 1) > _NOTABLE and step["untuned"]["verdict"] != "tie":
        warnings.append(
            f"untuned kernels took {untuned:.3g} times as long in the first run: "
            "the device was not equally fast, or their code differs"
        )
    for word, result in zip(("first", "second"), results, strict=True):
        if result.drifts:
            warnings.append(f"the device of the {word} run changed its speed meanwhile")
    return {
        "warnings": warnings,
        "tasks": tasks,
        "only_first": [name for name in named[0] if name not in named[1]],
        "only_second": [name for name in named[1] if name not in named[0]],
        "step": step,
    }


def verdict(ends: Sequence[float] | None) -> str:
    """Returns which run is better, from the interval of first over second; empty without one. Less is better."""
    if ends is None:
        return ""
    return "second" if ends[0] > 1 else "first" if ends[1] < 1 else "tie"


def _finals(run: Run) -> dict[str, Mapping[str, Any]]:
    """Returns the final benchmark of each kernel: the blocks of its winner and of its default."""
    return {event["task"]: event for event in run.events if event["event"] == "final"}


def _total(names: Sequence[str], tasks: Mapping[str, TaskResult], *, tuned: bool) -> float | None:
    times = [tasks[name].tuned_ms if tuned else tasks[name].default_ms for name in names]
    if any(time is None for time in times):
        return None
    return sum(tasks[name].count * (time or 0.0) for name, time in zip(names, times, strict=True))


def _ratio(
    names: Sequence[str],
    tasks: Sequence[Mapping[str, TaskResult]],
    finals: Sequence[Mapping[str, Mapping[str, Any]]],
    *,
    tuned: bool,
) -> dict[str, Any]:
    """Returns first over second for the summed times of some kernels, from the blocks of their final benchmarks."""
    totals = [_total(names, side, tuned=tuned) for side in tasks]
    if not totals[0] or not totals[1]:
        return {"ratio": None, "ci": None, "verdict": ""}
    blocks = [
        [_blocks(side[name], final.get(name), tuned=tuned) for name in names]
        for side, final in zip(tasks, finals, strict=True)
    ]
    estimate, ends = totals[0] / totals[1], None
    if all(all(side) for side in blocks):
        counts = [tasks[0][name].count for name in names]
        found: Interval = ratio_of_sums(blocks[0], blocks[1], counts, seed=_SEED)
        ends = found.ends
    return {"ratio": estimate, "ci": ends, "verdict": verdict(ends)}


def _blocks(task: TaskResult, final: Mapping[str, Any] | None, *, tuned: bool) -> list[float]:
    if final is None:
        return []
    digest = final.get("default") if not tuned or task.digest == DEFAULT else task.digest
    return list((final.get("samples") or {}).get(digest, ()))
