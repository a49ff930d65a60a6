"""`autotune replay`: a search over recorded measurements, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import completion, run_path
from autotune.cli.shared import (
    Column,
    number,
    time_text,
    with_wide,
    write_json,
    write_next,
    write_table,
    write_text,
)

if TYPE_CHECKING:
    from autotune.jobs.provenance import Work
    from autotune.jobs.search import ReplayRequest, ReplayResult


def _measured(run: Path, *_: object) -> None:
    """Refuses a run without a measurement."""
    from autotune.studies.replay import read

    read(run)


@with_wide
def replay(
    recorded: Annotated[
        Path,
        typer.Argument(
            parser=run_path("cpu-config", ended=False, check=_measured),
            autocompletion=completion.runs,
            metavar="RECORDED",
            help="A table (cluster, cores, big_freq_ghz, small_freq_ghz, time_s, energy_j), a run of "
            "cpu-config, or a folder of the published traces (all settings, or one).",
        ),
    ],
    objective: Annotated[
        str,
        typer.Option(
            autocompletion=completion.objectives,
            help="Objective to minimise: latency, energy, edp (energy x time) or pareto (the front of time "
            "and energy).",
        ),
    ] = "pareto",
    sampler: Annotated[
        str, typer.Option(autocompletion=completion.samplers, help="tpe, nsga2, random or grid.")
    ] = "tpe",
    model: Annotated[
        bool,
        typer.Option(
            "--model-start/--no-model-start", help="Start with probes, then propose by models."
        ),
    ] = True,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Maximum time of a step, such as 30s.")
    ] = None,
    network: Annotated[str | None, typer.Option(help="Traces only: network to search.")] = None,
    batch: Annotated[int | None, typer.Option(help="Traces only: batch size.")] = None,
    usb_alone: Annotated[
        bool,
        typer.Option(
            "--usb-alone", help="Traces only: count energy over USB alone, without the battery."
        ),
    ] = False,
    seeds: Annotated[int, typer.Option(help="How many searches, each with its own seed.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Searches a recorded table as if it were a device, and reports how many measurements the best needs.

    For the published traces, --network and --batch select the runs; each setting of the phone is a
    configuration. Without --network, all runs are listed with duration, energy (USB and total), memory, and
    cores in use. Energy is missing where power was not recorded.

    \b
    Examples:
      autotune replay tests/data/meizu16t_alexnet_b16.csv --objective energy --deadline 30s
      autotune replay tests/data/meizu16t_alexnet_b16.csv --seeds 20 --sampler random --no-model-start
      autotune replay meizu_traces
      autotune replay meizu_traces --network Alexnet --batch 16 --objective energy
    """
    import os

    # The models' matrices are small: more threads would only wait for each other. numpy reads this when it is
    # imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from autotune.jobs.search import ReplayRequest
    from autotune.jobs.search import replay as carried_out
    from autotune.records import is_run

    request = ReplayRequest(
        recorded, objective, sampler, model, deadline, network, batch, usb_alone, seeds
    )
    request.check()
    if request.lists_traces:
        return _traces(recorded, as_json=json)
    result = carried_out(request)
    if json:
        write_json(_figures(request, result), _work(request))
    else:
        _show(request, result)
    if is_run(recorded):
        write_next("report", recorded)
    else:  # A model of a phone is there on every machine.
        write_next(
            "cpu-config", "--objective", objective, "--emulate", "meizu-16t", "--model", "lenet"
        )
    return 0


def _work(request: ReplayRequest) -> Work:
    """Returns what a table is of: a run's model, or the network of some traces; a table of its own names none."""
    from autotune.jobs.provenance import Work
    from autotune.records import is_run, read_run

    if is_run(request.recorded):
        return Work.of_run(request.recorded, read_run(request.recorded).about)
    return Work(None, request.network, request.batch)


