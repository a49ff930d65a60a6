"""The process behind `autotune tracker up`: TVM's tracker, and a watch for each device.

Argument: a JSON file with the request. It ends at SIGTERM, SIGINT or SIGHUP, and undoes its changes on the devices.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from autotune.devices import reach
from autotune.errors import (
    AutotuneError,
    RecordError,
    ToolchainError,
    TransientDeviceError,
    UsageError,
)
from autotune.tracker import state
from autotune.tracker.deploy import LOOPBACK, Deployment, Service
from autotune.tracker.link import Served, TrackerLink
from autotune.tracker.relay import Relay
from autotune.tracker.watch import Watched

LOGGER = logging.getLogger("autotune.tracker")

STOP_S = 60.0
"""How long restoring the devices may take."""

_TRACKER_START_S = 60.0
_TRACKER_MODULE = "autotune.compiler.runners.tracker_process"
_STATE_EVERY_S = 1.0


@dataclass(frozen=True)
class UpRequest:
    """The request of `autotune tracker up`.

    Attributes:
        host: Address that the tracker listens on.
        port: Its port.
        deployments: Servers to run on each device.
        allow_reboot: Whether a device may be restarted when nothing else helps.
        log: The log file.
    """

    host: str
    port: int
    deployments: tuple[Deployment, ...]
    allow_reboot: bool
    log: str

    def to_json(self) -> dict[str, Any]:
        """Returns a plain object with lists."""
        entries = [{**asdict(d), "bundle": str(d.bundle)} for d in self.deployments]
        return {**asdict(self), "deployments": entries}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> UpRequest:
        """Reads the output of `to_json`."""
        return cls(**{**content, "deployments": tuple(map(_deployment, content["deployments"]))})


def _deployment(entry: dict[str, Any]) -> Deployment:
    services = tuple(Service(**service) for service in entry["services"])
    return Deployment(**{**entry, "services": services, "bundle": Path(entry["bundle"])})


class TrackerProcess:
    """TVM's tracker as a separate process, on this host's loopback.

    Args:
        port: Its port.
    """

    def __init__(self, port: int) -> None:
        self.link = TrackerLink(LOOPBACK, port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it answers.

        Raises:
            ToolchainError: It does not start; the port may be taken.
        """
        self.stop()
        refuse_taken(self.link.host, self.link.port)
        command = [sys.executable, "-m", _TRACKER_MODULE, self.link.host, str(self.link.port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
        )
        deadline = time.monotonic() + _TRACKER_START_S
        while True:
            if not self.alive():
                raise ToolchainError(f"TVM's tracker does not start on {self.link}")
            try:
                self.link.summary()
            except TransientDeviceError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def alive(self) -> bool:
        """Returns whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ends it. A second call does nothing."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def tracker_process(port: int) -> Iterator[TrackerLink]:
    """Runs TVM's tracker for the length of a block.

    Raises:
        ToolchainError: See `TrackerProcess.start`.
    """
    tracker = TrackerProcess(port)
    try:
        tracker.start()
        yield tracker.link
    finally:
        tracker.stop()


def refuse_taken(address: str, port: int) -> None:
    """Refuses a taken port, so that another tracker there is not mistaken for ours.

    Raises:
        UsageError: The port is taken, or the address is not this host's.
    """
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        raise UsageError(
            f"cannot listen on {address}:{port}: {error.strerror}",
            hint="another program may have the port: give another one with --port",
        ) from error


def public_address(listen: str) -> str:
    """Returns the address of this host for clients: the address itself, or for `0.0.0.0` this host's first one.

    Raises:
        UsageError: It is not an IPv4 address of this host.
    """
    if listen in ("localhost", LOOPBACK):
        return LOOPBACK
    mine = [
        one.address
        for entries in psutil.net_if_addrs().values()
        for one in entries
        if one.family == socket.AF_INET
    ]
    outside = [address for address in mine if not address.startswith("127.")]
    if listen == "0.0.0.0" and outside:
        return str(outside[0])
    if listen not in mine:
        raise UsageError(
            f"--listen {listen} is not an address of this host", hint=f"it has {', '.join(mine)}"
        )
    return listen


class Heard:
    """The tracker's latest answer about its servers, queried once for all watches.

    None while it does not answer.
    """

    def __init__(self, link: TrackerLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._at = 0.0
        self._served: Sequence[Served] | None = ()

    def __call__(self) -> Sequence[Served] | None:
        with self._lock:
            if time.monotonic() - self._at > _STATE_EVERY_S / 2:
                try:
                    self._served = self._link.served()
                except TransientDeviceError as error:
                    if self._served is not None:
                        LOGGER.warning("%s", error.message)
                    self._served = None
                self._at = time.monotonic()
            return self._served


def serve(request: UpRequest, stop: threading.Event) -> list[str]:
    """Keeps the tracker and its devices running until told to stop.

    Returns:
        Serials of devices that could not be restored; `autotune devices restore` tries again.

    Raises:
        ToolchainError: TVM's tracker does not start.
        UsageError: Its port is taken.
    """
    public = public_address(request.host)
    tracker = TrackerProcess(request.port)
    relay: Relay | None = None
    late: list[Watched] = []
    try:
        tracker.start()
        if public != LOOPBACK:
            relay = Relay(public, request.port)
        heard = Heard(tracker.link)
        watches = [
            Watched(
                deployment,
                lambda d=deployment: reach(d.serial, d.kind),  # type: ignore[misc]
                heard,
                tracker_port=request.port,
                public_host=public,
                allow_reboot=request.allow_reboot,
            )
            for deployment in request.deployments
        ]
        for watch in watches:
            watch.start()
        try:
            while not stop.wait(_STATE_EVERY_S):
                _revive(tracker)
                _tell(request, TrackerLink(public, request.port), watches)
        finally:
            deadline = time.monotonic() + STOP_S
            late = [w for w in watches if not w.stop(max(0.1, deadline - time.monotonic()))]
    finally:
        if relay is not None:
            relay.close()
        tracker.stop()
    state.forget()
    return [watch.deployment.serial for watch in late]


def _revive(tracker: TrackerProcess) -> None:
    """Restarts the tracker if it died. The devices' servers find it by themselves."""
    if tracker.alive():
        return
    LOGGER.warning("TVM's tracker at %s died: restarting it", tracker.link)
    try:
        tracker.start()
    except AutotuneError as error:
        LOGGER.error("%s", error)


def _tell(request: UpRequest, link: TrackerLink, watches: Sequence[Watched]) -> None:
    pid = os.getpid()
    try:
        state.write(
            state.FleetState(
                pid,
                state.process_start(pid),
                str(link),
                request.log,
                tuple(watch.status() for watch in watches),
            )
        )
    except RecordError as error:
        # The devices continue to serve. The log may be full as well.
        with suppress(OSError):
            LOGGER.error("%s", error)


def main(argv: Sequence[str]) -> int:
    """Carries out the request in a file."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    request = UpRequest.from_json(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    try:
        late = serve(request, stop)
    except AutotuneError as error:
        LOGGER.error("%s", error)
        return error.exit_code
    for serial in late:
        LOGGER.error("%s was not restored: `autotune devices restore` tries again", serial)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
