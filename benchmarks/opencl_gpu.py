"""Training kernels on a GPU through OpenCL, compared with stock MetaSchedule, CLBlast, and cuBLAS or cuDNN.

The kernels are convolutions of the five CNNs and matmuls at batch 16, in every role, in float32. Ours and stock's
are tuned with the same number of trials. Then all sides are timed in one run, in interleaved blocks, and every
result is checked against float64. A turn launches a kernel until it has filled some milliseconds, and waits for the
last launch. PyTorch's turns are CUDA graphs with TF32 off, in the faster layout. CLBlast computes convolutions as
im2col and GEMM, in the faster of two ways. It has no groups, so it is not compared on depthwise convolutions.

Tuning takes long: `--runs DIR` keeps the runs, and a later call reuses them. `--records FILE` takes missing runs of
ours from records of such runs on the same device, and tunes only the kernels that the records do not contain. With
`--teach FILE`, each of our searches starts with records of other layers (`autotune kernels --records`), and the
report says so; stock has no equivalent. `--pocl` instead tests whether the same spaces beat TVM's default schedule
on SqueezeNet 1.1's training step with this host's OpenCL. This is also the behaviour on a host whose OpenCL has no
GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import geometric_mean
from typing import Any

import numpy as np
from common import stock_search
from common.bars import QUICK_TRIALS, Report, mean_bar, mean_ratio, positive, run, slowest_bar
from common.clblast import ClBlast
from common.clblast import available as clblast_available
from common.interleaved import Turn, exported, finished_run, interleaved_blocks, tuning, turn_of
from numpy.typing import NDArray

from autotune.compiler.native import opencl_sidecar
from autotune.compiler.programs.candidate import Candidate
from autotune.compiler.programs.scheduled import replayed
from autotune.compiler.run.experience import experiences
from autotune.compiler.run.warm_start import MOST_TAUGHT
from autotune.compiler.runners.builder import Builder, BuildRequest, target_text
from autotune.compiler.runners.device_limits import with_device_limits
from autotune.compiler.runners.local_devices import runner_for
from autotune.compiler.runners.reference_data import TOLERANCE
from autotune.compiler.target import spaces, targets
from autotune.compiler.target.host import cores
from autotune.compiler.target.request import TuneRequest
from autotune.errors import RecordError, UsageError
from autotune.measurement import Interval, median, paired_speedup
from autotune.records import read_run
from autotune.records.database import Database, spread
from autotune.records.database_file import read_database, write_database
from autotune.workloads import (
    Kernel,
    Matmul,
    max_relative_error,
    parse_kernel,
    random_inputs,
)

TRIALS = 256
BLOCKS = 11
_KNEW = "{} began with schedules of its own kernel, which no search of stock's did: remove it"
_PATIENCE_S = 3600
_GRAPH = 10  # calls of PyTorch in a CUDA graph
UNENDED = "unended search of stock"
ROLES = ("forward", "data_grad", "weight_grad")
SHAPES = {
    "matmul 512": "matmul:m=512,n=512,k=512",
    "matmul 1024": "matmul:m=1024,n=1024,k=1024",
    "matmul 2048": "matmul:m=2048,n=2048,k=2048",
    "AlexNet's first fully connected layer": "matmul:m=16,n=4096,k=9216",
    "AlexNet's second": "matmul:m=16,n=4096,k=4096",
    "AlexNet's third": "matmul:m=16,n=1000,k=4096",
    "3x3, GoogLeNet": "conv2d:n=16,c=64,h=56,w=56,k=192,r=3,s=3,stride=1,pad=1",
    "3x3, SqueezeNet": "conv2d:n=16,c=16,h=55,w=55,k=64,r=3,s=3,stride=1,pad=1",
    "1x1, GoogLeNet": "conv2d:n=16,c=192,h=28,w=28,k=64,r=1,s=1,stride=1,pad=0",
    "5x5, AlexNet": "conv2d:n=16,c=64,h=27,w=27,k=192,r=5,s=5,stride=1,pad=2",
    "11x11 stride 4, AlexNet": "conv2d:n=16,c=3,h=224,w=224,k=64,r=11,s=11,stride=4,pad=2",
    "7x7 stride 2, GoogLeNet": "conv2d:n=16,c=3,h=224,w=224,k=64,r=7,s=7,stride=2,pad=3",
    "depthwise, MobileNetV2": "conv2d:n=16,c=144,h=56,w=56,k=144,r=3,s=3,stride=1,pad=1,groups=144",
    "depthwise stride 2, MobileNetV2": "conv2d:n=16,c=144,h=56,w=56,k=144,r=3,s=3,stride=2,pad=1,groups=144",
}
QUICK = {
    "matmul": "matmul:m=16,n=32,k=32",
    "3x3": "conv2d:n=2,c=4,h=8,w=8,k=8,r=3,s=3,stride=1,pad=1",
}
_WRONG = 1e-2
"""Relative error above which a library's kernel is not compared."""
Array = NDArray[Any]


