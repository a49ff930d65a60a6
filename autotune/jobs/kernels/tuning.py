"""Kernel runs: from a request, or a run to resume, to a result on disk and a measured step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.compiler.run import (
    Experiences,
    KernelRun,
    databases_at,
    experiences,
    identity_of,
    known_schedules,
)
from autotune.compiler.runners import (
    LocalRunner,
    RpcRunner,
    Runner,
    linker,
    runner_for,
    stand_in_notice,
    with_device_limits,
)
from autotune.compiler.target import TuneRequest
from autotune.console import LiveProgress, stop_on_interrupt
from autotune.errors import AutotuneError, TransientDeviceError, UsageError, counted
from autotune.jobs.device import fleet_runner, model_runner
from autotune.jobs.provenance import RunInterrupted, Work, about_run, how_to_resume, named
from autotune.jobs.requests import (
    ResolvedRequest,
    StepRequest,
    check_allowed,
    load_own,
    model_code,
    outside_of_run,
    positive,
)
from autotune.reading import reading
from autotune.records import Result, Run, RunFolder, merged, place_of, read_run
from autotune.waits import waiting
from autotune.workloads import tasks

if TYPE_CHECKING:
    from autotune.compiler.step import MeasuredStep

COMMAND = "kernels"
Listener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Tuned:
    """A finished kernel run.

    Attributes:
        path: Its folder.
        result: Its result.
        content: Content of its `result.json`.
        notice: Notice that the device is a stand-in for another; None if it is not.
    """

    path: Path
    result: Result
    content: dict[str, Any]
    notice: str | None


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of measuring a tuned step.

    Attributes:
        content: The run's result, with `measured_step`.
        why_not: Why the step was not measured; empty if it was.
        interrupted: Whether Ctrl-C was the reason.
    """

    content: dict[str, Any]
    why_not: str = ""
    interrupted: bool = False


def resumed_request(path: Path, trials: int | None) -> tuple[ResolvedRequest, Run]:
    """Returns the request of a run to resume, and the run.

    The request has the step as it was named, without its graph: `measure_step` makes that when it is needed.

    Args:
        path: The run's folder.
        trials: The new number of trials; None keeps the number.

    Raises:
        UsageError: It is not a kernel run, or it names something that this user has not allowed.
        RecordError: It is damaged.
    """
    earlier = read_run(path)
    check_allowed(path, outside_of_run(earlier.about.get("request", {})))
    request = TuneRequest.of_run(earlier)
    load_own(path, request)
    start = tuple(str(place_of(one, path) or one) for one in request.start_from)
    request = replace(request, start_from=start)
    if trials is not None:
        request = replace(request, trials=positive("--trials", trials))
    step = earlier.about.get("step")
    with reading(path / "run.json"):
        named_step = StepRequest.from_json(step) if step else None
    return ResolvedRequest(request, named_step), earlier


