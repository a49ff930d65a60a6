"""Runs a kernel run under a live progress display, and shows its result."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column as BarColumns

from autotune.cli.cluster import model_runner
from autotune.cli.fleet import fleet_runner
from autotune.cli.measured_step import StepToMeasure, measured_step, show_measured, why_predicted
from autotune.cli.output import (
    Column,
    command_line,
    faster_text,
    named,
    number,
    remember_next,
    speedup_text,
    time_text,
    write_json,
    write_next,
    write_table,
    write_text,
)
from autotune.cli.signals import leave_lost_terminal, stopping_signals
from autotune.cli.verbosity import LOGGER
from autotune.cli.versions import versions
from autotune.compiler.programs import DEFAULT
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
    runner_for,
    stand_in_notice,
    with_device_limits,
)
from autotune.compiler.runners.build_worker import linker
from autotune.compiler.target import TuneRequest
from autotune.compiler.workers import abandon
from autotune.errors import INTERRUPTED, AutotuneError, TransientDeviceError, UsageError
from autotune.records import Result, Run, RunFolder, TaskResult, merged
from autotune.waits import AGAIN_S, telling
from autotune.workloads import short_name


class LiveProgress:
    """Draws a run's progress with its ETA on stderr; where stderr is no terminal, a line each ten seconds at most.

    It tells of waits too.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn(
                "{task.fields[detail]}",
                table_column=BarColumns(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=self._console,
            transient=True,
            expand=True,
            disable=not self._console.is_terminal or LOGGER.getEffectiveLevel() > 30,
        )
        self._task: Any = None
        self._name = ""
        self._total = 0
        self._began = self._told = -math.inf
        self._first: int | None = None
        self._waits = ExitStack()

    def __enter__(self) -> LiveProgress:
        self._waits.enter_context(telling(self._wait))
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._waits.close()

    def notice(self, text: str) -> None:
        if LOGGER.getEffectiveLevel() <= 30:
            self._console.print(text, markup=False)

    def phase(self, name: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=total, detail="")
        self._name, self._total, self._began, self._first = name, total, time.monotonic(), None
        if not self._console.is_terminal and total:
            self._tell(f"{name}: 0/{total}")

    def at(self, name: str, done: int, total: int) -> None:
        """Shows how far a phase is, which begins when it is first named."""
        if name != self._name:
            self.phase(name, total)
        self.step(done, "")

    def step(self, done: int, text: str) -> None:
        self._bar.update(self._task, completed=min(done, self._total), detail=text)
        if self._first is None:
            self._first = (
                done - 1 if done else 0
            )  # What an earlier part of the run has done took no time now.
        if not self._console.is_terminal and self._silent():
            one_s = (time.monotonic() - self._began) / max(done - self._first, 1)
            left = f", about {one_s * (self._total - done):.0f} s left" if done else ""
            self._tell(f"{self._name}: {done}/{self._total}{left}")

    def _wait(self, text: str) -> None:
        """Of many short waits one in ten seconds is told."""
        if self._console.is_terminal and self._task is not None:
            self._bar.update(self._task, detail=f"waiting: {text}")
        elif self._silent():
            self._tell(f"autotune: waiting: {text}")

    def _silent(self) -> bool:
        return time.monotonic() - self._told >= AGAIN_S

    def _tell(self, text: str) -> None:
        self._told = time.monotonic()
        self.notice(text)


@contextmanager
def stop_on_interrupt(
    run: Path, command: str = "kernels", *, after: str = "this trial", left: str = ""
) -> Iterator[Any]:
    """Yields a function that tells whether to stop: after Ctrl-C, SIGTERM or SIGHUP; a second one ends the process.

    SIGHUP counts once: a shell that is closed may send it twice.

    An exception would do the same where only Python runs; raised inside TVM's C++ it is a crash.

    Args:
        run: The run's folder.
        command: What goes on with it.
        after: What is done before it stops.
        left: What is said where the process ends at once; empty for how to go on with the run.
    """
    pressed = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if number == signal.SIGHUP:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            leave_lost_terminal()
        elif pressed:
            abandon()
            show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
            os.write(2, f"{show_cursor}{left or go_on(run, command)}\n".encode())
            os._exit(INTERRUPTED)
        pressed = True
        print(f"autotune: stopping after {after}; Ctrl-C again to stop at once", file=sys.stderr)

    before = {number: signal.signal(number, handler) for number in stopping_signals()}
    try:
        yield lambda: pressed
    finally:
        for number, handled in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, handled)


