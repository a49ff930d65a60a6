"""`autotune cpu-config compare`: which of two configurations is better, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from autotune.cli import completion
from autotune.cli.output import named, write_json, write_next
from autotune.cli.runs import run_path
from autotune.cli.workload import DEFAULT_BATCH

if TYPE_CHECKING:
    from autotune.studies.bench import Measured

SCHEMA_VERSION = 1
_ATTEMPTS = 3


def compare(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_path("cpu-config", "joint"),
            autocompletion=completion.runs,
            metavar="RUN",
            help="Folder of a run of cpu-config that has ended.",
        ),
    ],
    first: Annotated[
        str,
        typer.Argument(help="best, default, or a named point: fastest, least_energy, knee, ..."),
    ],
    second: Annotated[str, typer.Argument(help="Another one.")],
    by: Annotated[Literal["time", "energy"], typer.Option(help="What is compared.")] = "time",
    seed: Annotated[int, typer.Option(help="Seed of the orders and the bootstrap.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Measures two configurations of a run in interleaved blocks until one is better, or they are surely alike.

    After 12, 24, 36 and 48 blocks the interval of the ratio may name a winner. With steps off by 5 %, five a block,
    one is named in less than 5 % of comparisons of equals, and a difference of 3 % is found in more than 90 %.

    \b
    Example:
      autotune cpu-config compare logs/20260102T030405Z-cpu-config-sm8150 best default --by energy
    """
    from autotune.cli import bench as benches
    from autotune.cli.cpu_config_apply import point_of
    from autotune.cli.device_workload import brought, given_command
    from autotune.cli.step_options import PUT_BACK, StepOptions
    from autotune.cli.step_records import calibrated, protocol_of, recorder, start_band
    from autotune.cli.trust import check_allowed, outside
    from autotune.cli.tuning import LiveProgress, about_this
    from autotune.errors import StableDeviceError, UsageError
    from autotune.measurement import LOOKS, versus
    from autotune.records import RunFolder, read_run
    from autotune.studies.bench import DeviceBench, setting_of
    from autotune.studies.space import CpuConfiguration, compared_text, configuration_text

    if not 0 <= seed < 2**32:
        raise UsageError(f"--seed is {seed}", hint="give a whole number from 0 to 4294967295")
    found = read_run(run)
    points = [point_of(found, name) for name in (first, second)]
    asked = found.about["request"]
    check_allowed(run, outside(asked))
    chosen = benches.choose(asked["device"], asked["ssh"] or (), asked["emulate"])
    clusters = chosen.info.clusters
    names = [cluster.name for cluster in clusters]
    settings = [
        setting_of(
            clusters,
            None if point["clusters"] is None else CpuConfiguration.from_json(point, names),
        )
        for point in points
    ]
    if settings[0] == settings[1]:
        raise UsageError(f"'{first}' and '{second}' are the same configuration")
    step = None
    if asked.get("step"):
        step = StepOptions.from_json(asked["step"]).placed(run, PUT_BACK)
    command = given_command(
        step, asked["command"], asked["steps_from"], emulated=asked["emulate"] is not None
    )
    meter = benches.meter(chosen, asked["meter"] or "auto", needed=True) if by == "energy" else None
    band = start_band(asked, found.events)
    folder = RunFolder.create(
        run.parent,
        "compare",
        about_this(
            {"run": str(run), "first": first, "second": second, "by": by, "seed": seed},
            chosen.info.to_json() | {"name": chosen.info.serial},
        ),
    )
    done = 0
    with folder, LiveProgress() as progress, brought(step, command, chosen, progress) as workload:
        progress.notice(f"run folder: {folder.path}")
        progress.phase("runs, at most", 2 * LOOKS[-1])
        with benches.ready(chosen, workload.bring, meter, protocol_of(asked), band) as bench:
            if by == "energy":
                calibrated(bench, setting_of(clusters, None), folder, progress, needed=True)
            record, measures = recorder(folder), DeviceBench(bench, needs_energy=by == "energy")

            def measured(side: int) -> float:
                nonlocal done
                message = ""
                for _ in range(_ATTEMPTS):
                    told = measures.measured(bench.run(settings[side]))
                    record("run", {"side": side}, told)
                    if (value := _value(told, by)) is not None:
                        done += 1
                        progress.step(done, (first, second)[side])
                        return value
                    message = told.message or "no joules above idle"
                raise StableDeviceError(
                    f"{chosen.info.serial}: '{(first, second)[side]}' cannot be measured: {message}",
                    hint=f"see {folder.path}/events.jsonl",
                )

            verdict = versus(lambda: measured(0), lambda: measured(1), seed=seed)
        result: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "kind": "comparison",
            "emulated": bool(chosen.info.emulated),
            "by": by,
            "first": {"name": first, **_shown(points[0])},
            "second": {"name": second, **_shown(points[1])},
            "ratio": verdict.ratio.estimate,
            "ci": verdict.ratio.ends,
            "blocks": verdict.blocks,
            "verdict": verdict.winner,
        }
        model, batch = (step.model, step.batch or DEFAULT_BATCH) if step else (None, None)
        result = named(result, folder=folder.path, model=model, batch=batch)
        folder.result(result)
    if json:
        write_json(result)
        write_next("report", folder.path)
        return 0
    for name, point in ((first, points[0]), (second, points[1])):
        print(f"{name}: {configuration_text(point)}")
    print(compared_text((first, second), result))
    print(f"{verdict.blocks} blocks; run folder: {folder.path}")
    if chosen.info.emulated:
        print(f"{chosen.info.emulated}: times and joules are a model's")
    write_next("report", folder.path)
    return 0


def _value(told: Measured, by: str) -> float | None:
    if told.figures is None:
        return None
    value = told.figures.time_s if by == "time" else told.figures.energy_j
    return value if value is not None and value > 0 else None


def _shown(point: dict[str, Any]) -> dict[str, Any]:
    return {"clusters": point["clusters"], "threads": point.get("threads")}


__all__ = ["compare"]
