"""The runner over a tracker: what candidates, servers and links do wrong ends as it should."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm.rpc
from fleets import await_state, local_fleet, servers

from autotune.compiler.runners.build_worker import linker
from autotune.compiler.runners.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.rpc_worker import SessionTimer
from autotune.compiler.runners.runner import (
    CompareRequest,
    DeviceFingerprint,
    MeasureRequest,
    measurement_message,
)
from autotune.compiler.runners.sessions import SessionWaits
from autotune.compiler.workers.workers import WorkerLost
from autotune.errors import TransientDeviceError
from autotune.tracker import TrackerLink
from autotune.workloads import Kernel
from autotune.workloads.operators import Matmul

KERNEL = Kernel(Matmul(6, 10, 16), "forward")
KEY = "bench"
DEVICE = DeviceFingerprint(KEY, "rpc-cpu", "", (), stand_in=False)
CRASH = "*(volatile int*)0 = 1;"
ENDLESS = "for (volatile int i = 0;; i = 1 - i) {}"


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackerLink]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with local_fleet(KEY) as link:
            yield link


@pytest.fixture
def runner(tracker: TrackerLink) -> Iterator[RpcRunner]:
    runner = RpcRunner(tracker, KEY, DEVICE, waits=SessionWaits(patience_s=60))
    runner.start()
    yield runner
    runner.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ReferenceData(tmp_path_factory.mktemp("data"), 1).of(KERNEL)


def right(folder: Path, name: str = "right", factor: float = 1.0) -> Path:
    """A library that computes the kernel, times a factor."""
    from tvm import te

    x, w = te.placeholder((6, 16), name="x"), te.placeholder((10, 16), name="w")
    k = te.reduce_axis((0, 16), "k")
    y = te.compute((6, 10), lambda i, j: te.sum(factor * x[i, k] * w[j, k], axis=k), name="y")
    function = te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")
    target = tvm.target.Target({"kind": "llvm"}, host={"kind": "llvm"})
    path = folder / name / "kernel.so"
    path.parent.mkdir()
    module = tvm.compile(tvm.IRModule({"main": function}), target)
    module.export_library(str(path), fcompile=linker("", fast=True))
    return path


def wicked(folder: Path, name: str, body: str) -> Path:
    """A library whose kernel does what the C statement says."""
    path = folder / name / "kernel.so"
    path.parent.mkdir()
    source = path.with_suffix(".c")
    source.write_text(
        f"int __tvm_ffi_main(void* s, void* a, int n, void* r) {{ {body} return 0; }}\n"
        "int __tvm_ffi_main_(void* s, void* a, int n, void* r) "
        "{ return __tvm_ffi_main(s, a, n, r); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


def request(path: Path, data: Path, timeout_s: float = 20.0) -> MeasureRequest:
    return MeasureRequest(path, data, 3, 1.0, 10.0, TOLERANCE, timeout_s)


def test_a_right_kernel_is_timed_and_its_device_named(
    runner: RpcRunner, data: Path, tmp_path: Path
) -> None:
    outcome = runner.measure(request(right(tmp_path), data))
    assert outcome.status == "ok", outcome.message
    assert outcome.device == "local"
    assert len(outcome.samples) == 3
    assert all(0 < sample < 1e-3 for sample in outcome.samples)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # TVM's upload.
def test_a_slow_link_is_no_part_of_a_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call and the wait for it go there and back twice."""
    way_s, sync = 0.03, tvm.runtime.Device.sync

    def slowly(device: Any) -> None:
        time.sleep(way_s)
        sync(device)

    monkeypatch.setattr(tvm.runtime.Device, "sync", slowly)
    message = measurement_message(replace(request(right(tmp_path), data), give_up_s=3e-3))
    answer = SessionTimer(tvm.rpc.LocalSession(), "cpu").carry_out(message)
    assert len(answer["samples"]) == 3
    assert max(answer["samples"]) < 1e-3


def test_a_wrong_kernel_is_noticed(runner: RpcRunner, data: Path, tmp_path: Path) -> None:
    outcome = runner.measure(request(right(tmp_path, factor=1.01), data))
    assert outcome.status == "wrong_result"


def test_a_candidate_that_kills_its_session_twice_is_quarantined(
    runner: RpcRunner, data: Path, tmp_path: Path, tracker: TrackerLink
) -> None:
    before = tracker.served(KEY)[0].crashes
    outcome = runner.measure(request(wicked(tmp_path, "crash", CRASH), data))
    assert outcome.status == "run_error"
    assert "SIGSEGV" in outcome.message
    assert "quarantined" in outcome.message
    (served,) = tracker.served(KEY)
    assert served.crashes == before + 2
    assert {crash.candidate for crash in served.recent[-2:]} == {"crash"}
    assert runner.measure(request(right(tmp_path), data)).ok


