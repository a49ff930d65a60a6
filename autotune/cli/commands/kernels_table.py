"""The result of a kernel run, as a table."""

from __future__ import annotations

from typing import Any

from autotune.cli.options import step_words, typed_step
from autotune.cli.shared import (
    Column,
    faster_text,
    name_of,
    number,
    roles,
    speedup_text,
    speedups,
    time_text,
    times_text,
    write_next,
    write_table,
    write_text,
)
from autotune.compiler.programs import DEFAULT
from autotune.console import LOGGER
from autotune.errors import counted
from autotune.jobs.kernels import StepOutcome, Tuned
from autotune.jobs.requests import ResolvedRequest
from autotune.records import Result, TaskResult
from autotune.workloads import short_name

_BUSY = 0.25
"""Share of the processors that other programs may use before a warning is printed."""
_SIDES = (("untuned", "untuned"), ("tuned", "tuned"), ("pytorch", "PyTorch eager"))


def show(result: Result, notice: str | None) -> None:
    """Prints a result as a table on stdout."""
    numbered = sorted(enumerate(result.tasks, start=1), key=lambda one: -one[1].saved_ms)
    write_table(
        (
            number("no."),
            name_of("kernel"),
            Column("kernel", whole=True),
            roles(),
            Column("count", right=True, rank=1, differing=True),
            number("untuned"),
            number("tuned"),
            speedups("speed-up (95 %)"),
            number("GFLOP/s", rank=3),
            number("trials", rank=2),
            Column("failures", rank=4, least=14),
            Column("formulation", rank=5, least=14),
        ),
        [
            (
                str(place),
                short_name(task.spec),
                task.spec,
                task.role,
                str(task.count),
                _time(task.default_ms),
                _time(task.tuned_ms),
                _speedup(task),
                "-" if task.gflops is None else f"{task.gflops:.3g}",
                str(task.trials),
                " ".join(f"{status}:{n}" for status, n in sorted(task.failures.items())) or "-",
                task.formulation,
            )
            for place, task in numbered
        ],
    )
    before, after = result.step_ms(tuned=False), result.step_ms(tuned=True)
    faster = result.step_speedup()
    ratio = f"; tuned is {faster_text(faster.ratio, 'untuned', faster.ends)}" if faster else ""
    write_text(
        f"predicted step (sum of count x kernel time): {_time(before)} untuned, {_time(after)} tuned{ratio}"
    )
    write_text(result.untuned_text())
    mean = result.geometric_mean_speedup(("conv2d", "matmul"))
    if mean is not None:
        write_text(f"geometric mean speed-up of convolutions and matmuls: {mean:.2f}x")
    write_text(
        f"{counted(result.trials, 'trial')} in {result.wall_s:.0f} s on {result.device['name']}"
    )
    if result.records is not None:
        write_text(str(result.records))
    for drift in result.drifts:
        write_text(
            f"drift: {drift}; candidates from before and after it were compared again in the final benchmark"
        )
    for task in result.tasks:
        name = f"{short_name(task.spec)} {task.role}"
        if task.default_failure:
            write_text(f"{name}: no untuned time: {task.default_failure}")
        if task.doubt:
            write_text(f"{name}: speed-ups are valid, absolute times may be wrong: {task.doubt}")
    if notice:
        write_text(notice)


def _speedup(task: TaskResult) -> str:
    if task.digest != DEFAULT:
        return speedup_text(task.speedup, task.ci)
    return "kept (tie)" if task.ties else "kept"


def _time(ms: float | None) -> str:
    return time_text(None if ms is None else ms / 1e3)


def show_step(outcome: StepOutcome, *, as_json: bool, wanted: bool) -> None:
    """Prints the measured step below the table, or why it was not measured.

    Args:
        outcome: The outcome of measuring the step.
        as_json: Whether stdout has JSON; then messages go to the log only.
        wanted: Whether the step was to be measured.
    """
    if not outcome.why_not:
        if not as_json:
            show_measured(outcome.content["measured_step"])
        return
    text = f"the step is predicted only, and not measured: {outcome.why_not}"
    if not as_json:
        write_text(text)
    elif wanted:
        LOGGER.info("%s", text)


def show_measured(found: dict[str, Any]) -> None:
    """Prints the object `measured_step` of a result, below the predicted step."""
    times = []
    for side, name in _SIDES:
        if (one := found[side]) is not None:
            ends = one["ci_ms"] and [ms / 1e3 for ms in one["ci_ms"]]
            times.append(
                f"{time_text(one['ms'] / 1e3)} {name}" + (f" ({times_text(ends)})" if ends else "")
            )
    blocks = found["blocks"]
    write_text(
        f"measured step (this machine, {found['threads']} threads, {blocks} "
        f"block{'s' * (blocks > 1)} interleaved, 95 %): {', '.join(times)}"
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
    if (used := found.get("others_used", 0.0)) > _BUSY:
        write_text(
            f"  other programs used {100 * used:.0f} % of this machine's processors: times are too long, "
            "PyTorch's most of all (its threads spin while they wait); measure again on a quiet machine"
        )


def write_next_of(request: ResolvedRequest, done: Tuned) -> None:
    """Prints the next command after a kernel run: its step if this machine can run it, otherwise its report."""
    tuned, step = request.tuned, request.step
    here = tuned.fleet is None and tuned.cores is None and tuned.target.family == "cpu"
    step = step and typed_step(step, done.path)
    if step is None or not here or done.result.stand_in:
        write_next("report", done.path)
        return
    write_next("step", *step_words(step, tuned.batch), "--run", done.path)


__all__ = ["show", "show_measured", "show_step", "write_next_of"]
