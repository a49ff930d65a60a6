"""Exports tuned kernels of runs and plans as a library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.compiler.export import (
    NAME,
    Variant,
    named_format,
    unique,
    variant_of_choice,
    variants_of_runs,
    with_schedules,
)
from autotune.compiler.export import export as write_export
from autotune.compiler.native import named_platform
from autotune.compiler.target import TuneRequest
from autotune.console import LOGGER, LiveProgress
from autotune.errors import UsageError
from autotune.jobs.requests import load_own
from autotune.jobs.steps import planned_options
from autotune.records import read_run
from autotune.studies.plans import StepPlan, is_plan, read_plan


@dataclass(frozen=True)
class ExportRequest:
    """A request to export kernels.

    Attributes:
        out: Folder that the library is written to.
        runs: Runs and plans. The run of a joint search stands for its best plan.
        plans: Plans, instead of `runs`.
        moved: New places of the plans' runs, if they were moved.
        format: `tvm`, `c` or `opencl`.
        name: The library's name; `autotune_kernels` by default.
        platform: Platform that a C library is built for; the runs' platform by default.
        socs: Chip of each run's device, if the runs do not record it.
        allow_stand_in: Whether kernels may have been measured on a stand-in.
        check_all: Whether reference outputs of every kernel are stored, to check the kernels against.
    """

    out: Path
    runs: tuple[Path, ...] = ()
    plans: tuple[Path, ...] = ()
    moved: tuple[Path, ...] = ()
    format: str = "tvm"
    name: str | None = None
    platform: str | None = None
    socs: tuple[str, ...] = ()
    allow_stand_in: bool = False
    check_all: bool = False


@dataclass(frozen=True)
class ExportResult:
    """A library that was written.

    Attributes:
        manifest: Content of its `manifest.json`.
        untimed: Kernels left untuned because no schedule had a valid time, as (variant, kernel).
    """

    manifest: dict[str, Any] = field(repr=False)
    untimed: tuple[tuple[str, str], ...]


def export(request: ExportRequest) -> ExportResult:
    """Writes a library.

    Raises:
        UsageError: An option is invalid, or the kernels were measured on a stand-in.
        ToolchainError: A kernel cannot be compiled.
    """
    variants = exported(request)
    with LiveProgress() as progress:
        manifest = write_export(
            variants,
            request.out,
            named_format(request.format),
            name=NAME if request.name is None else request.name,
            platform=None if request.platform is None else named_platform(request.platform),
            check_all=request.check_all,
            report=progress.at,
        )
    untimed = tuple((one.name, kernel) for one in variants for kernel in one.untimed)
    return ExportResult(manifest, untimed)


def exported(request: ExportRequest) -> tuple[Variant, ...]:
    """Returns what a library has: the kernels of each run or plan.

    Raises:
        UsageError: A run or a plan cannot be exported.
    """
    if (not request.runs) == (not request.plans):
        raise UsageError(
            "give either runs and plans, or plans with --plan",
            hint="such as autotune export logs/20260102T030405Z-cpu-lenet --out build/lenet",
        )
    sources = _sources(request.runs, request.plans)
    paths = [one for one in sources if isinstance(one, Path)]
    if len(paths) < len(sources):
        return _with_plans(request, sources)
    if request.moved:
        raise UsageError(
            "--run says where a plan's runs are, and there is no plan",
            hint="name runs to export without --run",
        )
    for run in map(read_run, paths):
        if run.about.get("request", {}).get("own") is not None:
            load_own(run.path, TuneRequest.of_run(run))
    return variants_of_runs(paths, allow_stand_in=request.allow_stand_in, socs=request.socs)


def _sources(named: Sequence[Path], plans: Sequence[Path]) -> list[Path | StepPlan]:
    """Returns the runs and plans to export. The run of a joint search stands for its best plan."""
    best = ((path, path / "plans" / "best.json") for path in named)
    paths = [plan if plan.is_file() else path for path, plan in best]
    return [
        *(read_plan(path) if is_plan(path) else path for path in paths),
        *(read_plan(path) for path in plans),
    ]


def _with_plans(request: ExportRequest, sources: Sequence[Path | StepPlan]) -> tuple[Variant, ...]:
    """Returns the variants of runs and plans, in their order.

    A plan gives variants of its GPU calls or its CPU calls.

    A moved run is not offered to a plan if its name belongs to another plan only.
    """
    found: list[Variant] = []
    for number, source in enumerate(sources):
        soc = request.socs[number] if number < len(request.socs) else ""
        if isinstance(source, Path):
            socs = [soc] if soc else []
            found += variants_of_runs([source], allow_stand_in=request.allow_stand_in, socs=socs)
            continue
        others = {
            name
            for one in sources
            if not isinstance(one, Path) and one is not source
            for name in _names(one)
        }
        foreign = others - _names(source)
        moved = [run for run in request.moved if run.resolve().name not in foreign]
        found += _of_plan(request, source, moved, soc)
    return unique(found)


def _of_plan(
    request: ExportRequest, plan: StepPlan, moved: Sequence[Path], soc: str
) -> Sequence[Variant]:
    """Returns the variants of one plan: of its GPU calls for the format `opencl`, else of its CPU calls."""
    gpu = request.format == "opencl"
    options = planned_options(plan, moved)
    if gpu != bool(plan.gpu) and (gpu or not plan.schedules):
        raise UsageError(
            f"{plan.path} has all calls on the {'CPU' if gpu else 'GPU'}",
            hint="export it with --format c or tvm" if gpu else "export it with --format opencl",
        )
    if gpu:
        of_gpu = [Path(run) for run in options.gpu_runs]
        own = variants_of_runs(
            of_gpu, allow_stand_in=request.allow_stand_in, socs=[soc] * len(of_gpu)
        )
        return with_schedules(own, dict(plan.gpu.values()), plan.figures, _source(plan.path))
    if plan.gpu:
        LOGGER.warning(
            "%s: the GPU makes %d of its calls: export them with --format opencl",
            plan.path,
            len(plan.gpu),
        )
    # A library holds one schedule for each kernel: the one that most of its calls use.
    digests = {name: some[0] for name, some in plan.schedules.items()}
    clusters = [one["clusters"] for one in plan.settings]
    training = {name for one in clusters for name, own in one.items() if own["cores"]}
    return [
        variant_of_choice(
            [Path(run) for run in options.runs],
            digests,
            cluster="".join(training) if len(training) == 1 < len(clusters[0]) else "",
            threads=max(one["threads"] for one in plan.settings),
            khz=_clocks(plan),
            figures=plan.figures,
            allow_stand_in=request.allow_stand_in,
            emulated=bool(plan.emulated),
            soc=soc or str(plan.device.get("soc") or ""),
            source=_source(plan.path),
        )
    ]


def _names(plan: StepPlan) -> set[str]:
    """Returns the names of the folders of a plan's runs."""
    return {Path(run).name for run in (*plan.step["runs"], *plan.step.get("gpu_runs", ()))}


def _source(plan: Path) -> str:
    return f"{plan.resolve().parent.parent.name}/{plan.name}"


def _clocks(plan: StepPlan) -> list[tuple[str, int]]:
    """Returns the clocks that a plan holds for the whole step."""
    if len(plan.settings) > 1:
        return []
    clusters = plan.settings[0]["clusters"]
    return [(name, one["khz"]) for name, one in clusters.items() if one["cores"] and one["khz"]]


__all__ = ["ExportRequest", "ExportResult", "export"]
