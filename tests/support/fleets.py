"""A tracker with this host as its device, in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.compiler.native import device_server
from autotune.devices.ports import free_port
from autotune.tracker import TrackerLink, state
from autotune.tracker.deploy import Deployment, Service
from autotune.tracker.supervisor import UpRequest, serve


@contextmanager
def local_fleet(
    *keys: str, cpus: str = "", bundle: Path | None = None, emulated: str = ""
) -> Iterator[TrackerLink]:
    """Serves this host under these keys. The state goes where `XDG_STATE_HOME` says."""
    deployment = Deployment(
        serial="local",
        kind="local",
        services=tuple(Service(key, cpus) for key in keys),
        bundle=bundle or device_server.bundle("host"),
        program=device_server.PROGRAM,
        emulated=emulated,
        thermal_zone="",
        android=False,
    )
    port = free_port()
    request = UpRequest("127.0.0.1", port, (deployment,), False, "")
    stop = threading.Event()
    late: list[str] = []
    thread = threading.Thread(target=lambda: late.extend(serve(request, stop)))
    thread.start()
    try:
        await_state("serving")
        yield TrackerLink("127.0.0.1", port)
    finally:
        stop.set()
        thread.join(90)
    assert late == []


def await_state(wanted: str, timeout: float = 60.0) -> state.FleetState:
    """Waits until every device is in a state."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = state.read()
        if found is not None and all(one.state == wanted for one in found.devices):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not '{wanted}' within {timeout} s: {state.read()}")


def servers(port: int | str) -> list[int]:
    """Processes of device servers, and their sessions, that belong to the tracker on this port."""
    name = f"-{port}/autotune_server".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes()
        except OSError:
            continue
        if command.split(b"\0")[0].endswith(name):
            found.append(int(entry.parent.name))
    return found
