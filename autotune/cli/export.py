"""`autotune export`: writes tuned kernels as a library that others can load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import completion
from autotune.cli.output import write_json, write_next
from autotune.cli.runs import run_path

if TYPE_CHECKING:
    from autotune.compiler.export.variants import Variant
    from autotune.studies.plans import StepPlan


def export(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=run_path("kernels", "joint"),
            autocompletion=completion.runs,
            metavar="RUN|PLAN...",
            help="Folders of finished runs, or plans of `autotune joint`.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; made if it is missing.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a run's figures as a CSV table, as `autotune report` does."
        ),
    ] = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("joint"),
            autocompletion=completion.runs,
            metavar="FILE",
            help="Instead of RUN|PLAN...: export this plan of `autotune joint`; may be repeated.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("kernels"),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Where a run of the plans is, if it was moved; may be repeated.",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            autocompletion=completion.formats,
            metavar="tvm|c|opencl",
            help="What to write.",
        ),
    ] = "tvm",
    name: Annotated[
        str | None,
        typer.Option(
            help="The library's name, which C functions begin with. [default: autotune_kernels]"
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            "--for",
            autocompletion=completion.platforms,
            metavar="PLATFORM",
            help="Build a C library for host, linux-aarch64 or android-arm64. [default: the runs']",
        ),
    ] = None,
    soc: Annotated[
        list[str] | None,
        typer.Option(
            help="Chip of each run's device, in the order of the runs, where runs do not tell."
        ),
    ] = None,
    allow_stand_in: Annotated[
        bool,
        typer.Option(help="Export although the kernels were measured on a stand-in."),
    ] = False,
    check_all: Annotated[
        bool, typer.Option(help="Store what every kernel computes, to be checked; else one a role.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Writes tuned kernels as a library, with a manifest, licences and an example that checks them.

    Several runs, of several devices or clusters, become variants of one library, which takes the one that fits the
    device, and untuned kernels where none does. A plan is a variant with the schedules that it chose from its runs;
    of the run of a joint search, its best plan is taken.
    `autotune verify DIR` checks what was written.

    \b
    Formats:
      tvm     libraries that TVM's runtime loads, from Python, C++ or over RPC
      c       a C header with a function a kernel, a shared and a static library; no TVM needed
      opencl  OpenCL C sources, a launch table in JSON, and a C++ loader of one header; no TVM needed

    \b
    Examples:
      autotune export logs/20260102T030405Z-cpu-lenet --out build/lenet-kernels
      autotune export logs/20260102T030405Z-cpu-lenet --format c --name lenet --out build/lenet-c
      autotune export logs/*-arm-cpu-lenet --format c --for android-arm64 --out build/lenet-android
      autotune export --plan logs/20260102T030405Z-joint-sm8150/plans/best.json --format c --out build/lenet-best
      autotune export logs/*-adreno-lenet logs/*-mali-lenet --format opencl --out build/lenet-gpu
      autotune export latest --csv lenet.csv
    """
    from autotune.errors import UsageError

    if csv is not None:
        _write_csv(csv, runs or ())
        if out is None:
            return
    if out is None:
        raise UsageError(
            "nothing says where to write", hint="give a folder with --out, or a file with --csv"
        )
    from autotune.cli.tuning import LiveProgress
    from autotune.compiler.export.exporter import NAME, named_format
    from autotune.compiler.export.exporter import export as write_export
    from autotune.compiler.export.variants import variants_of_runs
    from autotune.compiler.native import named_platform

    if (not runs) == (not plan):
        raise UsageError(
            "give either runs and plans, or plans with --plan",
            hint="such as autotune export logs/20260102T030405Z-cpu-lenet --out build/lenet",
        )
    sources = _sources(runs or (), plan or ())
    if not all(isinstance(one, Path) for one in sources):
        opencl = kind == "opencl"
        variants = _with_plans(sources, run or (), soc or (), allow_stand_in, gpu=opencl)
    elif run:
        raise UsageError(
            "--run says where a plan's runs are, and there is no plan",
            hint="name runs to export without --run",
        )
    else:
        paths = [one for one in sources if isinstance(one, Path)]
        variants = variants_of_runs(paths, allow_stand_in=allow_stand_in, socs=soc or ())
    with LiveProgress() as progress:
        manifest = write_export(
            variants,
            out,
            named_format(kind),
            name=NAME if name is None else name,
            platform=None if platform is None else named_platform(platform),
            check_all=check_all,
            report=progress.at,
        )
    for variant in variants:
        for untimed in variant.untimed:
            print(
                f"{variant.name}: untuned, since no schedule had a valid time: {untimed}",
                file=sys.stderr,
            )
    if json:
        write_json(manifest)
        write_next("verify", out)
        return
    names = ", ".join(one["name"] for one in manifest["variants"])
    print(f"{len(manifest['kernels'])} kernels for {names} in {out}")
    if manifest["stand_in"]:
        print("STAND-IN: some were measured on another device than they are for", file=sys.stderr)
    write_next("verify", out)


