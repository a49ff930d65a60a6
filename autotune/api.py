"""Tuning from Python. Each function does the same as the command of its name, and writes the same run folder.

Functions raise `autotune.errors.AutotuneError` when a command would print an error. Ctrl-C raises
`KeyboardInterrupt`, whose text says how to resume. All measurements are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from autotune.console import stderr_log
from autotune.errors import UsageError, pip_install
from autotune.jobs.kernels import ExportRequest, ExportResult, export, measure_step, tune
from autotune.jobs.provenance import RunInterrupted
from autotune.jobs.requests import (
    ExportOptions,
    KernelsOptions,
    KernelsRequest,
    SearchOptions,
    SearchRequest,
    StepOptions,
    StepRequest,
    checked_callbacks,
    checked_fields,
    checked_shape,
    known_options,
    requested_step,
)
from autotune.jobs.search import Search
from autotune.records import Kind, Result, TaskResult, kind_of, read_run
from autotune.workloads import OPERATORS

if TYPE_CHECKING:
    import pandas

Callback = Callable[[Mapping[str, Any]], None]
"""Function that is called with each event of a run; `docs/reference/formats.md` lists them.

`event["event"]` is the event's kind.
"""
Objective = Literal["latency", "energy", "edp", "pareto"]


@dataclass(frozen=True)
class KernelsResult:
    """A finished kernel run.

    Attributes:
        path: The run's folder.
        content: Content of its `result.json`; `docs/reference/result-schema.md` describes it.
    """

    path: Path
    content: Mapping[str, Any] = field(repr=False)

    @property
    def tasks(self) -> Sequence[TaskResult]:
        """The kernels, with their times before and after."""
        return Result.from_json(dict(self.content)).tasks

    @property
    def speedup(self) -> float | None:
        """Predicted speed-up of a tuned step over an untuned one, from the paired blocks of the kernels.

        None if a kernel has no valid time.
        """
        found = Result.from_json(dict(self.content)).step_speedup()
        return None if found is None else found.ratio

    def to_frame(self) -> pandas.DataFrame:
        """Returns a table with one row for each kernel; needs pandas.

        Raises:
            UsageError: pandas is not installed.
        """
        return _frame(self.content["tasks"])

    def export(
        self,
        out: str | Path,
        *,
        format: Literal["tvm", "c", "opencl"] = "tvm",
        **options: Unpack[ExportOptions],
    ) -> ExportResult:
        """Writes the kernels as a library.

        Args:
            out: Folder to make.
            format: Format of the library.
            options: See `ExportOptions`, such as `name` and `platform`.

        Raises:
            UsageError: An option is invalid, or the kernels were measured on a stand-in.
        """
        known_options(options, ExportOptions)
        given = checked_fields(ExportRequest, {"out": out, "format": format, **options})
        return export(ExportRequest(runs=(self.path,), **given))


@dataclass(frozen=True)
class SearchResult:
    """A finished search over cores and clocks.

    Attributes:
        path: The run's folder.
        content: Content of its `result.json`; `docs/cpu-config.md` describes it.
    """

    path: Path
    content: Mapping[str, Any] = field(repr=False)

    @property
    def best(self) -> Mapping[str, Any]:
        """The best point: `clusters`, `threads`, `time_s`, `energy_j` and more."""
        best: Mapping[str, Any] = self.content["best"]
        return best

    def to_frame(self) -> pandas.DataFrame:
        """Returns a table with one row for each measured configuration; needs pandas.

        Raises:
            UsageError: pandas is not installed.
        """
        rows = [
            {
                "trial": event.get("number"),
                "configuration": event["configuration"],
                **(event["figures"] or {}),
                "status": event["status"],
            }
            for event in read_run(self.path).events
            if event["event"] == "trial"
        ]
        return _frame(rows)


def tune_kernels(
    model_or_op: Any,
    *,
    target: str | None = None,
    batch: int | None = None,
    trials: int | None = None,
    optimizer: str | None = None,
    input_shape: Sequence[int] | None = None,
    logs: str | Path = "logs",
    callbacks: Sequence[Callback] = (),
    run_step: bool = True,
    **options: Unpack[KernelsOptions],
) -> KernelsResult:
    """Tunes the kernels of a training step, or of one operator; see `autotune kernels --help`.

    Args:
        model_or_op: A built-in model, such as `"lenet"`; `"file.py:factory"`; a `torch.nn.Module` or a `Step`, or a
            function that returns one; or an operator, such as `"matmul:m=64,n=256,k=128"`.
        target: The target; `cpu` by default.
        batch: Samples of a step; 4 by default.
        trials: Candidates to measure, over all kernels. By default 256, or 4 for each kernel if that is more.
        optimizer: As `--optimizer` takes it, such as `"adam:learning_rate=0.001"`.
        input_shape: Shape of a sample, for a PyTorch module that does not define it.
        logs: Folder that the run's folder is made in.
        callbacks: Functions that are called with each event that the run records.
        run_step: Whether the step is run and measured at the end, if this machine can run it.
        options: See `KernelsOptions`, such as `role` of an operator, `tracker`, `key`, `records`, `seed` and
            `layout`.

    Raises:
        UsageError: An option is invalid.
        NothingMeasuredError: No kernel has a valid time.
        KeyboardInterrupt: Ctrl-C was pressed; the text says how to resume.

    Example:
        >>> result = autotune.tune_kernels("lenet", batch=4, trials=64)  # doctest: +SKIP
        >>> result.to_frame()[["name", "speedup"]]  # doctest: +SKIP
    """
    known_options(options, KernelsOptions)
    of_step, own = _divided(options)
    listeners = checked_callbacks(callbacks)
    given = checked_fields(KernelsRequest, {"target": target, "trials": trials, **own})
    step = op = None
    if _is_operator(model_or_op):
        op = model_or_op
        apart = {"batch": batch, "optimizer": optimizer, "input_shape": input_shape}
        wrong = [name for name, value in apart.items() if value is not None]
        if wrong or of_step:
            raise UsageError(
                f"{', '.join([*wrong, *of_step])}: an operator has its own sizes",
                hint="give them with a model",
            )
    else:
        step = _step(model_or_op, batch, optimizer, input_shape, of_step)
    request = KernelsRequest(step=step, op=op, **given)
    with _run_here():
        resolved = request.resolved()
        done = tune(resolved.tuned, _folder(logs), step=step, listeners=listeners)
        if step is not None:
            measure_step(resolved, done, wanted=run_step)
    return KernelsResult(done.path, read_run(done.path).ended())


def cpu_config(
    model: Any = None,
    *,
    objective: Objective = "latency",
    runs: Sequence[KernelsResult | str | Path] = (),
    batch: int | None = None,
    trials: int | None = None,
    logs: str | Path = "logs",
    callbacks: Sequence[Callback] = (),
    **options: Unpack[SearchOptions],
) -> SearchResult:
    """Finds the best cores, threads and clocks for an objective; see `autotune cpu-config --help`.

    Args:
        model: The step that is measured, as `tune_kernels` takes it; None with `command` and `steps_from`.
        objective: What is minimised.
        runs: Kernel runs with the step's kernels.
        batch: Samples of a step; 4 by default.
        trials: Configurations to measure; 40 by default.
        logs: Folder that the run's folder is made in.
        callbacks: Functions that are called with each event that the run records.
        options: See `SearchOptions`, such as `device`, `emulate`, `deadline` and `meter`.

    Raises:
        UsageError: An option is invalid.
        DeviceError: The device is gone, or lacks a meter that is needed.
        KeyboardInterrupt: Ctrl-C was pressed; the text says how to resume.
    """
    return _searched(False, model, objective, runs, batch, trials, logs, callbacks, options)


def joint(
    model: Any,
    *,
    objective: Objective = "latency",
    runs: Sequence[KernelsResult | str | Path] = (),
    batch: int | None = None,
    trials: int | None = None,
    logs: str | Path = "logs",
    callbacks: Sequence[Callback] = (),
    **options: Unpack[SearchOptions],
) -> SearchResult:
    """Finds schedules, cores, threads and clocks together; see `autotune joint --help`, and `cpu_config`."""
    return _searched(True, model, objective, runs, batch, trials, logs, callbacks, options)


def load_run(path: str | Path) -> KernelsResult | SearchResult:
    """Returns a finished run of `tune_kernels`, `cpu_config` or `joint`, or of their commands.

    Args:
        path: Its folder.

    Raises:
        UsageError: There is no such run, it has not ended, or it is of another command.
        RecordError: It is damaged.
    """
    run = read_run(Path(path))
    content = run.ended()
    kind: Kind | None = kind_of(run.about)
    if kind == "kernels":
        return KernelsResult(run.path, content)
    if kind in ("cpu-config", "joint"):
        return SearchResult(run.path, content)
    raise UsageError(
        f"{path} is a run of `autotune {kind}`", hint="kernels, cpu-config and joint can be loaded"
    )


@contextmanager
def _run_here() -> Iterator[None]:
    """Reports waits and warnings on stderr. Turns an interrupted run into `KeyboardInterrupt`."""
    try:
        with stderr_log():
            yield
    except RunInterrupted as stopped:
        raise KeyboardInterrupt(str(stopped)) from stopped


def _divided(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options of a step, and the others."""
    of_step = StepOptions.__annotations__
    return (
        {name: value for name, value in options.items() if name in of_step},
        {name: value for name, value in options.items() if name not in of_step},
    )


