"""`autotune export`: writes tuned kernels as a library for other programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import completion, plan_path, run_path
from autotune.cli.shared import write_json, write_next
from autotune.errors import counted

if TYPE_CHECKING:
    from autotune.records import Run


def _exportable(run: Path, _: str, options: Mapping[str, Any]) -> None:
    """Refuses a run that cannot be exported."""
    from autotune.cli.commands.report import csv_of
    from autotune.jobs.kernels import ExportRequest, exported
    from autotune.records import read_run

    if options.get("csv") is not None:
        csv_of(read_run(run))
    if (out := options["out"]) is None:
        return
    moved = tuple(one for one in options["run"] or () if isinstance(one, Path))
    allow = options["allow_stand_in"]
    exported(ExportRequest(out, (run,), (), moved, options["kind"], allow_stand_in=allow))


def export(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=run_path("kernels", "joint", check=_exportable),
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
            parser=plan_path(),
            autocompletion=completion.plans,
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
            help="Name of the library, and prefix of its C functions. [default: autotune_kernels]"
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
        typer.Option(help="SoC of each run's device, in order, if the runs do not record it."),
    ] = None,
    allow_stand_in: Annotated[
        bool,
        typer.Option(help="Export kernels even if they were measured on a stand-in."),
    ] = False,
    check_all: Annotated[
        bool,
        typer.Option(
            help="Store expected results of every kernel; otherwise of one kernel per role."
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the manifest as JSON; with --csv alone, the path of the table."
        ),
    ] = False,
) -> None:
    """Writes tuned kernels as a library, with a manifest, licences and an example that checks them.

    Several runs (devices or clusters) become variants of one library. At run time the library picks the
    variant that fits the device, or untuned kernels if none fits. A plan is exported with the schedules that
    it chose; for a joint run, the best plan is exported.
    `autotune verify DIR` checks what was written.

    \b
    Formats:
      tvm     libraries that TVM's runtime loads, from Python, C++ or over RPC
      c       a C header with one function per kernel, a shared and a static library; no TVM needed
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
    from autotune.jobs.provenance import Work

    written = {}
    if csv is not None:
        shown = _write_csv(csv, runs or ())
        written = {"csv": str(csv)}
        if out is None:
            if json:
                write_json(written, Work.of_run(shown.path, shown.about))
            write_next("report", shown.path)
            return
    if out is None:
        raise UsageError(
            "nothing says where to write", hint="give a folder with --out, or a file with --csv"
        )
    from autotune.jobs.kernels import ExportRequest
    from autotune.jobs.kernels import export as write_export

    done = write_export(
        ExportRequest(
            out, tuple(runs or ()), tuple(plan or ()), tuple(run or ()), kind, name, platform,
            tuple(soc or ()), allow_stand_in, check_all,
        )
    )  # fmt: skip
    for variant, kernel in done.untimed:
        print(f"{variant}: untuned, since no schedule had a valid time: {kernel}", file=sys.stderr)
    if json:
        folder = runs[0] if runs and len(runs) == 1 and not plan else None
        write_json({**done.manifest, **written}, Work(folder))
        write_next("verify", out)
        return
    names = ", ".join(one["name"] for one in done.manifest["variants"])
    print(f"{counted(len(done.manifest['kernels']), 'kernel')} for {names} in {out}")
    if done.manifest["stand_in"]:
        print("STAND-IN: some were measured on another device than they are for", file=sys.stderr)
    write_next("verify", out)


def _write_csv(file: Path, runs: Sequence[Path]) -> Run:
    """Writes the figures of one run as a CSV table, and returns the run."""
    from autotune.cli.commands.report import csv_of, write_page
    from autotune.errors import UsageError
    from autotune.records import read_run

    if len(runs) != 1:
        raise UsageError(
            f"--csv writes the figures of one run, and there are {len(runs)}",
            hint="such as autotune export logs/20260102T030405Z-cpu-lenet --csv lenet.csv",
        )
    found = read_run(runs[0])
    write_page(file, csv_of(found))
    print(f"wrote {file}", file=sys.stderr)
    return found