def _write_csv(file: Path, runs: Sequence[Path]) -> None:
    """Writes the figures of one run as a table."""
    from autotune.cli.report import csv_of, write_page
    from autotune.errors import UsageError
    from autotune.records import read_run

    if len(runs) != 1:
        raise UsageError(
            f"--csv writes the figures of one run, and there are {len(runs)}",
            hint="such as autotune export logs/20260102T030405Z-cpu-lenet --csv lenet.csv",
        )
    write_page(file, csv_of(read_run(runs[0])))
    print(f"wrote {file}", file=sys.stderr)


def _sources(named: Sequence[Path], plans: Sequence[Path]) -> list[Path | StepPlan]:
    """Runs and plans that are exported; of a joint search's run its best plan is meant."""
    from autotune.studies.plans import is_plan, read_plan

    best = ((path, path / "plans" / "best.json") for path in named)
    paths = [plan if plan.is_file() else path for path, plan in best]
    return [
        *(read_plan(path) if is_plan(path) else path for path in paths),
        *(read_plan(path) for path in plans),
    ]


def _with_plans(
    sources: Sequence[Path | StepPlan],
    moved: Sequence[Path],
    socs: Sequence[str],
    allow_stand_in: bool,
    *,
    gpu: bool,
) -> tuple[Variant, ...]:
    """The variants of runs and plans, in their order; a plan's are of the calls that the GPU makes, or the CPU.

    Of the runs that were moved, a plan does not get those that are another plan's by their names.
    """
    from autotune.cli.planned_step import planned_options
    from autotune.compiler.export.variants import (
        unique,
        variant_of_choice,
        variants_of_runs,
        with_schedules,
    )
    from autotune.errors import UsageError

    found: list[Variant] = []
    for number, plan in enumerate(sources):
        soc = socs[number] if number < len(socs) else ""
        if isinstance(plan, Path):
            socs_here = [soc] if soc else []
            found += variants_of_runs([plan], allow_stand_in=allow_stand_in, socs=socs_here)
            continue
        path = plan.path
        others = {
            name
            for one in sources
            if not isinstance(one, Path) and one is not plan
            for name in _names(one)
        }
        foreign = others - _names(plan)
        options = planned_options(plan, [run for run in moved if run.resolve().name not in foreign])
        if gpu != bool(plan.gpu) and (gpu or not plan.schedules):
            raise UsageError(
                f"{path} has all calls on the {'CPU' if gpu else 'GPU'}",
                hint="export it with --format c or tvm"
                if gpu
                else "export it with --format opencl",
            )
        if gpu:
            of_gpu = [Path(run) for run in options.gpu_runs]
            own = variants_of_runs(of_gpu, allow_stand_in=allow_stand_in, socs=[soc] * len(of_gpu))
            source = _source(path)
            found += with_schedules(own, dict(plan.gpu.values()), plan.figures, source)
            continue
        if plan.gpu:
            told = f"{path}: the GPU makes {len(plan.gpu)} of its calls: export them with --format opencl"
            print(told, file=sys.stderr)
        # A kernel has one schedule in a library: that of most of its calls.
        digests = {name: some[0] for name, some in plan.schedules.items()}
        clusters = [one["clusters"] for one in plan.settings]
        training = {name for one in clusters for name, own in one.items() if own["cores"]}
        found.append(
            variant_of_choice(
                [Path(run) for run in options.runs],
                digests,
                cluster="".join(training) if len(training) == 1 < len(clusters[0]) else "",
                threads=max(one["threads"] for one in plan.settings),
                khz=_clocks(plan),
                figures=plan.figures,
                allow_stand_in=allow_stand_in,
                emulated=bool(plan.emulated),
                soc=soc or str(plan.device.get("soc") or ""),
                source=_source(path),
            )
        )
    return unique(found)


def _names(plan: StepPlan) -> set[str]:
    """What the folders of a plan's runs are called."""
    return {Path(run).name for run in (*plan.step["runs"], *plan.step.get("gpu_runs", ()))}


def _source(plan: Path) -> str:
    return f"{plan.resolve().parent.parent.name}/{plan.name}"


def _clocks(plan: StepPlan) -> list[tuple[str, int]]:
    """Clocks that a plan holds throughout."""
    if len(plan.settings) > 1:
        return []
    clusters = plan.settings[0]["clusters"]
    return [(name, one["khz"]) for name, one in clusters.items() if one["cores"] and one["khz"]]
