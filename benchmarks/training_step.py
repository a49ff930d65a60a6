"""The training step of the five CNNs: correctness, speed and memory, compared with PyTorch and MNN.

Tunes each model with `autotune kernels`, or takes finished runs from --runs. Then runs the tuned step, TVM's
default schedule of the plain step (channels first, not fused), PyTorch eager and MNN on the same weights and data,
interleaved. Needs torch 2.13.0; MNN's side needs MNN 3.6.1 and is left out without it.

`--speed` measures only speed, at the batch sizes of `--batches`, and adds torch.compile in both layouts. Its models
are tuned from the shipped records, with few trials. Records of another processor are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from common.against_torch import Compared, against_torch, slower_kernels
from common.bars import QUICK_TRIALS, Report, mean_bar, mean_ratio, positive, run, slowest_bar
from common.pytorch import torch
from common.torch_peak import torch_peak
from numpy.typing import NDArray

from autotune.compiler.step.step import StepSession, open_step
from autotune.compiler.step.tuned_runs import StepRuns, fitting_form, form_sizes, step_runs
from autotune.compiler.target.host import kernel_threads
from autotune.errors import UsageError
from autotune.measurement import Interval, median, paired_speedup
from autotune.records import MOVEMENT, Result, read_run, step_shares
from autotune.workloads import (
    Conv2d,
    StepForm,
    StepGraph,
    TrainingStep,
    batches,
    generated_samples,
    given_values,
    initial_values,
)
from autotune.workloads.capture.torch_step import TorchStep

MODELS = {
    "lenet": 600,
    "squeezenet1_1": 2500,
    "mobilenet_v2": 4500,
    "googlenet": 3500,
    "alexnet": 1500,
}
"""Trials of the models' runs that begin with no records."""
TRIALS_AFTER_RECORDS = {
    "lenet": 100,
    "squeezenet1_1": 150,
    "mobilenet_v2": 200,
    "googlenet": 200,
    "alexnet": 150,
}
"""Trials of the models' runs that begin with the shipped records."""
RECORDS = Path(__file__).parents[1] / "logs" / "samples" / "cpu-steps"
BATCH, SEED = 4, 1
SPEED_BATCHES = (4, 16)
LOSS_STEPS = 20
CLOSE = ("lenet", "alexnet")
ROUNDS = 12
DEFAULT_ROUNDS = 3
_SETTLE_S = 0.1
_STEPS_A_TURN = 5
Arrays = dict[str, NDArray[Any]]
Step = Callable[[int], tuple[float, float]]  # number of the step -> loss, seconds


class Data:
    """The batches that all sides train on."""

    def __init__(self, graph: StepGraph, count: int) -> None:
        samples = generated_samples(64, graph.sample_shape, graph.classes, SEED)
        found = batches(samples, graph.batch, SEED)
        self.batches = [next(found) for _ in range(count)]

    def given(self, graph: StepGraph, number: int) -> Arrays:
        """Returns the values given to a step graph in a step."""
        images, labels = self.batches[number % len(self.batches)]
        return given_values(graph, images, labels, SEED, number)


def timed(
    step: Any, graph: StepGraph, data: Data, order: Callable[[Any], Any] = lambda images: images
) -> Step:
    """Returns steps of PyTorch or MNN; their inputs are prepared before the clock starts, as on our side."""

    def one(number: int) -> tuple[float, float]:
        given = data.given(graph, number)
        masks = {name: array for name, array in given.items() if name.endswith(".mask")}
        images = order(given["input"])
        start = time.perf_counter()
        loss = step.step(images, given["labels"], masks)
        return loss, time.perf_counter() - start

    return one


def torch_side(
    graph: StepGraph, data: Data, dtype: torch.dtype, last: bool, *, compiled: bool = False
) -> Step:
    values = initial_values(graph, SEED)
    step = TorchStep(graph, values, dtype, channels_last=last, compiled=compiled)
    layout = torch.channels_last if last else torch.contiguous_format

    def order(images: NDArray[Any]) -> torch.Tensor:
        return torch.as_tensor(images, dtype=dtype).contiguous(memory_format=layout)

    return timed(step, graph, data, order)


