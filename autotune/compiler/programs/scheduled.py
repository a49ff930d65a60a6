"""Programs rebuilt from a run's records: the winner of each kernel, or the untuned default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.programs.candidate import DEFAULT, digest_of
from autotune.compiler.programs.trace_replay import replay_trace
from autotune.compiler.programs.unscheduled import Unscheduled
from autotune.compiler.programs.untuned import default_schedule, plain_gpu_schedule
from autotune.errors import RecordError, UsageError
from autotune.reading import reading
from autotune.records import Run, TaskResult, read_run
from autotune.workloads.operators import Kernel

_AGAIN = "the record is damaged or of another version of autotune or TVM: tune again"


@dataclass(frozen=True)
class Winner:
    """The fastest program of a kernel in a run.

    Attributes:
        task: The kernel's entry in the result.
        trace: The schedule; None for the untuned default.
        traits: Traits of its loops, as plain data; None if they are not needed.
    """

    task: TaskResult
    trace: Any
    traits: dict[str, Any] | None = None

    @property
    def tuned(self) -> bool:
        """Whether the program differs from the untuned default."""
        return self.trace is not None

    def program(self, kernel: Kernel, target: Any) -> Any:
        """Returns the kernel's scheduled `tvm.IRModule`; its function is `main`."""
        if self.trace is None:
            return untuned_program(kernel, target)
        return replayed(kernel, self.task.formulation, self.trace, self.task.digest)


def winners(run: Run) -> Mapping[str, Winner]:
    """Returns the winners of a finished run, by kernel name; kernels without a valid time are left out.

    Raises:
        RecordError: The records are damaged.
    """
    with reading(run.path):
        result = run.kernel_result()
        traces = {event["digest"]: event["trace"] for event in run.trials()}
    found = {}
    for task in result.tasks:
        if task.tuned_ms is None:
            continue
        if task.digest != DEFAULT and task.digest not in traces:
            raise RecordError(
                f"the trial {task.digest} of {task.name} is missing from the records of {run.path}"
            )
        found[task.name] = Winner(task, traces.get(task.digest))
    return found


def pooled(run: Run) -> Mapping[tuple[str, str], Winner]:
    """Returns all schedules in the pools of a finished run, by the kernel's name and the schedule's digest.

    Raises:
        RecordError: The records are damaged.
    """
    with reading(run.path):
        result = run.kernel_result()
        traces = {event["digest"]: event["trace"] for event in run.trials()}
        return {
            (task.name, one.digest): Winner(
                replace(task, formulation=one.formulation, digest=one.digest, tuned_ms=one.ms),
                None if one.digest == DEFAULT else traces[one.digest],
                one.traits,
            )
            for task in result.tasks
            for one in task.pool
        }


def winners_of(
    paths: Sequence[Path], digests: Mapping[str, Sequence[str]]
) -> dict[str, list[Winner]]:
    """Returns schedules that were chosen from runs' pools, by the kernel's name.

    Args:
        paths: Folders of the runs.
        digests: Digests of the schedules of each kernel.

    Raises:
        UsageError: A run is missing, or no run has one of the schedules.
        RecordError: A run's records are damaged.
    """
    known: dict[tuple[str, str], Winner] = {}
    for path in paths:
        known |= pooled(read_run(path))
    for name, some in digests.items():
        if missing := [digest for digest in some if (name, digest) not in known]:
            raise UsageError(
                f"no run has schedule {missing[0]} of {name}",
                hint="the plan was changed, or made from other runs: name those with --run",
            )
    return {name: [known[name, digest] for digest in some] for name, some in digests.items()}


def plain_module(kernel: Kernel) -> Any:
    """Returns the plain definition without a schedule, as a `tvm.IRModule`."""
    import tvm

    (direct,) = formulations(kernel, ["direct"])
    return tvm.IRModule({"main": prim_func(kernel, direct)})


def untuned_program(kernel: Kernel, target: Any) -> Any:
    """Returns the plain definition with the target's default schedule."""
    return default_schedule(plain_module(kernel), target)


def plain_gpu_program(kernel: Kernel, threads: int) -> Any:
    """Returns the plain definition for a GPU, with one element per work-item."""
    return plain_gpu_schedule(plain_module(kernel), threads)


def replayed(kernel: Kernel, formulation: str, trace: Any, digest: str) -> Any:
    """Returns a formulation of the kernel with a recorded schedule: the program that was measured.

    Raises:
        RecordError: The schedule is damaged, contains something that none of our searches makes, or makes a program
            with another digest, as happens with another version of the formulation.
    """
    import tvm

    (chosen,) = formulations(kernel, [formulation])

    schedule = Unscheduled(tvm.IRModule({"main": prim_func(kernel, chosen)})).schedule()
    try:
        replay_trace(schedule, trace)
    except RecordError as error:
        raise RecordError(f"{kernel.name}: {error.message}", hint=error.hint) from None
    except Exception as error:  # TVM raises whatever its parser meets first
        reason = str(error).strip().splitlines()[-1]
        raise RecordError(
            f"the recorded schedule of {kernel.name} does not fit its program: {reason}",
            hint=_AGAIN,
        ) from error
    if digest_of(kernel, formulation, schedule.mod) != digest:
        raise RecordError(
            f"the recorded schedule of {kernel.name} makes another program than was measured",
            hint=_AGAIN,
        )
    return schedule.mod