def _folder(logs: object) -> Path:
    if not isinstance(logs, str | Path):
        raise UsageError(f"logs is a {type(logs).__name__}", hint="give the path of a folder")
    return Path(logs)


def _is_operator(what: Any) -> bool:
    return isinstance(what, str) and what.partition(":")[0] in OPERATORS


def _step(
    model: Any,
    batch: int | None,
    optimizer: str | None,
    input_shape: Sequence[int] | str | None,
    of_step: Mapping[str, Any],
    runs: Sequence[Path] = (),
) -> StepRequest:
    given = checked_fields(
        StepRequest,
        {
            "batch": batch,
            "optimizer": optimizer,
            "input_shape": checked_shape(input_shape),
            **of_step,
        },
    )
    given["train"] = given.get("train") or ()
    if not isinstance(model, str):
        module = model() if callable(model) and not hasattr(model, "forward") else model
        name = type(getattr(module, "module", module)).__name__
        return StepRequest(name, runs=tuple(map(str, runs)), module=module, **given)
    step = requested_step(StepRequest(model, runs=tuple(map(str, runs)), **given))
    if step is None:
        raise UsageError("the model has no name", hint="such as 'lenet', or a torch.nn.Module")
    return step


def _searched(
    joint_too: bool,
    model: Any,
    objective: Objective,
    runs: Sequence[KernelsResult | str | Path],
    batch: int | None,
    trials: int | None,
    logs: str | Path,
    callbacks: Sequence[Callback],
    options: SearchOptions,
) -> SearchResult:
    known_options(options, SearchOptions)
    of_step, own = _divided(options)
    optimizer, shape = own.pop("optimizer", None), own.pop("input_shape", None)
    own["model"] = own.pop("model_start", None)
    given = checked_fields(
        SearchRequest, {"objective": objective, "trials": trials, **_as_text(own)}
    )
    listeners = checked_callbacks(callbacks)
    some = runs if isinstance(runs, list | tuple) else (runs,)
    paths = [
        (one.path if isinstance(one, KernelsResult) else _folder(one)).absolute() for one in some
    ]
    step = None if model is None else _step(model, batch, optimizer, shape, of_step, paths)
    request = SearchRequest(joint=joint_too, step=step, **given)
    with _run_here():
        done = Search.new(request, _folder(logs), listeners=listeners).run()
    return SearchResult(done.path, read_run(done.path).ended())


def _as_text(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with paths as text."""
    return {k: str(value) if isinstance(value, Path) else value for k, value in options.items()}


def _frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise UsageError("pandas is not installed", hint=pip_install("pandas")) from error
    return pandas.DataFrame(list(rows))


__all__ = [
    "Callback",
    "KernelsResult",
    "SearchResult",
    "cpu_config",
    "joint",
    "load_run",
    "tune_kernels",
]