def ours(session: StepSession, graph: StepGraph, data: Data) -> Step:
    def one(number: int) -> tuple[float, float]:
        times = session.run([data.given(graph, number)])
        return times.losses[0], times.seconds[0]

    return one


def run_of(model: str, report: Report, logs: Path, batch: int = BATCH) -> Path:
    """Returns a finished run of a model: one from --runs or of before, or a new one."""
    given = report.options.runs
    if given:
        found = finished(given, model, batch)
        if not found:
            raise UsageError(
                f"{given} has no run of {model}, batch {batch}, for the target cpu",
                hint=f"autotune kernels --target cpu --model {model} --batch {batch} --logs {given}",
            )
        return found[-1]
    if found := finished(logs, model, batch):
        return found[-1]
    if report.options.speed or report.quick:
        trials = TRIALS_AFTER_RECORDS[model]
        return tuned(report, model, logs, "--records", str(RECORDS), trials=trials, batch=batch)
    return tuned(report, model, logs, trials=MODELS[model], batch=batch)


def finished(logs: Path, model: str, batch: int) -> list[Path]:
    """Returns the finished runs of a model for this host's processor, the newest last."""
    found = []
    for folder in sorted(one.parent for one in logs.glob("*/result.json")):
        request = json.loads((folder / "run.json").read_text())["request"]
        what = (request["target"]["name"], request.get("workload"), request.get("batch"))
        if what == ("cpu", model, batch):
            found.append(folder)
    return found