def _figures(request: ReplayRequest, result: ReplayResult) -> dict[str, Any]:
    import statistics

    evaluator, counts = result.evaluator, result.measurements
    names = [cluster.name for cluster in evaluator.clusters]
    return {
        "device": evaluator.device,
        "objective": request.objective,
        "sampler": request.sampler,
        "model_start": request.model,
        "configurations": evaluator.space().size,
        "goal": [c.to_json(names) for c in evaluator.figures() if c in result.searches[0].goal],
        "measurements": counts,
        "median": statistics.median(counts),
        "energy_missing": [
            c.to_json(names) for c, f in result.recorded.items() if f.energy_j is None
        ],
        "marked": [{**c.to_json(names), "mark": mark} for c, mark in evaluator.marks.items()],
    }


def _show(request: ReplayRequest, result: ReplayResult) -> None:
    import statistics

    from autotune.studies.replay import MISSING

    evaluator, counts, shown = result.evaluator, result.measurements, result.searches[0]
    names = [cluster.name for cluster in evaluator.clusters]
    write_table(
        (
            number("no."),
            Column("configuration", least=36),
            number("a step"),
            number("J"),
            Column("proposed by", least=12),
            Column("on front" if request.objective == "pareto" else "best"),
            Column("note", rank=1, least=16, prose=True),
        ),
        [
            (
                str(index),
                trial.configuration.text(names),
                time_text(trial.figures.time_s),
                "-" if trial.figures.energy_j is None else f"{trial.figures.energy_j:.4g}",
                trial.reason,
                "yes" if trial.configuration in shown.goal else "",
                evaluator.marks.get(trial.configuration, ""),
            )
            for index, trial in enumerate(shown.trials, start=1)
            if trial.figures is not None
        ],
    )
    what = "all of the Pareto front" if request.objective == "pareto" else "the best"
    text = f"{what} is found after {counts[0]} of {evaluator.space().size} measurements"
    if request.seeds > 1:
        text += f"; over {request.seeds} seeds: median {statistics.median(counts):g}, most {max(counts)}"
    write_text(text)
    if left_out := len(result.recorded) - len(evaluator.figures()):
        write_text(f"{left_out} of {len(result.recorded)} configurations are left out: {MISSING}")
    write_text(evaluator.device["emulated"])


def _traces(folder: Path, *, as_json: bool) -> int:
    from autotune.power import meizu_traces
    from autotune.studies.replay import MISSING

    folders = meizu_traces.settings(folder)
    runs = [(path.resolve().name, run) for path in folders for run in meizu_traces.runs(path)]
    if as_json:
        write_json({"runs": [{"setting": name, **_as_json(run)} for name, run in runs]})
        _tell_next(folder, runs)
        return 0
    write_table(
        (
            Column("setting", least=20),
            Column("run"),
            number("batch"),
            number("s", rank=2),
            number("s a step"),
            number("USB J", rank=1),
            number("USB and battery J"),
            number("MB"),
            number("cores"),
            Column("note", rank=3, least=16, prose=True),
        ),
        [
            (
                name,
                run.network,
                str(run.batch),
                f"{run.duration_s:.2f}",
                f"{run.step_s:.4g}" if run.step_s else "-",
                "-" if run.usb_j is None else f"{run.usb_j:.1f}",
                "-" if run.total_j is None else f"{run.total_j:.1f}",
                "-" if run.memory_bytes is None else f"{run.memory_bytes / 1e6:.0f}",
                "-" if run.cores_busy is None else f"{run.cores_busy:.1f}",
                MISSING if run.total_j is None else run.saturated,
            )
            for name, run in runs
        ],
    )
    missing = sum(run.total_j is None for _, run in runs)
    if missing:
        print(f"energy is missing of {missing} of {len(runs)} runs: {MISSING}")
    _tell_next(folder, runs)
    return 0


def _tell_next(folder: Path, runs: Sequence[tuple[str, Any]]) -> None:
    """Prints the command that searches the first network of some traces."""
    if runs:
        _, run = runs[0]
        write_next("replay", folder, "--network", run.network, "--batch", run.batch)


def _as_json(run: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(run), "duration_s": run.duration_s, "energy_missing": run.total_j is None}


__all__ = ["replay"]
