"""Training steps of the models in examples/: right, and how fast beside PyTorch.

Tunes each model with `autotune kernels` for this processor, or takes finished runs from --runs. Then compares the
tuned step with PyTorch's on the same weights and data: the losses of 20 steps, the time of a step in interleaved
blocks (PyTorch eager in both layouts, torch.compile), and the peak memory. With --transfer, only the last blocks of
MobileNetV2 and ResNet-18 train; with --frozen-eval, their frozen layers are in evaluation mode on both sides. Needs
torch 2.13.0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from bars import QUICK_TRIALS, Report, mean_ratio, positive, run
from interleaved import Turn, interleaved_blocks
from module_step import ModuleSide, given_masks, in_own_shapes, module_peak
from pytorch import torch

from autotune.compiler.step.step import StepSession, open_step
from autotune.compiler.step.tuned_runs import StepRuns, step_runs
from autotune.compiler.target.host import kernel_threads
from autotune.measurement import Interval, median, paired_speedup
from autotune.records import read_run
from autotune.workloads import StepForm, StepGraph, TrainingStep, generated_feeds
from autotune.workloads.capture.user_step import FROZEN_EVAL

EXAMPLES = Path(__file__).parents[1] / "examples"
MODELS = {
    "cifar_nets.py": (
        "densenet_40_12", "resnet_50", "squeezenet", "vgg_16", "xception", "inception_v1", "alexnet", "resnet_18",
    ),
    "sequences.py": ("char_cnn", "ds_cnn", "sensors", "lstm", "gru"),
    "steps.py": ("dcgan", "deep_q", "unet"),
    "mobile_nets.py": ("mobilenet_v3_small", "efficientnet_lite0", "shufflenet_v2"),
}  # fmt: skip
TRANSFER = {
    "resnet_18": ("layers.7.*", "layers.8.*", "layers.9.*"),
    "mobilenet_v2": ("layers.16.*", "layers.17.*", "layers.18.*", "layers.22.*"),
}
"""Parameters of the last two blocks and of what follows them."""
QUICK = ("sensors",)
BATCH, SEED = 4, 1
LOSS_STEPS = 20
BLOCKS = 12
_TURN_S, _LEAST_STEPS, _MOST_STEPS = 0.2, 5, 20
_SETTLE_S = 0.1
_ROUNDING = 1e-6
"""Distance to float64, relative to the loss, that any float32 program may have."""


def step_of(name: str, *, transfer: bool, frozen_eval: bool = False) -> TrainingStep:
    """Returns the training step of a model."""
    files = {one: file for file, names in MODELS.items() for one in names}
    file = files.get(name, "mobile_nets.py")
    train = TRANSFER[name] if transfer else ()
    train += (FROZEN_EVAL,) if frozen_eval else ()
    return TrainingStep(f"{EXAMPLES / file}:{name}", BATCH, train=train)


def run_of(report: Report, name: str, wanted: TrainingStep, logs: Path) -> Path:
    """Returns the newest finished run of a step, or tunes it."""
    given = report.options.runs
    kind = "-frozen-eval" if FROZEN_EVAL in wanted.train else "-transfer"
    folder = (given or logs) / (f"{name}{kind}" if wanted.train else name)
    found = sorted(one.parent for one in folder.glob("*/result.json"))
    if not found:
        trials = QUICK_TRIALS if report.quick else report.options.trials
        command = [
            sys.executable,
            "-m",
            "autotune",
            "kernels",
            "--model",
            wanted.model,
            "--batch",
            str(BATCH),
        ]
        command += [part for one in wanted.train for part in ("--train", one)]
        command += ["--trials", str(trials), "--logs", str(folder), "--no-step"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = sorted(one.parent for one in folder.glob("*/result.json"))
    return found[-1]


def check_losses(
    report: Report, name: str, wanted: TrainingStep, graph: StepGraph, session: StepSession
) -> None:
    """Compares the losses of some steps with PyTorch's, in float32 and float64."""
    steps = 3 if report.quick else LOSS_STEPS
    values = in_own_shapes(graph, wanted.values(graph, SEED))
    feeds = generated_feeds(graph, SEED)
    given = [next(feeds) for _ in range(steps)]
    mine = session.run(given).losses
    single, double = (ModuleSide(wanted, values, kind) for kind in (torch.float32, torch.float64))
    theirs: list[float] = []
    truth: list[float] = []
    for one in given:
        plain = in_own_shapes(graph, one)
        for side, losses in ((single, theirs), (double, truth)):
            with given_masks(plain):
                losses.append(side.step(plain)[0])
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


def turn_of(step: Callable[[int], Sequence[float]]) -> Turn:
    """Returns a turn that counts the median of its steps. `step` runs so many, and returns their seconds."""
    return lambda count: count * float(median(step(count)))


def module_turn(side: ModuleSide, feeds: Any) -> Turn:
    return turn_of(lambda count: [side.step(next(feeds))[1] for _ in range(count)])