def tuned(
    report: Report, model: str, logs: Path, *options: str, trials: int, batch: int = BATCH
) -> Path:
    """Returns the folder of a new run of a model."""
    command = [sys.executable, "-m", "autotune", "kernels", "--model", model, "--batch", str(batch)]
    command += ["--logs", str(logs), "--no-step", *options]
    command += ["--trials", str(QUICK_TRIALS if report.quick else trials)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return finished(logs, model, batch)[-1]


def mnn_side(graph: StepGraph, data: Data, threads: int) -> Step | None:
    if importlib.util.find_spec("MNN") is None:
        print("MNN is not installed: its side is left out (pip install MNN==3.6.1)")
        return None
    from common.mnn_step import MnnStep

    return timed(MnnStep(graph, initial_values(graph, SEED), threads=threads), graph, data)


def interleaved(sides: dict[str, Step], rounds: dict[str, int]) -> dict[str, list[float]]:
    """Returns each side's seconds of a step, in rounds of random order after three warm-up steps."""
    order = random.Random(SEED)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name, step in sides.items():
        for number in range(3 if rounds[name] > DEFAULT_ROUNDS else 1):
            step(number)
    for number in range(max(rounds.values())):
        names = [name for name in sides if number < rounds[name]]
        order.shuffle(names)
        for name in names:
            time.sleep(_SETTLE_S)  # the threads of the previous side still spin
            sides[name](number)  # the first step of a turn finds cold caches
            turn = [sides[name](number)[1] for _ in range(_STEPS_A_TURN)]
            seconds[name].append(median(turn))
    return seconds


def ratio(theirs: Sequence[float], mine: Sequence[float]) -> Interval:
    """Returns how many times as long theirs takes, paired by rounds; one side may have fewer rounds."""
    count = min(len(theirs), len(mine))
    return paired_speedup(theirs[:count], mine[:count], seed=SEED)


def in_words(found: Interval) -> str:
    """Formats a ratio with its 95 % interval, such as "1.5x (1.4 to 1.6)"."""
    return f"{found.estimate:.3g}x ({found.low:.3g} to {found.high:.3g})"


def check_losses(report: Report, model: str, runs: StepRuns) -> None:
    """Compares our losses with PyTorch's in float32 and float64, over 20 steps from the same weights and data."""
    steps = 3 if report.quick else LOSS_STEPS
    wanted = TrainingStep(model, BATCH)
    graph, plain = wanted.graph(StepForm("channels_last")), wanted.plain()[0]
    data = Data(plain, steps)
    with (
        runs.library(graph) as library,
        open_step(graph, library, initial_values(graph, SEED)) as session,
    ):
        mine = session.run([data.given(graph, number) for number in range(steps)]).losses
    single = torch_side(plain, data, torch.float32, last=False)
    double = torch_side(plain, data, torch.float64, last=False)
    theirs = [single(number)[0] for number in range(steps)]
    truth = [double(number)[0] for number in range(steps)]
    report.row(what="losses", model=model, tuned=list(mine), torch32=theirs, torch64=truth)
    if model in CLOSE:
        worst = max(abs(a - b) / abs(b) for a, b in zip(mine, theirs, strict=True))
        report.bar(
            f"{model}: largest relative difference to PyTorch's loss", worst, "at most", 1e-3, ""
        )
        return
    distance = max(abs(a - t) for a, t in zip(mine, truth, strict=True))
    allowed = max(abs(b - t) for b, t in zip(theirs, truth, strict=True))
    report.row(what="distance to float64", model=model, tuned=distance, torch=allowed)
    report.bar(
        f"{model}: distance to float64 over PyTorch float32's",
        distance / allowed,
        "at most",
        2,
        "x",
    )


def check_batches(report: Report, model: str, runs: StepRuns) -> None:
    """Runs the step at batch 1, 4 and 16, and compares loss and update with PyTorch's.

    The first loss is compared with that of float32 PyTorch. The update of all parameters, as one vector, is
    compared with that of float64 PyTorch. Its distance must be at most twice that of float32 PyTorch (or of 1e-5,
    if that is more). With batch norm the distance is shown but not judged. PyTorch's float32 version sums in
    float64 there, and at these batch sizes the many normalisations amplify rounding errors, on both sides, to
    several per cent of the update.
    """
    normalised = any(
        n.kernel.operator.name == "batch_norm" for n in TrainingStep(model, 1).plain()[0].nodes
    )
    worst = furthest = 0.0
    for batch in (1, BATCH, 16):
        wanted = TrainingStep(model, batch)
        graph, plain = wanted.graph(StepForm("channels_last")), wanted.plain()[0]
        data, values = Data(plain, 1), initial_values(plain, SEED)
        names = [tensor.name for tensor in plain.parameters]
        with (
            runs.library(graph) as library,
            open_step(graph, library, initial_values(graph, SEED)) as session,
        ):
            (mine,) = session.run([data.given(graph, 0)]).losses
            updated = session.read(names)
        single, double = (TorchStep(plain, values, d) for d in (torch.float32, torch.float64))
        theirs, _ = timed(single, plain, data)(0)
        timed(double, plain, data)(0)
        truth = double.parameters()
        moved = math.sqrt(sum(np.sum((truth[n] - values[n]) ** 2) for n in names))
        ours_off, theirs_off = (
            math.sqrt(sum(np.sum((one[n] - truth[n]) ** 2) for n in names)) / moved
            for one in (updated, single.parameters())
        )
        worst = max(worst, abs(mine - theirs) / abs(theirs))
        furthest = max(furthest, ours_off / max(theirs_off, 1e-5))
        report.row(
            what="batch", model=model, batch=batch, tuned=mine, torch=theirs, update_error=ours_off,
            torch_update_error=theirs_off,
        )  # fmt: skip
    report.bar(
        f"{model}: batch 1, 4, 16: largest relative difference in loss", worst, "at most", 1e-3, ""
    )
    name = f"{model}: batch 1, 4, 16: update's distance to float64 over PyTorch float32's"
    if normalised:
        print(f"{name}: {furthest:.3g} x")
    else:
        report.bar(name, furthest, "at most", 2, "x")


def memory_limits(report: Report, found: dict[str, StepRuns]) -> None:
    """Tests random memory limits around the needs of the forms.

    Every other limit is less than 1 % above the predicted need of a form. No limit may be exceeded, and none
    refused if a form fits.
    """
    order = random.Random(SEED)
    broken = refused_wrongly = 0
    count = 2 if report.quick else 20
    names = list(found)
    needs: dict[str, list[int]] = {}
    for number in range(count):
        model = names[number % len(names)]
        wanted, runs = TrainingStep(model, BATCH), found[model]
        if model not in needs:
            needs[model] = [size for _, _, size in form_sizes(wanted, runs, "channels_last")]
        tight = number % 2 == 1
        least, most = (1.0, 1.01) if tight else (0.9 * min(needs[model]), 1.2 * needs[model][0])
        limit = math.ceil(order.uniform(least, most) * (order.choice(needs[model]) if tight else 1))
        try:
            form, graph = fitting_form(wanted, runs, ["channels_last"], limit)
        except UsageError as refused:
            refused_wrongly += limit >= min(needs[model])
            report.row(what="memory limit", model=model, limit=limit, refused=str(refused))
            print(f"{model}: limit {limit / 1e6:.4g} MB: no form fits", flush=True)
            continue
        data = Data(wanted.plain()[0], 2)
        with (
            runs.library(graph) as library,
            open_step(graph, library, initial_values(graph, SEED)) as session,
        ):
            peak = session.run([data.given(graph, step) for step in range(2)]).peak_bytes
        broken += peak > limit
        report.row(
            what="memory limit", model=model, limit=limit, peak=peak, micro_batches=form.micro_batches,
            segments=form.segments,
        )  # fmt: skip
        chosen = f"{form.micro_batches} parts, {form.segments} segments"
        print(
            f"{model}: limit {limit / 1e6:.4g} MB, {chosen}: peak {peak / 1e6:.4g} MB", flush=True
        )
    report.bar(f"random memory limits that were broken, of {count}", broken, "at most", 0, "limits")
    report.bar("limits refused although a form fits", refused_wrongly, "at most", 0, "limits")


def movement_share(result: Result) -> float:
    """Returns the share of a step's time that is spent on data movement."""
    shares = step_shares(result)
    return sum(s.ms for s in shares if s.role == MOVEMENT) / sum(s.ms for s in shares)


def measure_model(report: Report, model: str, folder: Path) -> tuple[float, StepRuns]:
    result = read_run(folder).kernel_result()
    report.bar(f"{model}: tuning", result.wall_s / 60, "at most", 45, "min")
    report.bar(
        f"{model}: data movement", 100 * movement_share(result), "at most", 20, "% of the step"
    )
    wanted = TrainingStep(model, BATCH)
    graph, plain = wanted.graph(StepForm("channels_last")), wanted.plain()[0]
    runs, untuned = step_runs([folder]), step_runs([]).as_untuned()
    data = Data(plain, LOSS_STEPS)
    threads = kernel_threads()
    torch.set_num_threads(threads)
    check_losses(report, model, runs)
    with ExitStack() as opened:
        library = opened.enter_context(runs.library(graph))
        values = initial_values(graph, SEED)
        session = opened.enter_context(open_step(graph, library, values))
        simple = opened.enter_context(untuned.library(plain))
        default = opened.enter_context(open_step(plain, simple, initial_values(plain, SEED)))
        sides: dict[str, Step] = {
            "tuned": ours(session, graph, data),
            "default": ours(default, plain, data),
            "pytorch": torch_side(plain, data, torch.float32, last=False),
            "pytorch channels_last": torch_side(plain, data, torch.float32, last=True),
        }
        mnn = mnn_side(plain, data, threads)
        if mnn is not None:
            sides["mnn"] = mnn
        rounds = dict.fromkeys(sides, 2 if report.quick else ROUNDS)
        rounds["default"] = 1 if report.quick else DEFAULT_ROUNDS
        seconds = interleaved(sides, rounds)
        ran = session.run([data.given(graph, number) for number in range(4)])
        peak, high_water = ran.peak_bytes, ran.high_water_bytes or ran.peak_bytes
        predicted = session.predicted_bytes
        compared = against_torch(report, model, graph, plain, library)
    medians = {name: 1e3 * median(times) for name, times in seconds.items()}
    print(
        f"{model}: " + ", ".join(f"{name} {ms:.4g} ms" for name, ms in medians.items()), flush=True
    )
    for name, times in seconds.items():
        report.row(what="step", model=model, side=name, median_ms=medians[name], seconds=times)
    fused_ms = result.step_ms(tuned=False)
    report.row(
        what="default schedule of the fused, channels-last kernels, summed",
        model=model,
        ms=fused_ms,
    )
    print(
        f"{model}: the tuned step's own kernels with the default schedule take {fused_ms:.4g} ms in sum"
    )
    off = 100 * abs(predicted / peak - 1)
    report.bar(f"{model}: predicted peak memory is off by", off, "at most", 10, "%")
    theirs = torch_peak(model, BATCH, threads)
    report.row(
        what="peak memory", model=model, tuned=peak, predicted=predicted, high_water=high_water, torch=theirs
    )  # fmt: skip
    # Both are the kernel's high-water mark, four steps after the first values.
    report.bar(f"{model}: peak memory over PyTorch's", high_water / theirs, "at most", 1, "x")
    check_batches(report, model, runs)
    slower_kernels(model, compared)
    for name in seconds:
        if name != "tuned":
            found = ratio(seconds[name], seconds["tuned"])
            report.row(
                what="ratio", model=model, side=name, ratio=found.estimate, interval=found.ends
            )
            print(f"{model}: {name} over tuned: {in_words(found)}")
    return medians["default"] / medians["tuned"], runs


def speed_of(
    report: Report, model: str, batch: int, folder: Path
) -> tuple[dict[str, Interval], list[Compared]]:
    """Returns the tuned step's speed-up over each other side, and its kernels compared with PyTorch's."""
    wanted = TrainingStep(model, batch)
    graph, plain = wanted.graph(StepForm("channels_last")), wanted.plain()[0]
    runs, data = step_runs([folder]), Data(plain, 4)
    torch._dynamo.reset()  # PyTorch compiles a function for a few models only, and then runs it eagerly.
    with ExitStack() as opened:
        library = opened.enter_context(runs.library(graph))
        session = opened.enter_context(open_step(graph, library, initial_values(graph, SEED)))
        sides: dict[str, Step] = {
            "tuned": ours(session, graph, data),
            "pytorch": torch_side(plain, data, torch.float32, last=False),
            "pytorch channels_last": torch_side(plain, data, torch.float32, last=True),
            "torch.compile": torch_side(plain, data, torch.float32, last=False, compiled=True),
            "torch.compile channels_last": torch_side(
                plain, data, torch.float32, last=True, compiled=True
            ),
        }
        mnn = mnn_side(plain, data, kernel_threads())
        if mnn is not None:
            sides["mnn"] = mnn
        seconds = interleaved(sides, dict.fromkeys(sides, 2 if report.quick else ROUNDS))
        compared = against_torch(report, f"{model}, batch {batch}", graph, plain, library)
    found = {name: ratio(times, seconds["tuned"]) for name, times in seconds.items()}
    for name, times in seconds.items():
        report.row(
            what="step", model=model, batch=batch, side=name, median_ms=1e3 * median(times),
            ratio=found[name].estimate, interval=found[name].ends, seconds=times,
        )  # fmt: skip
    print(f"{model}, batch {batch}:")
    for name, times in seconds.items():
        over = "" if name == "tuned" else f" = {in_words(found[name])}"
        print(f"     {name} {1e3 * median(times):.4g} ms{over}", flush=True)
    return found, compared


def speed(report: Report, models: Sequence[str], logs: Path) -> None:
    """Compares tuned steps with PyTorch and MNN at each batch size; new runs go into a folder."""
    batches = report.options.batches or ((BATCH,) if report.quick else SPEED_BATCHES)
    gains: dict[str, dict[str, Interval]] = {}
    tuning = dict.fromkeys(models, 0.0)
    moving, filters = [], []
    torch.set_num_threads(kernel_threads())
    # Collects all runs first, so that a missing run is reported before anything is timed.
    folders = [
        (model, batch, run_of(model, report, logs, batch)) for model in models for batch in batches
    ]
    report.row(
        what="versions", torch=torch.__version__, threads=kernel_threads(),
        mnn=version("MNN") if importlib.util.find_spec("MNN") else None,
    )  # fmt: skip
    for model, batch, folder in folders:
        result = read_run(folder).kernel_result()
        tuning[model] += result.wall_s / 60
        report.row(
            what="run", model=model, batch=batch, trials=result.trials,
            records=asdict(result.records) if result.records else None, minutes=result.wall_s / 60,
        )  # fmt: skip
        if result.records:
            print(f"{model}, batch {batch}: tuned from {result.records}")
        moving.append(movement_share(result))
        found, compared = speed_of(report, model, batch, folder)
        for side, ratio in found.items():
            gains.setdefault(side, {})[f"{model}, batch {batch}"] = ratio
        slower_kernels(f"{model}, batch {batch}", compared)
        filters += [
            one.ratio
            for one in compared
            if one.task.kernel.role == "weight_grad"
            and isinstance(one.natural, Conv2d) and one.natural.groups == 1
        ]  # fmt: skip
    eager = gains["pytorch"]
    slowest_bar(report, "against PyTorch eager", eager, 1)
    mean_bar(report, "against PyTorch eager", eager, 1.3)
    for sides, begins in (
        ("PyTorch eager's layouts", ("pytorch",)),
        ("torch.compile's layouts", ("torch.compile",)),
        ("all four", ("pytorch", "torch.compile")),
    ):
        some = [gains[side] for side in gains if side.startswith(begins)]
        gains[f"the fastest of {sides}"] = {
            step: min((one[step] for one in some), key=lambda ratio: ratio.estimate)
            for step in eager
        }
    for side, ratios in gains.items():
        if side != "tuned":
            show_means(report, side, ratios)
    report.bar("sides not compared", int("mnn" not in gains), "at most", 0, "")
    if "mnn" in gains:
        mean_bar(report, "against MNN", gains["mnn"], 2.5)
    longest = max(tuning, key=lambda model: tuning[model])
    batches_named = " and ".join(map(str, batches))
    report.bar(
        f"longest tuning of a model, all of batch {batches_named}: {longest}",
        tuning[longest], "at most", 90, "min",
    )  # fmt: skip
    report.bar(
        "weight gradients of dense convolutions against PyTorch's, geometric mean",
        geometric_mean(filters), "at least", 1, "x",
    )  # fmt: skip
    report.bar("most data movement", 100 * max(moving), "at most", 10, "% of the step")


def show_means(report: Report, side: str, ratios: dict[str, Interval]) -> None:
    """Shows geometric means over all steps, and without LeNet's, whose small kernels gain most."""
    larger = [one for step, one in ratios.items() if not step.startswith("lenet")]
    for what, some in (("all", list(ratios.values())), ("without LeNet", larger)):
        if some:
            mean, ends = mean_ratio(some)
            report.row(what="geometric mean", side=side, steps=what, ratio=mean, interval=ends)
            print(f"against {side}, {what}: {mean:.3g}x ({ends[0]:.3g} to {ends[1]:.3g})")


def measure(report: Report) -> None:
    models: Sequence[str] = report.options.models or (["lenet"] if report.quick else list(MODELS))
    gains: list[float] = []
    found: dict[str, StepRuns] = {}
    with tempfile.TemporaryDirectory() as logs:
        if report.options.speed or report.quick:
            speed(report, models, Path(logs))
        if report.options.speed:
            return
        for model in models:
            gain, found[model] = measure_model(report, model, run_of(model, report, Path(logs)))
            gains.append(gain)
            report.row(what="gain over the default schedule", model=model, ratio=gain)
            print(f"{model}: {gain:.3g}x TVM's default schedule", flush=True)
        if "squeezenet1_1" in found:  # 1.0 with 1.1's kernels, others with the default schedule
            check_losses(report, "squeezenet1_0", found["squeezenet1_1"])
            check_batches(report, "squeezenet1_0", found["squeezenet1_1"])
        memory_limits(report, found)
    overall = geometric_mean(gains)
    report.bar(
        "tuned step over TVM's default schedule, geometric mean", overall, "at least", 6, "x"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, metavar="DIR", help="take finished runs from here")
    parser.add_argument("--speed", action="store_true", help="speed alone")
    parser.add_argument(
        "--batches", nargs="+", type=positive(int), metavar="N",
        help="batch sizes of --speed; 4 and 16 by default",
    )  # fmt: skip
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="only these")


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
