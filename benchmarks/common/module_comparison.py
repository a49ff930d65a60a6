"""Compares the tuned step of a PyTorch module with PyTorch's own: losses, times and peak memory."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from autotune.compiler.step.step import StepSession, open_step
from autotune.compiler.step.tuned_runs import step_runs
from autotune.compiler.target.host import kernel_threads
from autotune.measurement import Interval, median, paired_speedup
from autotune.records import read_run
from autotune.workloads import StepForm, StepGraph, TrainingStep, generated_feeds
from common.bars import QUICK_TRIALS, Report, positive
from common.interleaved import Turn, interleaved_blocks
from common.module_step import Arrays, ModuleSide, given_masks, in_own_shapes, module_peak
from common.pytorch import torch

LOSS_STEPS = 20
BLOCKS = 12
_SEED = 1
_TURN_S, _LEAST_STEPS, _MOST_STEPS = 0.2, 5, 20
_SETTLE_S = 0.1
_ROUNDING = 1e-6
"""Distance to float64, relative to the loss, that any float32 program may have."""


@dataclass(frozen=True)
class Comparison:
    """A tuned step beside PyTorch's.

    Attributes:
        eager: Speed-up over PyTorch eager, in its faster layout.
        compiled: Speed-up over torch.compile; None where it was left out.
        memory: Peak memory over that of PyTorch eager.
    """

    eager: Interval
    compiled: Interval | None
    memory: float


def add_options(parser: argparse.ArgumentParser, models: Iterable[str]) -> None:
    """Adds the options of a benchmark that compares some models."""
    names = list(models)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=names,
        metavar="MODEL",
        help=f"only these of {', '.join(names)}",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="keep runs here, DIR/MODEL/RUN, and take finished ones",
    )
    parser.add_argument(
        "--trials", type=positive(int), default=1000, help="of each model [default: 1000]"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")


def mean_memory(found: Iterable[Comparison]) -> float:
    """Returns the geometric mean of peak memory over PyTorch's."""
    return geometric_mean(one.memory for one in found)