def kernels(quick: bool) -> dict[str, Kernel]:
    """Returns all kernels by their names in the rows."""
    found = {}
    for name, spec in (QUICK if quick else SHAPES).items():
        forward_only = quick or name.startswith("matmul ")
        for role in ROLES[:1] if forward_only else ROLES:
            found[f"{name}, {role}"] = parse_kernel(spec, role)
    return found


def trials_of(report: Report) -> int:
    return QUICK_TRIALS if report.quick else TRIALS


def on_cards(
    search: Callable[[str, int | None], None],
    names: Iterable[str],
    cards: Sequence[int | None],
    each: int,
) -> None:
    """Searches for every name, `each` at a time on each NVIDIA card; None is OpenCL's first device."""
    places = [*cards] * each
    free: SimpleQueue[int | None] = SimpleQueue()
    for place in places:
        free.put(place)

    def one(name: str) -> None:
        card = free.get()
        try:
            search(name, card)
        finally:
            free.put(card)

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(one, names))


def patiently(command: Sequence[str], card: int | None) -> None:
    """Runs a child process on a card. A failure or timeout is reported, and the kernel stays untuned."""
    environment = dict(os.environ)
    if card is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(card)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, env=environment
        )
    except subprocess.TimeoutExpired:
        print(f"given up after {_PATIENCE_S} s: {shlex.join(command[1:])}", flush=True)
        return
    if done.returncode != 0:
        print(f"failed: {shlex.join(command[1:])}: {done.stderr.strip()[-500:]}", flush=True)


