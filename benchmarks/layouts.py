"""The training step in both layouts, channels first and channels last, tuned with the same number of trials.

Tunes each model in both layouts, and runs both steps interleaved on the same weights and data. Judges whether the
layout that `autotune step` chooses from both runs is the faster one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from common.bars import Report, run
from training_step import (
    BATCH,
    MODELS,
    ROUNDS,
    SEED,
    Data,
    Step,
    finished,
    interleaved,
    ours,
    tuned,
)

from autotune.compiler.step.step import open_step
from autotune.compiler.step.tuned_runs import step_runs
from autotune.measurement import median
from autotune.workloads import StepForm, TrainingStep, initial_values
from autotune.workloads.training_step import LAYOUTS, LayoutName

USUAL = ("squeezenet1_1",)


def run_of(report: Report, model: str, layout: LayoutName, logs: Path) -> Path:
    """Returns the folder of a run of a model in a layout: a finished one, or a new one."""
    folder = logs / layout
    there = finished(folder, model, BATCH)
    if there:
        return there[-1]
    words = ("--layout", layout.replace("_", "-"))
    return tuned(report, model, folder, *words, trials=MODELS[model])


def measure_model(report: Report, model: str, logs: Path) -> None:
    folders = {layout: run_of(report, model, layout, logs) for layout in LAYOUTS}
    wanted = TrainingStep(model, BATCH)
    chosen = step_runs([*folders.values()]).layout(wanted)
    data = Data(wanted.plain()[0], ROUNDS)
    with ExitStack() as opened:
        sides: dict[str, Step] = {}
        for layout, folder in folders.items():
            graph = wanted.graph(StepForm(layout))
            library = opened.enter_context(step_runs([folder]).library(graph))
            values = initial_values(graph, SEED)
            session = opened.enter_context(open_step(graph, library, values))
            sides[layout] = ours(session, graph, data)
        seconds = interleaved(sides, dict.fromkeys(sides, 2 if report.quick else ROUNDS))
    medians = {layout: 1e3 * median(times) for layout, times in seconds.items()}
    for side, times in seconds.items():
        report.row(model=model, layout=side, median_ms=medians[side], seconds=times)
    ratio = medians["channels_first"] / medians["channels_last"]
    print(f"{model}: channels first takes {ratio:.3g} times the time of channels last", flush=True)
    over = medians[chosen] / min(medians.values())
    report.bar(
        f"{model}: the chosen layout's time over the faster one's", over, "at most", 1.05, "x"
    )


def measure(report: Report) -> None:
    with tempfile.TemporaryDirectory() as logs:
        for model in report.options.models or (["lenet"] if report.quick else USUAL):
            measure_model(report, model, report.options.runs or Path(logs))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="these instead")
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="take runs from DIR/channels_first and DIR/channels_last where there are, and keep new ones there",
    )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