def run_of(report: Report, wanted: TrainingStep, folder: Path, trials: int) -> Path:
    """Returns the newest finished run of a step in a folder, or tunes the step there."""
    found = sorted(one.parent for one in folder.glob("*/result.json"))
    if not found:
        command = [sys.executable, "-m", "autotune", "kernels", "--model", wanted.model]
        command += ["--batch", str(wanted.batch), "--optimizer", wanted.optimizer.spec()]
        command += [part for one in wanted.train for part in ("--train", one)]
        command += ["--trials", str(QUICK_TRIALS if report.quick else trials)]
        command += ["--logs", str(folder), "--no-step"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = sorted(one.parent for one in folder.glob("*/result.json"))
    return found[-1]


def check_losses(
    report: Report, name: str, wanted: TrainingStep, graph: StepGraph, session: StepSession
) -> None:
    """Compares the losses of some steps with PyTorch's, in float32 and float64."""
    steps = 3 if report.quick else LOSS_STEPS
    feeds = generated_feeds(graph, _SEED)
    given = [next(feeds) for _ in range(steps)]
    mine = session.run(given).losses
    values = in_own_shapes(graph, wanted.values(graph, _SEED))
    plain = [in_own_shapes(graph, one) for one in given]
    theirs = _module_losses(wanted, values, plain, torch.float32)
    truth = _module_losses(wanted, values, plain, torch.float64)
    distance, allowed = (
        max(abs(a - t) / max(1.0, abs(t)) for a, t in zip(one, truth, strict=True))
        for one in (mine, theirs)
    )
    report.row(what="losses", model=name, tuned=list(mine), torch32=theirs, torch64=truth)
    report.bar(
        f"{name}: loss's distance to float64 over PyTorch float32's, {steps} steps",
        distance / max(allowed, _ROUNDING),
        "at most",
        2,
        "x",
    )


def _module_losses(
    wanted: TrainingStep, values: Arrays, given: Sequence[Arrays], kind: torch.dtype
) -> list[float]:
    side = ModuleSide(wanted, values, kind)
    losses = []
    for one in given:
        with given_masks(one):
            losses.append(side.step(one)[0])
    return losses


def compare(
    report: Report,
    name: str,
    wanted: TrainingStep,
    folder: Path,
    *,
    layouts: bool = True,
    compiled: bool = True,
) -> Comparison:
    """Checks and times a tuned step; adds rows and the bars of one model.

    Args:
        report: Receives rows and bars.
        name: Name of the step in them.
        wanted: The step.
        folder: Finished run of its kernels.
        layouts: Also time PyTorch with channels last.
        compiled: Also time torch.compile.
    """
    result = read_run(folder).kernel_result()
    report.bar(f"{name}: tuning", result.wall_s / 60, "at most", 20, "min")
    runs = step_runs([folder])
    graph = wanted.graph(StepForm("channels_last"))
    torch._dynamo.reset()
    with ExitStack() as opened:
        library = opened.enter_context(runs.library(graph))
        values = wanted.values(graph, _SEED)
        session = opened.enter_context(open_step(graph, library, values))
        check_losses(report, name, wanted, graph, session)
        own = generated_feeds(graph, _SEED)
        sides = {"tuned": _turn_of(lambda count: _own_seconds(session, own, count))}
        plain = (in_own_shapes(graph, one) for one in generated_feeds(graph, _SEED))
        sides["pytorch"] = _module_turn(ModuleSide(wanted), plain)
        if layouts:
            sides["pytorch channels_last"] = _module_turn(ModuleSide(wanted, last=True), plain)
        if compiled:
            sides["torch.compile"] = _module_turn(ModuleSide(wanted, compiled=True), plain)
        seconds = interleaved_blocks(
            sides,
            2 if report.quick else BLOCKS,
            _SEED,
            turn_s=_TURN_S,
            least=1 if report.quick else _LEAST_STEPS,
            most=_MOST_STEPS,
            settle_s=_SETTLE_S,
        )
        ran = session.run([next(own) for _ in range(4)])
        predicted = session.predicted_bytes
    peak = ran.high_water_bytes or ran.peak_bytes
    theirs = module_peak(wanted, kernel_threads())
    report.bar(
        f"{name}: predicted peak memory is off by", 100 * abs(predicted / ran.peak_bytes - 1), "at most", 10, "%"
    )  # fmt: skip
    report.row(
        what="memory", model=name, tuned=peak, predicted=predicted, torch=theirs, ratio=peak / theirs
    )  # fmt: skip
    gains = {
        side: paired_speedup(times, seconds["tuned"], seed=_SEED)
        for side, times in seconds.items()
        if side != "tuned"
    }
    for side, times in seconds.items():
        over = gains.get(side)
        report.row(
            what="step", model=name, side=side, median_ms=1e3 * median(times), seconds=times,
            ratio=over and over.estimate, interval=over and over.ends, trials=result.trials,
        )  # fmt: skip
        reported = f" = {over.estimate:.3g}x ({over.low:.3g} to {over.high:.3g})" if over else ""
        print(f"{name}: {side} {1e3 * median(times):.4g} ms{reported}", flush=True)
    print(f"{name}: peak memory {peak / 1e6:.4g} MB, PyTorch's {theirs / 1e6:.4g} MB", flush=True)
    eager = [gains[side] for side in ("pytorch", "pytorch channels_last") if side in gains]
    return Comparison(
        min(eager, key=lambda one: one.estimate), gains.get("torch.compile"), peak / theirs
    )


def _own_seconds(session: StepSession, feeds: Iterator[Any], count: int) -> Sequence[float]:
    return session.run([next(feeds) for _ in range(count)]).seconds


def _turn_of(step: Callable[[int], Sequence[float]]) -> Turn:
    """Returns a turn that counts the median of its steps. `step` runs so many, and returns their seconds."""
    return lambda count: count * float(median(step(count)))


def _module_turn(side: ModuleSide, feeds: Iterator[Arrays]) -> Turn:
    return _turn_of(lambda count: [side.step(next(feeds))[1] for _ in range(count)])