def carry_out(
    request: TuneRequest,
    logs: Path,
    *,
    earlier: Run | None,
    as_json: bool,
    step: Mapping[str, object] = MappingProxyType({}),
    to_measure: StepToMeasure | None = None,
    measure: bool = True,
) -> int:
    """Carries a request out, prints its result, and measures its step where this machine can run it.

    Args:
        request: What to tune.
        logs: Where a new run's folder is made.
        earlier: The run to go on with; None starts a new one.
        as_json: Print the JSON object instead of the table.
        step: Options that mean the step whose kernels are tuned; without any, they are not known, or there is none.
        to_measure: That step.
        measure: Whether to measure it.

    Returns:
        The exit code: 0, or 130 when interrupted; the result of the tuning is kept and printed once it is there.
    """
    model = str(step["--model"]) if step else None
    done = tuned(request, logs, earlier, model)
    if done is None:
        return INTERRUPTED
    if not as_json:
        show(done.result, done.notice)
    content, ended = done.content, 0
    if request.batch is not None:
        content, ended = _with_measured_step(request, done, to_measure, measure, show=not as_json)
    if as_json:
        write_json(content)
    here = request.fleet is None and request.cores is None and request.target.family == "cpu"
    if step and here and not done.result.stand_in:
        options = (word for pair in step.items() if pair[1] is not None for word in pair)
        write_next("step", *options, "--run", done.path)
    else:
        write_next("report", done.path)
    return ended


def _with_measured_step(
    request: TuneRequest,
    done: Tuned,
    step: StepToMeasure | None,
    with_device_limits: bool,
    *,
    show: bool,
) -> tuple[dict[str, Any], int]:
    """A run's result with its step as it was measured here, which is written too, and the exit code."""
    why, ended = why_predicted(request, done, with_device_limits, step), 0
    content = done.content
    if not why:
        assert step is not None
        try:
            with (
                LiveProgress() as progress,
                stop_on_interrupt(
                    done.path,
                    after="this step",
                    left=f"autotune: interrupted; the result is kept in {done.path}",
                ) as interrupted,
            ):
                found = measured_step(step, done, progress, interrupted)
            content = {**content, "measured_step": found.to_json()}
            with RunFolder.reopen(done.path) as folder:
                folder.result(content)
        except KeyboardInterrupt:
            why, ended = "interrupted; the result of the tuning is kept", INTERRUPTED
        except AutotuneError as error:
            why = error.message
    if show and why:
        write_text(f"the step is predicted only, and not measured: {why}")
    elif show:
        show_measured(content["measured_step"])
    elif why and with_device_limits:
        LOGGER.info("the step is predicted only, and not measured: %s", why)
    return content, ended


@dataclass(frozen=True)
class Tuned:
    """A run that has ended.

    Attributes:
        path: Its folder.
        result: Its result.
        content: Content of its `result.json`.
        notice: What to say of a device that stands in for another; None where it does not.
    """

    path: Path
    result: Result
    content: dict[str, Any]
    notice: str | None


def tuned(
    request: TuneRequest, logs: Path, earlier: Run | None, model: str | None = None
) -> Tuned | None:
    """Carries a request out; None where it was interrupted, which it says.

    Args:
        request: What to tune.
        logs: Where a new run's folder is made.
        earlier: The run to go on with; None starts a new one.
        model: What the model is called; None for its workload's name, or for one operator.
    """
    runner = _runner(request)
    if not runner.models:
        linker(request.target.triple, fast=True)
    if earlier is not None:
        _same_conditions(earlier, runner)
    else:
        request = with_device_limits(request, runner.device)
    known = known_schedules([Path(name) for name in request.start_from], request.target)
    told, what = _told(request, runner, earlier)
    cluster = request.cores.cluster if request.cores else ""
    if earlier is None:
        folder = RunFolder.create(
            logs,
            "-".join(filter(None, (request.target.name, cluster, request.workload))),
            _about(request, runner),
        )
    else:
        folder = RunFolder.reopen(earlier.path)
    with folder, LiveProgress() as progress, stop_on_interrupt(folder.path) as interrupted:
        progress.notice(f"run folder: {folder.path}")
        notice = stand_in_notice(request.target, runner.device)
        limits = f"limits: {request.space.limits}" if request.space.limits else ""
        for line in filter(None, (notice, limits, what)):
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
            experiences=told,
        )
        try:
            result = run.run()
        except TransientDeviceError:
            if not interrupted():
                raise
            result = None  # It was waiting for a device.
        if result is not None:
            workload = request.workload if request.batch is not None else None
            content = named(
                {**result.to_json(), "measured_step": None},
                folder=folder.path,
                model=model or workload,
                batch=request.batch,
            )
            folder.result(content)
    if result is None:
        tell_interrupted(folder.path)
        return None
    return Tuned(folder.path, result, content, notice)