def tune(
    wanted: dict[str, Kernel], known: dict[str, Candidate], report: Report, runs: Path
) -> None:
    """Makes the runs that neither the folder nor the records contain, while time remains; ours first.

    A card has one search of ours at a time. Stock's searches are long and measure little: `--jobs` of them run on a
    card and measure one at a time. Each has twice its share of the cores, since it waits for the device in between.
    """
    trials = trials_of(report)
    minutes, jobs, cards = report.options.minutes, report.options.jobs, report.options.cards
    until = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    workers = max(1, min(cores(), 2 * cores() // (jobs * len(cards))))

    teach = report.options.teach
    records = read_database(teach) if teach and "ours" in report.options.sides else None

    def ours(name: str, card: int | None) -> None:
        kernel = wanted[name]
        logs = runs / "ours" / kernel.name
        if finished_run(logs, trials) is None and time.monotonic() < until:
            began = time.monotonic()
            shutil.rmtree(logs, ignore_errors=True)
            lessons = None
            if records is not None:
                lessons = runs / "lessons" / f"{kernel.name}.records.gz"
                write_database(lessons, of_other_layers(records, kernel))
            patiently(tuning(kernel, "opencl", trials, logs, lessons), card)
            print(f"ours, {name}: {time.monotonic() - began:.0f} s", flush=True)

    def stock(name: str, card: int | None) -> None:
        folder = runs / "stock" / wanted[name].name
        if stock_search.recorded(folder, trials) is None and time.monotonic() < until:
            began = time.monotonic()
            lock = runs / f"device-{card or 0}.lock"
            patiently(
                stock_search.command(
                    __file__, "opencl", wanted[name], trials, workers, folder, lock
                ),
                card,
            )
            print(f"stock, {name}: {time.monotonic() - began:.0f} s", flush=True)

    if "ours" in report.options.sides:
        on_cards(ours, [name for name in wanted if name not in known], cards, 1)
    if "stock" in report.options.sides:
        on_cards(stock, reversed(tuple(wanted)), cards, jobs)  # the longest first


def of_other_layers(records: Database, kernel: Kernel) -> Database:
    """Returns what a search may learn from records: everything but the kernel's own layer, in any role."""
    learnt = [
        one
        for known in experiences([], records).known.values()
        if known.kernel.operator != kernel.operator  # whatever follows the operator
        for name in known.formulations
        for one in spread(known.of(name), MOST_TAUGHT)
    ]
    return Database.of(records.sources.values(), learnt)


def libraries_of(
    wanted: dict[str, Kernel], trials: int, runs: Path, out: Path
) -> dict[str, tuple[Path, str]]:
    """Returns our winners as libraries, with their symbols."""
    found = {
        name: finished_run(runs / "ours" / kernel.name, trials) for name, kernel in wanted.items()
    }
    tuned = {name: folder for name, folder in found.items() if folder is not None}
    with ThreadPoolExecutor(cores()) as pool:
        made = pool.map(lambda name: exported(tuned[name], out / wanted[name].name), tuned)
        return {name: (path, wanted[name].name) for name, path in zip(tuned, made, strict=True)}


def had_records(logs: Path, trials: int) -> bool:
    """Returns whether the search of a compared kernel started with records.

    Raises:
        UsageError: The records contained schedules of the kernel itself.
    """
    path = finished_run(logs, trials)
    if path is None:
        return False
    run = read_run(path)
    if run.knew():
        raise UsageError(_KNEW.format(path))
    return any(event["event"] == "taught" for event in run.events)


def recorded(
    wanted: dict[str, Kernel], trials: int, records: Path
) -> tuple[dict[str, Candidate], set[str]]:
    """Returns each kernel's fastest schedule in the newest recorded run with `trials` trials on this device.

    Returns:
        The schedules, and the kernels whose search itself started with records.

    Raises:
        RecordError: The file does not contain records.
        UsageError: Such a run started with schedules of its own kernel.
    """
    here = runner_for(targets.find("opencl")).device.name
    database = read_database(records)
    tasks = database.tasks()
    found: dict[str, Candidate] = {}
    taught: set[str] = set()
    for name, kernel in wanted.items():
        runs = [
            source
            for source in database.sources.values()
            if source.identity.device == here
            and kernel.name in source.tasks
            and source.tasks[kernel.name].trials == trials
        ]
        if not runs:
            continue
        run = max(runs, key=lambda source: source.about.began)
        if run.about.knew:
            raise UsageError(_KNEW.format(f"{name} in {records}"))
        tried = [one for one in tasks.get(kernel.name, []) if run.id in one.seconds]
        if not tried:
            continue
        best = min(tried, key=lambda one: one.seconds[run.id])
        try:
            module = replayed(kernel, best.formulation, best.trace, best.digest)
        except RecordError as error:
            print(f"{name}: {error.message}", flush=True)
            continue
        found[name] = Candidate.of(best.digest, module)
        if run.about.had_records:
            taught.add(name)
    return found, taught


def rebuilt(
    wanted: dict[str, Kernel], known: dict[str, Candidate], out: Path
) -> dict[str, tuple[Path, str]]:
    """Builds recorded schedules as libraries, with their symbols."""
    spec = targets.find("opencl")
    space = spaces.load(spec.space_path())
    device = runner_for(spec).device
    limits = with_device_limits(TuneRequest(spec, space, "", None, (), 1, 1), device).space.limits
    target = target_text(targets.tvm_target(spec, limits, space.compile))
    requests = {}
    for name, candidate in known.items():
        library = out / wanted[name].name / "library.so"
        library.parent.mkdir()
        requests[name] = BuildRequest(candidate.program, target, library, limits=limits)
    builder = Builder(workers=cores(), timeout_s=60.0, temporary=out)
    builder.start()
    try:
        failures = builder.submit(list(requests.values())).result()
    finally:
        builder.stop()
    found = {}
    for (name, request), failure in zip(requests.items(), failures, strict=True):
        if failure is not None:
            print(f"{name}: {failure.message}")
            continue
        found[name] = (request.output, "main")
    return found


class Tvm:
    """TVM's libraries on the OpenCL device, with one set of operands."""

    def __init__(self, inputs: Sequence[Array], shape: Sequence[int]) -> None:
        import tvm

        self._tvm = tvm
        self._device = tvm.device("opencl", 0)
        self._inputs = [tvm.runtime.tensor(one, device=self._device) for one in inputs]
        self._shape = tuple(shape)
        self._output = tvm.runtime.tensor(np.zeros(self._shape, "float32"), device=self._device)

    def turn(self, library: Path, symbol: str) -> Turn:
        function = self._tvm.runtime.load_module(str(library))[symbol]
        return turn_of(partial(function, *self._inputs, self._output), self._device.sync)

    def result(self, turn: Turn) -> Array:
        """Returns what a library computes, into an output that was filled with NaN."""
        self._output.copyfrom(np.full(self._shape, np.nan, "float32"))
        turn(1)
        return np.asarray(self._output.numpy())


class Torch:
    """PyTorch's kernels and float64 references, on a GPU if PyTorch has one."""

    def __init__(self) -> None:
        from common.pytorch import torch
        from common.torch_kernels import torch_call

        self._torch, self._torch_call = torch, torch_call
        self.gpu = torch.cuda.is_available()
        self._device = "cuda" if self.gpu else "cpu"
        self.version = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True

    def call(
        self, kernel: Kernel, inputs: Sequence[Array], *, double: bool = False, last: bool = False
    ) -> Callable[[], Any]:
        """Returns a function that computes the kernel."""
        operands = [self._torch.as_tensor(one, device=self._device) for one in inputs]
        if double:
            operands = [one.double() for one in operands]
        return self._torch_call(kernel, operands, last=last)

    def result(self, call: Callable[[], Any]) -> Array:
        """Returns the result of a call."""
        return np.asarray(call().cpu().numpy())

    def turn(self, call: Callable[[], Any]) -> Turn:
        """Returns a turn that runs the calls in CUDA graphs."""
        torch = self._torch
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_GRAPH):
                call()

        def launched(times: int, kept: Callable[[], Any] = call) -> None:
            """Keeps a reference to the call, because the graph reads its operands."""
            for _ in range(-(-times // _GRAPH)):
                graph.replay()
            torch.cuda.synchronize()

        return launched


@contextmanager
def sides_of(
    kernel: Kernel,
    ours: tuple[Path, str],
    stock: dict[str, Path],
    torch: Torch,
    blast: ClBlast | None,
    seed: int,
) -> Iterator[tuple[dict[str, Turn], dict[str, float]]]:
    """Yields what each side launches, and each side's largest error."""
    inputs = random_inputs(kernel, seed)
    wanted = torch.result(torch.call(kernel, inputs, double=True))
    tvm = Tvm(inputs, wanted.shape)
    turns = {"ours": tvm.turn(*ours)}
    turns |= {side: tvm.turn(path, "main") for side, path in stock.items()}
    errors = {side: max_relative_error(tvm.result(turn), wanted) for side, turn in turns.items()}
    if torch.gpu:
        for side, last in (("library", False), ("library, channels last", True)):
            if last and isinstance(kernel.operator, Matmul):
                continue
            call = torch.call(kernel, inputs, last=last)
            errors[side] = max_relative_error(torch.result(call), wanted)
            turns[side] = torch.turn(call)
    buffers: list[Any] = []
    if blast is not None and getattr(kernel.operator, "groups", 1) == 1:
        ways, result, buffers = blast.ways(kernel, inputs)
        for number, way in enumerate(ways):
            blast.spoil(result, wanted.shape)
            turns[f"clblast {number}"] = turn_of(way, blast.finish)
            turns[f"clblast {number}"](1)
            errors[f"clblast {number}"] = max_relative_error(
                blast.download(result, wanted.shape), wanted
            )
    for side in {*turns} - {"ours", *stock}:
        if not errors[side] <= _WRONG:
            print(f"{kernel.name}: what {side} computes is off by {errors[side]:.2g}: left out")
            del turns[side]
    try:
        yield turns, errors
    finally:
        if blast is not None:
            blast.free(buffers)


class Comparison:
    """Figures of the compared kernels, as rows of the report and for its bars.

    Args:
        report: Receives the rows.
        device: Name of the device.

    Attributes:
        gains: How much faster ours are than each family of sides, by kernel.
        worst: The largest error of ours and stock's.
    """

    def __init__(self, report: Report, device: str) -> None:
        self._report, self._device = report, device
        self.gains: dict[str, dict[str, Interval]] = {"stock": {}, "clblast": {}, "library": {}}
        self.worst = 0.0
        self._unsearched = self._elsewhere = 0

    def add(
        self,
        name: str,
        kernel: Kernel,
        searched: dict[str, Any] | None,
        samples: dict[str, list[float]],
        errors: dict[str, float],
    ) -> None:
        """Adds a kernel; `searched` is the result of stock's search, None if it has not ended."""
        self._unsearched += searched is None
        self._elsewhere += searched is not None and searched.get("device") != self._device
        self.worst = max(
            self.worst, *(errors[side] for side in ("ours", "stock") if side in errors)
        )
        shown = [f"ours {1e3 * median(samples['ours']):.4g} ms"]
        intervals: dict[str, list[float] | None] = dict.fromkeys(self.gains)
        for family, ratios in self.gains.items():
            rivals = [side for side in samples if side.startswith(family)]
            if not rivals:
                continue
            rival = min(rivals, key=lambda side: median(samples[side]))
            speed = paired_speedup(samples[rival], samples["ours"], seed=1)
            ratios[name] = speed
            intervals[family] = speed.ends
            shown.append(
                f"{rival} {1e3 * median(samples[rival]):.4g} ms = {speed.estimate:.3g}x "
                f"({speed.low:.3g}-{speed.high:.3g})"
            )
        if UNENDED in samples:  # shown, but not counted by any bar
            shown.append(f"{UNENDED} {1e3 * median(samples[UNENDED]):.4g} ms")
        self._report.row(
            what="kernel", kernel=name, spec=kernel.spec, role=kernel.role, errors=errors,
            ms={side: 1e3 * median(one) for side, one in samples.items()},
            ratios={
                family: gain.estimate if (gain := ratios.get(name)) else None
                for family, ratios in self.gains.items()
            },
            intervals=intervals, seconds=samples,
            gflops=kernel.flops / median(samples["ours"]) / 1e9, stock_search=searched,
        )  # fmt: skip
        print(f"{name}: " + ", ".join(shown), flush=True)

    def summarise(self, wanted: dict[str, Kernel], tuned: int) -> None:
        """Reports what is missing, and prints means; `tuned` is the number of compared kernels."""
        bar = self._report.bar
        bar("kernels that are not tuned", len(wanted) - tuned, "at most", 0, "kernels")
        bar(
            "kernels that stock has not searched to its end",
            self._unsearched, "at most", 0, "kernels",
        )  # fmt: skip
        if self._elsewhere:
            print(
                f"stock searched {self._elsewhere} of them on another device, or does not say on which"
            )
        if nothing := tuned - self._unsearched - len(self.gains["stock"]):
            print(f"stock found no valid schedule of {nothing} kernels: they are not in its mean")
        for role in ROLES:
            shown = []
            for family, ratios in self.gains.items():
                found = [gain for name, gain in ratios.items() if name.endswith(f", {role}")]
                if found:
                    mean, (low, high) = mean_ratio(found)
                    shown.append(f"{family} {mean:.3g}x ({low:.3g} to {high:.3g})")
            if shown:
                print(f"{role}, geometric means: {', '.join(shown)}")
        dense = sum(getattr(kernel.operator, "groups", 1) == 1 for kernel in wanted.values())
        for name, family, whole in (
            ("CLBlast", "clblast", dense),
            ("the vendor's library", "library", len(wanted)),
        ):
            missing = whole - len(self.gains[family])
            bar(f"kernels not compared with {name}", missing, "at most", 0, "kernels")


def compared_libraries(
    report: Report,
    wanted: dict[str, Kernel],
    known: dict[str, Candidate],
    taught: set[str],
    runs: Path,
    out: Path,
) -> dict[str, tuple[Path, str]]:
    """Returns our winners of new and of recorded runs as libraries, with their symbols.

    Reports which runs are recorded, and which searches started with records.
    """
    trials = trials_of(report)
    new = {name: kernel for name, kernel in wanted.items() if name not in known}
    libraries = libraries_of(new, trials, runs, out)
    taught = taught | {
        name for name in new if had_records(runs / "ours" / wanted[name].name, trials)
    }
    if taught:
        report.row(what="searches that began with records", kernels=sorted(taught))
        print(f"our searches of {len(taught)} kernels began with records of other layers")
    if known:
        report.row(what="records", file=report.options.records.name, kernels=sorted(known))
        libraries |= rebuilt(wanted, known, out)
    return libraries


def compare(
    report: Report,
    wanted: dict[str, Kernel],
    known: dict[str, Candidate],
    taught: set[str],
    runs: Path,
) -> None:
    """Times all sides on every tuned kernel; `taught` are the known kernels whose searches started with records."""
    torch = Torch()
    opencl_sidecar.load()
    device = opencl_sidecar.devices()[0]
    blast = ClBlast(device.name) if clblast_available() else None
    if blast is None:
        print("CLBlast is not installed: its side is left out (apt-get install libclblast1)")
    report.row(what="device", **asdict(device), **torch.version)
    comparison = Comparison(report, device.name)
    with tempfile.TemporaryDirectory() as folder:
        libraries = compared_libraries(report, wanted, known, taught, runs, Path(folder))
        for number, name in enumerate(name for name in wanted if name in libraries):
            kernel = wanted[name]
            searched = stock_search.recorded(runs / "stock" / kernel.name, trials_of(report))
            stock = {}
            if (best := runs / "stock" / kernel.name / "stock.so").is_file():
                stock = {UNENDED if searched is None else "stock": best}
            with sides_of(kernel, libraries[name], stock, torch, blast, number + 1) as (
                turns,
                errors,
            ):
                blocks = 3 if report.quick else BLOCKS
                samples = interleaved_blocks(turns, blocks, number, by=_GRAPH)
            comparison.add(name, kernel, searched, samples, errors)
    comparison.summarise(wanted, len(libraries))
    judge(report, comparison.gains, comparison.worst)


def judge(report: Report, gains: dict[str, dict[str, Interval]], worst: float) -> None:
    report.bar(
        "largest relative error of ours and stock's against float64",
        worst,
        "at most",
        TOLERANCE,
        "",
    )
    goals = {
        "stock": ("stock MetaSchedule", 3.0, 1.0),
        "clblast": ("CLBlast", 1.2, None),
        "library": ("cuBLAS and cuDNN", 0.6, 0.4),
    }
    for family, (name, mean, least) in goals.items():
        ratios = gains[family]
        if not ratios:  # another bar reports this
            continue
        mean_bar(report, f"against {name}", ratios, mean)
        if least is not None:
            slowest_bar(report, f"against {name}", ratios, least)


def pocl(report: Report) -> None:
    """Compares SqueezeNet 1.1's convolutions and matmuls with the default schedule, on this host's OpenCL."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    for name, default in vars(parser.parse_args([])).items():
        if name != "pocl" and getattr(report.options, name) != default:
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} is for a GPU: OpenCL on a processor has a model's step tuned anew"
            )
    trials, batch = (QUICK_TRIALS, 1) if report.quick else (2000, 4)
    model = "lenet" if report.quick else "squeezenet1_1"
    with tempfile.TemporaryDirectory() as logs:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "autotune", "kernels", "--target", "opencl"),
                *("--model", model, "--batch", str(batch), "--trials", str(trials)),
                *("--logs", logs, "--json"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    result = json.loads(done.stdout)
    report.row(what="device", **result["device"])
    slower, gains = 0, []
    compared = [task for task in result["tasks"] if task["operator"] in ("conv2d", "matmul")]
    for task in compared:
        if task["default_ms"] is None:
            slower += 1
            print(f"its default schedule has no valid time: {task['name']}")
            continue
        names = ("name", "default_ms", "tuned_ms", "speedup", "ci", "formulation")
        report.row(what="kernel", **{key: task[key] for key in names})
        gains.append(task["speedup"])
        if task["digest"] == "default" or not task["ci"] or task["ci"][0] <= 1:
            slower += 1
            print(f"not faster than the default schedule: {task['name']}")
    report.bar(
        f"PoCL, {model}: convolutions and matmuls not faster than the default schedule, of {len(compared)}",
        slower, "at most", 0, "kernels",
    )  # fmt: skip
    print(f"PoCL, {model}: geometric mean {geometric_mean(gains):.3g}x the default schedule")


def measure(report: Report) -> None:
    options = report.options
    opencl_sidecar.ensure()
    if options.pocl or (not report.quick and opencl_sidecar.devices()[0].type == "cpu"):
        pocl(report)
        return
    wanted = kernels(report.quick)
    with tempfile.TemporaryDirectory() as temporary:
        runs = options.runs or Path(temporary)
        only = options.only or (list(wanted)[-1:] if report.quick else wanted)
        if unknown := sorted(set(only) - set(wanted)):
            raise UsageError(f"--only {unknown[0]}: there is {'; '.join(wanted)}")
        trials = trials_of(report)
        unrun = {
            name: kernel
            for name, kernel in wanted.items()
            if finished_run(runs / "ours" / kernel.name, trials) is None
        }
        known: dict[str, Candidate] = {}
        taught: set[str] = set()
        if options.records:
            known, taught = recorded(unrun, trials, options.records)
        for kernel in wanted.values():  # reports an error before hours of tuning
            had_records(runs / "ours" / kernel.name, trials)
        tune({name: wanted[name] for name in only}, known, report, runs)
        if not options.only_tune:
            compare(report, wanted, known, taught, runs)


def existing(text: str) -> Path:
    """Parses a path that must exist."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return path


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the tuning here")
    parser.add_argument(
        "--records", type=existing, metavar="FILE", help="take ours from these records of such runs"
    )
    parser.add_argument(
        "--teach", type=existing, metavar="FILE",
        help="have our searches begin with these records of such runs, but for those of the same layer",
    )  # fmt: skip
    parser.add_argument(
        "--cards", type=int, nargs="+", default=[None], metavar="N",
        help="tune on these NVIDIA GPUs at once (default: the first; the comparison is there)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=positive(int), default=1, help="searches of stock's at once on each card"
    )
    parser.add_argument(
        "--minutes", type=positive(float), help="begin no tuning after so many minutes"
    )
    parser.add_argument(
        "--sides", nargs="*", choices=["ours", "stock"], default=["ours", "stock"],
        help="tune only these (default: both)",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", metavar="KERNEL", help="tune these kernels only")
    parser.add_argument("--only-tune", action="store_true", help="do not compare")
    parser.add_argument("--pocl", action="store_true", help="this host's OpenCL instead of a GPU")


if __name__ == "__main__":
    if not stock_search.child():
        sys.exit(run(__doc__ or "", measure, add_options))