def tune(
    request: TuneRequest,
    logs: Path,
    earlier: Run | None = None,
    step: StepRequest | None = None,
    listeners: Sequence[Listener] = (),
) -> Tuned:
    """Carries out a kernel run.

    Args:
        request: What to tune.
        logs: Where a new run's folder is made.
        earlier: The run to resume; None starts a new one.
        step: The step whose kernels are tuned; None for one operator, or with `earlier`.
        listeners: Functions that are called with each event that the run records.

    Raises:
        RunInterrupted: Ctrl-C was pressed; all measurements are kept.
        UsageError: The device or TVM differs from the earlier run's.
        NothingMeasuredError: No kernel has a valid time.
    """
    with waiting(f"{request.target.name} to be ready"):
        runner = _runner(request)
    if not runner.models:
        linker(request.target.triple, fast=True)  # Reported before anything is made.
    if earlier is not None:
        _check_conditions(earlier, runner)
    else:
        request = with_device_limits(request, runner.device)
    known = known_schedules([Path(name) for name in request.start_from], request.target)
    learned, what = _learned(request, runner, earlier)
    folder = _folder(request, runner, logs, earlier, step)
    folder.listeners += listeners
    resume = how_to_resume(folder.path, COMMAND)
    with folder, LiveProgress() as progress, stop_on_interrupt(resume) as interrupted:
        notice = stand_in_notice(request.target, runner.device)
        limits = f"limits: {request.space.limits}" if request.space.limits else ""
        for line in filter(None, (f"run folder: {folder.path}", notice, limits, what)):
            progress.notice(line)
        if isinstance(runner, RpcRunner | LocalRunner):
            runner.give_up = interrupted
        run = KernelRun(
            request,
            folder,
            runner,
            progress,
            interrupted=interrupted,
            earlier=earlier,
            known=known,
            experiences=learned,
        )
        try:
            result = run.run()
        except TransientDeviceError:
            if not interrupted():
                raise
            result = None  # The run was waiting for a device.
        if result is None:
            raise RunInterrupted(folder.path, COMMAND)
        content = named(
            {**result.to_json(), "measured_step": None},
            Work.of_run(folder.path, earlier.about)
            if earlier
            else Work(folder.path, step.model if step else None, request.batch),
            resumed=earlier.about if earlier else None,
        )
        folder.result(content)
    return Tuned(folder.path, result, content, notice)


def measure_step(request: ResolvedRequest, done: Tuned, *, wanted: bool) -> StepOutcome:
    """Measures the step of a kernel run and adds it to the run's result, if this machine can run the step.

    Args:
        request: The request that was tuned.
        done: The run.
        wanted: Whether the step is to be measured at all.
    """
    if why := _why_predicted(request, done, wanted):
        return StepOutcome(done.content, why)
    try:
        request = _with_graph(request, done.path)
    except AutotuneError as error:
        return StepOutcome(done.content, str(error))
    kept = f"autotune: interrupted; the result is kept in {done.path}"
    try:
        with (
            LiveProgress() as progress,
            stop_on_interrupt(kept, after="this step") as interrupted,
        ):
            found = _measured(request, done, progress, interrupted)
    except KeyboardInterrupt:
        why = "interrupted; the result of the tuning is kept"
        return StepOutcome(done.content, why, interrupted=True)
    except AutotuneError as error:
        return StepOutcome(done.content, error.message)
    content = {**done.content, "measured_step": found.to_json()}
    with RunFolder.reopen(done.path) as folder:
        folder.result(content)
    return StepOutcome(content)


def _why_predicted(request: ResolvedRequest, done: Tuned, wanted: bool) -> str:
    """Returns why a run's step is not measured; empty if it can be."""
    tuned, device = request.tuned, done.result.device["name"]
    if done.result.stand_in:
        return f"{device} stands in for {tuned.target.name}, and its times are not that target's"
    if tuned.fleet is not None:
        return f"the kernels are for {device}, and the step was not run there"
    if tuned.target.family != "cpu" or tuned.target.triple:
        return f"a step whose kernels are for {tuned.target.name} cannot be run by this processor"
    if tuned.cores is not None:
        return "the kernels are for some of the cores, and a step is run on all of them"
    if not wanted:
        return "--no-step"
    if request.step is None:
        return "the run was made by an earlier version, which did not record its step"
    if request.step.is_gone:
        return f"{request.step.model} existed only in the Python process that began the run"
    return ""


def _with_graph(request: ResolvedRequest, run: Path) -> ResolvedRequest:
    """Returns a request with the graph of its step, which the request of a resumed run does not have.

    Raises:
        UsageError: The step is code that this user has not allowed, its file is gone, or its kernels have changed.
    """
    if request.graph is not None:
        return request
    assert request.step is not None
    step, tuned = request.step.with_model(run), request.tuned
    check_allowed(run, [model_code(step.model)])
    wanted = step.training_step()
    graph = wanted.graph(step.form(wanted.batch, tuned.space.layout))
    if tasks(graph) != tuned.tasks:
        raise UsageError(f"{step.model} is no longer the step that the run was made for")
    return replace(request, wanted=wanted, graph=graph)


