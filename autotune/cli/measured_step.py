"""The end of `autotune kernels`: the tuned step run here, measured beside what was predicted of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.cli.output import faster_text, time_text, times_text, write_text

if TYPE_CHECKING:
    from autotune.cli.tuning import LiveProgress, Tuned
    from autotune.compiler.step import MeasuredStep
    from autotune.compiler.target import TuneRequest
    from autotune.workloads import StepGraph, TrainingStep

_SIDES = (("untuned", "untuned"), ("tuned", "tuned"), ("pytorch", "PyTorch eager"))


@dataclass(frozen=True)
class StepToMeasure:
    """A step whose kernels are tuned.

    Attributes:
        wanted: The step.
        graph: The same in the form whose kernels are tuned.
    """

    wanted: TrainingStep
    graph: StepGraph


def why_predicted(request: TuneRequest, done: Tuned, asked: bool, step: object | None) -> str:
    """Why a run's step is not measured; empty where it can be.

    Args:
        request: What was tuned.
        done: The run.
        asked: Whether the step is to be measured at all.
        step: The step; None where it is not known.
    """
    device = done.result.device["name"]
    if done.result.stand_in:
        return f"{device} stands in for {request.target.name}, and its times are not that target's"
    if request.fleet is not None:
        return f"the kernels are for {device}, and the step was not run there"
    if request.target.family != "cpu" or request.target.triple:
        return f"a step whose kernels are for {request.target.name} cannot be run by this processor"
    if request.cores is not None:
        return "the kernels are for some of the cores, and a step is run on all of them"
    if not asked:
        return "--no-step"
    if step is None:
        return "a run that is resumed does not know its model; `autotune step` measures it"
    return ""


def measured_step(
    step: StepToMeasure, done: Tuned, progress: LiveProgress, interrupted: Callable[[], bool]
) -> MeasuredStep:
    """Measures a run's step on this machine.

    Raises:
        AutotuneError: It cannot be compiled or run.
        KeyboardInterrupt: It is to stop.
    """
    from autotune.compiler.step import measure_step, step_runs

    def report(what: str, at: int, total: int) -> None:
        # Raised here and not by the signal: TVM's own code does not bear an exception.
        if interrupted():
            raise KeyboardInterrupt
        progress.at(what, at, total)

    untuned_ms = done.result.step_ms(tuned=False)
    return measure_step(
        step.wanted,
        step.graph,
        step_runs([done.path]),
        None if untuned_ms is None else untuned_ms / 1e3,
        report,
    )


def show_measured(found: dict[str, Any]) -> None:
    """Prints the object `measured_step` of a result, in lines below what was predicted."""
    told = []
    for side, name in _SIDES:
        if (one := found[side]) is not None:
            ends = one["ci_ms"] and [ms / 1e3 for ms in one["ci_ms"]]
            told.append(
                f"{time_text(one['ms'] / 1e3)} {name}" + (f" ({times_text(ends)})" if ends else "")
            )
    blocks = found["blocks"]
    write_text(
        f"measured step (this machine, {found['threads']} threads, {blocks} "
        f"block{'s' * (blocks > 1)} in turns, 95 %): {', '.join(told)}"
    )
    for side, name in _SIDES:
        one = found[side]
        if side == "tuned":
            continue
        if one is not None:
            faster = faster_text(one["tuned_is_faster"], name, one["ci"])
            write_text(f"  measured, tuned is {faster}")
        else:
            write_text(f"  not measured: {name}: {found['left_out'].get(side, '')}")


__all__ = ["StepToMeasure", "measured_step", "show_measured", "why_predicted"]