def _runner(request: TuneRequest) -> Runner:
    cores = request.cores
    if cores is not None and cores.emulated:
        return model_runner(request)
    if request.fleet is not None:
        return fleet_runner(request)
    return runner_for(request.target, cores.cpus if cores else ())


def _told(
    request: TuneRequest, runner: Runner, earlier: Run | None
) -> tuple[Experiences | None, str]:
    """What the request's records tell of its kernels, and a line that says so; None where it asks for none.

    Raises:
        UsageError: There are no records where the request says.
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
    told = experiences([task.kernel for task in request.tasks], own)
    others = len({key for one in found for key in one.sources} - set(own.sources))
    equal = sum(one.equal for one in told.of.values())
    line = (
        f"records: {len(own.schedules)} schedules of {len(own.sources)} runs on {identity}, {cores}: "
        f"{equal} of {len(request.tasks)} kernels are known, {len(told.of) - equal} are like known ones"
    )
    if others:
        line += f"; {others} runs of other devices, drivers, TVM versions or cores are left out"
    return told, line


def go_on(run: Path, command: str = "kernels") -> str:
    """What to say of a run that was interrupted."""
    return (
        "autotune: interrupted; everything measured is kept. Go on with: "
        f"autotune {command} --resume {run}"
    )


def tell_interrupted(run: Path, command: str = "kernels") -> None:
    """Says of a run that was interrupted how to go on with it."""
    print(go_on(run, command), file=sys.stderr)
    remember_next(f"autotune {command} --resume {run}")


def _same_conditions(earlier: Run, runner: Runner) -> None:
    """Refuses to mix measurements of two devices or two compilers in one run.

    Raises:
        UsageError: The device or TVM's version is another one than the run's.
    """
    device = earlier.about.get("device") or {}
    here = runner.device
    if (device.get("name"), device.get("kind")) != (here.name, here.kind):
        raise UsageError(
            f"run {earlier.path} was measured on {device.get('name')}, and this is {here.name}",
            hint="go on with it on its own device, or start a new run here",
        )
    before = (earlier.about.get("versions") or {}).get("apache-tvm")
    if before != version("apache-tvm"):
        raise UsageError(
            f"run {earlier.path} was made with apache-tvm {before}, and this is {version('apache-tvm')}",
            hint="install that version to go on with it, or start a new run",
        )


def show(result: Result, notice: str | None) -> None:
    """Prints a result on stdout, as a table."""
    numbered = sorted(enumerate(result.tasks, start=1), key=lambda one: -_saved_ms(one[1]))
    write_table(
        (
            number("no."),
            Column("kernel", least=28),
            Column("kernel", whole=True),
            Column("role"),
            number("count"),
            number("untuned"),
            number("tuned"),
            Column("speed-up (95 %)"),
            number("GFLOP/s", rank=2),
            number("trials", rank=1),
            Column("failures", rank=3, least=14),
            Column("formulation", rank=4, least=14),
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
    ratio = f"; tuned is {faster_text(before / after, 'untuned')}" if before and after else ""
    write_text(
        f"predicted step (sum of count x kernel time): {_time(before)} untuned, {_time(after)} tuned{ratio}"
    )
    mean = result.geometric_mean_speedup(("conv2d", "matmul"))
    if mean is not None:
        write_text(f"geometric mean speed-up of convolutions and matmuls: {mean:.2f}x")
    write_text(f"{result.trials} trials in {result.wall_s:.0f} s on {result.device['name']}")
    if result.records is not None:
        write_text(str(result.records))
    for drift in result.drifts:
        write_text(f"drift: {drift}; candidates from before and after it met in the last timing")
    for task in result.tasks:
        if task.doubt:
            write_text(f"{task.name}: ratios hold, times are in doubt: {task.doubt}")
    if notice:
        write_text(notice)


def _saved_ms(task: TaskResult) -> float:
    """What tuning a kernel saves of a step; kernels of which it is not known come last."""
    if task.default_ms is None or task.tuned_ms is None:
        return -math.inf
    return task.count * (task.default_ms - task.tuned_ms)


def _speedup(task: TaskResult) -> str:
    if task.digest != DEFAULT:
        return speedup_text(task.speedup, task.ci)
    return "kept (tie)" if task.ties else "kept"


def _time(ms: float | None) -> str:
    return time_text(None if ms is None else ms / 1e3)


def _about(request: TuneRequest, runner: Runner) -> dict[str, Any]:
    return about_this(request.to_json(), runner.device.to_json())


def about_this(request: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    """Content of `run.json`: what was asked for, on what, by which versions."""
    return {
        "request": request,
        "command": command_line(),
        "versions": versions(),
        "device": device,
        "git": _revision(),
    }


def _revision() -> str:
    """Git revision of the sources; empty outside a checkout or without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
