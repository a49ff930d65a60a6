"""`autotune replay`: a search over recorded measurements, without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.output import write_json, write_table


def replay(
    recorded: Annotated[
        Path,
        typer.Argument(
            help="A table (cluster, cores, big_freq_ghz, small_freq_ghz, time_s, energy_j), a run of "
            "cpu-config, or a setting's folder of the published traces."
        ),
    ],
    objective: Annotated[
        str, typer.Option(help="What is to be small: latency, energy, edp or pareto.")
    ] = "pareto",
    sampler: Annotated[str, typer.Option(help="tpe, nsga2, random or grid.")] = "tpe",
    model: Annotated[
        bool,
        typer.Option("--model-start/--no-model-start", help="Probes first, and models that lead."),
    ] = True,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest step, such as 30s.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many searches, each with its own seed.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Searches a recorded table as if it were a device, and tells after how many measurements the best is found.

    A published trace is shown as what it tells: duration, energy over USB, and in all, of each run.

    \b
    Examples:
      autotune replay tests/data/meizu16t_alexnet_b16.csv --objective energy --deadline 30s
      autotune replay tests/data/meizu16t_alexnet_b16.csv --seeds 20 --sampler random --no-model-start
      autotune replay MEIZU_Core_f0
    """
    if recorded.is_dir() and not (recorded / "run.json").exists():
        return _traces(recorded, as_json=json)
    import statistics

    from autotune.cli import bench as benches
    from autotune.cli.cpu_config import one_of
    from autotune.errors import UsageError
    from autotune.studies.objective import OBJECTIVES
    from autotune.studies.replay import read, search
    from autotune.studies.study import SAMPLERS, StudyRequest

    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}", hint="give a number from 1 on")
    bench = read(recorded)
    space = bench.space()
    limits = benches.limits(deadline, None, None, None)
    names = [cluster.name for cluster in bench.clusters]
    searches = [
        search(
            bench,
            StudyRequest(
                space,
                one_of("--objective", objective, OBJECTIVES),
                limits,
                space.size,
                one_of("--sampler", sampler, SAMPLERS),
                model,
                seed,
            ),
        )
        for seed in range(1, seeds + 1)
    ]
    counts = [found.measurements for found in searches]
    shown = searches[0]
    if json:
        write_json(
            {
                "device": bench.device,
                "objective": objective,
                "sampler": sampler,
                "model_start": model,
                "configurations": space.size,
                "goal": [c.to_json(names) for c in shown.goal],
                "measurements": counts,
                "median": statistics.median(counts),
            }
        )
        return 0
    write_table(
        ("measurement", "configuration", "s", "J", "proposed by", "of the goal"),
        [
            (
                str(index),
                trial.configuration.text(names),
                f"{trial.figures.time_s:g}",
                "-" if trial.figures.energy_j is None else f"{trial.figures.energy_j:g}",
                trial.reason,
                "yes" if trial.configuration in shown.goal else "",
            )
            for index, trial in enumerate(shown.trials, start=1)
            if trial.figures is not None
        ],
        numbers=("measurement", "s", "J"),
        whole=True,
    )
    what = "all of the Pareto front" if objective == "pareto" else "the best"
    told = f"{what} is found after {counts[0]} of {space.size} measurements"
    if seeds > 1:
        told += f"; over {seeds} seeds: median {statistics.median(counts):g}, most {max(counts)}"
    print(told)
    print(bench.device["emulated"])
    return 0


def _traces(folder: Path, *, as_json: bool) -> int:
    from autotune.power import meizu_traces

    runs = meizu_traces.runs(folder)
    if as_json:
        write_json({"runs": [_as_json(run) for run in runs]})
        return 0
    write_table(
        ("run", "batch", "s", "s a step", "USB J", "USB and battery J", "note"),
        [
            (
                run.network,
                str(run.batch),
                f"{run.duration_s:.2f}",
                f"{run.step_s:.4g}" if run.step_s else "-",
                f"{run.usb_j:.1f}",
                f"{run.total_j:.1f}",
                run.saturated,
            )
            for run in runs
        ],
        numbers=("batch", "s", "s a step", "USB J", "USB and battery J"),
        whole=True,
    )
    return 0


def _as_json(run: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(run), "duration_s": run.duration_s}


__all__ = ["replay"]
