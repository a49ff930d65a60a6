"""The process behind `autotune tracker up`: TVM's tracker, and a watch for each device.

Argument: a JSON file with the request. It ends at SIGTERM or SIGINT, and takes back what was changed on the
devices.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.devices.discovery import reach
from autotune.errors import ToolchainError, TransientDeviceError
from autotune.tracker import state
from autotune.tracker.deploy import Deployment, Service
from autotune.tracker.link import Served, TrackerLink
from autotune.tracker.watch import Watched

LOGGER = logging.getLogger("autotune.tracker")

STOP_S = 60.0
"""How long the devices may take to be left as they were."""

_TRACKER_START_S = 60.0
_TRACKER_MODULE = "autotune.compiler.tracker_process"
_STATE_EVERY_S = 1.0


@dataclass(frozen=True)
class UpRequest:
    """What `autotune tracker up` asks for.

    Attributes:
        host: Address that the tracker listens on.
        port: Its port.
        deployments: What is to serve where.
        allow_reboot: Whether devices that nothing else helps may be restarted.
        log: The log file.
    """

    host: str
    port: int
    deployments: tuple[Deployment, ...]
    allow_reboot: bool
    log: str

    def to_json(self) -> dict[str, Any]:
        """A plain object with lists."""
        entries = [{**asdict(d), "bundle": str(d.bundle)} for d in self.deployments]
        return {**asdict(self), "deployments": entries}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> UpRequest:
        """Reads what `to_json` wrote."""
        return cls(**{**content, "deployments": tuple(map(_deployment, content["deployments"]))})


def _deployment(entry: dict[str, Any]) -> Deployment:
    services = tuple(Service(**service) for service in entry["services"])
    return Deployment(**{**entry, "services": services, "bundle": Path(entry["bundle"])})


@contextmanager
def tracker_process(host: str, port: int) -> Iterator[TrackerLink]:
    """TVM's tracker as a process of its own, for the length of a block.

    Raises:
        ToolchainError: It does not start; the port may be taken.
    """
    command = [sys.executable, "-m", _TRACKER_MODULE, host, str(port)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    link = TrackerLink("127.0.0.1" if host == "0.0.0.0" else host, port)
    try:
        _await(link, process)
        yield link
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(link: TrackerLink, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _TRACKER_START_S
    while True:
        if process.poll() is not None:
            raise ToolchainError(
                f"TVM's tracker does not start on {link}",
                hint="another program may have the port: give another one with --port",
            )
        try:
            link.summary()
        except TransientDeviceError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


class Heard:
    """What the tracker last said of its servers; asked once for all watches."""

    def __init__(self, link: TrackerLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._at = 0.0
        self._served: Sequence[Served] = ()

    def __call__(self) -> Sequence[Served]:
        with self._lock:
            if time.monotonic() - self._at > _STATE_EVERY_S / 2:
                try:
                    self._served = self._link.served()
                except TransientDeviceError as error:
                    LOGGER.warning("%s", error.message)
                self._at = time.monotonic()
            return self._served


def serve(request: UpRequest, stop: threading.Event) -> list[str]:
    """Keeps the tracker and its devices until told to stop.

    Returns:
        Serials of devices that could not be left as they were; `autotune devices restore` tries again.

    Raises:
        ToolchainError: TVM's tracker does not start.
    """
    with tracker_process(request.host, request.port) as link:
        heard = Heard(link)
        watches = [
            Watched(
                deployment,
                lambda d=deployment: reach(d.serial, d.kind),  # type: ignore[misc]
                heard,
                tracker_port=request.port,
                allow_reboot=request.allow_reboot,
            )
            for deployment in request.deployments
        ]
        for watch in watches:
            watch.start()
        while not stop.wait(_STATE_EVERY_S):
            _tell(request, link, watches)
        deadline = time.monotonic() + STOP_S
        late = [w for w in watches if not w.stop(max(0.1, deadline - time.monotonic()))]
    state.forget()
    return [watch.deployment.serial for watch in late]


def _tell(request: UpRequest, link: TrackerLink, watches: Sequence[Watched]) -> None:
    pid = os.getpid()
    state.write(
        state.FleetState(
            pid,
            state.process_start(pid),
            str(link),
            request.log,
            tuple(watch.status() for watch in watches),
        )
    )


def main(argv: Sequence[str]) -> int:
    """Runs the request in a file."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    request = UpRequest.from_json(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        late = serve(request, stop)
    except (ToolchainError, TransientDeviceError) as error:
        LOGGER.error("%s", error)
        return error.exit_code
    for serial in late:
        LOGGER.error("%s was not left as it was: `autotune devices restore` tries again", serial)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
