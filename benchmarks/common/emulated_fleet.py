"""Device servers of emulated devices in this process: their reports to a tracker, and sessions that measure.

They replace the real server and TVM's RPC. Everything else is the project's own: deployment, watch, runner, journal
and run folder. Times are those of the device's model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.compiler.runners.session_ends import CLIENT_GONE
from autotune.compiler.workers.workers import Message, WorkerLost
from autotune.devices import Completed
from autotune.emulator.device.device import EmulatedDevice
from autotune.errors import DeviceError, StableDeviceError
from autotune.tracker.link import Crash, Served

SERVER, SESSION = "autotune_server", "emulated_session"
KERNEL_S = 0.02
LOOK_S = 0.05
_CAUSES = {134: "SIGABRT", 137: "SIGKILL (out of memory?)"}


@dataclass
class Server:
    """A server that runs until it is stopped or killed, or until its device restarts."""

    device: EmulatedDevice
    key: str
    boot: int
    sessions: int = 0
    candidates: int = 0
    busy: bool = False
    crashes: list[Crash] = field(default_factory=list)


class EmulatedTracker:
    """A tracker's view of emulated devices."""

    host, port = "127.0.0.1", 9190

    def __init__(self) -> None:
        self.devices: list[EmulatedDevice] = []
        self._servers: dict[tuple[str, str], Server] = {}
        self._lock = threading.Lock()

    def program(self, device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
        """Handles the server's command line, as `rpc/server` does."""
        options = dict(zip(argv[1::2], argv[2::2], strict=False))
        with self._lock:
            if "--stop" in argv:
                own = [k for k, s in self._servers.items() if s.device is device]
                for name in own:
                    if argv[2].endswith(name[1]):
                        del self._servers[name]
                return Completed(tuple(argv), 0, b"", b"")
            server = Server(device, options["--key"], device.boots)
            self._servers[device.serial, server.key] = server
        return Completed(tuple(argv), 0, f"ok {options['--port']}\n".encode(), b"")

    def alive(self, key: str | None = None) -> list[Server]:
        with self._lock:
            return [
                server
                for server in self._servers.values()
                if server.boot == server.device.boots and key in (None, server.key)
            ]

    def lose(self, server: Server) -> None:
        """Removes a server whose process has ended."""
        with self._lock:
            self._servers.pop((server.device.serial, server.key), None)

    def served(self, key: str | None = None) -> list[Served]:
        """See `TrackerLink.served`. The caller has waited, so the same time passes on the devices."""
        for device in self.devices:
            device.clock.sleep(LOOK_S)
        return [
            Served(
                key=server.key,
                address=("127.0.0.1", 0),
                serial=server.device.serial,
                emulated="emulated",
                machine="aarch64",
                ours=True,
                busy=server.busy,
                sessions=server.sessions,
                candidates=server.candidates,
                celsius=None,
                crashes=len(server.crashes),
                recent=tuple(server.crashes[-8:]),
            )
            for server in self.alive(key)
        ]

    def free(self, key: str) -> int:
        """See `TrackerLink.free`."""
        return sum(not server.busy for server in self.alive(key))


class EmulatedSession:
    """Carries out the runner's requests on an emulated device, as `Worker` and `rpc_worker` do on a real one."""

    def __init__(self, tracker: EmulatedTracker, key: str) -> None:
        self._tracker = tracker
        self._key = key
        self._server: Server | None = None

    def ask(self, request: Message, *, timeout: float) -> Message:
        """See `Worker.ask`."""
        if request["op"] == "open":
            return self._open()
        server = self._server
        if server is None or server not in self._tracker.alive():
            return {"lost": "the connection was closed"}
        candidate = str(request.get("candidate", ""))
        server.candidates += bool(candidate)
        try:
            done = server.device.run([SESSION, request["op"]], timeout=timeout)
        except StableDeviceError as error:
            return {"lost": error.message}
        except DeviceError as error:
            hung = "did not end" in error.message
            self._remember(server, "hung in a driver" if hung else CLIENT_GONE, candidate)
            if "within" in error.message:
                raise WorkerLost(error.message, timed_out=hung) from error
            return {"lost": error.message}
        if done.exit_code:
            self._remember(server, _CAUSES[done.exit_code], candidate)
            return {"lost": f"the session's process died: {done.complaint}"}
        return {"samples": [KERNEL_S] * 3, "max_rel_error": 1e-7}

    def _open(self) -> Message:
        for server in self._tracker.alive(self._key):
            if not server.busy:
                server.busy, self._server = True, server
                server.sessions += 1
                return {"info": {"serial": server.device.serial}}
        return {"lost": "no device is free"}

    def _remember(self, server: Server, cause: str, candidate: str) -> None:
        crash = Crash(server.sessions, cause, candidate, int(time.time()))
        server.crashes.append(crash)

    def stop(self) -> None:
        """See `Worker.stop`."""
        if self._server is not None:
            self._server.busy = False
        self._server = None


def session(device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
    """Handles a request as a session's process does: it takes the kernel's time."""
    if argv[1] == "measure":
        device.clock.sleep(5 * KERNEL_S)
    return Completed(tuple(argv), 0, b"", b"")


def programs(tracker: EmulatedTracker) -> dict[str, Any]:
    """Returns the programs that run on the devices."""
    return {SERVER: tracker.program, SESSION: session}