def measure_model(
    report: Report, name: str, wanted: TrainingStep, folder: Path
) -> dict[str, Interval]:
    """Checks and times one model; returns the tuned step's speed-up over each side."""
    result = read_run(folder).kernel_result()
    report.bar(f"{name}: tuning", result.wall_s / 60, "at most", 20, "min")
    runs: StepRuns = step_runs([folder])
    graph = wanted.graph(StepForm("channels_last"))
    torch._dynamo.reset()
    with ExitStack() as opened:
        library = opened.enter_context(runs.library(graph))
        values = wanted.values(graph, SEED)
        session = opened.enter_context(open_step(graph, library, values))
        check_losses(report, name, wanted, graph, session)
        own = generated_feeds(graph, SEED)
        plain = (in_own_shapes(graph, one) for one in generated_feeds(graph, SEED))
        sides = {
            "tuned": turn_of(lambda count: session.run([next(own) for _ in range(count)]).seconds),
            "pytorch": module_turn(ModuleSide(wanted), plain),
            "pytorch channels_last": module_turn(ModuleSide(wanted, last=True), plain),
        }
        if not report.options.no_compile:
            sides["torch.compile"] = module_turn(ModuleSide(wanted, compiled=True), plain)
        seconds = interleaved_blocks(
            sides,
            2 if report.quick else BLOCKS,
            SEED,
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
        what="memory",
        model=name,
        tuned=peak,
        predicted=predicted,
        torch=theirs,
        ratio=peak / theirs,
    )
    found = {
        side: paired_speedup(times, seconds["tuned"], seed=SEED)
        for side, times in seconds.items()
        if side != "tuned"
    }
    found["faster layout"] = min(
        (found["pytorch"], found["pytorch channels_last"]), key=lambda one: one.estimate
    )
    for side, times in seconds.items():
        over = found.get(side)
        report.row(
            what="step", model=name, side=side, median_ms=1e3 * median(times), seconds=times,
            ratio=over and over.estimate, interval=over and over.ends, trials=result.trials,
        )  # fmt: skip
        told = f" = {over.estimate:.3g}x ({over.low:.3g} to {over.high:.3g})" if over else ""
        print(f"{name}: {side} {1e3 * median(times):.4g} ms{told}", flush=True)
    print(f"{name}: peak memory {peak / 1e6:.4g} MB, PyTorch's {theirs / 1e6:.4g} MB", flush=True)
    return found


def bars_of(
    report: Report, gains: dict[str, dict[str, Interval]], memory: Sequence[float], transfer: bool
) -> None:
    """Adds the bars over all models."""
    eager = {name: one["faster layout"] for name, one in gains.items()}
    slowest = min(eager, key=lambda name: eager[name].estimate)
    if transfer:
        report.bar(
            f"training the last blocks against PyTorch eager's faster layout, slowest: {slowest}",
            eager[slowest].estimate, "at least", 2, "x", interval=(eager[slowest].low, eager[slowest].high),
        )  # fmt: skip
        report.bar("largest peak memory over PyTorch's", max(memory), "at most", 0.5, "x")
        return
    mean, ends = mean_ratio(list(eager.values()))
    report.bar(
        f"against PyTorch eager's faster layout, geometric mean of {len(eager)}", mean, "at least", 1.5, "x",
        interval=ends,
    )  # fmt: skip
    report.bar(
        f"against PyTorch eager's faster layout, slowest: {slowest}", eager[slowest].estimate, "at least", 1, "x",
        interval=(eager[slowest].low, eager[slowest].high),
    )  # fmt: skip
    compiled = [one["torch.compile"] for one in gains.values() if "torch.compile" in one]
    if compiled:
        mean, ends = mean_ratio(compiled)
        report.bar(
            f"against torch.compile, geometric mean of {len(compiled)}", mean, "at least", 1.3, "x", interval=ends
        )  # fmt: skip
    report.bar(
        "peak memory over PyTorch's, geometric mean",
        float(np.exp(np.mean(np.log(memory)))), "at most", 0.8, "x",
    )  # fmt: skip


def measure(report: Report) -> None:
    frozen_eval = report.options.frozen_eval
    transfer = report.options.transfer or frozen_eval
    known = list(TRANSFER) if transfer else [name for names in MODELS.values() for name in names]
    names = report.options.models or (QUICK if report.quick and not transfer else known)
    torch.set_num_threads(kernel_threads())
    gains: dict[str, dict[str, Interval]] = {}
    with tempfile.TemporaryDirectory() as logs:
        for name in names:
            wanted = step_of(name, transfer=transfer, frozen_eval=frozen_eval)
            folder = run_of(report, name, wanted, Path(logs))
            gains[name] = measure_model(report, name, wanted, folder)
    memory = [row["ratio"] for row in report.rows if row["what"] == "memory"]
    bars_of(report, gains, memory, transfer)


def add_options(parser: argparse.ArgumentParser) -> None:
    names = sorted({*TRANSFER, *(name for some in MODELS.values() for name in some)})
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
    parser.add_argument("--transfer", action="store_true", help="train the last blocks alone")
    parser.add_argument(
        "--frozen-eval", action="store_true", help="the same, with frozen layers in evaluation mode"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