def test_an_endless_candidate_meets_its_limit_and_the_device_is_free_soon(
    runner: RpcRunner, data: Path, tmp_path: Path
) -> None:
    began = time.monotonic()
    outcome = runner.measure(request(wicked(tmp_path, "endless", ENDLESS), data, timeout_s=3))
    assert outcome.status == "timeout", outcome.message
    assert runner.measure(request(right(tmp_path), data)).ok
    assert time.monotonic() - began < 25


def test_a_server_that_is_killed_comes_back_and_nothing_is_lost(
    runner: RpcRunner, data: Path, tmp_path: Path, tracker: TrackerLink
) -> None:
    assert runner.measure(request(right(tmp_path, "first"), data)).ok
    slow = wicked(tmp_path, "slow", "extern int usleep(unsigned); usleep(3000000);")
    with ThreadPoolExecutor(1) as pool:
        timed = pool.submit(runner.measure, request(slow, data))
        time.sleep(1.0)
        for process in servers(tracker.port):
            os.kill(process, signal.SIGKILL)
        # It writes nothing, so it is wrong: but it was measured again, and to its end.
        outcome = timed.result(60)
    assert outcome.status == "wrong_result", outcome.message
    assert await_state("serving").devices[0].restarts >= 1
    assert runner.measure(request(right(tmp_path, "second"), data)).ok


def test_libraries_are_compared_in_one_session(
    runner: RpcRunner, data: Path, tmp_path: Path
) -> None:
    paths = (right(tmp_path, "one"), right(tmp_path, "two"))
    compared = runner.compare(CompareRequest(paths, data, (3, 2), 1.0, seed=1))
    assert [len(row) for row in compared.samples] == [3, 2]
    assert all(error is not None and error < TOLERANCE for error in compared.max_rel_errors)
    broken = (paths[0], wicked(tmp_path, "crash", CRASH))
    with pytest.raises(WorkerLost, match="quarantined"):
        runner.compare(CompareRequest(broken, data, (3, 3), 1.0, seed=1))


def test_a_key_without_devices_is_given_up_after_the_patience(
    tracker: TrackerLink, data: Path, tmp_path: Path
) -> None:
    runner = RpcRunner(tracker, "nobody", DEVICE, waits=SessionWaits(patience_s=1))
    runner.start()
    with pytest.raises(TransientDeviceError, match="'nobody'"):
        runner.measure(request(right(tmp_path), data))
    runner.stop()


def test_an_interrupt_ends_the_wait_for_a_device(
    tracker: TrackerLink, data: Path, tmp_path: Path
) -> None:
    runner = RpcRunner(tracker, "nobody", DEVICE, waits=SessionWaits(patience_s=600))
    runner.start()
    threading.Timer(1.0, runner.interrupt).start()
    began = time.monotonic()
    with pytest.raises(TransientDeviceError):
        runner.measure(request(right(tmp_path), data))
    assert time.monotonic() - began < 10
    runner.stop()


def test_a_candidate_that_takes_the_server_down_is_quarantined_after_two_times(
    runner: RpcRunner, data: Path, tmp_path: Path, tracker: TrackerLink
) -> None:
    before = await_state("serving").devices[0].restarts
    body = "extern int kill(int, int); extern int getppid(void); kill(getppid(), 9);"
    outcome = runner.measure(request(wicked(tmp_path, "murderer", body), data))
    assert outcome.status == "run_error"
    assert "went down with it" in outcome.message
    assert "quarantined" in outcome.message
    assert runner.measure(request(right(tmp_path), data)).ok
    assert await_state("serving").devices[0].restarts - before == 2


def test_a_wait_for_a_device_ends_when_nobody_wants_the_measurement(
    tracker: TrackerLink, data: Path, tmp_path: Path
) -> None:
    absent = RpcRunner(tracker, "nobody", DEVICE, waits=SessionWaits(patience_s=60))
    absent.start()
    began = time.monotonic()
    absent.give_up = lambda: time.monotonic() - began > 1
    with pytest.raises(TransientDeviceError, match="no device"):
        absent.measure(request(right(tmp_path), data))
    assert time.monotonic() - began < 10
    absent.stop()
