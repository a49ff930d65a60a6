"""A fleet with an emulated phone in it: TVM's sessions over adb, on emulated cores, after a reboot too."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import tvm
from fleets import await_state, free_port
from small_phone import needs_phone, phone_process, private_adb
from tvm import rpc
from tvm.rpc.client import TrackerSession

from autotune.compiler.native import device_server
from autotune.devices.adb import AdbDevice
from autotune.tracker.deploy import Deployment, Service
from autotune.tracker.supervisor import UpRequest, serve

pytestmark = [needs_phone, pytest.mark.timeout(300)]
KEY = "small"


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        pytest.MonkeyPatch.context() as patch,
        private_adb(tmp_path_factory.mktemp("home")),
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with phone_process() as serial:
            yield serial


@contextmanager
def fleet(serial: str) -> Iterator[TrackerSession]:
    deployment = Deployment(
        serial=serial,
        kind="adb",
        services=(Service(KEY), Service(f"{KEY}-big", "4-7")),
        bundle=device_server.bundle("linux-aarch64"),
        program=device_server.PROGRAM,
        emulated="a phone",
        thermal_zone="",
        android=True,
    )
    port, stop, late = free_port(), threading.Event(), []
    request = UpRequest("127.0.0.1", port, (deployment,), False, "")
    thread = threading.Thread(target=lambda: late.extend(serve(request, stop)))
    thread.start()
    try:
        await_state("serving", 120)
        yield rpc.connect_tracker("127.0.0.1", port)
    finally:
        stop.set()
        thread.join(90)
    assert late == []


def test_sessions_on_an_emulated_phone(serial: str) -> None:
    with fleet(serial) as tracker:
        session = tracker.request(KEY, session_timeout=60)
        reported = json.loads(session.get_function("autotune.server.info")())
        assert (reported["serial"], reported["emulated"]) == (serial, "a phone")
        assert reported["cpus"] == "0-7"
        bind = session.get_function("autotune.server.bind_threads")
        assert bind("2-3,6", 2) == "2-3,6"
        with pytest.raises(Exception, match="Invalid argument"):
            bind("12", 1)
        del session, bind
        big = tracker.request(f"{KEY}-big", session_timeout=60)
        assert json.loads(big.get_function("autotune.server.info")())["cpus"] == "4-7"
        array = tvm.runtime.tensor([1.0, 2.0], device=big.cpu(0))
        assert array.numpy().tolist() == [1.0, 2.0]
        del big, array


def test_the_fleet_outlives_a_reboot(serial: str) -> None:
    with fleet(serial) as tracker:
        AdbDevice(serial).reboot(timeout=60)
        ends = time.monotonic() + 90
        while time.monotonic() < ends:
            try:
                session = tracker.request(KEY, session_timeout=30, max_retry=1)
                assert json.loads(session.get_function("autotune.server.info")())["cpus"] == "0-7"
                break
            except Exception:
                time.sleep(1)
        else:
            pytest.fail("no session after the reboot")
        del session
