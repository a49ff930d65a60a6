"""Many devices on one tracker, and the overhead of our layer over TVM's bare RPC.

The devices are emulated: each is a device server on this host that the tracker sees as a device of its own. The
kernels sleep instead of computing, so that sixteen devices can be busy at once on two cores. The scale is judged
with measurements of one second, the overhead with kernels of 50 ms.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from common.bars import Report, run
from common.sleeping_kernel import sleeping_kernel

from autotune.compiler.native import device_server
from autotune.compiler.runners.build_worker import linker
from autotune.compiler.runners.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.runner import DeviceFingerprint, MeasureRequest
from autotune.devices.ports import free_port
from autotune.measurement import paired_speedup
from autotune.tracker import TrackerLink
from autotune.tracker.supervisor import tracker_process
from autotune.workloads import Kernel
from autotune.workloads.operators import Matmul

KERNEL = Kernel(Matmul(6, 10, 16), "forward")
REPEATS = 3
RUNS = REPEATS + 2  # one for the result, one to find how long it takes
EMULATED = "emulated: a server on this host whose kernels sleep"


def sleeping(folder: Path, milliseconds: int) -> Path:
    """Returns a library that computes the kernel and takes the given time."""
    import tvm

    target = tvm.target.Target({"kind": "llvm"}, host={"kind": "llvm"})
    path = folder / f"sleep{milliseconds}" / "kernel.so"
    path.parent.mkdir()
    tvm.compile(sleeping_kernel(milliseconds), target).export_library(
        str(path), fcompile=linker("", fast=True)
    )
    return path


@contextmanager
def devices(folder: Path, count: int, key: str) -> Iterator[TrackerLink]:
    """Yields a tracker with the given number of device servers."""
    program = device_server.bundle("host") / device_server.PROGRAM
    with ExitStack() as stack:
        link = stack.enter_context(tracker_process(free_port()))
        for number in range(count):
            own = str(folder / key / str(number) / "server")  # the lock is in the parent folder
            command = [str(program), "--dir", own]
            stack.callback(subprocess.run, [*command, "--stop"], check=False)
            subprocess.run(
                [
                    *command, "--key", key, "--tracker", str(link), "--public-host", "127.0.0.1",
                    "--serial", f"{key}{number}", "--emulated", EMULATED, "--daemon",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        while len(link.served(key)) < count:
            time.sleep(0.1)
        yield link


def runner_of(link: TrackerLink, key: str) -> RpcRunner:
    device = DeviceFingerprint(key, "rpc-cpu", EMULATED, (), stand_in=True)
    runner = RpcRunner(link, key, device)
    runner.start()
    return runner


def requests(library: Path, data: Path, folder: Path, count: int) -> list[MeasureRequest]:
    """Returns requests for the given number of candidates, each in its own folder as in a search."""
    made = []
    for number in range(count):
        path = folder / f"candidate{number}" / "kernel.so"
        path.parent.mkdir(parents=True)
        shutil.copy(library, path)
        made.append(MeasureRequest(path, data, REPEATS, 0.0, 1e9, TOLERANCE, 60.0))
    return made


def trials_per_minute(folder: Path, library: Path, data: Path, count: int, trials: int) -> float:
    """Returns the trials per minute of the given number of devices, without the time to open sessions."""
    with devices(folder, count, f"fleet{count}-") as link:
        runner = runner_of(link, f"fleet{count}-")
        with ThreadPoolExecutor(count) as pool:
            warm = requests(library, data, folder / f"warm{count}", count)
            check(list(pool.map(runner.measure, warm)))
            asked = requests(library, data, folder / f"timed{count}", trials)
            began = time.perf_counter()
            check(list(pool.map(runner.measure, asked)))
            seconds = time.perf_counter() - began
        runner.stop()
    return 60 * trials / seconds


def check(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        if not outcome.ok:
            raise SystemExit(f"{outcome.status}: {outcome.message}")


def scale(report: Report, folder: Path, data: Path) -> None:
    library = sleeping(folder, 1000 // RUNS)
    count, trials, blocks = (2, 2, 1) if report.quick else (16, 5, 5)
    rates: dict[int, list[float]] = {1: [], count: []}
    for block in range(blocks):
        for number, found in rates.items():
            place = folder / f"block{block}"
            found.append(trials_per_minute(place, library, data, number, number * trials))
    for number, found in rates.items():
        report.row(devices=number, trials_per_minute=found, emulated=EMULATED)
    gain = paired_speedup(rates[count], rates[1], seed=1)
    report.bar(
        f"trials a minute of {count} devices over one's", gain.estimate, "at least", 12, "x",
        interval=(gain.low, gain.high),
    )  # fmt: skip


def overhead(report: Report, folder: Path, data: Path) -> None:
    """Times the same executions of the same kernel over TVM's RPC alone and through the runner, interleaved."""
    import numpy as np
    from tvm import rpc, runtime

    library = sleeping(folder, 50)
    bare: list[float] = []
    ours: list[float] = []
    key = "overhead"
    with devices(folder, 2, key) as link:
        session = rpc.connect_tracker(link.host, link.port).request(key)
        device = session.cpu(0)
        arrays = [np.load(data / f"input{i}.npy", allow_pickle=False) for i in range(2)]
        operands = [runtime.tensor(array, device=device) for array in arrays]
        operands.append(runtime.empty((6, 10), "float32", device))
        runner = runner_of(link, key)
        blocks = 2 if report.quick else 15
        asked = requests(library, data, folder / "overhead", blocks + 1)
        check([runner.measure(asked.pop())])
        for request in asked:
            began = time.perf_counter()
            name = f"bare{len(bare)}.so"  # a loaded library must not be overwritten
            session.upload(str(request.library), target=name)
            module = session.load_module(name)
            timer = module.time_evaluator("main", device, number=1, repeat=RUNS - 1)
            _ = timer(*operands).results  # the kernel runs once more before the timing
            bare.append(time.perf_counter() - began)
            began = time.perf_counter()
            check([runner.measure(request)])
            ours.append(time.perf_counter() - began)
        runner.stop()
    ratios = sorted(a / b for a, b in zip(ours, bare, strict=True))
    report.row(
        bare_s=bare, ours_s=ours, quartiles=[ratios[len(ratios) // 4], ratios[-len(ratios) // 4]]
    )
    report.bar(
        "our layer over TVM's bare time_evaluator, 50 ms kernels", 100 * (median(ratios) - 1), "at most", 10, "%"
    )  # fmt: skip


def measure(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="autotune-fleet-") as name:
        folder = Path(name)
        os.environ.setdefault("TVM_NUM_THREADS", "1")
        data = ReferenceData(folder / "data", 1).of(KERNEL)
        scale(report, folder, data)
        overhead(report, folder, data)


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure))
