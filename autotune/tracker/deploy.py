"""Device servers: copied to devices, started under their keys, and removed again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from autotune.devices import Change, Device, Journal, free_port
from autotune.errors import DeviceError, StableDeviceError, TransientDeviceError
from autotune.tracker.programs import Offer, program_named
from autotune.tracker.relay import Relay

LOGGER = logging.getLogger("autotune.tracker")

LOOPBACK = "127.0.0.1"
_FIRST_PORT = 9300
_PORTS = 100
_CALL_S = 20.0
_SLOWEST_LINK_BYTES_PER_S = 1e6


@dataclass(frozen=True)
class Service:
    """One key of a device.

    Attributes:
        key: Key under which the tracker gives the device out.
        cpus: Cores of the kernels' threads, such as `4-7`; empty for all.
    """

    key: str
    cpus: str = ""


@dataclass(frozen=True)
class Deployment:
    """The servers to run on a device.

    Attributes:
        serial: The device.
        kind: How it is connected.
        services: Its keys, with one server each. Only one of them has a session at a time.
        bundle: Folder of this host with the server's program and the files that it needs.
        program: Name of the program in it.
        emulated: The device's emulator; empty for a real device.
        thermal_zone: File of the temperature that the server reports; empty for none.
        android: Whether it runs Android.
    """

    serial: str
    kind: str
    services: tuple[Service, ...]
    bundle: Path
    program: str
    emulated: str
    thermal_zone: str
    android: bool


class DeviceServers:
    """The servers of one device, with everything that they need on it. Every change is journalled first.

    Args:
        device: The device.
        deployment: The servers to run.
        journal: The device's restore journal.
        tracker_port: The tracker's port on this host.
        public_host: Address of this host for clients. If it is not loopback, ports are relayed there.

    Attributes:
        public_ports: Public port of each key's server.
    """

    def __init__(
        self,
        device: Device,
        deployment: Deployment,
        journal: Journal,
        tracker_port: int,
        public_host: str = LOOPBACK,
    ) -> None:
        self._device = device
        self._deployment = deployment
        self._journal = journal
        self._tracker_port = tracker_port
        self._public_host = public_host
        self._relays: dict[str, Relay] = {}
        self.public_ports: dict[str, int] = {}
        self._folder: PurePosixPath | None = None
        self._notes: dict[str, int] = {}
        self._how = program_named(deployment.program)

    def push(self) -> None:
        """Copies the program and its libraries to the device, unless this very bundle is already there.

        Raises:
            DeviceError: The device is away, or full.
        """
        folder = self._place()
        bundle = self._deployment.bundle
        self._note("folder", Change(f"files in {folder}", "remove", path=str(folder)))
        marker = folder / f"{bundle.name}.complete"
        if self._device.find([str(marker)], timeout=_CALL_S):
            return
        self._run(["mkdir", "-p", str(folder)])
        for other in self._device.find([f"{folder}/*.complete"], timeout=_CALL_S):
            self._run(["rm", "-f", other])
        for file in sorted(bundle.iterdir()):
            size = file.stat().st_size
            limit = _CALL_S + size / _SLOWEST_LINK_BYTES_PER_S
            self._device.push(file, folder / file.name, timeout=limit)
        self._run(["chmod", "755", str(folder / self._deployment.program)])
        self._run(["touch", str(marker)])

    def start(self) -> None:
        """Forwards ports to and from the device, and starts the servers.

        Raises:
            DeviceError: The device is away, or the server does not start.
        """
        self._close("reverse")
        # Recorded before it is opened. If the device chooses the number, it is recorded again with that number.
        self._note("reverse", _way("reverse", self._tracker_port))
        back = self._device.reverse(self._tracker_port, timeout=_CALL_S)
        self._note("reverse", _way("reverse", back))
        for number, service in enumerate(self._deployment.services):
            self._start(service, back, _FIRST_PORT + number)

    def _start(self, service: Service, tracker: int, first: int) -> None:
        """Starts one server on the first port that is free on the device."""
        stop = self._how.stop(self._program(), self._own(service))
        self._note(
            f"server {service.key}",
            Change(f"server for key {service.key}", "command", argv=tuple(stop)),
        )
        ports = range(first, first + _PORTS, len(self._deployment.services))
        # A program that needs the same port on both sides does not report that its own is taken.
        for port in [free_port()] if self._how.same_port else ports:
            public = self._open(service, port)
            offer = Offer(
                folder=self._own(service),
                key=service.key,
                tracker_port=tracker,
                port=port,
                public_host=self._public_host,
                public_port=public,
                serial=self._deployment.serial,
                cpus=service.cpus,
                emulated=self._deployment.emulated,
                thermal_zone=self._deployment.thermal_zone,
            )
            done = self._device.run(self._how.start(self._program(), offer), timeout=_CALL_S)
            if done.exit_code == 0:
                LOGGER.info("%s: serving key %s", self._deployment.serial, service.key)
                self._publish(service, public)
                return
            self._device.unforward(public, timeout=_CALL_S)
            self._settle(f"forward {service.key}")
            if "cannot listen" not in done.complaint:
                raise StableDeviceError(
                    f"{self._deployment.serial}: the server does not start: {done.complaint}",
                    hint="see its log, server.log in the folder of its key on the device",
                )
        raise StableDeviceError(f"{self._deployment.serial}: no port is free for the server")

    def _publish(self, service: Service, port: int) -> None:
        """Makes the server reachable where clients look for it."""
        self.public_ports[service.key] = port
        self._unpublish(service.key)
        if self._public_host != LOOPBACK:
            self._relays[service.key] = Relay(self._public_host, port)

    def _unpublish(self, key: str) -> None:
        relay = self._relays.pop(key, None)
        if relay is not None:
            relay.close()

    def close(self) -> None:
        """Ends this host's part for the servers."""
        for key in list(self._relays):
            self._unpublish(key)

    def _open(self, service: Service, port: int) -> int:
        """Makes the server's port reachable on this host. This is recorded first."""
        wanted = port if self._how.same_port else free_port()
        name = f"forward {service.key}"
        self._close(name)
        self._note(name, _way("forward", wanted))
        public = self._device.forward(port, host_port=wanted, timeout=_CALL_S)
        self._note(name, _way("forward", public))
        return public

    def stop(self) -> None:
        """Ends the servers with their sessions. Files stay.

        Raises:
            DeviceError: The device is away.
        """
        for service in self._deployment.services:
            words = self._how.stop(self._program(), self._own(service))
            self._device.run(words, timeout=_CALL_S)

    def _program(self) -> PurePosixPath:
        return self._place() / self._deployment.program

    def _own(self, service: Service) -> PurePosixPath:
        return self._place() / service.key

    def forget_ways(self) -> None:
        """Forgets forwarded ports, which are gone after a reconnection or a restart of the device."""
        for name in [n for n in self._notes if n == "reverse" or n.startswith("forward ")]:
            change = self._journal.change(self._notes[name])
            with suppress(DeviceError):
                change.undo(self._device)
            self._settle(name)

    def _close(self, name: str) -> None:
        """Closes a port forwarded by a former start. One that cannot be closed now stays in the journal."""
        number = self._notes.pop(name, None)
        if number is None:
            return
        try:
            self._journal.change(number).undo(self._device)
        except DeviceError as error:
            LOGGER.warning("%s: %s", self._deployment.serial, error.message)
        else:
            self._journal.settle(number)

    def _place(self) -> PurePosixPath:
        """Returns the folder on the device. It belongs only to this user and this tracker."""
        if self._folder is None:
            if self._deployment.android:
                name, base = "autotune-server", PurePosixPath("/data/local/tmp")
            else:
                user = self._device.run(["id", "-u"], timeout=_CALL_S).text
                name, base = f"autotune-server-{user}", PurePosixPath("/tmp")
            self._folder = base / f"{name}-{self._tracker_port}"
        return self._folder

    def _run(self, argv: Sequence[str]) -> None:
        done = self._device.run(argv, timeout=_CALL_S)
        if done.exit_code != 0:
            raise TransientDeviceError(
                f"{self._deployment.serial}: `{' '.join(argv)}`: {done.complaint}"
            )

    def _note(self, name: str, change: Change) -> None:
        """Records a change once, or again if it has changed."""
        number = self._notes.get(name)
        if number is not None and self._journal.change(number) == change:
            return
        fresh = self._journal.note(change)
        if number is not None:
            self._journal.settle(number)
        self._notes[name] = fresh

    def _settle(self, name: str) -> None:
        self._journal.settle(self._notes.pop(name))


def _way(kind: Literal["forward", "reverse"], port: int) -> Change:
    return Change(f"{kind} of port {port}", kind, port=port)