def _measured(
    request: ResolvedRequest, done: Tuned, progress: LiveProgress, interrupted: Callable[[], bool]
) -> MeasuredStep:
    from autotune.compiler.step import measure_step as measured
    from autotune.compiler.step import step_runs

    def report(what: str, at: int, total: int) -> None:
        # Raised here and not by the signal handler: TVM's own code cannot handle an exception.
        if interrupted():
            raise KeyboardInterrupt
        progress.at(what, at, total)

    assert request.wanted is not None
    assert request.graph is not None
    untuned_ms = done.result.step_ms(tuned=False)
    return measured(
        request.wanted,
        request.graph,
        step_runs([done.path]),
        None if untuned_ms is None else untuned_ms / 1e3,
        report,
    )


def _runner(request: TuneRequest) -> Runner:
    cores = request.cores
    if cores is not None and cores.emulated:
        return model_runner(request)
    if request.fleet is not None:
        return fleet_runner(request)
    return runner_for(request.target, cores.cpus if cores else ())


def _folder(
    request: TuneRequest,
    runner: Runner,
    logs: Path,
    earlier: Run | None,
    step: StepRequest | None,
) -> RunFolder:
    if earlier is not None:
        return RunFolder.reopen(earlier.path)
    cluster = request.cores.cluster if request.cores else ""
    name = "-".join(filter(None, (request.target.name, cluster, request.workload)))
    about = about_run(request.to_json(), runner.device.to_json())
    return RunFolder.create(logs, name, about | ({"step": step.to_json()} if step else {}))


def _learned(
    request: TuneRequest, runner: Runner, earlier: Run | None
) -> tuple[Experiences | None, str]:
    """Returns what the request's records teach about its kernels, and a line that says so.

    Returns None if it names no records.

    Raises:
        UsageError: There are no records at the place that the request names.
        RecordError: They are damaged.
    """
    if not request.records:
        return None, ""
    device = runner.device.to_json()
    identity, cores = identity_of(request, device, version("apache-tvm"))
    found = [
        one
        for path in request.records
        for place, one in databases_at(Path(path))
        if earlier is None or place.resolve() != earlier.path.resolve()
    ]
    own = merged(found).of_device(identity, cores)
    learned = experiences([task.kernel for task in request.tasks], own)
    others = len({key for one in found for key in one.sources} - set(own.sources))
    equal = sum(one.equal for one in learned.of.values())
    line = (
        f"records: {counted(len(own.schedules), 'schedule')} of {counted(len(own.sources), 'run')} "
        f"on {identity}, {cores}: "
        f"{equal} of {len(request.tasks)} kernels are known, {len(learned.of) - equal} are like known ones"
    )
    if others:
        line += (
            f"; left out: {counted(others, 'run')} of other devices, drivers, TVM versions or cores"
        )
    return learned, line


def _check_conditions(earlier: Run, runner: Runner) -> None:
    """Refuses to mix measurements of two devices or two compilers in one run.

    Raises:
        UsageError: The device or TVM's version differs from the run's.
    """
    device = earlier.about.get("device") or {}
    here = runner.device
    if (device.get("name"), device.get("kind")) != (here.name, here.kind):
        raise UsageError(
            f"run {earlier.path} was measured on {device.get('name')}, and this is {here.name}",
            hint="continue it on its own device, or start a new run here",
        )
    before = (earlier.about.get("versions") or {}).get("apache-tvm")
    if before != version("apache-tvm"):
        raise UsageError(
            f"run {earlier.path} was made with apache-tvm {before}, and this is {version('apache-tvm')}",
            hint="install that version to continue it, or start a new run",
        )


__all__ = [
    "COMMAND",
    "StepOutcome",
    "Tuned",
    "measure_step",
    "resumed_request",
    "tune",
]
