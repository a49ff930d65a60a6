"""Watches one device of a fleet through the tracker, and recovers it when it falls silent."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.devices import Device, Journal
from autotune.errors import AutotuneError, DeviceError, RecordError, StableDeviceError
from autotune.tracker.deploy import LOOPBACK, Deployment, DeviceServers
from autotune.tracker.link import Served

LOGGER = logging.getLogger("autotune.tracker")

State = Literal["starting", "serving", "restarting", "reconnecting", "rebooting", "lost", "stopped"]

_RATE_WINDOW_S = 60.0
_HUNG = "hung in a driver"


@dataclass(frozen=True)
class Waits:
    """Waiting times of a watch, in seconds.

    Attributes:
        poll_s: Between two looks at the tracker's list.
        silent_s: Until an unlisted server is considered dead.
        settle_s: After a recovery step, until the next step.
        lost_s: The same after every step was tried once.
        reconnect_s: For a reconnection.
        reboot_s: For a restart of the device.
    """

    poll_s: float = 1.0
    silent_s: float = 8.0
    settle_s: float = 12.0
    lost_s: float = 20.0
    reconnect_s: float = 30.0
    reboot_s: float = 180.0

    def before(self, step: int) -> float:
        """Returns seconds before the first step (0), the next ones, and all further ones."""
        return self.silent_s if step == 0 else self.settle_s if step <= 3 else self.lost_s


@dataclass(frozen=True)
class KeyStatus:
    """The state of one key of a device."""

    key: str
    cpus: str
    present: bool
    busy: bool
    sessions: int
    candidates: int
    crashes: int
    trials_per_minute: float
    celsius: float | None


@dataclass(frozen=True)
class DeviceStatus:
    """The state of a device.

    Attributes:
        serial: The device.
        kind: How it is connected.
        emulated: Its emulator; empty for a real device.
        state: Its present state.
        message: The reason, if one is needed.
        restarts: How often its servers were restarted.
        keys: Its servers.
    """

    serial: str
    kind: str
    emulated: str
    state: State
    message: str
    restarts: int
    keys: tuple[KeyStatus, ...]


class Watched:
    """A thread that keeps the servers of one device alive.

    A device that does not answer is recovered in these steps: the server is killed and restarted; the connection is
    made again; the device is restarted, if that is allowed. If nothing helps, the steps are repeated more slowly,
    until the end.

    Args:
        deployment: The servers to run.
        reach: Returns the device.
        served: Returns the servers on the tracker's list; None while it does not answer.
        tracker_port: The tracker's port on this host.
        allow_reboot: Whether the device may be restarted.
        public_host: Address of this host for clients.
        journals: Folder of the restore journals; None for the usual one.
        waits: Its waiting times.
    """

    def __init__(
        self,
        deployment: Deployment,
        reach: Callable[[], Device],
        served: Callable[[], Sequence[Served] | None],
        *,
        tracker_port: int,
        allow_reboot: bool,
        public_host: str = LOOPBACK,
        journals: Path | None = None,
        waits: Waits = Waits(),
    ) -> None:
        self.deployment = deployment
        self._reach = reach
        self._served = served
        self._tracker_port = tracker_port
        self._allow_reboot = allow_reboot
        self._public_host = public_host
        self._journals = journals
        self._waits = waits
        self._stop = threading.Event()
        self._servers: DeviceServers | None = None
        self._state: State = "starting"
        self._message = ""
        self._restarts = 0
        self._hangs: set[tuple[str, int, int]] = set()
        self._counts: dict[str, deque[tuple[float, int]]] = {
            service.key: deque() for service in deployment.services
        }
        self._thread = threading.Thread(
            target=self._run, name=f"watch {deployment.serial}", daemon=True
        )

    def start(self) -> None:
        """Begins to start the device's servers."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stops the device's servers and undoes all changes. Returns whether this was done in time."""
        self._stop.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def status(self) -> DeviceStatus:
        """Returns the device's present state."""
        mine = self._mine()
        return DeviceStatus(
            serial=self.deployment.serial,
            kind=self.deployment.kind,
            emulated=self.deployment.emulated,
            state=self._state,
            message=self._message,
            restarts=self._restarts,
            keys=tuple(self._key(s.key, s.cpus, mine.get(s.key)) for s in self.deployment.services),
        )

    def _key(self, key: str, cpus: str, seen: Served | None) -> KeyStatus:
        counts = self._counts[key]
        now = time.monotonic()
        if seen is not None:
            if counts and seen.candidates < counts[-1][1]:
                counts.clear()  # A restarted server counts from zero.
            counts.append((now, seen.candidates))
        while counts and now - counts[0][0] > _RATE_WINDOW_S:
            counts.popleft()
        spent = counts[-1][0] - counts[0][0] if counts else 0.0
        rate = 60 * (counts[-1][1] - counts[0][1]) / spent if spent > 0 else 0.0
        return KeyStatus(
            key,
            cpus,
            seen is not None,
            seen.busy if seen else False,
            seen.sessions if seen else 0,
            seen.candidates if seen else 0,
            seen.crashes if seen else 0,
            rate,
            seen.celsius if seen else None,
        )

    def _mine(self) -> dict[str, Served]:
        # TVM's own server reports no serial, only its address.
        ports = self._servers.public_ports if self._servers else {}
        return {
            one.key: one
            for one in self._served() or ()
            if one.serial == self.deployment.serial
            or (not one.ours and ports.get(one.key) == one.address[1])
        }

    def _present(self) -> bool:
        mine = self._mine()
        return all(service.key in mine for service in self.deployment.services)

    def _run(self) -> None:
        try:
            device = self._reach()
            with Journal(device, self._journals) as journal:
                servers = DeviceServers(
                    device, self.deployment, journal, self._tracker_port, self._public_host
                )
                self._servers = servers
                try:
                    self._watch(device, servers)
                finally:
                    servers.close()
            self._say("stopped", "")
        except (AutotuneError, RecordError) as error:
            self._say("lost", error.message)

    def _watch(self, device: Device, servers: DeviceServers) -> None:
        if self._try("starting", lambda: self._deploy(servers)) == "refused":
            # The caller need not wait for the device any longer. The recovery continues.
            self._say("lost", self._message)
        silent_since: float | None = None
        step = 0
        while not self._stop.wait(self._waits.poll_s):
            if self._new_hang():
                LOGGER.warning("%s: a session hung in a driver", self.deployment.serial)
                if self._allow_reboot:
                    self._try("rebooting", lambda: self._reboot(device, servers))
            if self._served() is None:
                silent_since = None  # The fault is the tracker's, not the device's.
                continue
            if self._present():
                silent_since, step = None, 0
                if self._state != "serving":
                    self._say("serving", "")
                continue
            now = time.monotonic()
            silent_since = silent_since or now
            if now - silent_since < self._waits.before(step):
                continue
            self._help(step, device, servers)
            step += 1
            silent_since = time.monotonic()

    def _new_hang(self) -> bool:
        """Returns whether a session hung in a driver since the last call. The next session would hang too."""
        seen = {
            (key, one.recent[-1].session, one.recent[-1].unix_s)
            for key, one in self._mine().items()
            if one.recent and one.recent[-1].cause.startswith(_HUNG)
        }
        new = bool(seen - self._hangs)
        self._hangs |= seen
        return new

    def _help(self, step: int, device: Device, servers: DeviceServers) -> None:
        """Tries the next recovery step; see the class."""
        if step > 2:
            self._say("lost", self._message or "all recovery steps failed; trying again")
            step = 1 + step % 2 if self._allow_reboot else step % 2
        if step == 0:
            self._try("restarting", lambda: self._restart(servers))
        elif step == 1:
            self._try("reconnecting", lambda: self._reconnect(device, servers))
        elif self._allow_reboot:
            self._try("rebooting", lambda: self._reboot(device, servers))

    def _try(self, state: State, work: Callable[[], None]) -> Literal["done", "failed", "refused"]:
        """Does some work. A lost device stays lost until it serves."""
        lost = self._state == "lost"
        if lost:
            LOGGER.info("%s: %s", self.deployment.serial, state)
        else:
            self._say(state, "")
        try:
            work()
        except DeviceError as error:
            text = str(error)
            LOGGER.warning("%s: %s failed: %s", self.deployment.serial, state, text)
            self._message = text
            return "refused" if isinstance(error, StableDeviceError) else "failed"
        return "done"

    @staticmethod
    def _deploy(servers: DeviceServers) -> None:
        servers.push()
        servers.start()

    def _restart(self, servers: DeviceServers) -> None:
        self._restarts += 1
        servers.stop()
        self._deploy(servers)

    def _reconnect(self, device: Device, servers: DeviceServers) -> None:
        device.reconnect(timeout=self._waits.reconnect_s)
        servers.forget_ways()
        self._restart(servers)

    def _reboot(self, device: Device, servers: DeviceServers) -> None:
        device.reboot(timeout=self._waits.reboot_s)
        servers.forget_ways()
        self._restarts += 1
        self._deploy(servers)

    def _say(self, state: State, message: str) -> None:
        if state != self._state:
            LOGGER.info("%s: %s %s", self.deployment.serial, state, message)
        self._state, self._message = state, message
